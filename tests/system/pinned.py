#!/usr/bin/env python3
"""Inference servers under `prezero claim --pinned`, without a GPU: programs that make their calls, on a real lease.

    tests/system/pinned.py FOLDER

FOLDER holds prezero, prezerod, prezero-bench and libprezero_pinned.so. tests/standin has libcudart.so.12 and libcuda.so.1, which pin for
real, and a program for each server, by its sources. The last line says whether io_uring pinned, or mlock in its place.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STANDIN = HERE.parent / "standin"
sys.path.insert(0, str(HERE.parent / "common"))
from until import until  # noqa: E402

LEASE_MIB = 512
# A fault maps a page of 2 MiB; the rest is the program's own: stacks, libraries, buffers.
OWN_FAULTS = 100
SERVERS = {
    # What it runs, and what the last line says that the lease served.
    "vllm": (["prezero-pinned-{pid}", "256", "2"], "/dev/shm 256 MiB"),
    "torch": (["100", "200"], "pinned allocations 384 MiB"),
    "tensorrt": (["128", "256"], "private memory 256 MiB"),
    "sglang": (["256", "100"], "shared memory 256 MiB"),
    "lmcache": (["128"], "pinned allocations 128 MiB, private memory 256 MiB"),
    "llama": (["128", "64", "128"], "pinned allocations 320 MiB"),
}
SHARED = """
import mmap, multiprocessing, sys
from multiprocessing import shared_memory
SIZE = 64 << 20
def child(name):
    memory = shared_memory.SharedMemory(name)
    assert memory.buf[SIZE - 1] == 7
    memory.buf[0] = 9
    memory.close()
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    memory = shared_memory.SharedMemory(create=True, size=SIZE)
    assert bytes(memory.buf[:4096]) == bytes(4096)
    memory.buf[SIZE - 1] = 7
    other = multiprocessing.Process(target=child, args=(memory.name,))
    other.start()
    other.join()
    assert other.exitcode == 0 and memory.buf[0] == 9
    memory.close()
    memory.unlink()
    anonymous = mmap.mmap(-1, SIZE)
    assert anonymous[:] == bytes(SIZE)
"""


def built(folder):
    """The stand-ins and the programs."""
    def gcc(*words):
        subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Wno-unused-function", *map(str, words)], check=True)
    for library, source in (("libcuda.so.1", "cuda.c"), ("libcudart.so.12", "cudart.c")):
        gcc("-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", folder / library, STANDIN / source, "-ldl", "-lpthread")
    for program in [*SERVERS, "edges"]:
        gcc("-o", folder / program, STANDIN / f"{program}.c", folder / "libcudart.so.12", "-ldl", "-lpthread")


class Place:
    """A folder with the stand-ins, and a broker."""

    def __init__(self, bin_folder, folder):
        self.bin, self.folder, self.calls = bin_folder, folder, folder / "calls"
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "STANDIN_DIR": str(folder),
                            "PREZERO_SOCKET": str(folder / "socket"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.log = open(folder / "log", "w")
        self.broker = subprocess.Popen([bin_folder / "prezerod", "--socket", folder / "socket"], stderr=self.log)
        until("prezerod", lambda: "serving on" in (folder / "log").read_text())

    def close(self):
        self.broker.kill()
        self.broker.wait()
        self.log.close()

    def run(self, *words, size=LEASE_MIB, program=None, **variables):
        """A program with a lease; what the stand-ins were called for is in `calls` afterwards."""
        self.calls.unlink(missing_ok=True)
        line = [self.bin / "prezero", "claim", f"{size}M", "--pinned", *words, "--", *(program or ["true"])]
        environment = {**self.environment, **variables}
        return subprocess.run(line, capture_output=True, text=True, timeout=300, env=environment, cwd=self.folder)

    def called(self, name):
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line.split(" ", 1)[1] for line in lines if line.split(" ")[1] == name]


def good(what, done, *wanted):
    said = done.stdout + done.stderr
    if done.returncode != 0 or any(text not in said for text in wanted):
        sys.exit(f"pinned: {what}: status {done.returncode}, wanted {wanted}:\n{said}")
    return said


def servers(place):
    for name, (arguments, served) in SERVERS.items():
        arguments = [word.format(pid=os.getpid()) for word in arguments]
        done = place.run(program=[f"./{name}", *arguments])
        said = good(name, done, served, f"of {LEASE_MIB} MiB of the lease served")
        steps = re.findall(r": (\d+) MiB, (\d+) faults", said)
        assert steps, said
        for size, faults in steps:
            if int(faults) > int(size) / 2 + OWN_FAULTS:
                sys.exit(f"pinned: {name}: {faults} faults for {size} MiB: they are the kernel's:\n{said}")
        assert not place.called("cuMemHostAlloc"), f"{name}: the driver made memory:\n{said}"
        print(f"pinned: {name}: good, {' '.join(f'{size} MiB in {faults} faults' for size, faults in steps)}")


def edges(place):
    for name in ("zero", "child", "remap", "advice", "file", "lookup", "together"):
        good(name, place.run("--pinned-threshold", "16M", size=256, program=["./edges", name]))
    # A shell that ends without destructors says the last line too, and once.
    said = good("a shell", place.run(size=64, program=["sh", "-c", "./llama 64; exit 0"]), "pinned allocations 64 MiB")
    assert said.count("of the lease served") == 1, said
    print("pinned: edges: good")


def registrations(place):
    case = {"size": 256, "program": ["./edges", "lease"]}
    driver = {"size": 256, "program": ["./edges", "driver"]}
    # In one piece, at the size that was asked for, since a copy may span it; or in pieces, if told so.
    good("one registration", place.run(**case), "copy: 0")
    assert [line.split()[1] for line in place.called("cuMemHostRegister")] == [str((64 << 20) + 5), str(64 << 20)]
    good("pieces", place.run("--pinned-chunk", "16M", **case), "copy: 1")
    sizes = [int(line.split()[1]) for line in place.called("cuMemHostRegister")]
    assert sizes == [16 << 20] * 4 + [5] + [16 << 20] * 4, sizes
    assert len(place.called("cuMemHostUnregister")) == len(sizes) + 1, "the program asks once too often"
    # The driver refuses the third piece: the first two go, no error is left, and it allocates by itself.
    done = place.run("--pinned-chunk", "16M", **{**driver, "program": ["./edges", "driver"]}, STANDIN_FAIL="cuMemHostRegister 3")
    assert done.returncode != 0 and "cannot be registered (error 2)" in done.stderr, done.stderr
    assert len(place.called("cuMemHostUnregister")) == 2 and len(place.called("cuMemHostAlloc")) == 1
    done = place.run(**driver, STANDIN_ELSEWHERE="1")
    good("a device with other addresses", done, "at another address")
    assert len(place.called("cuMemHostAlloc")) == 1
    print("pinned: registrations: good")


def without(place):
    """Too small a lease, and no broker: a line, and the server runs."""
    done = place.run(size=64, program=["./llama", "128", "64"])
    good("a lease that is too small", done, "128 MiB asked for do not fit", "64 of 64 MiB of the lease served",
         "128 MiB did not fit")
    assert len(place.called("cuMemHostAlloc")) == 1
    nowhere = {"PREZERO_SOCKET": str(place.folder / "none")}
    done = place.run(program=["./llama", "128"], **nowhere)
    assert done.returncode == 125 and done.stderr.count("\n") == 1, done.stderr
    done = place.run("--or-plain", program=["./llama", "128", "3"], **nowhere)
    good("no broker", done, "llama runs with ordinary memory")
    assert done.stderr.count("\n") == 1, done.stderr
    assert len(place.called("cuMemHostRegister")) == 1 and len(place.called("cuMemHostAlloc")) == 1, "3 MiB are the driver's"
    done = place.run("--or-plain", program=["./tensorrt", "128", "64"], **nowhere)
    good("no broker, own memory", done, "tensorrt runs with ordinary memory")
    # What does not fit into the lease is populated and registered too.
    done = place.run("--or-plain", size=64, program=["./llama", "128", "64"])
    good("a lease that is too small, or plain", done, "128 MiB did not fit")
    assert not place.called("cuMemHostAlloc")
    for words, why in ((["--preload"], "cannot be used with"), (["--pinned-threshold", "much"], "much")):
        done = place.run(*words)
        assert done.returncode == 125 and why in done.stderr, done.stderr
    print("pinned: without a lease: good")


def python(place):
    script = place.folder / "shared.py"
    script.write_text(SHARED)
    good("Python", place.run(size=256, program=[sys.executable, str(script)]), "/dev/shm 64 MiB", "shared memory 64 MiB")
    print("pinned: Python: good")


def bench(place):
    line = [place.bin / "prezero", "bench", "pinned", "--sizes", "64M", "--runs", "1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=place.environment)
    said = good("bench", done, "a stand-in for CUDA", "until pinned")
    for way in ("cudaHostAlloc", "register, THP", "threads, then register", "--or-plain", "a lease"):
        assert re.search(rf"64M +{way} +\d", said), f"bench: no row {way}:\n{said}"
    print("pinned: bench: good")


def main():
    bin_folder = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        built(folder)
        place = Place(bin_folder, folder)
        try:
            done = place.run(size=64, program=["cmp", "-n", "1", "/proc/self/fd/3", "/dev/zero"])
            if done.returncode != 0:
                print(f"pinned: left out: no lease here: {done.stderr.strip()}")
                return
            servers(place)
            edges(place)
            registrations(place)
            without(place)
            python(place)
            bench(place)
            place.run(program=["./llama", "64"])
            print(f"pinned: the stand-ins pin by {'mlock' if place.called('pinned') else 'io_uring'}")
        finally:
            place.close()


if __name__ == "__main__":
    main()
