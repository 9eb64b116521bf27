#!/usr/bin/env python3
"""A struct has at most twelve fields: what has more is several things.

    tests/fields.py         fails where a struct has more, or more than its line below says
    tests/fields.py --test  tries the check itself

A struct that has more has a line here, with the number that it has. The number only falls.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 12
ALLOWED = {
    # One field for each knob, setting, line of a file, or sum that is shown.
    "Settings": 18,
    # To be divided.
    "Waker": 16,
}
STRUCT = re.compile(r"^(?:pub(?:\([^)]*\))? )?struct (\w+)[^{;(]*\{\n(.*?)^\}", re.S | re.M)
FIELD = re.compile(r"^    (?:pub(?:\([^)]*\))? )?\w+: ", re.M)


def structs(text):
    """Names of a file's structs and how many fields each has, tests apart."""
    text = text.split("#[cfg(test)]\nmod tests {")[0]
    return [(name, len(FIELD.findall(body))) for name, body in STRUCT.findall(text)]


def wrong(found):
    seen = {name: fields for name, fields in found if name in ALLOWED and fields > MOST}
    for name, fields in found:
        if fields > ALLOWED.get(name, MOST):
            yield f"{name} has {fields} fields, of {ALLOWED.get(name, MOST)} at most: divide it"
    for name, most in ALLOWED.items():
        if seen.get(name, 0) < most:
            yield f"{name} has {seen.get(name, 'few')} fields now: its line in tests/fields.py says {most}"


def test():
    fields = "".join(f"    pub a{n}: u8,\n" for n in range(13))
    assert structs(f"pub(crate) struct A<B> {{\n{fields}}}\nstruct C {{\n    d: u8,\n}}\n") == [("A", 13), ("C", 1)]
    assert structs(f"#[cfg(test)]\nmod tests {{\nstruct A {{\n{fields}}}\n}}\n") == []
    found = list(ALLOWED.items())
    assert list(wrong(found)) == []
    assert any("A has 13" in line for line in wrong([*found, ("A", 13)]))
    assert any("Waker has 26" in line for line in wrong([*[each for each in found if each[0] != "Waker"], ("Waker", 26)]))


def main():
    if "--test" in sys.argv[1:]:
        return test()
    paths = sorted(path for path in (ROOT / "crates").glob("*/src/**/*.rs") if "tests" not in path.parts)
    lines = list(wrong([each for path in paths for each in structs(path.read_text())]))
    print("".join(f"{line}\n" for line in lines), end="")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
