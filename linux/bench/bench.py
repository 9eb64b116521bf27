#!/usr/bin/env python3
"""bench.py BUILD [--boots N] [--json FILE] [--add FILE...]: patched against unpatched, interleaved.

User-mode Linux runs the allocator natively, one kernel a process: each round boots every arm once,
in shuffled order, and each boot runs every case REPEATS times. The figure of a case is the median
over all boots. Nothing is compared across rounds. --add takes the boots of earlier runs of the same
kernels in, where a machine is not quiet for long: `--boots 0 --add FILE...` only tells what they are.

Arms:
  plain   the unpatched kernel, which clears a block with clear_pages(), as its huge-page fault does.
  moved   the unpatched kernel with code that is never called in front of mm/: what other addresses
          alone do. A difference that this arm has too says nothing about a patch.
  never-moved  the same to the patched kernel: `never` at other addresses.
  stock   the patched kernel; before each run kprezerod cleared all that is free.
  never   the patched kernel as it comes: nothing is tracked, nothing is cleared.
  bare    the patched kernel tracks the zero state, but nothing is zero: what tracking costs.
  clear   the patched kernel: kprezerod's rate beside bare loops over the same memory.
  idle    the patched kernel as it comes: the first pages after a pause, when --arms names it, for it takes
          minutes. idle:0:none is the bound of a per-CPU list that is cleared while the CPU is idle: its pages
          are cleared at the last moment, and are in the cache.
"""
import argparse
import fnmatch
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
GUEST_MB = 1600  # working set, what is read to evict it, and room for kprezerod to leave alone
REPEATS = 3

TOUCHES = ("none", "page", "line")
COLD = [f"cold:{order}:zero:{touch}" for order in (0, 4, 9, 10) for touch in TOUCHES]
PAIRS = [f"pair:{order}:{clear}:none" for order in (0, 4, 9) for clear in ("none", "zero")]
# One page again and again, with a stock of cold zero pages at hand: which of the two is to be preferred?
REUSED = ["pair:0:zero:none", "pair:0:zero:line"]
COLD_NONE = [f"cold:{order}:{clear}:none" for order in (0, 4, 9, 10) for clear in ("none", "zero")]

# The first pages after idle time: eight pauses of 4.5 s a case, which is enough without REPEATS.
IDLE = [f"idle:0:{clear}:{touch}" for clear in ("zero", "none") for touch in TOUCHES]

# Name: kernel, its arguments, the guest's test, cases.
ARMS = {
    "plain": ("um-plain", "", "bench", [*dict.fromkeys(COLD + COLD_NONE + PAIRS + REUSED)]),
    "moved": ("um-moved", "", "bench", PAIRS),
    "stock": ("um", "prezero=on", "bench", [*dict.fromkeys(COLD + COLD_NONE + REUSED)]),
    "never": ("um", "", "bench", COLD_NONE + PAIRS),
    "never-moved": ("um-patched-moved", "", "bench", PAIRS),
    "bare": ("um", "prezero=on", "bench", [*dict.fromkeys(COLD_NONE + PAIRS + REUSED)]),
    "clear": ("um", "", "clear", []),
    "idle": ("um", "", "bench", IDLE),
}
CASES_A_BOOT = 24  # the guest's command line is bounded

# What the series has to reach: (title, arm, case, case of `plain` that it is held against, lower
# bound on plain/arm).
GOALS = [
    (f"order {order} from stock", "stock", f"cold:{order}:zero:none", f"cold:{order}:zero:none", bound)
    for order, bound in ((4, 20), (9, 300), (10, 600))
] + [
    ("order 9, one write a page", "stock", "cold:9:zero:page", "cold:9:zero:page", 8),
] + [
    (f"order {order}, every line written", "stock", f"cold:{order}:zero:line", f"cold:{order}:zero:line", 1.0)
    for order in (0, 4, 9, 10)
] + [
    ("order 0 from stock, against hot clearing", "stock", "cold:0:zero:none", "pair:0:zero:none", 1.0),
] + [
    (f"never, {case}", "never", case, case, 0.99) for case in PAIRS
]
CLEAR_RATE = 0.9  # of the better bare loop


def backing():
    """A directory for the guests' memory: huge pages where we may mount them, else the host's tmpfs."""
    where = Path(tempfile.mkdtemp(prefix="prezero-bench-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"huge=always,size={GUEST_MB + 64}m",
                              "tmpfs", str(where)], capture_output=True).returncode == 0
    if mounted:
        return where, "tmpfs, huge=always", True
    where.rmdir()
    return Path("/dev/shm"), "tmpfs, /dev/shm", False


def guest(build, kernel, append, run, directory):
    """The lines that a guest prints."""
    env = dict(os.environ, TMPDIR=str(directory), GUEST_MEM=str(GUEST_MB), GUEST_CPUS="1", GUEST_APPEND=append)
    done = subprocess.run([str(HERE.parent / "scripts/guest.sh"), "um", str(build / kernel / "linux"),
                           str(build / f"{kernel}-bench.gz"), ",".join(run)],
                          env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench.py: {kernel}: {run[0]}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr}")
    return done.stdout.splitlines()


def boot(options, arm, directory):
    """One round of an arm; yields (case, ns, blocks, hits, misses)."""
    kernel, append, test, cases = ARMS[arm]
    cases = [case for case in cases if fnmatch.fnmatch(case, options.cases)]
    if test == "clear":
        steps = [str((pages - 1).bit_length()) for pages in clear_steps(options.build)]
        for line in guest(options.build, kernel, append, ["clear", str(REPEATS), *steps], directory):
            if match := re.fullmatch(r"CLEAR (\w+) (\d+) (\d+) \d+", line):
                if match[1] == "kprezerod" and int(match[3]) << 12 < SET_MB << 18:
                    sys.exit(f"bench.py: kprezerod cleared {match[3]} pages only, which says nothing of its rate")
                yield match[1], int(match[2]) / 1000, int(match[3]), 0, 0
        return
    for start in range(0, len(cases), CASES_A_BOOT):
        group = cases[start:start + CASES_A_BOOT]
        for line in guest(options.build, kernel, append, ["bench", arm, "1" if ARMS[arm][3] == IDLE else str(REPEATS), *group], directory):
            if match := re.fullmatch(r"BENCH \S+ (\S+) (\d+) (\d+) (\d+) (-?\d+) (-?\d+)", line):
                case, ps, blocks, bad, hits, misses = match.groups()
                if int(bad):
                    sys.exit(f"bench.py: {kernel} {arm} {case}: {bad} blocks of {blocks} NOT ZERO")
                yield case, int(ps) / 1000, int(blocks), int(hits), int(misses)


def clear_steps(build):
    """The pages of kprezerod's bounded step, and between two looks within it, from the source that was built."""
    source = (build / "patched/mm/prezero_clear.h").read_text()
    return [int(re.search(rf"^#define {name}\s+\(\(SZ_(\d+)K ", source, re.M)[1]) // 4 for name in ("PREZERO_STEP", "PREZERO_CHUNK")]


def earlier(files):
    """What other runs kept: as measure() has it."""
    runs, stock = {}, {}
    for file in files:
        for case in json.loads(file.read_text())["cases"]:
            runs.setdefault((case["arm"], case["case"]), []).extend(case["boots"])
            if "hits" in case:
                old = stock.get(case["case"], (0, 0, 0))
                stock[case["case"]] = tuple(a + case[name] for a, name in zip(old, ("hits", "misses", "blocks")))
    return runs, stock


def measure(options, arms, directory):
    """All rounds: medians by (arm, case), one a boot, and what became of the stock."""
    runs, stock = earlier(options.add)
    for number in range(options.boots):
        for arm in random.sample(arms, len(arms)):
            seen = {}
            for case, ns, blocks, hits, misses in boot(options, arm, directory):
                seen.setdefault(case, []).append(ns)
                if arm == "stock":
                    old = stock.get(case, (0, 0, 0))
                    stock[case] = (old[0] + hits, old[1] + misses, old[2] + blocks)
            for case, values in seen.items():
                runs.setdefault((arm, case), []).append(statistics.median(values))
        print(f"round {number + 1} of {options.boots}", file=sys.stderr)
    return runs, stock


def held_against(middle, steps):
    """What was asked and what was reached."""
    goals = []
    for title, arm, case, against, bound in GOALS:
        if (arm, case) in middle and ("plain", against) in middle:
            goals.append((title, middle["plain", against] / middle[arm, case], bound))
    if ("clear", "kprezerod") in middle:
        best = min(middle["clear", "bare"], middle["clear", "cold"])
        took = middle["clear", "kprezerod"]
        goals.append(("kprezerod's rate, of the bare loop's", best / took, CLEAR_RATE))
        rate = {case: 4096 / ns for (arm, case), ns in middle.items() if arm == "clear"}
        print(f"kprezerod clears {rate['kprezerod']:.2f} GB/s; its bounded step of {steps[0]} pages takes {took * steps[0] / 1000:.1f} us\n"
              f"the bare loops: clear_page() {rate['bare']:.2f} GB/s; clear_pages_cold() {rate['cold']:.2f}, "
              + ", ".join(f"with a barrier each {pages * 4} KiB {rate[f'cold{(pages - 1).bit_length()}']:.2f}" for pages in steps) + "\n")
    for title, ratio, bound in goals:
        print(f"{'ok  ' if ratio >= bound else 'MISS'} {title}: {ratio:.3g}x (asked {bound}x)")
    return [dict(goal=title, ratio=ratio, asked=bound, reached=ratio >= bound) for title, ratio, bound in goals]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--boots", type=int, default=7, help="boots of each arm")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="what --json wrote before")
    parser.add_argument("--json", type=Path, help="where all figures go")
    parser.add_argument("--arms", default=",".join(arm for arm in ARMS if ARMS[arm][3] != IDLE), help="which of them")
    parser.add_argument("--cases", default="*", help="a glob: which cases")
    options = parser.parse_args()
    arms = options.arms.split(",")

    directory, how, mounted = backing()
    try:
        runs, stock = measure(options, arms, directory)
    finally:
        if mounted:
            subprocess.run(["umount", str(directory)], check=True)
            directory.rmdir()

    middle = {key: statistics.median(values) for key, values in runs.items()}
    boots = min(map(len, runs.values()))
    arms = [arm for arm in arms if ARMS[arm][2] == "bench"]
    table = [("case", *arms)]
    for case in dict.fromkeys(case for arm, case in runs if arm in arms):
        table.append((case, *(f"{middle[arm, case]:,.1f}" if (arm, case) in middle else "" for arm in arms)))
    print(f"\nnanoseconds a block, medians of {boots} boots x {REPEATS}; {SET_MB} MiB working set; "
          f"memory: {how}; {cpu()}\n")
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))))

    print()
    goals = held_against(middle, clear_steps(options.build))
    for case in PAIRS:
        if ("moved", case) in middle and ("plain", case) in middle:
            print(f"note: the unpatched kernel at other addresses, {case}: "
                  f"{middle['plain', case] / middle['moved', case]:.3g}x")
    for case, (hits, misses, blocks) in stock.items():
        if misses * 50 > hits:
            print(f"note: {case}: {hits} pages were hits and {misses} misses: no full stock")

    if options.json:
        options.json.write_text(json.dumps(dict(
            cpu=cpu(), host=platform.release(), memory=how, set_mb=SET_MB, evict_mb=EVICT_MB,
            boots=boots, repeats=REPEATS, goals=goals,
            cases=[dict(arm=arm, case=case, ns=middle[arm, case], boots=values,
                        **(dict(zip(("hits", "misses", "blocks"), stock[case])) if case in stock and arm == "stock"
                           else {}))
                   for (arm, case), values in runs.items()]), indent=1) + "\n")


def cpu():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


if __name__ == "__main__":
    main()
