"""A guest of QEMU's emulation: a kernel of Debian, an initramfs of busybox and programs, and a shell on its serial line.

Contract: nothing else of the host is in it. A command in it ends within `until`'s patience, or the test fails.
"""
import argparse
import gzip
import lzma
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

from until import until

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


def asked(test, description):
    """The command line FOLDER [--kernel FILE]: that folder, a kernel, and its modules of virtio. Where this host has none, or not
    what a guest needs, that is said, and the test is over."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernel")
    options = parser.parse_args()
    lack = next((f"{needed} is not installed" for needed in ("qemu-system-x86_64", "busybox") if not shutil.which(needed)), None)
    kernel, modules = kernel_of(options.kernel)
    if not lack and not kernel:
        lack = "no kernel in /boot; apt-get install linux-image-cloud-amd64, or --kernel FILE"
    if lack:
        print(f"{test}: left out: {lack}")
        raise SystemExit
    return options.folder, kernel, modules


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


def initramfs(path, programs, modules=(), busybox=shutil.which("busybox"), libraries=None):
    """Writes one with those programs in /bin, libraries beside them, and what they are linked to. For another machine: its
    busybox, and `libraries`, the files by their places."""
    read = lambda path: Path(path).read_bytes()  # noqa: E731
    files = {"init": (0o755, INIT.encode())}
    for place, library in (libraries or {}).items():
        files[place.lstrip("/")] = (0o755, read(library))
    for program in [busybox, *programs]:
        files[f"bin/{Path(program).name}"] = (0o755, read(program))
        linked = "" if libraries else subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+) \(0x", linked):
            files[library.lstrip("/")] = (0o755, read(library))
    for number, module in enumerate(modules):
        content = lzma.decompress(read(module)) if module.suffix == ".xz" else read(module)
        files[f"modules/{number}-{module.name.removesuffix('.xz')}"] = (0o644, content)
    Path(path).write_bytes(archive(files))


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


class Guest:
    """QEMU with a shell on its serial line."""

    def __init__(self, folder, kernel, initramfs, *arguments, mib, append="", system="qemu-system-x86_64", console="ttyS0"):
        self.monitor_path = f"{folder}/monitor"
        self.said, self.over = "", False
        command = [system, "-accel", "tcg", "-cpu", "max", "-m", f"{mib}M", "-nodefaults", "-nographic",
                   "-no-reboot", "-serial", "stdio", "-qmp", f"unix:{self.monitor_path},server=on,wait=off",
                   "-kernel", str(kernel), "-initrd", str(initramfs),
                   "-append", f"console={console} quiet panic=-1 no_timer_check transparent_hugepage=madvise {append}", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self.listen, daemon=True).start()
        try:
            self.wait_for("== up")
        except BaseException:
            self.end()
            raise

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

    def end(self):
        self.process.kill()
        self.process.wait()
