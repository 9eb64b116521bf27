#!/usr/bin/env python3
"""What Rust programs see of the crate prezero: each public item, with its methods, fields and variants, is in tests/public.txt.

    tests/public.py             fails where the documentation shows other names than the list
    tests/public.py --write     renews the list

A change of the list is a change of what users build on: CHANGELOG.md says so. The names are read from rustdoc's pages.
"""
import html
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/public.txt"
KINDS = ["mod", "struct", "enum", "union", "trait", "type", "constant", "static", "fn", "macro"]
ITEM = re.compile(r'<a href="((?:[\w]+/)*)(%s)\.(\w+)\.html">' % "|".join(KINDS))
# Of an item's own page, before what traits give it.
PART = re.compile(r'id="(?:method|tymethod|variant|structfield|associatedconstant|associatedtype)\.(\w+)"')
OTHERS = re.compile(r'id="(?:trait-implementations|deref-methods-\w+|synthetic-implementations|blanket-implementations|implementors)"')


def documented():
    # Apart: `cargo doc --document-private-items` leaves pages of what is private.
    target = ROOT / "target/public"
    command = [os.environ.get("CARGO", "cargo"), "doc", "--quiet", "--no-deps", "-p", "prezero", "--target-dir", target]
    subprocess.run(command, cwd=ROOT, check=True)
    return target / "doc/prezero"


def surface(pages):
    """A line for each item: its kind and path, and its parts."""
    for folder, kind, name in ITEM.findall((pages / "all.html").read_text()):
        page = html.unescape((pages / folder / f"{kind}.{name}.html").read_text())
        own = OTHERS.split(page)[0]
        parts = sorted(set(PART.findall(own)))
        yield " ".join([kind, folder.replace("/", "::") + name + ":" * bool(parts), *parts])


def main():
    lines = sorted(surface(documented()))
    if sys.argv[1:] == ["--write"]:
        LIST.write_text("".join(f"{line}\n" for line in lines))
    elif sys.argv[1:]:
        return __doc__
    known = LIST.read_text().splitlines()
    for line in sorted(set(known) ^ set(lines)):
        print(f"{'only in tests/public.txt' if line in known else 'not in tests/public.txt'}: {line}")
    print(f"public: {len(lines)} items, {sum(len(line.split()) - 2 for line in lines)} methods, fields and variants")
    return 1 if known != lines else 0


if __name__ == "__main__":
    sys.exit(main())
