#!/usr/bin/env python3
"""Stock of 1 GiB pages: expected, made, pinned by a server, and back in the pool.

    tests/system/giant.py FOLDER [--kernel FILE]

FOLDER is as for pinned.py. The pages are reserved at the boot of a guest of QEMU's emulation (see common/guest.py): a host that runs
has such a page in one piece by luck alone.
"""
import json
import re
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "common"), str(TESTS / "standin")]
from guest import Guest, asked, initramfs  # noqa: E402
from place import LIBRARIES, built  # noqa: E402
from until import until  # noqa: E402

MEMORY = 3072  # MiB: two pages of 1 GiB lie in it, one of them free at boot
POOL = "/sys/kernel/mm/hugepages/hugepages-1048576kB"
# A page of 1 GiB is a fault; the rest is the program's own: stacks, libraries, buffers.
OWN_FAULTS = 100


def check(guest):
    def good(command, *wanted):
        status, said = guest.run(command)
        assert status == 0 and all(text in said for text in wanted), f"{command}: status {status}, wanted {wanted}:\n{said}"
        return said

    def stock():
        return json.loads(good("prezero stock --json"))

    def served():
        """A lease of the page that lies ready, filled by a program that finds it zero."""
        ready = until("a page of 1 GiB", lambda: stock()["ready"])
        assert [(part["bytes"], part["page_bytes"]) for part in ready] == [(1 << 30, 1 << 30)], ready
        said = good("prezero claim 1G --pinned --page-size 1G -- /bin/llama 1024 2>&1", "1024 of 1024 MiB of the lease served",
                    "pinned allocations 1024 MiB")
        assert int(re.search(r"1024 MiB, (\d+) faults", said)[1]) <= OWN_FAULTS, said

    good("export PATH=/bin LD_LIBRARY_PATH=/bin STANDIN_DIR=/tmp PREZERO_SOCKET=/tmp/socket")
    good("busybox mkdir -p /dev/shm; busybox mount -t tmpfs tmpfs /dev/shm")
    if guest.run(f"busybox grep -qx 1 {POOL}/free_hugepages")[0] != 0:
        return "this kernel or QEMU has no pages of 1 GiB"
    for config in ('stock = [{ size = "1G", page = "1G", keep = 1 }]', ""):
        good(f"echo '{config}' >/tmp/config; busybox rm -f /tmp/log")
        good("prezerod --config /tmp/config --socket /tmp/socket 2>/tmp/log & broker=$!")
        good("until busybox grep -q 'serving on' /tmp/log; do kill -0 $broker || break; busybox sleep 0.1; done; busybox cat /tmp/log",
             "serving on")
        # The second is of the page that came back; what is expected is so for one lease.
        for _ in range(2):
            if not config:
                good("prezero stock --expect 1G --page-size 1G")
            served()
        good("kill $broker; wait $broker; true")
        until("the page", lambda: guest.run(f"busybox grep -qx 1 {POOL}/free_hugepages")[0] == 0)
    return None


def main():
    builds, kernel, _ = asked("giant", __doc__.split("\n")[0])
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        built(folder)
        programs = [builds / name for name in ("prezero", "prezerod", "libprezero_pinned.so")]
        initramfs(folder / "initramfs", [*programs, folder / "llama", *(folder / name for name in LIBRARIES)])
        guest = Guest(folder, kernel, folder / "initramfs", "-smp", "2", mib=MEMORY, append="hugepagesz=1G hugepages=1")
        try:
            lack = check(guest)
        finally:
            guest.end()
    print(f"giant: left out: {lack}" if lack else "giant: good")


main()
