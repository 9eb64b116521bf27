#!/usr/bin/env python3
"""Stock on a host that is never idle: a stream of large leases beside processes that keep all CPUs busy.

    tests/system/busy.py FOLDER [--load N] [--leases N] [--size BYTES] [--every SECONDS] [--set LINE]... [--plain]

FOLDER holds prezerod. N processes spin; each lease is asked for SECONDS after the one before, or when one lies ready, and closed.
Prints how many were hits, how long they took, and what of the host's CPU time fillers had. `--set` adds a line to the
configuration. At least one in four must be a hit. Exits 0 without a check where the host has too little memory.

--plain starts QEMU each time, by `prezero claim --or-plain`, and times it until its monitor greets. In turns with it guests
start with memory of their own, populated and not: what a miss and a hit are held against.
"""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "bindings/python"), str(HERE.parent / "common")]
from prezero_lease import Client  # noqa: E402
from until import until  # noqa: E402


POPULATED = "prealloc=on"
STARTS = ("hits", "misses, plain memory", "own memory, populated", "own memory")


def cpu_seconds(pid):
    """CPU time of a process and its living children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in [str(pid), *children]]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def guest(words, memory, size):
    """Starts a guest until its monitor greets; what it said besides."""
    place = f"{memory},id=m,size={size}"
    line = [*words, "qemu-system-x86_64", "-nodefaults", "-display", "none", "-S", "-qmp", "stdio", "-m", f"{size >> 20}M",
            "-machine", "q35,accel=tcg,memory-backend=m", "-object", place]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    greeting = process.stdout.readline()
    process.kill()
    said = process.communicate()[1]
    assert "QMP" in greeting, said
    return said


def beside(size):
    """Times of guests with memory of their own, by name: in turns with those that have a lease, on the same host."""
    times = {}
    for name, memory in ("own memory, populated", f"memory-backend-ram,{POPULATED}"), ("own memory", "memory-backend-ram"):
        asked = time.monotonic()
        guest([], memory, size)
        times[name] = time.monotonic() - asked
    return times


def row(times):
    def at(part):
        return f"{times[min(len(times) - 1, int(len(times) * part))] * 1e3:.0f}"
    return f"{len(times)} starts, median {at(0.5)} ms, 99th percentile {at(0.99)} ms" if times else "none"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--load", type=int, default=2 * os.cpu_count())
    parser.add_argument("--leases", type=int, default=6)
    parser.add_argument("--size", type=int, default=128 << 20)
    parser.add_argument("--every", type=float)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    if int(memory["MemAvailable"].split()[0]) << 10 < 6 * options.size:
        return print("busy: left out: too little memory")
    with tempfile.TemporaryDirectory() as place:
        path, config = f"{place}/s", Path(place, "config.toml")
        lines = [f"limit = {4 * options.size}", *options.set]
        config.write_text("\n".join([*lines, "[[stock]]", f"size = {options.size}", "keep = 2", ""]))
        command = [f"{options.folder}/prezerod", "--config", config, "--socket", path]
        with open(f"{place}/log", "w") as log:
            broker = subprocess.Popen(command, stderr=log)
        spin = [sys.executable, "-c", "while True: pass"]
        load = [subprocess.Popen(spin) for _ in range(options.load)]
        try:
            until("the broker", lambda: "serving on" in Path(place, "log").read_text())
            client, took = Client(path), []
            if options.plain:
                # Memory that this host has not touched yet is slow for everybody.
                beside(options.size)
            began, used = time.monotonic(), cpu_seconds(broker.pid)
            starts = {name: [] for name in STARTS}
            for _ in range(options.leases):
                if options.every is None:
                    until("stock on a busy host", lambda: client.stock()["ready"])
                else:
                    time.sleep(options.every)
                asked = time.monotonic()
                if options.plain:
                    claim = [f"{options.folder}/prezero", "claim", f"{options.size >> 20}M", "--socket", path, "--or-plain", "--"]
                    said = guest(claim, f"memory-backend-file,mem-path={{lease}},share=on,{POPULATED}", options.size)
                else:
                    said = client.lease(options.size, wait=60).close()
                took.append(time.monotonic() - asked)
                if options.plain:
                    starts["misses, plain memory" if "runs with ordinary memory" in said else "hits"].append(took[-1])
                    for name, seconds in beside(options.size).items():
                        starts[name].append(seconds)
            used, passed = cpu_seconds(broker.pid) - used, time.monotonic() - began
            stock = client.stock()
        finally:
            for process in [broker, *load]:
                process.send_signal(signal.SIGKILL)
                process.wait()
    for name, times in starts.items() if options.plain else ():
        print(f"busy: {name}: {row(sorted(times))}")
    took.sort()
    share = 100 * used / passed / os.cpu_count()
    print(f"busy: {stock['hits']} of {options.leases} leases of {options.size >> 20}M are hits beside {options.load} spinning "
          f"processes: median {took[len(took) // 2] * 1e3:.0f} ms, longest {took[-1] * 1e3:.0f} ms; {share:.1f} % of the CPUs")
    assert 4 * stock["hits"] >= options.leases, "no stock is made on a busy host"


if __name__ == "__main__":
    main()
