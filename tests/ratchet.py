#!/usr/bin/env python3
"""The most lines of code that each folder may have, in tests/ratchet.txt: a figure only falls.

    tests/ratchet.py            fails where a folder has more than its figure, fewer, or none
    tests/ratchet.py --lower    lowers figures to what the folders have, and drops the rows of folders that went
    tests/ratchet.py --test     this check, tried on a made-up tree

A row is a crate, a folder of a crate's `src` with the file beside it that has its name, the Go of `kubernetes`, or
the Python of `bindings`. Lines that are blank, comments or tests do not count. New code in a full folder pays by a
deletion there; where that cannot be, its row is raised by hand, and the commit says what for.
"""
import sys
import tempfile
from pathlib import Path

from sources import code_lines, crate_files, filled, without_comments

ROOT = Path(__file__).resolve().parent.parent
TABLE = "tests/ratchet.txt"
# Other folders, and what is counted there.
OTHERS = {"kubernetes": "*.go", "bindings": "*.py"}


def counted(root):
    """Each folder that needs a row, with its lines of code."""
    found = {}
    for crate in sorted(path for path in (root / "crates").iterdir() if (path / "src").is_dir()):
        files = crate_files(crate)
        beside = [filled(without_comments(path.read_text())) for path in crate.glob("build.rs")]
        found[f"crates/{crate.name}"] = sum(file.lines for file in files) + sum(beside)
        for folder in {file.folder for file in files if (crate / "src" / file.folder).is_dir()}:
            found[f"crates/{crate.name}/src/{folder}"] = sum(file.lines for file in files if file.folder == folder)
    for folder, kind in OTHERS.items():
        paths = [path for path in (root / folder).rglob(kind) if not path.name.endswith("_test.go")
                 and not {"test", "tests", "build", "target"} & set(path.relative_to(root).parts)]
        if paths:
            found[folder] = sum(map(code_lines, paths))
    return found


def table(root):
    rows = [line.split() for line in (root / TABLE).read_text().splitlines() if line and not line.startswith("#")]
    return {folder: int(most) for most, folder in rows}


def wrong(root):
    found, most = counted(root), table(root)
    for folder in sorted(found | most):
        if folder not in most:
            yield f"{folder} has no row: it has {found[folder]} lines of code; add `{found[folder]} {folder}`"
        elif folder not in found:
            yield f"{folder} is gone, but has a row: run tests/ratchet.py --lower"
        elif found[folder] > most[folder]:
            yield f"{folder} has {found[folder]} lines of code, of {most[folder]} at most: delete {found[folder] - most[folder]}"
        elif found[folder] < most[folder]:
            yield f"{folder} has {found[folder]} lines of code, its row says {most[folder]}: run tests/ratchet.py --lower"


def lower(root):
    found = counted(root)
    head = [line for line in (root / TABLE).read_text().splitlines() if line.startswith("#")]
    rows = [f"{min(most, found[folder]):6} {folder}" for folder, most in sorted(table(root).items()) if folder in found]
    (root / TABLE).write_text("".join(f"{line}\n" for line in head + rows))


def test():
    """A tree with a crate that has tests of three kinds, comments, and strings that look like comments."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {
            "crates/one/src/lib.rs": "//! Words.\n\nmod a;\nmod b; // why\n/* long\nwords */\n",
            "crates/one/src/a/mod.rs": '#[cfg(test)]\nmod tests;\nmod c;\nconst D: &str = "\n// no comment\n";\n',
            "crates/one/src/a/c.rs": "/// What.\nfn c() {\n\n    c(); // and why\n}\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n",
            "crates/one/src/a/tests.rs": "mod deep;\nfn t() {}\n",
            "crates/one/src/a/tests/deep.rs": "fn t() {}\n",
            "crates/one/src/b.rs": "#[cfg(any(test, feature = \"b\"))]\nfn b() {}\n",
            "crates/one/src/b/part.rs": "fn part() {}\n",
            "crates/one/tests/all.rs": "fn t() {}\n",
            "kubernetes/run.go": "// Words.\npackage run\n\nvar a = `\n// no comment\n`\n",
            "kubernetes/run_test.go": "package run\n",
            "kubernetes/test/rig.go": "package rig\n",
            "bindings/python/one.py": "# Words.\nimport re\n\na = 1  # why\n",
            TABLE: "# Words.\n    12 crates/one\n     6 crates/one/src/a\n     4 crates/one/src/b\n     1 crates/one/src/gone\n     4 kubernetes\n",
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        assert counted(root) == {"crates/one": 12, "crates/one/src/a": 7, "crates/one/src/b": 3, "kubernetes": 4, "bindings": 2}, counted(root)
        told = [line.partition(":")[0] for line in wrong(root)]
        assert told == ["bindings has no row", "crates/one/src/a has 7 lines of code, of 6 at most",
                        "crates/one/src/b has 3 lines of code, its row says 4", "crates/one/src/gone is gone, but has a row"], told
        lower(root)
        assert (root / TABLE).read_text().startswith("# Words.\n    12 crates/one\n"), "the head is lost"
        told = [line.partition(":")[0] for line in wrong(root)]
        assert told == ["bindings has no row", "crates/one/src/a has 7 lines of code, of 6 at most"], told


def main():
    if sys.argv[1:] == ["--test"]:
        return test()
    if sys.argv[1:] == ["--lower"]:
        lower(ROOT)
    lines = list(wrong(ROOT))
    print("".join(f"{TABLE}: {line}\n" for line in lines), end="")
    print(f"ratchet: {sum(most for folder, most in table(ROOT).items() if '/src/' not in folder)} lines of code")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
