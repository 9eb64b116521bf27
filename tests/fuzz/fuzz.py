#!/usr/bin/env python3
"""Random sequences of malloc-family and mm calls under prezero, against a model of every byte.

    tests/fuzz/fuzz.py --prezero target/release/prezero [--seconds 60] [--seed N]
    tests/fuzz/fuzz.py --prezero target/release/prezero --only SEED

Each seed is one process of tests/fuzz/ (which see), with knobs and a number of threads that follow
from the seed too. Wrong is: any byte that is not what the model says, a page that should be zero
and is not, a crash, a hang, memory of the zone that is still out when all was freed. The first that
goes wrong is made shorter, told with the command that repeats it, and ends the run. Before them one
seed runs without prezero: the model must be right about plain glibc.
"""

import argparse
import concurrent.futures
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPERATIONS = 2000
# A hang, even on a starved machine: a sequence takes seconds.
HANGS_S = 900
SHORTEN_S = 60


def build(folder):
    program = folder / "fuzz"
    sources = sorted(HERE.glob("*.c"))
    flags = ["-std=gnu11", "-O1", "-g", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["cc", *flags, "-o", program, *sources], check=True)
    return program


class Sequence:
    """What follows from a seed."""

    def __init__(self, seed, engines):
        draw = random.Random(seed)
        self.seed = seed
        self.threads = draw.choice([1, 1, 1, 2, 4])
        some = lambda **choices: {name: draw.choice(values) for name, values in choices.items()}
        self.knobs = some(
            limit=[None, None, "2M", "48M", "128M", "1G"], threshold=[None, None, "128K", "1M"],
            decay=[None, "0.02", "0.5"], engine=[None, *engines],
            **{"scrub-start": [None, None, "0", "9", "never"],
               "scrub-rate": [None, None, "20M"], "scrub-cache": [None, "0", "1G"]})

    def options(self):
        return [word for name, value in self.knobs.items() if value for word in (f"--{name}", value)]


class Runner:
    def __init__(self, prezero, program, folder):
        self.prezero, self.program, self.folder = prezero, program, folder

    def command(self, sequence, operations):
        work = [str(self.program), str(sequence.seed), str(operations), str(sequence.threads)]
        return [str(self.prezero), "run", "--verify", "full", *sequence.options(), "--", *work]

    def wrong(self, sequence, operations=OPERATIONS, rest=None):
        """What is wrong with a sequence, or None."""
        stats = self.folder / f"{sequence.seed}-{operations}.json"
        environment = os.environ | {"PREZERO_STATS": str(stats), "PREZERO_THRESHOLD": "64K"} | ({"FUZZ_REST": rest} if rest else {})
        try:
            done = subprocess.run(self.command(sequence, operations), env=environment,
                                  capture_output=True, text=True, errors="replace", timeout=HANGS_S)
        except subprocess.TimeoutExpired:
            return f"it hangs: not at its end after {HANGS_S} s"
        told = done.stderr.strip()
        if done.returncode != 0:
            return f"exit {done.returncode}: {told[-500:]}"
        if told:
            return f"it said: {told[-500:]}"
        counters = json.loads(stats.read_text()) if stats.exists() else {}
        stats.unlink(missing_ok=True)
        if counters.get("verify_failures"):
            return f"{counters['verify_failures']} pages that should be zero were not"
        if left := counters.get("allocated_bytes"):
            # What scrubd has in hand at that moment is nobody's; a rest later it has nothing. Where
            # all CPUs are busy it may not have run in two seconds.
            longer = {None: "2", "2": "20"}.get(rest)
            return self.wrong(sequence, operations, longer) if longer else f"{left} bytes of the zone are not free at the end"
        self.pages = getattr(self, "pages", 0) + counters.get("verified_pages", 0)
        return None

    def shorter(self, sequence):
        """The fewest operations found that still go wrong, and what then is."""
        low, high, why = 0, OPERATIONS, None
        end = time.monotonic() + SHORTEN_S
        while high - low > 1 and time.monotonic() < end:
            middle = (low + high) // 2
            # It may depend on what scrubd does meanwhile.
            found = next(filter(None, (self.wrong(sequence, middle) for _ in range(3))), None)
            low, high, why = (low, middle, found) if found else (middle, high, why)
        return high, why


def engines(prezero):
    done = subprocess.run([prezero, "engines"], capture_output=True, text=True, check=True)
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("│")]
    usable = lambda name: subprocess.run([prezero, "run", "--engine", name, "--", "true"],
                                         capture_output=True).returncode == 0
    return [name for name in names if usable(name)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prezero", default="target/release/prezero")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="the first one; the rest count up [random]")
    parser.add_argument("--only", type=int, help="this seed alone")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    prezero = Path(args.prezero).resolve()
    first = args.only if args.only is not None else args.seed
    first = random.SystemRandom().randrange(10**9) if first is None else first
    with tempfile.TemporaryDirectory(prefix="prezero-fuzz-") as folder:
        folder = Path(folder)
        program = build(folder)
        plain = subprocess.run([program, str(first), str(OPERATIONS), "1"], capture_output=True, text=True)
        if plain.returncode != 0:
            sys.exit(f"fuzz: seed {first} goes wrong without prezero: {plain.stderr.strip()[-500:]}")
        names, runner = engines(prezero), Runner(prezero, program, folder)
        print(f"fuzz: from seed {first} on, for {args.seconds:.0f} s", flush=True)
        end, count = time.monotonic() + args.seconds, 0

        def one(seed):
            if args.only is None and time.monotonic() > end:
                return None
            sequence = Sequence(seed, names)
            return sequence, runner.wrong(sequence)

        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            # Enough for any time; those after the end return at once.
            last = first + 1 if args.only is not None else first + int(args.seconds * 50) + args.jobs
            for result in pool.map(one, range(first, last)):
                if result is None:
                    break
                sequence, why = result
                count += 1
                if why:
                    pool.shutdown(wait=False, cancel_futures=True)
                    print(f"WRONG   seed {sequence.seed}: {why}", flush=True)
                    operations, shorter = runner.shorter(sequence)
                    print(f"        {operations} operations: {shorter or why}")
                    print(f"        tests/fuzz/fuzz.py --prezero {args.prezero} --only {sequence.seed}")
                    kept = Path(args.prezero).parent / "fuzz"
                    shutil.copy(program, kept)
                    command = runner.command(sequence, operations)
                    command[command.index(str(program))] = str(kept)
                    print("        " + " ".join(command + ["-v"]))
                    return 1
        print(f"ok      fuzz: {count} sequences of {OPERATIONS} calls, every byte as the model says; "
              f"{getattr(runner, 'pages', 0)} pages checked to be zero")
    return 0


if __name__ == "__main__":
    sys.exit(main())
