#!/usr/bin/env python3
"""Programs that are not at hand, by what their sources do with a file of memory: each is played on a real lease.

    tests/system/doors.py FOLDER

FOLDER holds prezero and prezerod. Played are Cloud Hypervisor 54 (vmm/src/memory_manager.rs), crosvm at f1e797a
(vm_memory, src/crosvm/sys/linux.rs), Firecracker at 004d935 (src/vmm/src/vstate/memory.rs) and SPDK at af6fd29
(lib/env_dpdk/init.c, by DPDK's testpmd with the arguments of SPDK). docs/doors.md says the same.
"""
import ctypes
import json
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "common"))
from until import until  # noqa: E402

MIB = 1 << 20
MADV_POPULATE_WRITE, MADV_DONTDUMP, MADV_HUGEPAGE = 23, 16, 14
MAP_NORESERVE = 0x4000
PUNCH_HOLE_KEEP_SIZE = 3
POOL = Path("/proc/sys/vm/nr_hugepages")


def options(word):
    return dict(part.partition("=")[::2] for part in word.split(","))


def parts(size):
    """Guest memory lies below and above a hole for devices: one file, mapped in two parts."""
    below = size * 3 // 4
    return [(0, below), (below, size - below)]


def is_zero(memory):
    return memory[:] == bytes(len(memory))


def restored(folder):
    """fill_saved_regions: the image without its holes is read into the zone that the snapshot names."""
    zone = json.loads((folder / "config.json").read_text())["memory"]["zones"][0]
    memory = mmap.mmap(os.open(zone["file"], os.O_RDWR), zone["size"], mmap.MAP_SHARED | MAP_NORESERVE)
    image, at, filled = os.open(folder / "memory-ranges", os.O_RDONLY), 0, 0
    while at < zone["size"]:
        try:
            at = os.lseek(image, at, os.SEEK_DATA)
        except OSError:
            break  # No data behind the last hole.
        end = os.lseek(image, at, os.SEEK_HOLE)
        filled += os.preadv(image, [memoryview(memory)[at:end]], at)
        at = end
    assert filled < zone["size"], "an image without holes"
    assert memory[:] == os.pread(image, zone["size"], 0), "the guest's memory is not its image"
    print("cloud-hypervisor: a lease has the snapshot")


def cloud_hypervisor(line):
    """memory_zone_get_align_size, open_backing_file and create_ram_region_raw."""
    if "--restore" in line:
        return restored(Path(options(line[line.index("--restore") + 1])["source_url"].removeprefix("file://")))
    zone = options(line[line.index("--memory-zone") + 1])
    size, shared = int(zone["size"][:-1]) * MIB, zone["shared"] == "on"
    assert size % max(mmap.PAGESIZE, os.statvfs(zone["file"]).f_bsize) == 0, "MisalignedMemorySize"
    fd = os.open(zone["file"], os.O_RDWR if shared else os.O_RDONLY)
    for offset, length in parts(size):
        assert os.lseek(fd, 0, os.SEEK_END) >= offset + length, "MappingPastEof"
        flags = (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE) | MAP_NORESERVE
        memory = mmap.mmap(fd, length, flags, offset=offset)
        memory.madvise(MADV_HUGEPAGE)
        if zone.get("prefault") == "on":
            memory.madvise(MADV_POPULATE_WRITE)
        memory.madvise(MADV_DONTDUMP)
        assert is_zero(memory), "a guest's memory that is not zero"
        memory[:8] = b"guest RAM"[:8]
        assert os.pread(fd, 8, offset) == b"guest RA", "the guest writes elsewhere"
    try:
        os.ftruncate(fd, size + MIB * 2)
        sys.exit("the size of a lease can be changed")
    except PermissionError:
        print("cloud-hypervisor: the zone is the lease")


def crosvm(line):
    """FileBackedMappingParameters::open, GuestMemory::new_with_options; and a balloon that inflates."""
    given = options(line[line.index("--file-backed-mapping") + 1])
    assert "rw" in given and "ram" in given
    path, size = given["path"], int(given["size"])
    # A path below /proc/self/fd is the descriptor itself, which the jail inherits.
    fd = os.dup(int(Path(path).name)) if path.startswith("/proc/self/fd/") else os.open(path, os.O_RDWR)
    memory = mmap.mmap(fd, size, mmap.MAP_SHARED | MAP_NORESERVE)
    memory.madvise(MADV_DONTDUMP)
    assert is_zero(memory), "a guest's memory that is not zero"
    memory[:5] = b"guest"
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    assert fallocate(fd, PUNCH_HOLE_KEEP_SIZE, 0, 2 * MIB) == 0, os.strerror(ctypes.get_errno())
    assert os.fstat(fd).st_blocks * 512 <= size - 2 * MIB, "what a balloon takes stays"
    assert is_zero(memory) and os.fstat(fd).st_size == size
    print("crosvm: the mapping is the lease")


def firecracker(line):
    """snapshot_file: a file of memory is mapped privately, always."""
    path = line[line.index("--mem-file") + 1]
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    memory = mmap.mmap(fd, size, mmap.MAP_PRIVATE | MAP_NORESERVE)
    for at in range(0, size, 4096):
        memory[at] = 1
    assert os.pread(fd, 1, 0) == b"\0", "a private mapping writes into the file"
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    copied = next(int(line.split()[1]) for line in rollup if line.startswith("Anonymous:"))
    assert copied * 1024 >= size, "no copies"
    print("firecracker: each page that is written is copied")


def spdk(prezero, environment):
    """build_eal_cmdline with a shared memory id: the prefix of the files is known before."""
    if os.geteuid() != 0 or subprocess.run(["which", "dpdk-testpmd"], capture_output=True).returncode:
        return print("doors: left out: SPDK, no root or no dpdk-testpmd")
    before = int(POOL.read_text())
    with tempfile.TemporaryDirectory() as place:
        try:
            POOL.write_text(str(before + 128))
            if int(POOL.read_text()) < before + 128:
                return print("doors: left out: SPDK, no 256M of hugetlb pages can be had here")
            subprocess.run(["mount", "-t", "hugetlbfs", "-o", "pagesize=2M", "none", place], check=True)
            placed = [prezero, "place", "dpdk", "200M", "--dir", place, "--prefix", "spdk7"]
            subprocess.run(placed, check=True, env=environment, stdout=subprocess.DEVNULL)
            inodes = {file.name: file.stat().st_ino for file in Path(place).iterdir()}
            assert len(inodes) == 100, inodes
            eal = ["--lcores", "0@0,1@0", "-m", "200", "--no-pci", f"--huge-dir={place}", "--huge-unlink=never",
                   "--base-virtaddr=0x200000000000", "--match-allocations", "--file-prefix=spdk7", "--proc-type=auto"]
            command = ["dpdk-testpmd", *eal, "--no-telemetry", "--vdev=net_null0", "--", "-i", "--total-num-mbufs=4096"]
            said = subprocess.run(command, input="start\nstop\nquit\n", text=True, capture_output=True, timeout=300)
            assert "Bye" in said.stdout, said.stdout[-2000:] + said.stderr[-2000:]
            used = {file.name: file.stat().st_ino for file in Path(place).iterdir()}
            assert used == inodes, "pages of its own"
            assert any(file.read_bytes().strip(b"\0") for file in Path(place).iterdir()), "it used none"
            print("doors: SPDK: the pages are those that were placed")
        finally:
            if os.path.ismount(place):
                subprocess.run(["umount", place], check=True)
            POOL.write_text(str(before))


def main():
    folder = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as place:
        environment = dict(os.environ, PREZERO_SOCKET=f"{place}/s")
        prezero = str(folder / "prezero")
        with open(f"{place}/log", "w") as log:
            broker = subprocess.Popen([folder / "prezerod", "--socket", f"{place}/s"], stderr=log)
        try:
            until("the broker", lambda: "serving on" in Path(place, "log").read_text())
            for play in PLAYS:
                os.symlink(Path(__file__).resolve(), f"{place}/{play}")

            def claim(size, program, *words, path=()):
                line = [prezero, "claim", size, *path, "--", f"{place}/{program}", *words]
                return subprocess.run(line, env=environment, text=True, capture_output=True)

            def good(size, program, *words, path=()):
                done = claim(size, program, *words, path=path)
                assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
                print(f"doors: {done.stdout.strip()}")

            zone = ["--memory", "size=0", "--memory-zone", "id=m,size=64M,file={lease},shared=on"]
            good("64M", "cloud-hypervisor", *zone)
            good("64M", "cloud-hypervisor", *zone[:-1], zone[-1] + ",prefault=on")
            refused = claim("64M", "cloud-hypervisor", *zone[:-1], zone[-1].replace("=on", "=off"))
            assert refused.returncode and "add shared=on" in refused.stderr, refused
            snapshot, path = Path(place, "snapshot"), ("--path", f"{place}/memory")
            snapshot.mkdir()
            zones = [{"id": "m", "size": 64 * MIB, "file": path[1], "shared": True}]
            (snapshot / "config.json").write_text(json.dumps({"memory": {"size": 0, "zones": zones}}))
            with open(snapshot / "memory-ranges", "wb") as image:
                image.truncate(64 * MIB)
                for at in (0, 3 * MIB, 40 * MIB + 4096):
                    os.pwrite(image.fileno(), os.urandom(2 * MIB), at)
            good("64M", "cloud-hypervisor", "--restore", f"source_url=file://{snapshot}", path=path)
            refused = claim("64M", "cloud-hypervisor", "--restore",
                            f"source_url=file://{snapshot},memory_restore_mode=ondemand", path=path)
            assert refused.returncode and "read zeroes" in refused.stderr, refused
            good("62M", "crosvm", "run", "-m", "64", "--file-backed-mapping",
                 f"addr=0x200000,size={62 * MIB},path={{lease}},rw,ram")
            good("8M", "firecracker", "--mem-file", "{lease}")
            spdk(prezero, environment)
        finally:
            broker.kill()
            broker.wait()


PLAYS = {"cloud-hypervisor": cloud_hypervisor, "crosvm": crosvm, "firecracker": firecracker}
if play := PLAYS.get(Path(sys.argv[0]).name):
    play(sys.argv[1:])
else:
    main()
