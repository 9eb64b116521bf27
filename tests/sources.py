"""What of the repository's sources is code: not a comment, not a blank line, not a test. The checks of `make lint` share it.

A file of Rust is a test where `#[cfg(test)] mod NAME;` names it or a module above it, and so is an item behind `#[cfg(test)]`.
A file of Go is one by its name. Folders `test` and `tests` hold tests alone.
"""
import re

NO_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])'""", re.S)
GO = re.compile(r"""//[^\n]*|/\*.*?\*/|`[^`]*`|"(?:\\.|[^"\\\n])*"|'(?:\\.[^']*|[^'\\])'""", re.S)
TEST = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]")
TEST_FILE = re.compile(TEST.pattern + r"\s*(?:#\[[^\]]*\]\s*)*(?:pub\S*\s+)?mod\s+(\w+);")


def blank(found):
    return re.sub(r"[^\n]", " ", found[0])


def without_comments(text, tokens=NO_CODE):
    """The text with spaces for its comments; what looks like one inside a string stays."""
    return tokens.sub(lambda found: blank(found) if found[0].startswith("/") else found[0], text)


def end(text, at):
    """Where the item at `at` ends: its closing brace, or the semicolon of one that has none."""
    depth = 0
    for at in range(at, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0 and text[at] in ";}":
            break
    return at + 1


def filled(text):
    """How many lines hold anything."""
    return sum(1 for line in text.splitlines() if line.strip())


class Rust:
    """A file of a crate: its code without comments, texts and tests, and how many lines of code it has."""

    def __init__(self, path, source):
        self.path, parts = path, list(path.relative_to(source).with_suffix("").parts)
        self.module = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
        self.folder = self.module[0] if self.module else path.name
        self.written = path.read_text()
        text, code = NO_CODE.sub(blank, self.written), without_comments(self.written)
        self.tests = [self.module + [found[1]] for found in TEST_FILE.finditer(text)]
        while found := TEST.search(text):
            first, last = found.start(), end(text, found.end())
            text, code = ("".join([each[:first], re.sub(r"[^\n]", " ", each[first:last]), each[last:]])
                          for each in (text, code))
        self.text, self.lines = text, filled(code)


def crate_files(crate, kind=Rust):
    """The files of a crate's `src` that are no tests, each as a `kind`."""
    files = [kind(path, crate / "src") for path in sorted((crate / "src").rglob("*.rs"))]
    tests = [module for file in files for module in file.tests]
    return [file for file in files if not any(file.module[:len(test)] == test for test in tests)]


def code_lines(path):
    """How many lines of code a file of Go, C or Python has."""
    text = path.read_text()
    if path.suffix == ".py":
        return filled(re.sub(r"^\s*#.*", "", text, flags=re.M))
    return filled(without_comments(text, GO if path.suffix == ".go" else NO_CODE))
