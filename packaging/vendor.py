#!/usr/bin/env python3
"""The crates that a build for Linux needs, for one without a network: what `cargo vendor` brings, less other platforms' and tests'.

    packaging/vendor.py FOLDER       in a checkout

Cargo wants each crate of the lock to be there: of one that is not built, only its manifest stays.
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

CARGO = os.environ.get("CARGO", "cargo")
MACHINES = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]


def built():
    """Name and version of each crate that a build takes, `-` between them, as its folder is named."""
    for machine in MACHINES:
        command = [CARGO, "tree", "--locked", "--workspace", "--edges", "normal,build", "--prefix", "none", "--target", machine]
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
            if line:
                name, version = line.split()[:2]
                yield f"{name}-{version.removeprefix('v')}"


def lessened(crate, kept):
    """Without its manifest as it was written, which no build reads; and, if it is not kept, without all but its manifest."""
    sums = crate / ".cargo-checksum.json"
    said = json.loads(sums.read_text())
    said["files"].pop("Cargo.toml.orig", None)
    (crate / "Cargo.toml.orig").unlink(missing_ok=True)
    if not kept:
        said["files"] = {}
        for each in crate.iterdir():
            if each.name not in ("Cargo.toml", sums.name):
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        (crate / "src").mkdir()
        (crate / "src/lib.rs").touch()
    sums.write_text(json.dumps(said))


def main(folder):
    subprocess.run([CARGO, "vendor", "--locked", "--versioned-dirs", "--quiet", folder], check=True, stdout=subprocess.DEVNULL)
    kept = set(built())
    for crate in sorted(Path(folder).iterdir()):
        lessened(crate, crate.name in kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)
