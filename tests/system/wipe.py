#!/usr/bin/env python3
"""A guest that wrote to its memory and gave it back is wiped: its dump compresses to a part.

    tests/system/wipe.py FOLDER [--kernel FILE]

FOLDER holds prezero. The guest has a kernel of Debian (--kernel, or the newest of /boot), an initramfs of busybox
and prezero, and no other hardware than a serial line; QEMU emulates its CPU. QEMU's dump-guest-memory is read page by page
and compressed, before and after. A second guest reports its free memory to QEMU: there `prezero wipe` refuses.
"""
import json
import os
import re
import socket
import sys
import tempfile
import zlib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "common")]
from guest import Guest, asked, initramfs  # noqa: E402

MEMORY, DIRTY = 256, 120  # MiB
PAGE = 4096


def dumped(guest, path):
    """Its memory, as QEMU saves it: the share of its pages that are zero, and its bytes compressed."""
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(guest.monitor_path)
        with monitor.makefile("rw") as lines:
            def ask(name, **arguments):
                lines.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
                lines.flush()
                while "return" not in (answer := json.loads(lines.readline())):
                    assert "error" not in answer, answer
            lines.readline()
            ask("qmp_capabilities")
            ask("dump-guest-memory", paging=False, protocol=f"file:{path}")
    zero, pages, packed = bytes(PAGE), [0, 0], 0
    compressor = zlib.compressobj(1)
    with open(path, "rb") as dump:
        while part := dump.read(256 * PAGE):
            packed += len(compressor.compress(part))
            pages[0] += sum(part[at:at + PAGE] == zero for at in range(0, len(part), PAGE))
            pages[1] += len(part) // PAGE
    os.unlink(path)
    return pages[0] / pages[1], packed + len(compressor.flush())


def counted(said, when):
    """Free pages that are zero, and free pages, as prezero counted them."""
    found = re.search(rf"^{when}: +(\d+) of (\d+) free pages are zero", said, re.M)
    assert found, said
    return int(found[1]), int(found[2])


def wiped(folder, *system):
    guest = Guest(folder, *system, mib=MEMORY)
    try:
        status, said = guest.run(f"/bin/busybox dd if=/dev/urandom of=/tmp/x bs=1M count={DIRTY} 2>/dev/null; "
                                 "/bin/busybox rm /tmp/x")
        assert status == 0, said
        status, said = guest.run("/bin/prezero wipe --leave 1T")
        assert status == 1 and "nothing wiped" in said, said
        share, packed = dumped(guest, f"{folder}/dump")
        status, said = guest.run("/bin/prezero wipe --report")
        assert status == 0 and "wiped" in said, said
        (zero, free), (zero_after, free_after) = counted(said, "before"), counted(said, "after")
        _, left = guest.run("/bin/busybox grep -E 'MemFree|MemAvailable' /proc/meminfo")
        print(f"{said.strip()}\n{' '.join(left.split())}")
        share_after, packed_after = dumped(guest, f"{folder}/dump")
    finally:
        guest.end()
    print(f"the dump: {share:.0%} of its pages are zero, then {share_after:.0%}; "
          f"{packed >> 20} MiB compressed, then {packed_after >> 20} MiB")
    dirty = DIRTY << 20
    assert free - zero > dirty // PAGE * 0.9, "free pages were not dirty"
    assert zero_after > free_after * 0.85, "free pages are not zero"
    assert free_after > free * 0.95, "memory did not come back"
    assert packed - packed_after > dirty * 0.7, "the dump does not compress"


def refused(folder, *system):
    guest = Guest(folder, *system, "-device", "virtio-balloon-pci,free-page-reporting=on", mib=MEMORY)
    try:
        status, said = guest.run("/bin/prezero wipe")
        assert status == 1 and "hypervisor" in said, said
        print(said.strip())
    finally:
        guest.end()


def main():
    builds, kernel, modules = asked("wipe", __doc__.split("\n")[0])
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder, "initramfs")
        initramfs(packed, [builds / "prezero"], modules)
        wiped(folder, kernel, packed)
        if modules:
            refused(folder, kernel, packed)
        else:
            print("wipe: free page reporting left out: this kernel's modules of virtio are not beside it")
    print("wipe: good")


main()
