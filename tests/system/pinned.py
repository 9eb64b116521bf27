#!/usr/bin/env python3
"""Inference servers under `prezero claim --pinned`, without a GPU: programs that make their calls, on a real lease.

    tests/system/pinned.py FOLDER [PART...]      all parts, or those: servers, edges, registrations, cases, model, ...

FOLDER holds prezero, prezerod, prezero-bench and libprezero_pinned.so. tests/standin has libcudart.so.12 and libcuda.so.1, which pin for
real, and a program for each server, by its sources. The last line says whether io_uring pinned, or mlock in its place.
"""
import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

STANDIN = Path(__file__).resolve().parent.parent / "standin"
sys.path.insert(0, str(STANDIN))
from place import LEASE_MIB, Place, built, good, until  # noqa: E402

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
        for own in re.findall(r"(\d+) after mmap", said):
            assert int(own) == 0, f"{name}: the program's own faults in the lease:\n{said}"
        assert not place.called("cuMemHostAlloc"), f"{name}: the driver made memory:\n{said}"
        print(f"pinned: {name}: good, {' '.join(f'{size} MiB in {faults} faults' for size, faults in steps)}")


def edges(place):
    for name in ("zero", "child", "remap", "advice", "file", "lookup", "forks", "together"):
        good(name, place.run("--pinned-threshold", "16M", size=256, program=["./edges", name]))
    # A shell that ends without destructors says the last line too, and once.
    said = good("a shell", place.run(size=64, program=["sh", "-c", "./llama 64; exit 0"]), "pinned allocations 64 MiB")
    assert said.count("of the lease served") == 1, said
    print("pinned: edges: good")


def registrations(place):
    case = {"size": 256, "program": ["./edges", "lease"]}
    driver = {"size": 256, "program": ["./edges", "driver"]}
    # Whole, at the size that was asked for: a copy may span all of it.
    good("one registration", place.run(**case), "copy: 0")
    assert [line.split()[1] for line in place.called("cuMemHostRegister")] == [str((64 << 20) + 5), str(64 << 20)]
    assert len(place.called("cuMemHostUnregister")) == 3, "the program asks once too often"
    # The driver refuses: no error is left, and it allocates by itself.
    done = place.run(**driver, STANDIN_FAIL="cuMemHostRegister 1")
    assert done.returncode != 0 and "cannot be registered (error 2)" in done.stderr, done.stderr
    assert not place.called("cuMemHostUnregister") and len(place.called("cuMemHostAlloc")) == 1
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
    place.stocked(64)
    done = place.run("--or-plain", size=64, program=["./llama", "128", "64"])
    good("a lease that is too small, or plain", done, "128 MiB did not fit")
    assert not place.called("cuMemHostAlloc")
    for words, why in ((["--preload"], "cannot be used with"), (["--pinned-threshold", "much"], "much")):
        done = place.run(*words)
        assert done.returncode == 125 and why in done.stderr, done.stderr
    print("pinned: without a lease: good")


def gpus(folder, nodes):
    """A machine's GPUs, as sysfs shows them: the stand-in's are at 0000:c1:00.0 and on."""
    for number, node in enumerate(nodes):
        device = folder / "sys/bus/pci/devices" / f"0000:{0xc1 + number:02x}:00.0"
        device.mkdir(parents=True, exist_ok=True)
        for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2335"), ("numa_node", node)):
            (device / name).write_text(f"{text}\n")
    return folder / "sys"


def ranks(place):
    """A lease for each rank: pinned memory by its GPU, other memory by its number, and what is larger out of all."""
    def inodes(said):
        return [tuple(found) for found in re.findall(r"rank \d: pinned (\d+) own (\d+)", said)]
    sysfs = gpus(place.folder, [0, -1])
    each = {"size": 128, "program": ["./ranks", "64", "2"]}
    said = good("ranks", place.run("--each", "2", "--sysfs", str(sysfs), **each), "of 256 MiB of the lease served",
                "pinned allocations 128 MiB, private memory 128 MiB")
    first, second = inodes(said)
    assert first[0] == first[1] != second[0] == second[1], said
    # The second GPU is the first that is visible to CUDA: ranks go by the GPU that they have, not by their number.
    said = good("ranks, other GPUs", place.run("--each", "2", "--sysfs", str(sysfs), **each, CUDA_VISIBLE_DEVICES="1,0"))
    swapped = inodes(said)
    assert swapped[0][0] == swapped[1][1] and swapped[0][1] == swapped[1][0] != swapped[0][0], said
    for told, why in (({"CUDA_VISIBLE_DEVICES": "GPU-1f2e"}, "only the driver knows UUIDs"),
                      ({"CUDA_VISIBLE_DEVICES": "0"}, "2 ranks, and 1 GPUs")):
        done = place.run("--each", "2", "--sysfs", str(sysfs), **each, **told)
        assert len(set(inodes(good(f"ranks, {told}", done, why)))) == 2, done.stdout
        assert done.stderr.count(" --each: ") == 1, done.stderr
    # A node that the machine does not have, by its GPU, is refused like one that was asked for.
    done = place.run("--each", "2", "--sysfs", str(gpus(place.folder, [0, 77])), **each)
    assert done.returncode == 125 and "no node 77 here" in done.stderr, done.stderr
    good("ranks, one node for all", place.run("--each", "2", "--node", "0", "--sysfs", str(sysfs), **each))
    # vLLM's region is larger than each of the leases: it spans both, and all ranks map all of it.
    gpus(place.folder, [0, 0])
    two = ("--each", "2", "--sysfs", str(sysfs))
    program = ["./vllm", f"prezero-each-{os.getpid()}", "256", "2"]
    said = good("a region of all ranks", place.run(*two, size=128, program=program), "/dev/shm 256 MiB")
    assert re.findall(r"(\d+) after mmap", said) == ["0", "0"], said
    for case in ("zero", "child", "remap", "advice", "file", "forks", "together"):
        done = place.run(*two, "--pinned-threshold", "16M", size=128, program=["./edges", case])
        good(f"{case} of two leases", done)
    for words, program, why in ((["--each", "2"], ["cat", "{lease}"], "--each: {lease} is one file"),
                                (["--each", "0"], ["true"], "--each"), (["--each", "2", "--path", "x"], ["true"], "--path")):
        done = place.run(*words, program=program)
        assert done.returncode == 125 and why in done.stderr, done.stderr
    print("pinned: ranks: good")


def sockets(place):
    """A lease for each rank over a socket of its own, as a pod has them: each broker has given one."""
    (place.folder / "second").mkdir(exist_ok=True)
    other = Place(place.bin, place.folder / "second", library=place.folder)
    both = ",".join(each.environment["PREZERO_SOCKET"] for each in (place, other))
    try:
        hits = [each.leased() for each in (place, other)]
        good("two sockets", place.run("--each", "2", "--socket", both, size=64, program=["./ranks", "64", "2"]),
             "pinned allocations 128 MiB, private memory 128 MiB")
        assert [each.leased() for each in (place, other)] == [before + 1 for before in hits]
        done = place.run("--each", "3", "--socket", both, size=64, program=["true"])
        assert done.returncode == 125 and "2 paths for 3 ranks" in done.stderr, done.stderr
        done = place.run("--each", "2", "--or-plain", "--socket", f"{both}-not", size=64, program=["./ranks", "64", "2"])
        good("a socket that is not there", done, "ranks runs with ordinary memory")
    finally:
        other.close()
    print("pinned: sockets: good")


def payer(place):
    """Leases of ranks are of their tenant's payer: both are charged to its cgroup."""
    name = f"/prezero-pinned-{os.getpid()}"
    roots = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")]
    group = next((root for root in roots if (root / "cgroup.procs").exists()), roots[1]) / name[1:]
    try:
        group.mkdir()
        assert any((group / file).exists() for file in ("memory.current", "memory.usage_in_bytes"))
    except (OSError, AssertionError) as why:
        print(f"pinned: left out: a payer: no cgroup that counts memory: {why}")
        return
    (place.folder / "payer").mkdir(exist_ok=True)
    tenant = f'[[tenant]]\nname = "server"\nusers = [{os.getuid()}]\ncharge = "{name}"\n'
    other = Place(place.bin, place.folder / "payer", config=f'backing = "thp"\n{tenant}', library=place.folder)
    try:
        script = f'"{place.bin}/prezero" stock --json && cat {group}/memory.current {group}/memory.usage_in_bytes 2>&-; exec ./ranks 64 2'
        said = good("a payer", other.run("--each", "2", size=64, program=["sh", "-c", script]), "pinned allocations 128 MiB")
        report, used = said.splitlines()[:2]
        leased = json.loads(report)["leased"]
        assert [(row["charged"], row["bytes"] >> 20) for row in leased] == [(name, 64)] * 2, leased
        assert int(used) >= 128 << 20, used
    finally:
        other.close()
        until("the payer's end", lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
    print("pinned: a payer of ranks: good")


def giant(place):
    """A page of 1 GiB as stock, where the kernel finds one: expected, made, pinned, and back in the pool."""
    pool = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")
    if not os.access(pool, os.W_OK) or pool.read_text().strip() != "0":
        print("pinned: left out: a page of 1 GiB: no pool of them, not root, or another has one")
        return
    pool.write_text("1")
    try:
        if pool.read_text().strip() != "1":
            print("pinned: left out: a page of 1 GiB: the kernel finds none")
            return
        (place.folder / "giant").mkdir(exist_ok=True)
        stock = '[[stock]]\nsize = "1G"\npage = "1G"\nkeep = 1\n'
        for config in (stock, ""):
            other = Place(place.bin, place.folder / "giant", config=config, library=place.folder)
            try:
                if not config:
                    words = ["stock", "--expect", "1G", "--page-size", "1G"]
                    subprocess.run([place.bin / "prezero", *words], check=True, capture_output=True, env=other.environment)
                other.stocked(1024, page=1024)
                # It says that all of it is zero, in how many faults it was made, pinned and filled.
                said = good("a page of 1 GiB", other.run("--page-size", "1G", size=1024, program=["./llama", "1024"]),
                            "pinned allocations 1024 MiB", "1024 of 1024 MiB of the lease served")
                assert int(re.search(r"1024 MiB, (\d+) faults", said)[1]) <= OWN_FAULTS, said
                assert not other.called("cuMemHostAlloc"), said
            finally:
                other.close()
    finally:
        pool.write_text("0")
    print("pinned: a page of 1 GiB: good")


def limited():
    """Before a program: it may lock 64 KiB, as a user may, also as root."""
    PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))


def cases(place):
    """Odd sizes and calls of one program each: windows of a file, and what it is cut off at."""
    run = lambda *words, size=256, **more: good(words[0], place.run("--pinned-threshold", "2M", size=size, program=["./odd", *words], **more))
    run("beyond"), run("windows"), run("holes"), run("many", size=512)
    # What a program registers of its own is no part of the lease, and the last line says so.
    said = run("registers")
    assert "64 MiB registered were the program's own memory" in said, said
    # By a handle of libc, as by its name.
    script = "import ctypes; c = ctypes.CDLL('libc.so.6'); c.mmap.restype = ctypes.c_void_p; print(c.mmap(None, 64 << 20, 3, 0x22, -1, 0))"
    good("a handle of libc", place.run(size=64, program=[sys.executable, "-c", script]), "private memory 64 MiB")
    print("pinned: cases: good")


def model(place):
    """Random calls beside the kernel's own. PREZERO_MODEL="FIRST LAST STEPS": other seeds, and more of them."""
    first, last, steps = map(int, os.environ.get("PREZERO_MODEL", "1 2 500").split())
    for seed in range(first, last + 1):
        said = good(f"seed {seed}", modelled(place, seed, steps))
        assert not re.search(r"of the lease: 0 private|, 0 shared|, 0 windows", said), said
    ranks = place.run("--pinned-threshold", "2M", "--each", "2", size=32, program=["./model", str(first), str(steps)])
    good("ranks", ranks, "private memory", "shared memory")
    if os.geteuid() == 0:
        (place.folder / "tmpfs").mkdir(exist_ok=True)
        other = Place(place.bin, place.folder / "tmpfs", config='backing = "tmpfs"\n', library=place.folder)
        try:
            good("a tmpfs", modelled(other, first, steps), "private memory", "shared memory", "/dev/shm")
        finally:
            other.close()
    print("pinned: model: good")


def modelled(place, seed, steps):
    return place.run("--pinned-threshold", "2M", size=64, program=["./model", str(seed), str(steps)])


def poor_hosts(place):
    """What a host may lack: one line, and the server runs as it would have."""
    done = place.run(size=256, program=["./llama", "128"], before=limited)
    said = good("a limit of locked memory", done, "failed to allocate 128 MiB of pinned memory",
                "128 MiB cannot be registered (error 2, the limit is 64 KiB: ulimit -l)")
    assert said.count("prezero: claim: 128 MiB") == 1, said
    if os.geteuid() != 0:
        print("pinned: left out: a container without /dev/shm, a pool: not root")
        return
    region = ["./vllm", f"prezero-none-{os.getpid()}", "64", "2"]
    disk = place.folder / "disk"
    disk.mkdir(exist_ok=True)
    for what, make in (("no /dev/shm", "while umount -l /dev/shm 2>&-; do :; done"), ("/dev/shm on a disk", f"mount --bind {disk} /dev/shm")):
        inside = ["unshare", "-m", "sh", "-c", f'{make}; exec "$0" "$@"']
        done = place.run(size=64, program=region, inside=inside)
        good(what, done, "memory that is shared by name is not of the lease", "0 of 64 MiB of the lease served",
             "MiB registered were the program's own memory")
        assert done.stderr.count("prezero: ") == 3, done.stderr
    pool = Path("/proc/sys/vm/nr_hugepages")
    if pool.read_text().strip() != "0":
        print("pinned: left out: leases of a pool: another test has one")
        return
    # The first broker may take three quarters of it for its stock.
    pool.write_text("192")
    try:
        if int(pool.read_text()) < 192:
            print("pinned: left out: leases of a pool: no memory for one")
            return
        (place.folder / "pool").mkdir(exist_ok=True)
        other = Place(place.bin, place.folder / "pool", config='backing = "hugetlb"\n', library=place.folder)
        try:
            good("a lease of a pool", other.run(size=64, program=["./llama", "64"]), "pinned allocations 64 MiB")
            # Its pages are not cut: what a program may cut is the kernel's, and behaves so.
            good("the model on a pool", modelled(other, 1, 300), "whose pages are not cut", "of the lease: 0 private, 0 shared, 0 windows")
            done = other.run(size=64, program=["./llama", "64"], STANDIN_OLD="1")
            good("an old driver", done, "cannot be registered (error 2): the driver allocates by itself")
            assert len(other.called("cuMemHostAlloc")) == 1 and done.stderr.count("\n") == 2, done.stderr
        finally:
            other.close()
    finally:
        pool.write_text("0")
    print("pinned: poor hosts: good")


def python(place):
    script = place.folder / "shared.py"
    script.write_text(SHARED)
    good("Python", place.run(size=256, program=[sys.executable, str(script)]), "/dev/shm 64 MiB", "shared memory 64 MiB")
    print("pinned: Python: good")


def packages(place):
    """What vLLM's and SGLang's own files do, where PREZERO_PACKAGES is a folder with both: see standin/packages.py."""
    folder = os.environ.get("PREZERO_PACKAGES")
    if not folder:
        print("pinned: left out: packages: no PREZERO_PACKAGES")
        return
    for server, served in (("sglang", "private memory 256 MiB, shared memory 256 MiB"), ("vllm", "/dev/shm 512 MiB")):
        program = [sys.executable, str(STANDIN / "packages.py"), str(Path(folder).resolve()), server, "256"]
        said = good(f"the package of {server}", place.run(program=program), served)
        for own in re.findall(r"(\d+) after mmap", said):
            assert int(own) < OWN_FAULTS, said
    print("pinned: packages: good")


def bench(place):
    line = [place.bin / "prezero", "bench", "pinned", "--sizes", "64M", "--runs", "1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=place.environment)
    said = good("bench", done, "a stand-in for CUDA", "until pinned")
    for way in ("cudaHostAlloc", "register, THP", "threads, then register", "--or-plain", "a lease"):
        assert re.search(rf"64M +{way} +\d", said), f"bench: no row {way}:\n{said}"
    line[2] = "pinned-knobs"
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=place.environment)
    said = good("bench of knobs", done, "until pinned")
    for way in ("a lease, 16 MiB each", "a lease, 16 MiB each, --pinned-threshold 16M"):
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
            for part in (servers, edges, registrations, cases, model, without, ranks, sockets, payer, giant, poor_hosts, python, packages, bench):
                if part.__name__ in sys.argv[2:] or len(sys.argv) == 2:
                    part(place)
            place.run(program=["./llama", "64"])
            print(f"pinned: the stand-ins pin by {'mlock' if place.called('pinned') else 'io_uring'}")
        finally:
            place.close()


if __name__ == "__main__":
    main()
