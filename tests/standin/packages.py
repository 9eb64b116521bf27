"""The parts of vLLM's and SGLang's packages that make host memory, as they are, with NumPy in place of PyTorch.

    packages.py FOLDER vllm|sglang MIB

FOLDER has both packages, unpacked: python -m zipfile -e FILE.whl FOLDER. What the parts import of PyTorch and of the rest of
their packages is made up here; their own files run unchanged.
"""
import ctypes
import importlib.util
import logging
import math
import os
import shutil
import sys
import types
from multiprocessing import get_context
from pathlib import Path

import numpy

FOLDER, SERVER, SIZE = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) << 20
CUDART = "libcudart.so.12"


def made_up(name, **what):
    module = types.ModuleType(name)
    module.__dict__.update(what)
    module.__path__ = []
    sys.modules[name] = module


def real(name):
    path = FOLDER / (name.replace(".", "/") + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Element:
    def __init__(self, dtype):
        self.size = numpy.dtype(dtype).itemsize

    def element_size(self):
        return self.size


made_up("torch", Tensor=numpy.ndarray, dtype=type, int8=numpy.int8, uint8=numpy.uint8,
        frombuffer=lambda memory, dtype, count=-1: numpy.frombuffer(memory, dtype, count),
        empty=lambda _, dtype: Element(dtype))


def faults():
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def check(address, length):
    """Registers as the server does, and ends that."""
    cudart = ctypes.CDLL(CUDART)
    for name in ("cudaHostRegister", "cudaHostUnregister"):
        getattr(cudart, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint][:3 if "Reg" in name else 1]
    assert cudart.cudaHostRegister(address, length, 0) == 0
    assert cudart.cudaHostUnregister(address) == 0


def sglang():
    value = lambda value: types.SimpleNamespace(get=lambda: value)
    threads = value(0)
    made_up("sglang"), made_up("sglang.srt")
    made_up("sglang.srt.environ", envs=types.SimpleNamespace(
        SGLANG_HUGEPAGE_SIZE=value(""), SGLANG_HICACHE_HOST_PARALLEL_ALLOC_THREADS=threads))
    module = real("sglang.srt.mem_cache.storage.mmap.mmap_allocator")
    for count in (0, 4):
        threads.get = lambda count=count: count
        pool = module.alloc_mmap((SIZE // 4096, 4096), numpy.uint8)
        assert not pool.any()
        before = faults()
        pool[:] = 7
        print(f"sglang, {count} threads: {SIZE >> 20} MiB, {faults() - before} after mmap")
        check(pool.ctypes.data, pool.nbytes)
        del pool


def rank(me, ranks, segments, barrier):
    ctypes.CDLL(CUDART, mode=ctypes.RTLD_GLOBAL)
    loaded = lambda name: next(line.split()[-1] for line in open("/proc/self/maps") if name in line)
    for name in ("vllm", "vllm.utils", "vllm.distributed", "vllm.distributed.device_communicators", "vllm.v1", "vllm.v1.kv_offload",
                 "vllm.v1.kv_offload.cpu"):
        made_up(name)
    made_up("vllm.logger", init_logger=logging.getLogger)
    made_up("vllm.envs", VLLM_CUDART_SO_PATH=None)
    made_up("vllm.platforms", current_platform=types.SimpleNamespace(is_cuda_alike=lambda: True, is_rocm=lambda: False))
    made_up("vllm.utils.system_utils", find_loaded_library=loaded)

    def has_room(required, **_):
        assert shutil.disk_usage("/dev/shm").free >= required
    made_up("vllm.distributed.device_communicators.shm_broadcast", check_shm_free_space=has_room)
    sys.modules["vllm"].envs = sys.modules["vllm.envs"]
    real("vllm.utils.math_utils")
    real("vllm.distributed.device_communicators.cuda_wrapper")
    register = real("vllm.v1.kv_offload.cpu.host_register")
    module = real("vllm.v1.kv_offload.cpu.shared_offload_region")
    # Segments of a size that a test has.
    module._MIN_SEGMENT_BYTES = 64 << 20
    chunks, page = 16, SIZE // 16 // ranks
    region = module.SharedOffloadRegion(f"prezero-{os.getppid()}-{segments}", chunks, me, page * ranks, page, barrier.wait, num_segments=segments)
    memory = numpy.frombuffer(region.mmap_obj, numpy.uint8)
    address = memory.ctypes.data
    assert register.host_register(address, SIZE)
    before = faults()
    rows = memory.reshape(chunks, ranks, page)
    rows[:, me] = me + 1
    print(f"vllm, {segments} files, rank {me}: {SIZE >> 20} MiB, {faults() - before} after mmap", flush=True)
    barrier.wait()
    assert all((rows[:, other] == other + 1).all() for other in range(ranks))
    register.host_unregister(address)


def vllm():
    context = get_context("spawn")
    for segments in (1, 2):
        barrier = context.Barrier(2)
        processes = [context.Process(target=rank, args=(me, 2, segments, barrier)) for me in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0


if __name__ == "__main__":
    {"vllm": vllm, "sglang": sglang}[SERVER]()
