#!/usr/bin/env python3
"""On a kernel whose pages are larger than 4 KiB programs run as without prezero, and a line says why.

    tests/system/pages.py [KERNEL]     Debian's arm64 kernel with pages of 16 KiB, in QEMU's emulation

Needs qemu-system-aarch64, gcc-aarch64-linux-gnu, mmdebstrap, root, and Rust for aarch64 (rustup target add).
KERNEL: another package of Debian's than linux-image-arm64-16k.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/common"))
from guest import Guest, initramfs  # noqa: E402

TARGET = "aarch64-unknown-linux-gnu"
LIBRARIES = ["ld-linux-aarch64.so.1", "libc.so.6", "libgcc_s.so.1", "libm.so.6", "libdl.so.2", "libpthread.so.0"]
# Corners of the malloc family, blocks that threads pass on, children: each ends with "good", or says what it found.
PROGRAMS = ["family_blocks", "family_corners", "realloc_border", "threads_blocks", "fork_kinds"]


def lack():
    for needed in ("qemu-system-aarch64", "aarch64-linux-gnu-gcc", "mmdebstrap", "cargo"):
        if not shutil.which(needed):
            return f"{needed} is not installed"
    if os.geteuid() != 0:
        return "not root"
    found = subprocess.run(["rustc", "--print", "target-libdir", "--target", TARGET], capture_output=True, text=True).stdout.strip()
    return "" if Path(found).exists() else f"no Rust for {TARGET}"


def built(folder):
    """The command and the library for arm64, and programs in C."""
    environment = os.environ | {"CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER": "aarch64-linux-gnu-gcc"}
    for options in (["--release", "-p", "prezero-cli"], ["--profile", "library", "-p", "prezero-preload"]):
        subprocess.run(["cargo", "build", "--quiet", "--target", TARGET, *options], cwd=ROOT, env=environment, check=True)
    for name in PROGRAMS:
        sources = ROOT / "crates/prezero-preload"
        subprocess.run(["aarch64-linux-gnu-gcc", "-std=gnu11", "-w", "-O1", "-fno-builtin", "-pthread", f"-I{sources}/include",
                        "-o", folder / name, sources / f"tests/c/{name}.c", "-ldl"], check=True)
    target = ROOT / "target" / TARGET
    return [target / "release/prezero", target / "library/libprezero.so", *(folder / name for name in PROGRAMS)]


def main(package="linux-image-arm64-16k"):
    if why := lack():
        return print(f"pages: left out: {why}")
    mirror = subprocess.run([ROOT / "tests/common/mirror.sh"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        made = subprocess.run(["mmdebstrap", "--quiet", "--arch=arm64", "--variant=extract", f"--include={package},busybox-static,libc6,libgcc-s1",
                               "--aptopt=APT::Install-Recommends \"false\"", "trixie", folder / "root", mirror], capture_output=True, text=True)
        if made.returncode != 0:
            return print(f"pages: left out: no {package} to be had: {made.stderr.strip().splitlines()[-1:]}")
        lib = folder / "root/usr/lib/aarch64-linux-gnu"
        libraries = {f"/lib/{name}": lib / name for name in LIBRARIES}
        kernel = next((folder / "root/boot").glob("vmlinuz-*"))
        initramfs(folder / "initramfs", built(folder), busybox=folder / "root/usr/bin/busybox", libraries=libraries)
        guest = Guest(folder, kernel, folder / "initramfs", "-machine", "virt", mib=1024,
                      system="qemu-system-aarch64", console="ttyAMA0")
        try:
            look(guest)
        finally:
            guest.end()


def look(guest):
    size = guest.run("/bin/busybox grep -m 1 KernelPageSize /proc/self/smaps")[1].split()[1]
    assert int(size) > 4, f"pages of {size} kB"
    for name in PROGRAMS:
        plain, by = guest.run(f"/bin/{name}"), guest.run(f"/bin/prezero run --stats off -- /bin/{name}")
        assert by[0] == plain[0], f"{name}: {by}, and {plain} without prezero"
    status, said = guest.run(f"/bin/prezero run -- /bin/{PROGRAMS[0]}")
    line = [line for line in said.splitlines() if "pages are larger than 4 KiB" in line]
    assert len(line) == 1, said
    print(f"pages: {size} kB: {line[0]}")
    status, said = guest.run("/bin/prezero doctor")
    assert status == 0 and re.search("^bad   pages: larger$", said, re.M), said
    print(f"pages: {len(PROGRAMS)} programs as without prezero: good")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
