#!/usr/bin/env python3
"""The table of tuning constants, out of the sources.

    tests/constants.py            prints the table as Markdown
    tests/constants.py --check    fails where a constant says too little

A constant's doc comment says what it is and why, and has one line `Moved by: BENCHMARK OR TEST`. A constant
that no benchmark could move (a layout, a limit of a format) has a line `Fixed: REASON` instead, and is not in the
table. Constants right below one another share the first one's comment; those right below a fixed one are fixed too,
unless they say `Moved by`.
In the folders of `TUNED` each constant that is a number needs one of the two lines; elsewhere those with
`Moved by` are listed. Tests are free. Name and value come from the declaration; the unit comes from the name's
ending, or from the first word of the comment.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TUNED = [ROOT / "crates/prezero/src" / name for name in "policy clear pool cpu zone scrubd daemon".split()]
NUMBER = re.compile(r"\(?(?:[ui](?:8|16|32|64|128|size)|f32|f64|Duration)\b")
CONST = re.compile(
    r"(?P<doc>(?:^[ \t]*///[^\n]*\n)*)(?:^[ \t]*#\[[^\n]*\n)*"
    r"^[ \t]*(?:pub(?:\([^)]*\))? )?const (?P<name>[A-Z][A-Z0-9_]*): (?P<type>[^=]+?) =\s*(?P<value>[^;]*);[^\n]*\n",
    re.M)
UNITS = {"NS": "ns", "BYTES": "bytes", "PAGES": "pages", "TENTHS": "tenths"}
WORDS = {"Nanoseconds": "ns", "Bytes": "bytes", "Pages": "pages", "Huge blocks": "huge blocks", "Minutes": "min",
         "Doublings": "doublings", "Blocks": "blocks", "Spins": "spins", "Clears": "clears", "Ticks": "ticks"}
SCALES = {"ns": [(10**9, "s"), (10**6, "ms"), (10**3, "us")],
          "bytes": [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]}


class Constant:
    def __init__(self, file, line, found):
        self.file, self.line = file, line
        self.name, self.type, self.text = found["name"], found["type"], " ".join(found["value"].split())
        said = [each.strip()[3:].strip() for each in found["doc"].splitlines()]
        tag = next((n for n, each in enumerate(said) if re.match("(Moved by|Fixed): ", each)), len(said))
        rest = said[tag:]
        last = rest.index("") if "" in rest else len(rest)
        self.reason = " ".join(" ".join(said[:tag]).split())
        self.tag, _, self.because = " ".join(rest[:last]).partition(": ")


def constants(path):
    """Those of a file, by the comment that they share."""
    text = path.read_text()
    text = re.split(r"^#\[cfg\((?:all\(|any\()?test\b[^\n]*\n(?:#\[[^\n]*\n)*mod \w+ \{", text, flags=re.M)[0]
    groups, end = [], -1
    for found in CONST.finditer(text):
        each = Constant(path, text.count("\n", 0, found.start("name")) + 1, found)
        below = groups and found.start() == end
        if below and not each.tag and groups[-1][0].tag == "Fixed":
            each.tag = "Fixed"
        if below and not found["doc"]:
            groups[-1].append(each)
        else:
            groups.append([each])
        end = found.end()
    return groups


class Values:
    """What declarations come to."""

    def __init__(self, all_of):
        self.all_of = all_of

    def of(self, constant):
        def known(found):
            *ways, name = found[0].split("::")
            if found[0] in ("u64::BITS", "u32::MAX", "u64::MAX", "usize::MAX"):
                bits = int(found[0][1:3]) if ways[0] != "usize" else 64
                return str(bits if name == "BITS" else (1 << bits) - 1)
            # The module that the path names or an import brings it from, else this file, else this folder.
            ways = ways or re.findall(rf"(\w+)::{name};", constant.file.read_text())
            same = [each for each in self.all_of if each.name == name]
            same.sort(key=lambda each: (ways[-1:] != [each.file.stem], each.file != constant.file,
                                        each.file.parent != constant.file.parent))
            return f"({self.of(same[0])})"
        text = re.sub(r" as \w+|(?<=\d)_(?:[uif]\d+)?", "", constant.text)
        text = re.sub(r"(?<![\w.])(?:\w+::)*[A-Z][A-Z0-9_]*\b", known, text)
        if not re.fullmatch(r"[\d\s().,+*/<>e-]+", text):
            raise ValueError(constant.text)
        return eval(text if "." in text else text.replace("/", "//"))  # digits and operators alone

    def shown(self, constant):
        """Unit and value, in a scale that reads well."""
        first = next((unit for word, unit in WORDS.items() if re.match(rf"{word}\b", constant.reason)), "")
        unit = UNITS.get(constant.name.rsplit("_", 1)[-1], first)
        try:
            value = self.of(constant)
        except (ValueError, IndexError):
            return unit, f"`{constant.text}`"
        if isinstance(value, tuple):
            return unit, " to ".join(f"{each:g}" for each in value)
        for scale, larger in SCALES.get(unit, []):
            if value >= scale:
                return larger, f"{value / scale:.4g}"
        return unit, f"{value:g}" if isinstance(value, float) else f"{value}"


def table(groups, values):
    rows = ["# Constants", ""]
    crate = None
    for group in groups:
        first = group[0]
        if first.tag != "Moved by":
            continue
        here = first.file.relative_to(ROOT / "crates")
        if here.parts[0] != crate:
            crate = here.parts[0]
            rows += ["" if rows[-1] else None, f"## {crate}", "",
                     "| constant | unit | value | reason | moved by | file |", "|---|---|---|---|---|---|"]
        group = list({each.name: each for each in reversed(group)}.values())[::-1]
        shown = [values.shown(each) for each in group]
        units = list(dict.fromkeys(unit for unit, _ in shown))
        amounts = [value if len(units) == 1 else f"{value} {unit}".strip() for unit, value in shown]
        reason = re.sub(r"\[(`?)([^]]*)\1\](?:\([^)]*\))?", r"\1\2\1", first.reason).replace("|", "\\|")
        rows.append(f"| {', '.join(f'`{each.name}`' for each in group)} | {units[0] if len(units) == 1 else ''} "
                    f"| {', '.join(amounts)} | {reason} | {first.because.rstrip('.')} "
                    f"| {'/'.join(here.parts[2:])} |")
    return "\n".join(row for row in rows if row is not None) + "\n"


def main():
    paths = sorted(path for path in (ROOT / "crates").glob("*/src/**/*.rs")
                   if "tests" not in path.relative_to(ROOT).parts and path.stem != "tests")
    groups = [group for path in paths for group in constants(path)]
    wrong = []
    for group in groups:
        first, numbers = group[0], [each for each in group if NUMBER.match(each.type)]
        place = f"{first.file.relative_to(ROOT)}:{first.line}: {first.name}"
        if numbers and not first.tag and any(folder in first.file.parents for folder in TUNED):
            wrong.append(f"{place} has no line `Moved by:` (or `Fixed:`)")
        if first.tag == "Moved by" and not first.reason:
            wrong.append(f"{place} says no reason")
        if first.tag == "Moved by" and first.because.startswith("nothing"):
            wrong.append(f"{place} is moved by nothing: name the benchmark or test, or say `Fixed:` and why")
        if first.tag == "Moved by":
            wrong += [f"{place} is moved by {path}, which is not there"
                      for path in re.findall(r"`((?:bench|tests)/[\w./-]+)", first.because)
                      if not (ROOT / path).exists()]
    if "--check" not in sys.argv[1:]:
        print(table(groups, Values([each for group in groups for each in group])))
    tuned = [group[0] for group in groups if group[0].tag == "Moved by"]
    print("".join(f"{each}\n" for each in wrong), end="")
    print(f"constants: {len(tuned)} comments")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
