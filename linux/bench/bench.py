#!/usr/bin/env python3
"""bench.py BUILD [--boots N] [--json FILE]: patched against unpatched, interleaved.

User-mode Linux runs the allocator natively, one kernel a process: each round boots every arm once,
in shuffled order, and each boot runs every case REPEATS times. The figure of a case is the median
over all boots; the spread is the quartiles over boots. Nothing is compared across rounds.

Arms:
  plain   the unpatched kernel. Its `back` cases clear as 6.12's huge-page fault does.
  stock   the patched kernel; the working set is free and zero before each run.
  never   the patched kernel as it comes: nothing is tracked, nothing is scrubbed.
  bare    the patched kernel tracks the zero state, but nothing is zero: what tracking costs.
"""
import argparse
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SET_MB, EVICT_MB = 256, 640
GUEST_MB = 1600  # working set, what is read to evict it, and room for kscrubd to leave alone
REPEATS = 3

COLD = [f"cold:{order}:{clear}:{touch}"
        for order in (0, 4, 9, 10)
        for clear, touch in (("zero", "none"), ("zero", "page"), ("zero", "line"))]
BACK = [f"cold:{order}:back:{touch}" for order in (9, 10) for touch in ("none", "page", "line")]
PAIRS = [f"pair:{order}:{clear}:none" for order in (0, 4, 9) for clear in ("none", "zero")]
COLD_DIRTY = [f"cold:{order}:none:none" for order in (0, 4, 9)]

COLD_NONE = [case for case in COLD if case.endswith(":none")]

# Name: kernel, its arguments, cases.
ARMS = {
    "plain": ("um-plain", "", COLD + BACK + COLD_DIRTY + PAIRS),
    "stock": ("um", "prezero=on", COLD),
    "never": ("um", "", COLD_NONE + COLD_DIRTY + PAIRS),
    "bare": ("um", "prezero=on", COLD_NONE + COLD_DIRTY + PAIRS),
}

# What the series has to reach, as (title, case, arm, case of `plain` that it is held against,
# bound on plain/arm, upper or lower).
GOALS = [
    ("order 4 from stock", "cold:4:zero:none", "stock", "cold:4:zero:none", 20),
    ("order 9 from stock", "cold:9:zero:none", "stock", "cold:9:zero:none", 400),
    ("order 10 from stock", "cold:10:zero:none", "stock", "cold:10:zero:none", 800),
    ("order 9, one write a page", "cold:9:zero:page", "stock", "cold:9:zero:page", 5),
    ("order 9, every line written", "cold:9:zero:line", "stock", "cold:9:zero:line", 1.0),
    ("order 9, page, against backward", "cold:9:zero:page", "stock", "cold:9:back:page", 5),
    ("order 9, line, against backward", "cold:9:zero:line", "stock", "cold:9:back:line", 1.0),
    ("order 10, every line written", "cold:10:zero:line", "stock", "cold:10:zero:line", 1.0),
    ("order 0 cold from stock, against hot clearing", "cold:0:zero:none", "stock",
     "pair:0:zero:none", 1.0),
    ("order 0, every line written", "cold:0:zero:line", "stock", "cold:0:zero:line", 1.0),
] + [
    (f"never: {case}", case, "never", case, 0.99) for case in PAIRS
]


def backing():
    """A directory for the guests' memory: huge pages where we may mount them, else the host's tmpfs."""
    where = Path(tempfile.mkdtemp(prefix="prezero-bench-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"huge=always,size={GUEST_MB + 64}m",
                              "tmpfs", str(where)], capture_output=True).returncode == 0
    if mounted:
        return where, "tmpfs, huge=always", True
    where.rmdir()
    return Path("/dev/shm"), "tmpfs, /dev/shm", False


def boot(build, kernel, append, arm, cases, directory):
    """One guest's life; yields (case, ns, bad, hits, misses)."""
    # The command line is bounded: cases go in groups, each its own boot.
    for start in range(0, len(cases), 24):
        group = cases[start:start + 24]
        run = ",".join(["bench", arm, str(REPEATS)] + group)
        env = dict(os.environ, TMPDIR=str(directory), GUEST_MEM=str(GUEST_MB), GUEST_TIMEOUT="180",
                   GUEST_APPEND=append)
        done = subprocess.run([str(HERE.parent / "scripts/guest.sh"), "um",
                               str(build / kernel / "linux"), str(build / f"{kernel}-bench.gz"), run],
                              env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"bench.py: {kernel} {arm}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr}")
        for line in done.stdout.splitlines():
            if match := re.fullmatch(r"BENCH \w+ (\S+) (\d+) (\d+) (\d+) (-?\d+) (-?\d+)", line):
                case, ps, blocks, bad, hits, misses = match.groups()
                if int(bad):
                    sys.exit(f"bench.py: {kernel} {arm} {case}: {bad} blocks of {blocks} NOT ZERO")
                yield case, int(ps) / 1000, int(blocks), int(hits), int(misses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--boots", type=int, default=7, help="boots of each arm")
    parser.add_argument("--json", type=Path, help="where all figures go")
    parser.add_argument("--arms", default=",".join(ARMS), help="which of them")
    options = parser.parse_args()
    arms = {name: ARMS[name] for name in options.arms.split(",")}

    directory, how, mounted = backing()
    runs = {}  # (arm, case) -> one median a boot
    stock = {}  # case -> (hits, misses, blocks)
    try:
        for number in range(options.boots):
            for arm in random.sample(sorted(arms), len(arms)):
                kernel, append, cases = arms[arm]
                seen = {}
                for case, ns, blocks, hits, misses in boot(options.build, kernel, append, arm, cases, directory):
                    seen.setdefault(case, []).append(ns)
                    if arm == "stock":
                        old = stock.get(case, (0, 0, 0))
                        stock[case] = (old[0] + hits, old[1] + misses, old[2] + blocks)
                for case, values in seen.items():
                    runs.setdefault((arm, case), []).append(statistics.median(values))
            print(f"round {number + 1} of {options.boots}", file=sys.stderr)
    finally:
        if mounted:
            subprocess.run(["umount", str(directory)], check=True)
            directory.rmdir()

    middle = {key: statistics.median(values) for key, values in runs.items()}
    table = [("case", *arms)]
    for case in dict.fromkeys(case for _, case in runs):
        table.append((case, *(f"{middle[arm, case]:,.1f}" if (arm, case) in middle else "" for arm in arms)))
    print(f"\nnanoseconds a block, medians of {options.boots} boots x {REPEATS}; {SET_MB} MiB working set; "
          f"memory: {how}; {platform.processor() or platform.machine()} {cpu()}\n")
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))))

    print()
    goals = []
    for title, case, arm, against, bound in GOALS:
        if (arm, case) not in middle or ("plain", against) not in middle:
            continue
        ratio = middle["plain", against] / middle[arm, case]
        goals.append(dict(goal=title, ratio=ratio, asked=bound, reached=ratio >= bound))
        print(f"{'ok  ' if ratio >= bound else 'MISS'} {title}: {ratio:.3g}x (asked {bound}x)")
    for case, (hits, misses, blocks) in stock.items():
        if misses * 50 > hits:
            print(f"note: {case}: {hits} pages were hits and {misses} misses: no full stock")

    if options.json:
        options.json.write_text(json.dumps(dict(
            cpu=cpu(), host=platform.release(), memory=how, set_mb=SET_MB, evict_mb=EVICT_MB,
            boots=options.boots, repeats=REPEATS, goals=goals,
            cases=[dict(arm=arm, case=case, ns=middle[arm, case], boots=values,
                        **(dict(zip(("hits", "misses", "blocks"), stock[case])) if arm == "stock" else {}))
                   for (arm, case), values in runs.items()]), indent=1) + "\n")


def cpu():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


if __name__ == "__main__":
    main()
