#!/usr/bin/env python3
"""Every test has a line in tests/README.md, every line there names a test, every script in tests/programs says what
it is about, and every C program of the shim's tests has the module that runs it.

    tests/listed.py
"""
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
TESTS = ["tests/*.sh", "tests/*.py", "tests/system/*.sh", "tests/system/*.py", "tests/programs/matrix.py",
         "tests/fuzz/*.py", "tests/soak/*.py", "kubernetes/test/*/*_test.go", "kubernetes/internal/*/*_test.go", "crates/*/tests/*.rs", "crates/prezero-preload/tests/shim/*.rs"]
# What tests share, and what installs the packages that they need.
SHARED = {"tests/setup.sh", "tests/each.sh", "tests/report.py", "tests/sources.py", "kubernetes/test/level0/books_test.go",
          "kubernetes/test/level2/cluster_test.go", "kubernetes/test/level2/processes_test.go", "crates/prezero-preload/tests/shim/main.rs",
          "crates/prezero-preload/tests/shim/run.rs"}


def main():
    readme = (HERE / "README.md").read_text()
    lines = [str((HERE / link).resolve().relative_to(TOP)) for link in re.findall(r"^\| \[.*?\]\((.*?)\)", readme, re.M)]
    tests = {str(path.relative_to(TOP)) for glob in TESTS for path in TOP.glob(glob)} - SHARED
    wrong = [f"{test} has no line" for test in sorted(tests - set(lines))]
    wrong += [f"the line of {line} names no test" for line in sorted(set(lines) - tests)]
    wrong += [f"{line} has several lines" for line in sorted(set(lines)) if lines.count(line) > 1]
    for script in sorted(TOP.glob("tests/programs/*.sh")):
        if not re.search(r"^# about: \S", script.read_text(), re.M):
            wrong.append(f"{script.relative_to(TOP)} has no line `# about: ...`")
    shim = TOP / "crates/prezero-preload/tests"
    for program in sorted([*shim.glob("c/*.c"), *shim.glob("c/*.cc")]):
        if not (shim / "shim" / f"{program.stem.split('_')[0]}.rs").exists():
            wrong.append(f"{program.relative_to(TOP)} is named after no module of the shim's tests")
        if not any(f'"{program.name}"' in module.read_text() for module in shim.glob("shim/*.rs")):
            wrong.append(f"{program.relative_to(TOP)} is run by no test")
    for line in wrong:
        print(f"tests/README.md: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
