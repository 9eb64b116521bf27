#!/usr/bin/env python3
"""Imports between the folders of each crate: downwards only, and never in a circle.

    tests/layers.py [CRATE...]      crates' folders; all of crates/ without arguments
    tests/layers.py --test          this check, tried on a made-up crate

A folder is a top-level module of a crate, be it one file or many. A line `//! Layers: a, b, c` at the top of
the crate's lib.rs or main.rs lists folders, the lowest first: each imports itself and those before it alone,
and no other folder has an inherent `impl` of its types. Folders that no such line names lie above all that it
names, and import each other in no circle; only crates of `BARE` have such folders. What lib.rs or main.rs defines
lies above all of them. Tests are free.
"""
import os
import re
import sys
import tempfile
from pathlib import Path

from sources import Rust, blank, crate_files, end

# Crates whose layers are still to be written. Whoever writes them deletes the crate here.
BARE = set()
# What is known to run the wrong way, by crate: `a>b` where a imports b. Whoever mends one deletes it here.
LEFT = {
}

USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(r"(?<![\w:])(?<!in )((?:crate|super)(?:::\w+)+)")
MODULE = re.compile(r"\bmod\s+(\w+)\s*\{")
TYPE = re.compile(r"\b(?:struct|enum|union)\s+(\w+)")
PUBLIC = re.compile(r"\bpub\s+(?:unsafe\s+|const\s+(?=fn))*(?:struct|enum|union|trait|type|fn|const|static)\s+(\w+)")
IMPL = re.compile(r"^(?:unsafe )?impl\b([^{;]*)\{", re.M)


def leaves(tree):
    """The paths that a use tree imports, as lists of names."""
    heads, path = [[]], []
    for word in re.findall(r"[\w*]+|[{},]", tree + ","):
        if word == "{":
            heads.append(list(path))
        elif word in ",}":
            if path != heads[-1]:
                yield path
            if word == "}":
                heads.pop()
            path = list(heads[-1]) if word == "," else heads[-1]
        else:
            path = path + [word]


class File(Rust):
    """A file, and what it imports."""

    def __init__(self, path, source):
        super().__init__(path, source)
        self.inside = [(found.start(), end(self.text, found.end() - 1), found[1]) for found in MODULE.finditer(self.text)]

    def paths(self):
        """Each path that the file names, from the crate's root on, and where."""
        named = [(found.start(), path) for found in USE.finditer(self.text) for path in leaves(found[1])]
        rest = USE.sub(blank, self.text)
        named += [(found.start(), found[1].split("::")) for found in PATH.finditer(rest)]
        for at, path in named:
            here = self.module + [name for start, last, name in self.inside if start < at < last]
            ups = len(path) - len([name for name in path if name != "super"])
            if path[0] == "crate":
                yield at, path[1:]
            elif ups:
                yield at, here[:len(here) - ups] + path[ups:]

    def place(self, at):
        return f"{self.path}:{self.text.count(chr(10), 0, at) + 1}"


def check(crate):
    """What is wrong in a crate: where, what, and `a>b`; the number of its layers, and of its other folders."""
    files = [file for file in crate_files(crate, File) if file.path.parent != crate / "src" / "bin"]
    roots = [file for file in files if not file.module]
    folders = {file.folder for file in files if file.module}
    named = [re.search(r"^//! Layers: (.*)", root.written, re.M) for root in roots]
    layers = [name for found in named if found for name in found[1].rstrip(".").split(", ")]
    found = [(f"{crate}", f"{name} is a layer, but no folder", None) for name in layers if name not in folders]
    # What lib.rs exports of a folder is that folder's.
    exported = {}
    for folder, name in ((name, path[-1]) for root in roots for use in USE.finditer(root.text)
                         for path in leaves(use[1]) for name in path[:2] if name in folders):
        public = [each for file in files if file.folder == folder for each in PUBLIC.findall(file.text)]
        exported |= dict.fromkeys(public if name == "*" else [name], folder)
    rank = {name: nth for nth, name in enumerate(layers)}
    imports, edges = {}, {}
    for file in files:
        for at, path in file.paths() if file.module else []:
            first = path[0] if path else "*"
            to = first if first in folders else exported.get(first, roots[0].path.name)
            if to != file.folder:
                imports[file.place(at), file.folder, to] = None
                edges.setdefault(file.folder, set()).add(to)
    reached = {}
    for folder in folders:
        ways, reached[folder] = [folder], set()
        while ways:
            new = edges.get(ways.pop(), set()) - reached[folder]
            reached[folder] |= new
            ways += new
    for place, folder, to in imports:
        upward = rank.get(to, len(rank)) > rank.get(folder, len(rank)) or to not in folders
        if upward or (folder in reached.get(to, ()) and to not in rank):
            found.append((place, f"{folder} imports {to}", f"{folder}>{to}"))
    types = {(name, file.folder) for file in files for name in TYPE.findall(file.text)}
    for file in files if layers else []:
        for impl in IMPL.finditer(file.text):
            head = re.sub(r"\bwhere\b.*|\bfor\s*<", "", impl[1], flags=re.S)
            name = re.search(r"(\w+)\s*(?:<[^{]*)?$", re.sub(r"^\s*<(?:[^<>]|<[^<>]*>)*>", "", head).strip())
            homes = sorted(folder for known, folder in types if name and known == name[1])
            if " for " not in head and homes and file.folder not in homes:
                what = f"{file.folder} has an impl of {homes[0]}'s {name[1]}"
                found.append((file.place(impl.start()), what, f"{file.folder}>{homes[0]}"))
    return found, len(layers), len(folders - set(layers))


def try_it():
    """A crate with a layer that imports upward, a circle beside the layers, and an impl in the wrong place."""
    with tempfile.TemporaryDirectory() as folder:
        crate = Path(folder) / "made-up"
        (crate / "src" / "low").mkdir(parents=True)
        for name, text in {
            "lib.rs": "//! Layers: low, high\nmod low;\nmod high;\nmod one;\nmod other;\npub use high::*;\n",
            "low/mod.rs": "//! See [`high`](crate::high).\nmod deep;\nstruct Low;\n#[cfg(test)]\nmod tests {\n    use crate::high::Tall;\n}\n",
            "low/deep.rs": "use super::Low;\n\nuse super::super::high;\nfn deep() -> crate::Tall { high::tall() }\n",
            "high.rs": "use crate::{\n    low::Low,\n};\nimpl<T: Clone> Low {\n}\nimpl From<Tall> for Low {}\npub struct Tall;\n",
            "one.rs": "use crate::{low, other::{self, Other}};\n",
            "other.rs": "use crate::high::Tall;\nfn other() { crate::one::one() }\n",
        }.items():
            (crate / "src" / name).write_text(text)
        found, layers, others = check(crate)
        told = sorted(f"{place.removeprefix(f'{crate}/src/')}: {what}" for place, what, _ in found)
        wanted = ["high.rs:4: high has an impl of low's Low", "low/deep.rs:3: low imports high",
                  "low/deep.rs:4: low imports high", "one.rs:1: one imports other",
                  "other.rs:2: other imports one"]
        if told != wanted or (layers, others) != (2, 2):
            sys.exit(f"layers: the check itself says {told}")


def main():
    if sys.argv[1:] == ["--test"]:
        return try_it()
    crates = [Path(name) for name in sys.argv[1:]]
    if not crates:
        os.chdir(Path(__file__).resolve().parent.parent)
        crates = sorted(path for path in Path("crates").iterdir() if (path / "src").is_dir())
    bad = 0
    for crate in crates:
        found, layers, others = check(crate)
        left = set(LEFT.get(crate.name, "").split())
        wrong = [f"{place}: {what}" for place, what, pair in found if pair not in left]
        wrong += [f"tests/layers.py: {crate.name}: {pair} no more: delete it from LEFT"
                  for pair in sorted(left - {pair for *_, pair in found})]
        if others and crate.name not in BARE:
            wrong.append(f"{crate}: {others} folders are in no layer; name them in its `Layers:` line")
        bad += len(wrong)
        print("".join(line + "\n" for line in wrong), end="")
        print(f"layers: {crate.name}: {layers} layers, {others} folders in none, {len(left)} imports left to mend")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
