"""How fast a broker fills its stock, and what neighbours feel of it. PREZERO_SOCKET names the broker.

    fill.py pace LEASE BYTES SECONDS          GB/s that it makes, and GB in a second of its fillers' CPU time
    fill.py own LEASE KIND BYTES              the same of one thread that populates as much in one call, twice
    fill.py felt LEASE DISTURB LOAD SPARED SECONDS ROUNDS
                                              % that neighbours lose by the clock and in CPU time; GB/s made meanwhile

LEASE and DISTURB are bench/lease.c and bench/disturb.c. A client takes each lease as soon as it lies ready, so that the broker
fills on and on. LOAD is compute or chase-SIZE: a neighbour on every CPU but SPARED. In every second slice the fillers are
stopped, and the two kinds are compared in pairs.
"""
import os
import signal
import statistics
import subprocess
import sys
import time

LEAD_S = 0.1


def report(lease):
    """The broker's number, and its counters."""
    lines = subprocess.run([lease, "report"], capture_output=True, text=True, check=True).stdout.splitlines()
    counters = dict(line.rsplit(" ", 1) for line in lines[1:] if line and line[0] != "#")
    return int(lines[0]), {name: float(counters.get(f"prezerod_{name}_total", 0)) for name in ("made_bytes", "made_cpu_seconds")}


def fillers(broker):
    return [int(pid) for pid in open(f"/proc/{broker}/task/{broker}/children").read().split()]


def tell(broker, what):
    for pid in fillers(broker):
        os.kill(pid, what)


class Neighbour:
    """A worker of bench/disturb.c on one CPU."""

    def __init__(self, program, cpu):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask(f"pin {cpu}")
        self.hear()

    def ask(self, words):
        print(words, file=self.process.stdin, flush=True)

    def hear(self):
        return [int(word) for word in self.process.stdout.readline().split()]


def slice_of(crowd, load, seconds):
    """ns of a unit of work by the clock, and in CPU time."""
    size = load.partition("-")[2]
    scale = {"K": 10, "M": 20, "G": 30}.get(size[-1:], 0)
    words = f"chase {int(size.rstrip('KMG')) << scale}" if size else load
    for each in crowd:
        each.ask(f"{words} {int(LEAD_S * 1e9)} {int(seconds * 1e9)}")
    work, cpu, wall = map(sum, zip(*(each.hear() for each in crowd)))
    return wall / work, cpu / work


def felt(lease, disturb, load, spared, seconds, rounds):
    broker, _ = report(lease)
    cpus = sorted(os.sched_getaffinity(0))[int(spared):]
    crowd = [Neighbour(disturb, cpu) for cpu in cpus]
    made = filled_s = 0
    lost = []
    # One pair more than is counted: chases are laid out in the first.
    for nth in range(int(rounds) + 1):
        pair = {}
        for on in (nth % 2 == 0, nth % 2 == 1):
            before, began = report(lease)[1]["made_bytes"], time.monotonic()
            if not on:
                tell(broker, signal.SIGSTOP)
            try:
                pair[on] = slice_of(crowd, load, float(seconds))
            finally:
                tell(broker, signal.SIGCONT)
            if on:
                made += report(lease)[1]["made_bytes"] - before
                filled_s += time.monotonic() - began
        lost += [[100 * (on / off - 1) for on, off in zip(pair[True], pair[False])]] if nth else []
    print(*(statistics.median(each) for each in zip(*lost)), made / filled_s / 1e9)


def pace(lease, seconds):
    while not report(lease)[1]["made_bytes"]:
        time.sleep(LEAD_S)
    began, before = time.monotonic(), report(lease)[1]
    time.sleep(float(seconds))
    passed, after = time.monotonic() - began, report(lease)[1]
    made, cpu_s = (after[name] - before[name] for name in ("made_bytes", "made_cpu_seconds"))
    print(made / passed / 1e9, made / max(cpu_s, 1e-9) / 1e9)


def main():
    how, lease, *rest = sys.argv[1:]
    if how == "own":
        ms = float(subprocess.run([lease, *rest], capture_output=True, text=True, check=True).stdout)
        print(int(rest[1]) / ms / 1e6, int(rest[1]) / ms / 1e6)
        return
    size = rest.pop(0) if how == "pace" else os.environ.get("FILL_BYTES", str(512 << 20))
    taker = subprocess.Popen([lease, "take", size])
    try:
        pace(lease, *rest) if how == "pace" else felt(lease, *rest)
    finally:
        taker.kill()


main()
