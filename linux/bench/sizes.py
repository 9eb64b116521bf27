#!/usr/bin/env python3
"""sizes.py PLAIN PATCHED: bytes of text of the functions that every allocation and free passes, in two builds.

PLAIN and PATCHED are object directories of the same configuration, but for the series. A function that the
compiler inlined is part of its callers, so a row may be missing or have moved into another one: the sum of
the rows is what to compare.
"""
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


if __name__ == "__main__":
    main()
