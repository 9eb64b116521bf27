#!/usr/bin/env python3
"""A guest that wrote to its memory and gave it back is wiped: its dump compresses to a part.

    tests/system/wipe.py FOLDER [--kernel FILE]

FOLDER holds prezero. The guest has a kernel of Debian (--kernel, or the newest of /boot), an initramfs of busybox
and prezero, and no other hardware than a serial line; QEMU emulates its CPU. QEMU's dump-guest-memory is read page by page
and compressed, before and after. A second guest reports its free memory to QEMU: there `prezero wipe` refuses.
"""
import argparse
import gzip
import json
import lzma
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import zlib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "common")]
from until import until  # noqa: E402

MEMORY, DIRTY = 256, 120  # MiB
PAGE = 4096
# A kernel that has one built in has no such file.
MODULES = ["virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_balloon"]
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t tmpfs -o size=90% tmpfs /tmp
for again in 1 2 3; do
    for module in /modules/*; do [ ! -e "$module" ] || /bin/busybox insmod "$module" 2>/dev/null; done
done
/bin/busybox stty -echo
echo; echo "== up"
while read -r line; do eval "$line"; echo "== $?"; done
"""


def kernel_of(option):
    """A kernel, and its modules of virtio."""
    known = [Path(option)] if option else sorted(Path("/boot").glob("vmlinuz-*"), key=lambda path: path.stat().st_mtime)
    known = [path for path in known if os.access(path, os.R_OK)]
    if not known:
        return None, []
    kernel = known[-1]
    version = kernel.name.removeprefix("vmlinuz-")
    root = kernel.resolve().parent.parent
    drivers = root / "lib/modules" / version / "kernel/drivers/virtio"
    found = [next(iter(drivers.glob(f"{name}.ko*")), None) for name in MODULES]
    return kernel, [module for module in found if module]


def archive(files):
    """An initramfs: the kernel's "newc" format of cpio. FILES: path to mode and content."""
    folders = sorted({str(parent) for path in files for parent in Path(path).parents} - {"."})
    entries = [(folder, 0o40755, b"") for folder in folders + ["dev", "proc", "sys", "tmp"]]
    entries += [("dev/console", 0o20600, b"")]
    entries += [(path, 0o100000 | mode, content) for path, (mode, content) in files.items()]
    entries += [("TRAILER!!!", 0, b"")]
    out = bytearray()
    for number, (path, mode, content) in enumerate(entries, 1):
        device = (5, 1) if path == "dev/console" else (0, 0)
        name = path.encode() + b"\0"
        numbers = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name), 0]
        out += b"070701" + "".join(f"{each:08x}" for each in numbers).encode() + name
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return gzip.compress(bytes(out), 1)


def contents(prezero, modules):
    """What the guest consists of."""
    read = lambda path: Path(path).read_bytes()  # noqa: E731
    files = {"init": (0o755, INIT.encode()), "bin/busybox": (0o755, read(shutil.which("busybox"))),
             "bin/prezero": (0o755, read(prezero))}
    linked = subprocess.run(["ldd", prezero], check=True, capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", linked):
        files[library.lstrip("/")] = (0o755, read(library))
    for number, module in enumerate(modules):
        content = lzma.decompress(read(module)) if module.suffix == ".xz" else read(module)
        files[f"modules/{number}-{module.name.removesuffix('.xz')}"] = (0o644, content)
    return files


class Guest:
    """QEMU with a shell on its serial line."""

    def __init__(self, folder, kernel, initramfs, *arguments):
        self.monitor_path = f"{folder}/monitor"
        self.said, self.over = "", False
        command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", f"{MEMORY}M", "-nodefaults", "-nographic",
                   "-no-reboot", "-serial", "stdio", "-qmp", f"unix:{self.monitor_path},server=on,wait=off",
                   "-kernel", str(kernel), "-initrd", str(initramfs),
                   "-append", "console=ttyS0 quiet panic=-1 no_timer_check transparent_hugepage=madvise", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self.listen, daemon=True).start()
        self.wait_for("== up")

    def listen(self):
        while part := os.read(self.process.stdout.fileno(), 65536):
            self.said += part.decode(errors="replace").replace("\r", "")
        self.over = True

    def wait_for(self, pattern):
        found = until(f"{pattern!r} of the guest", lambda: re.search(f"^{pattern}$", self.said, re.M) or self.over)
        assert found is not True, f"the guest ended:\n{self.said}"
        return found

    def run(self, command):
        """Its exit status, and what it said."""
        self.said = ""
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()
        found = self.wait_for(r"== (\d+)")
        return int(found[1]), self.said[:found.start()]

    def dump(self, path):
        """Its memory, as QEMU saves it: the share of its pages that are zero, and its bytes compressed."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(self.monitor_path)
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

    def end(self):
        self.process.kill()
        self.process.wait()


def counted(said, when):
    """Free pages that are zero, and free pages, as prezero counted them."""
    found = re.search(rf"^{when}: +(\d+) of (\d+) free pages are zero", said, re.M)
    assert found, said
    return int(found[1]), int(found[2])


def wiped(folder, kernel, initramfs):
    guest = Guest(folder, kernel, initramfs)
    try:
        status, said = guest.run(f"/bin/busybox dd if=/dev/urandom of=/tmp/x bs=1M count={DIRTY} 2>/dev/null; "
                                 "/bin/busybox rm /tmp/x")
        assert status == 0, said
        status, said = guest.run("/bin/prezero wipe --leave 1T")
        assert status == 1 and "nothing wiped" in said, said
        share, packed = guest.dump(f"{folder}/dump")
        status, said = guest.run("/bin/prezero wipe --report")
        assert status == 0 and "wiped" in said, said
        (zero, free), (zero_after, free_after) = counted(said, "before"), counted(said, "after")
        _, left = guest.run("/bin/busybox grep -E 'MemFree|MemAvailable' /proc/meminfo")
        print(f"{said.strip()}\n{' '.join(left.split())}")
        share_after, packed_after = guest.dump(f"{folder}/dump")
    finally:
        guest.end()
    print(f"the dump: {share:.0%} of its pages are zero, then {share_after:.0%}; "
          f"{packed >> 20} MiB compressed, then {packed_after >> 20} MiB")
    dirty = DIRTY << 20
    assert free - zero > dirty // PAGE * 0.9, "free pages were not dirty"
    assert zero_after > free_after * 0.85, "free pages are not zero"
    assert free_after > free * 0.95, "memory did not come back"
    assert packed - packed_after > dirty * 0.7, "the dump does not compress"


def refused(folder, kernel, initramfs):
    guest = Guest(folder, kernel, initramfs, "-device", "virtio-balloon-pci,free-page-reporting=on")
    try:
        status, said = guest.run("/bin/prezero wipe")
        assert status == 1 and "hypervisor" in said, said
        print(said.strip())
    finally:
        guest.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--kernel")
    options = parser.parse_args()
    for needed in ("qemu-system-x86_64", "busybox"):
        if not shutil.which(needed):
            return print(f"wipe: left out: {needed} is not installed")
    kernel, modules = kernel_of(options.kernel)
    if not kernel:
        return print("wipe: left out: no kernel in /boot; apt-get install linux-image-cloud-amd64, or --kernel FILE")
    with tempfile.TemporaryDirectory() as folder:
        initramfs = Path(folder, "initramfs")
        initramfs.write_bytes(archive(contents(f"{options.folder}/prezero", modules)))
        wiped(folder, kernel, initramfs)
        if modules:
            refused(folder, kernel, initramfs)
        else:
            print("wipe: free page reporting left out: this kernel's modules of virtio are not beside it")
    print("wipe: good")


main()
