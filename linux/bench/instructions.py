#!/usr/bin/env python3
"""instructions.py BUILD [--json FILE]: what a whole machine executes, with and without the series.

An x86-64 guest under QEMU's -icount shift=0, where a nanosecond is an instruction: what its one CPU
ran (/proc/schedstat) while it lived through a load, kprezerod's part included. Other than CPU time it
does not depend on what else the host runs, and it knows nothing of caches.

Arms: unpatched; off, the series as it comes; tracked, with the zero state and without kprezerod; on,
with kprezerod clearing all that is free, after the load too.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARMS = {"unpatched": ("x86-plain", "", "never"), "off": ("x86", "", "never"),
        "tracked": ("x86", "prezero=on", "never"), "on": ("x86", "prezero=on", "clear")}
ASKED = 0.01  # of what the unpatched kernel executes
# No fast `rep stosb`, which would count one for each byte: what clears counts one for each eight.
GUEST = dict(GUEST_CPU="max,-erms,-fsrm", GUEST_MEM="1280", GUEST_CPUS="1", GUEST_THREADS="single",
             GUEST_TIMEOUT="3600",
             GUEST_QEMU="-icount shift=0,sleep=off -virtfs local,path=/,mount_tag=host,"
                        "security_model=none,readonly=on,multidevs=remap")


def executed(build, arm, load, argument, rounds):
    """Instructions of each round, and the guest's counters."""
    kernel, append, clear = ARMS[arm]
    done = subprocess.run([str(HERE.parent / "scripts/guest.sh"), "x86",
                           str(build / kernel / "arch/x86/boot/bzImage"), str(build / "whole.gz"),
                           f"whole,{load},{clear},{argument},{rounds}"],
                          env=dict(os.environ, **GUEST, GUEST_APPEND=f"norandmaps {append}"), capture_output=True, text=True)
    found = [int(each) for each in re.findall(rf"^WHOLE {load} (\d+)$", done.stdout, re.M)]
    if done.returncode or len(found) != rounds:
        sys.exit(f"instructions.py: {arm}: {load}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr}")
    return found, dict(re.findall(r"^(pgfault|pgalloc_\w+|prezero_\w+) (-?\d+)$", done.stdout, re.M))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--loads", default="forks,make", help="of forks and make")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--forks", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3, help="of which the first, which reads files, is left out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    build = options.build.resolve()
    if options.rounds < 2:
        parser.error("the first round is left out: at least 2")
    arguments = {"forks": str(options.forks), "make": str(next(build.glob("linux-source-*")))}

    rows = []
    print(f"{'load':6} {'arm':10} {'million instructions':>20}   against unpatched (lowest to highest round)")
    for load in options.loads.split(","):
        base = None
        for arm in options.arms.split(","):
            found, counters = executed(build, arm, load, arguments[load], options.rounds)
            rounds = found[1:]
            median = statistics.median(rounds)
            base = base or median
            verdict = "" if arm == "unpatched" else "ok" if median <= base * (1 + ASKED) else "MISS"
            print(f"{load:6} {arm:10} {median / 1e6:20,.1f}   {median / base:.4f} "
                  f"({min(rounds) / base:.4f} to {max(rounds) / base:.4f})  {verdict}", flush=True)
            rows.append(dict(load=load, arm=arm, rounds=found, ratio=median / base, counters=counters))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
