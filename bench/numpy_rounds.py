"""NumPy rounds with idle time between them: what an interactive or a serving program does.

Each round allocates, touches and frees; before each one the program sleeps. Prints the
median of each case in microseconds, or every sample as JSON. `prezero bench numpy`
runs this same file under each allocator.
"""

import argparse
import json
import os
import statistics
import time

import numpy as np

if os.environ.get("PREZERO_ROUNDS_HANDLER"):
    import prezero.numpy
    prezero.numpy.enable()

ARRAY = (32 << 20) // 8
"""Elements of a 32 MiB float64 array."""
PAGE = 4096 // 8
"""Elements of it in a page."""
MASK = 10_000_000
"""Elements of the boolean mask, one byte each."""
WARM_UP = 3
"""Rounds of each case that are not counted."""


def zeros_page():
    """np.zeros, one element written in each page."""
    np.zeros(ARRAY)[::PAGE] = 1.0


def zeros_all():
    """np.zeros, every element written."""
    np.zeros(ARRAY).fill(1.0)


def make_add():
    a = np.ones(ARRAY)

    def add():
        """a + a, the result freed at once."""
        a + a

    return add


def make_mask():
    few = np.random.default_rng(1).integers(0, MASK, 100)

    def mask():
        """A boolean mask with a hundred bits set."""
        np.zeros(MASK, dtype=bool)[few] = True

    return mask


def make_floors():
    """The same work on arrays that exist: what is left when allocating costs nothing."""
    a, out = np.ones(ARRAY), np.zeros(ARRAY)

    def page():
        out[::PAGE] = 1.0

    def every():
        out.fill(1.0)

    def add():
        np.add(a, a, out=out)

    return {
        "  no allocation: one line a page": page,
        "  no allocation: all": every,
        "  no allocation: a+a": add,
    }


def measure(case, rounds, pause):
    """Microseconds of each round."""
    samples = []
    for i in range(WARM_UP + rounds):
        time.sleep(pause)
        start = time.perf_counter_ns()
        case()
        elapsed = time.perf_counter_ns() - start
        if i >= WARM_UP:
            samples.append(elapsed / 1000)
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="rounds of each case")
    parser.add_argument("--pause-ms", type=float, default=3, help="sleep before each round")
    parser.add_argument("--lines", action="store_true", help="every sample, for machines")
    args = parser.parse_args()

    cases = {
        "zeros 32M, one line a page": zeros_page,
        "zeros 32M, all": zeros_all,
        "a+a 32M": make_add(),
        "mask 10M, few bits": make_mask(),
        **make_floors(),
    }
    times = {
        name: measure(case, args.rounds, args.pause_ms / 1000) for name, case in cases.items()
    }
    if args.lines:
        for name, samples in times.items():
            print(f"{name.strip()}\t{json.dumps([samples])}")
        return
    for name, samples in times.items():
        print(f"{name:<28} {statistics.median(samples):10.1f} us")


if __name__ == "__main__":
    main()
