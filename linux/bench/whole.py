#!/usr/bin/env python3
"""whole.py BUILD [--rounds N] [--json FILE [--more]]: the CPU time of a whole machine, with and without.

A user-mode Linux guest lives through a load: its CPU time, and that of all it started, from its
start to its end, as the host accounts it. Each round runs every arm once, in shuffled order.

Arms: unpatched; off, the series as it comes; on, with kprezerod clearing all that is free (its own
time is in the total).
"""
import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bench

ARMS = {"unpatched": ("um-plain", "never"), "off": ("um", "never"), "on": ("um", "clear")}
GUEST_MB = 512
ASKED = 0.01  # of the unpatched kernel's CPU time


def cpu_seconds(build, arm, load, argument, directory):
    kernel, clear = ARMS[arm]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = dict(os.environ, TMPDIR=str(directory), GUEST_MEM=str(GUEST_MB), GUEST_CPUS="1")
    done = subprocess.run([str(bench.HERE.parent / "scripts/guest.sh"), "um", str(build / kernel / "linux"),
                           str(build / "whole.gz"), f"whole,{load},{clear},{argument}"],
                          env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"whole.py: {arm}: {load}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round that would end later")
    parser.add_argument("--loads", default="forks,make")
    parser.add_argument("--forks", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--more", action="store_true", help="the rounds that the JSON has count too")
    options = parser.parse_args()
    build = options.build.resolve()
    arguments = {"forks": str(options.forks), "make": str(next(build.glob("linux-source-*")))}
    loads = {load: arguments[load] for load in options.loads.split(",")}

    directory, how, mounted = bench.backing()
    took = {}
    if options.more:
        for row in json.loads(options.json.read_text())["rows"]:
            if row["load"] in loads:
                took[row["load"], row["arm"]] = row["rounds"]
    start, rounds = time.monotonic(), 0
    try:
        while rounds < options.rounds:
            if rounds and (time.monotonic() - start) * (rounds + 1) / rounds > options.seconds:
                break
            for load, argument in loads.items():
                for arm in random.sample(list(ARMS), len(ARMS)):
                    took.setdefault((load, arm), []).append(cpu_seconds(build, arm, load, argument, directory))
            rounds += 1
            print(f"round {rounds} of {options.rounds}", file=sys.stderr)
    finally:
        if mounted:
            subprocess.run(["umount", str(directory)], check=True)
            directory.rmdir()

    print(f"\nCPU seconds of the whole guest, medians of {len(next(iter(took.values())))}; against unpatched: "
          f"of the medians, and of the ratios within a round median (quartiles); memory: {how}; {bench.cpu()}\n")
    rows = []
    for load in loads:
        base = took[load, "unpatched"]
        for arm in ARMS:
            ratios = [mine / theirs for mine, theirs in zip(took[load, arm], base)]
            low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            cpu_s = statistics.median(took[load, arm])
            of_medians = cpu_s / statistics.median(base)
            rows.append(dict(load=load, arm=arm, cpu_s=cpu_s, of_medians=of_medians, ratio=middle,
                             quartiles=(low, high), rounds=took[load, arm]))
            verdict = "" if arm == "unpatched" else "ok" if middle <= 1 + ASKED else "MISS"
            print(f"{load:6} {arm:10} {cpu_s:8.3f} s   {of_medians:.4f}   {middle:.4f} ({low:.4f} to {high:.4f})  {verdict}")
    if options.json:
        options.json.write_text(json.dumps(dict(cpu=bench.cpu(), memory=how, rows=rows), indent=1) + "\n")


if __name__ == "__main__":
    main()
