#!/usr/bin/env python3
"""sizes.py PLAIN PATCHED: bytes of text of the functions that every allocation and free passes, in two builds.

PLAIN and PATCHED are object directories of the same configuration, but for the series. A function that the
compiler inlined is part of its callers, so a row may be missing or have moved into another one: the sum of
the rows is what to compare, or that of all functions that the unpatched source has. The others are the series'
own, which run only while its key is on.
"""
import pathlib
import re
import subprocess
import sys

FUNCTIONS = (
    "post_alloc_hook", "get_page_from_freelist", "__rmqueue_pcplist", "rmqueue_bulk", "rmqueue_buddy",
    "__free_frozen_pages", "free_frozen_page_commit", "free_pcppages_bulk", "__free_one_page", "free_unref_folios",
)


def sizes(objects):
    found = {}
    listing = subprocess.run(["nm", "-S", f"{objects}/mm/page_alloc.o"], check=True, capture_output=True, text=True)
    for line in listing.stdout.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[2] in "tT":
            # What gcc split off or specialised is the function's all the same.
            name = fields[3].split(".")[0]
            if not fields[3].endswith(".cold"):
                found[name] = found.get(name, 0) + int(fields[1], 16)
    return found


def known(objects):
    """The functions that a build's source has, whether the compiler inlined them or not."""
    source = pathlib.Path(objects, "source")
    files = ("mm/page_alloc.c", "mm/internal.h", "mm/page_alloc.h", "include/linux/mmzone.h")
    return set(re.findall(r"\b(\w+)\(", "".join((source / name).read_text() for name in files)))


def main():
    plain, patched = (sizes(objects) for objects in sys.argv[1:3])
    total = [0, 0]
    print(f"{'function':28}{'unpatched':>10}{'series':>10}")
    for name in FUNCTIONS:
        pair = plain.get(name, 0), patched.get(name, 0)
        total = [a + b for a, b in zip(total, pair)]
        more = f"{100 * (pair[1] / pair[0] - 1):+7.1f} %" if all(pair) else ""
        print(f"{name:28}{pair[0] or '-':>10}{pair[1] or '-':>10}{more}")
    print(f"{'sum':28}{total[0]:>10}{total[1]:>10}{100 * (total[1] / total[0] - 1):+7.1f} %")
    names = known(sys.argv[1])
    before, own = sum(plain.values()), sum(size for name, size in patched.items()
                                           if name not in plain and name not in names)
    rest = sum(patched.values()) - own
    print(f"{'all that was there before':28}{before:>10}{rest:>10}{100 * (rest / before - 1):+7.1f} %")
    print(f"{'only with the key on':28}{0:>10}{own:>10}")


if __name__ == "__main__":
    main()
