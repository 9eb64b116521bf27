#!/usr/bin/env python3
"""Arrays and tensors on pinned leases: `prezero.pinned` with NumPy, `prezero.torch` where PyTorch is. No GPU.

    tests/tensors.py DIR        where prezerod is; run by a Python that has NumPy

The libcudart.so.12 of tests/standin registers, as real pins; nothing else of CUDA is there.
"""
import ctypes
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bindings/python"), str(TOP / "tests/common")]

import numpy
from prezero import pinned
from prezero_lease import Client, NotNow, Refused
from until import until

STANDIN = TOP / "tests/standin"
MIB = 1 << 20
HAS_TORCH = importlib.util.find_spec("torch") is not None


def built(folder):
    for name, source in (("libcuda.so.1", "cuda.c"), ("libcudart.so.12", "cudart.c")):
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, STANDIN / source, "-ldl",
                        "-lpthread"], check=True)
        ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)


def leased():
    """Bytes that this process has leased."""
    with Client() as broker:
        return sum(each["bytes"] for each in broker.stock()["leased"])


def calls():
    path = Path(os.environ["STANDIN_DIR"]) / "calls"
    lines = [line.split(" ", 1)[1] for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


class Arrays(unittest.TestCase):
    def setUp(self):
        until("leases of the test before are given back", lambda: gc.collect() >= 0 and leased() == 0)
        calls()

    def test_an_array_is_the_lease_zero_pinned_and_lives_while_it_is_used(self):
        with pinned.Pinned(8 * MIB, wait=30) as memory:
            view = memory.view((8, 1024, 256), "float32")
            self.assertEqual(view.__dlpack_device__(), (3, 0))
            array = numpy.from_dlpack(view)
        self.assertEqual((array.shape, array.dtype), ((8, 1024, 256), numpy.dtype("float32")))
        self.assertEqual(array.ctypes.data, memory.address)
        self.assertFalse(array.any())
        self.assertEqual(calls(), ["cuMemHostRegister 8388608 flags 1"])
        part = array[4:]
        address = memory.address
        del view, memory, array
        gc.collect()
        part[:] = 7.0
        self.assertEqual(leased(), 8 * MIB)
        self.assertEqual(ctypes.string_at(address + 8 * MIB // 2, 4), numpy.float32(7).tobytes())
        del part
        until("the lease is given back", lambda: leased() == 0)
        self.assertEqual(calls(), ["cuMemHostUnregister"])

    def test_parts_do_not_overlap_and_end_with_the_lease(self):
        memory = pinned.Pinned(3 * MIB, wait=30)
        self.assertEqual((memory.size, memory.left), (4 * MIB, 4 * MIB))
        first, second = (numpy.from_dlpack(memory.view(1000, "int8")) for _ in range(2))
        first[:], second[:] = 1, 2
        self.assertTrue((first == 1).all() and (second == 2).all())
        self.assertEqual(second.ctypes.data % 256, 0)
        with self.assertRaisesRegex(MemoryError, "left"):
            memory.view(4 * MIB, "int8")
        bytes_left = memory.buffer(MIB)
        bytes_left[0] = 5
        memory.close()
        with self.assertRaises(MemoryError):
            memory.buffer(1)
        del memory
        gc.collect()
        self.assertEqual((bytes_left[0], leased()), (5, 4 * MIB))

    def test_a_capsule_that_nobody_takes_keeps_nothing(self):
        memory = pinned.Pinned(2 * MIB, wait=30)
        capsule = memory.view(16, "uint8").__dlpack__()
        self.assertTrue(pinned._held)
        del capsule, memory
        gc.collect()
        self.assertFalse(pinned._held)
        until("the lease is given back", lambda: leased() == 0)

    def test_what_cannot_be_is_said(self):
        with self.assertRaises((Refused, NotNow)):
            pinned.Pinned(1 << 50)
        with self.assertRaises(ValueError):
            pinned.Pinned(0)
        with self.assertRaisesRegex(OSError, "does prezerod run"):
            pinned.Pinned(MIB, socket="/nowhere/prezerod.sock")
        memory = pinned.Pinned(MIB, wait=30)
        with self.assertRaisesRegex(TypeError, "no such element"):
            memory.view(1, "object")
        with self.assertRaises(BufferError):
            memory.view(1, "int8").__dlpack__(copy=True)
        del memory
        os.environ["STANDIN_FAIL"] = "cuMemHostRegister 1"
        try:
            with self.assertRaises(pinned.CudaError) as failed:
                pinned.Pinned(MIB, wait=30)
        finally:
            del os.environ["STANDIN_FAIL"]
        self.assertEqual(failed.exception.code, 2)
        self.assertEqual(ctypes.CDLL("libcudart.so.12").cudaPeekAtLastError(), 0)
        failed = None
        until("the lease is given back", lambda: gc.collect() >= 0 and leased() == 0)

    def test_a_child_of_fork_gives_nothing_back(self):
        memory = pinned.Pinned(2 * MIB, wait=30)
        array = numpy.from_dlpack(memory.view(1000, "int8"))
        child = os.fork()
        if child == 0:
            array = memory = None
            gc.collect()
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        array[:] = 3
        self.assertTrue((array == 3).all())
        self.assertNotIn("cuMemHostUnregister", calls())

    def test_memory_that_nothing_registers(self):
        memory = pinned.Pinned(2 * MIB, wait=30, cuda=False)
        self.assertEqual(memory.view(1).__dlpack_device__(), (1, 0))
        self.assertEqual(calls(), [])


@unittest.skipUnless(HAS_TORCH, "no PyTorch here")
class Tensors(unittest.TestCase):
    def setUp(self):
        until("leases of the test before are given back", lambda: gc.collect() >= 0 and leased() == 0)
        calls()

    def test_a_tensor_holds_its_lease(self):
        import torch
        from prezero import torch as pinned_torch
        tensor = pinned_torch.zeros_pinned(256, 1024, dtype=torch.float16, wait=30)
        self.assertEqual((tuple(tensor.shape), tensor.dtype, int(tensor.count_nonzero())), ((256, 1024), torch.float16, 0))
        half = tensor[128:].view(-1)
        del tensor
        gc.collect()
        half.fill_(1)
        self.assertEqual((float(half.sum()), leased()), (128 * 1024.0, 2 * MIB))
        del half
        until("the lease is given back", lambda: gc.collect() >= 0 and leased() == 0)
        self.assertEqual(calls(), ["cuMemHostRegister 2097152 flags 1", "cuMemHostUnregister"])

    def test_several_on_one_lease(self):
        import torch
        from prezero import torch as pinned_torch
        with pinned_torch.lease(4 * MIB, wait=30) as memory:
            keys, values = (memory.empty_pinned((2, 1024), dtype=torch.bfloat16) for _ in range(2))
            with self.assertRaises(MemoryError):
                memory.empty_pinned(1 << 30)
        keys.fill_(1)
        self.assertEqual(int(values.count_nonzero()), 0)
        self.assertEqual(pinned_torch.empty_pinned(0, 5).shape, (0, 5))

    def test_without_a_broker_it_is_pytorchs(self):
        from prezero import torch as pinned_torch
        nowhere = {"socket": "/nowhere/prezerod.sock"}
        with self.assertRaises(OSError):
            pinned_torch.empty_pinned(10, **nowhere)
        self.assertEqual(int(pinned_torch.empty_pinned(10, or_plain=True, **nowhere).count_nonzero()), 0)


# Of each way: bytes whose content is free, and requests for zeroes, as the zone counts them. A shared tensor is a file: its
# source alone is counted. docs/library.md has the table.
WAYS = """
import ctypes, json, numpy, torch
own, n = ctypes.CDLL(None), 1 << 22

def asked():
    text = ctypes.create_string_buffer(own.prezero_stats_json(None, 0) + 4096)
    own.prezero_stats_json(text, len(text))
    told = text.value.decode()
    return [json.JSONDecoder().raw_decode(told, told.index(key) + len(key))[0] for key in ('"plain_bytes":', '"zero_requests":')]

for way in ("torch.empty(n)", "torch.zeros(n)", "torch.full((n,), 1.0)", "torch.from_numpy(numpy.zeros(n, 'float32'))",
            "torch.tensor(numpy.zeros(n, 'float32'))", "torch.zeros(n).share_memory_()"):
    before = asked()
    tensor = eval(way)
    print([after - before for before, after in zip(before, asked())])
"""


@unittest.skipUnless(HAS_TORCH, "no PyTorch")
class OnTheCpu(unittest.TestCase):
    def test_the_ways_that_reach_prezero(self):
        run = [os.environ["PREZERO"], "run", "--", sys.executable, "-c", WAYS]
        told = subprocess.run(run, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        size = 16 * MIB
        self.assertEqual([json.loads(line) for line in told.splitlines()],
                         [[size, 0], [size, 0], [size, 0], [0, 1], [size, 1], [size, 0]])


def main():
    bin_folder = Path(sys.argv.pop(1)).resolve()
    os.environ["PREZERO"] = str(bin_folder / "prezero")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        os.environ.update(STANDIN_DIR=str(folder), PREZERO_SOCKET=str(folder / "socket"))
        built(folder)
        with open(folder / "log", "w") as log:
            broker = subprocess.Popen([bin_folder / "prezerod", "--socket", folder / "socket"], stderr=log)
        try:
            until("prezerod", lambda: "serving on" in (folder / "log").read_text())
            try:
                Client().lease(2 * MIB, wait=30).close()
            except (Refused, NotNow) as why:
                print(f"tensors: left out: no lease here: {why}")
                return
            unittest.main(verbosity=1)
        finally:
            broker.kill()
            broker.wait()


if __name__ == "__main__":
    main()
