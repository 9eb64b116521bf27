"""What a handler of memory costs arrays that are too small for it: nanoseconds of a call, without and with prezero.numpy.

    PYTHONPATH=bindings/python .venv/bin/python3 bench/numpy_small.py

Both take turns in one process; medians, or with --json every sample. `prezero bench doors` runs this same file.
"""

import json
import statistics
import sys
import time

import numpy as np
import prezero.numpy

CALLS = 20_000
TURNS = 60

few, some = np.ones(10), np.ones(1000)
CASES = {
    "np.empty(10)": lambda: np.empty(10),
    "np.zeros(10)": lambda: np.zeros(10),
    "a + a, 10 elements": lambda: few + few,
    "np.zeros(1000)": lambda: np.zeros(1000),
    "a + a, 1000 elements": lambda: some + some,
}


def nanoseconds(case):
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        case()
    return (time.perf_counter_ns() - start) / CALLS


def turns(case):
    without, with_ = [], []
    for _ in range(TURNS):
        without.append(nanoseconds(case))
        with prezero.numpy.enabled():
            with_.append(nanoseconds(case))
    return {"without_ns": without, "with_ns": with_}


times = {name: turns(case) for name, case in CASES.items()}
if "--lines" in sys.argv:
    for name, samples in times.items():
        print(f"{name}\t{json.dumps(list(samples.values()))}")
else:
    for name, samples in times.items():
        one, two = (statistics.median(each) for each in samples.values())
        print(f"{name:<24} {one:8.1f} ns without  {two:8.1f} ns with  {100 * (two / one - 1):+.1f} %")
