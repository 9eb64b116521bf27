#!/usr/bin/env python3
"""seeds.py NAME=LINES NAME=LINES: what bench/seeds/all.sh said in two guests, beside each other.

LINES is a guest's console with the programs' JSON lines among others. Where an experiment was run
more than once its figure is the median. The last column is how many times better the second is:
more faults a second, or less time or memory.
"""
import json
import statistics
import sys

# Of each experiment: what tells its runs apart, and its figures: name, unit, better when more.
EXPERIMENTS = {
    "faults": (("threads", "lines", "pause_ms"),
               (("flt_cpu_s", "faults a CPU second", True), ("fault_wsec", "faults a second", True))),
    "write": (("pause_us",), (("write_ns", "ns to write 512 KiB", False), ("cycles", "cycles", False))),
    "lmbench": (("what", "kib", "scrub"), (("us", "us", False), ("ns", "ns", False))),
    "resident": (("thp",), (("rss_read_kib", "KiB resident when read", False), ("took_ms", "ms", False))),
    "sparse": (("thp",), (("rss_after_kib", "KiB resident when written", False), ("took_ms", "ms", False))),
}


def value(figure):
    """A figure: a number, an object with a median, or a list, whose first is a warm-up if it is long."""
    if isinstance(figure, dict):
        return figure["median"]
    if isinstance(figure, list):
        return statistics.median(figure[5:] if len(figure) > 10 else figure)
    return figure


def read(path):
    """Figures by (experiment, its run, figure)."""
    found = {}
    for line in open(path, errors="replace"):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if not isinstance(said, dict) or said.get("experiment") not in EXPERIMENTS:
            continue
        options, figures = EXPERIMENTS[said["experiment"]]
        run = ", ".join(f"{name} {said[name]}" for name in options if name in said)
        for name, unit, more in figures:
            if name in said:
                found.setdefault((said["experiment"], run, unit, more), []).append(value(said[name]))
    if not found:
        sys.exit(f"seeds.py: {path}: no line of an experiment")
    return {key: statistics.median(values) for key, values in found.items()}


def main():
    if len(sys.argv) != 3 or not all("=" in each for each in sys.argv[1:]):
        sys.exit(__doc__.splitlines()[0])
    (first, before), (second, after) = ((name, read(path)) for name, path in
                                        (each.split("=", 1) for each in sys.argv[1:]))
    print(f"{'experiment':<48} {'figure':<26} {first:>12} {second:>12}  times better")
    for key in before:
        if key not in after:
            continue
        experiment, run, unit, more = key
        old, new = before[key], after[key]
        better = (new / old if more else old / new) if old and new else float("nan")
        print(f"{experiment + ' ' + run:<48} {unit:<26} {old:>12,.1f} {new:>12,.1f}  {better:8.2f}")


if __name__ == "__main__":
    main()
