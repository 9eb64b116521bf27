#!/usr/bin/env python3
"""A server ends and is expected back: when its stock is ready again, and how right the broker's estimate was.

    tests/system/restart.py FOLDER [--sizes 4096,8192] [--runs 3] [--trace]

A measurement: run it on a quiet machine with twice the memory of the largest size. FOLDER is as for pinned.py, whose stand-ins
serve here. Each run is a server that fills its lease and ends; the next one's memory is made from its end on, as on a node that has
no room for both. Told is what `prezero stock` says 1 s later. Wanted: ready within 30 s, or an estimate that is right within 20 %.
The script fails where neither holds.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "standin"), str(TESTS.parent / "bindings/python")]
from place import Place, built, good, until  # noqa: E402
from prezero_lease import Client  # noqa: E402

# From the end until its answer is written down, s.
TOLD_AFTER = 1.0
SOON = 30.0
RIGHT = 0.2


def is_empty(place):
    with Client(place.environment["PREZERO_SOCKET"]) as client:
        stock = client.stock()
    return not stock["making_bytes"] and not stock["ready"]


def look(place, mib):
    """The row of that size, as `prezero stock` has it."""
    with Client(place.environment["PREZERO_SOCKET"]) as client:
        rows = [row for row in client.stock()["wanted"] if row["bytes"] == mib << 20]
    return rows[0] if rows else {"target": 0, "ready": 0}


def stock(place, *words):
    subprocess.run([place.bin / "prezero", "stock", *words], capture_output=True, check=True, env=place.environment)


def until_ready(place, mib, saw=lambda row: None):
    def ready():
        row = look(place, mib)
        saw(row)
        return row["ready"]
    try:
        until(f"{mib} MiB", ready)
    except TimeoutError as late:
        sys.exit(f"restart: {late}: {look(place, mib)}")


def restart(place, mib, trace):
    """s until it is ready; what was told, s from then on; what it was. The last two: None where it was not known, or ready by then."""
    expected = ["--expect", f"{mib}M", "--for", "1h"]
    stock(place, *expected)
    until_ready(place, mib)
    good("a server", place.run(size=mib, program=["./llama", str(mib)]), f"{mib} of {mib} MiB of the lease served")
    stock(place, "--drain")
    stock(place, *expected)
    until("the drain", lambda: is_empty(place))
    began = time.monotonic()
    stock(place, "--undrain")
    told = told_at = None
    all_told = []

    def saw(row):
        nonlocal told, told_at
        now, estimate = time.monotonic() - began, (row.get("shortage") or {}).get("ready_in_seconds")
        if estimate is not None:
            all_told.append((now, estimate, row["shortage"]["reason"]))
            if told_at is None and now >= TOLD_AFTER:
                told, told_at = estimate, now

    until_ready(place, mib, saw)
    real = time.monotonic() - began
    for now, estimate, reason in all_told if trace else []:
        print(f"    at {now:5.1f} s: {estimate:5.1f} told, {real - now:5.1f} real, {reason}")
    return real, told, None if told_at is None else real - told_at


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="4096,8192", help="MiB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--trace", action="store_true", help="each estimate of each run")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        built(folder)
        place = Place(options.folder.resolve(), folder, config=f'backing = "thp"\nlimit = "{max(sizes)}M"\n')
        try:
            print("| size, MiB | load | ready after, s | told after 1 s, s | real from then on, s | error, % |")
            print("|---|---|---|---|---|---|")
            for mib in sizes:
                for _ in range(options.runs):
                    ready, told, real = restart(place, mib, options.trace)
                    error = None if told is None else (told - real) / real
                    missed += ready > SOON and (error is None or abs(error) > RIGHT)
                    cells = ["-" if each is None else f"{each:.1f}" for each in (told, real)]
                    cells.append("-" if error is None else f"{error * 100:+.0f}")
                    print(f"| {mib} | {os.getloadavg()[0]:.0f} | {ready:.1f} | {' | '.join(cells)} |", flush=True)
                # What is expected is kept: the next size needs its room.
                stock(place, "--expect", f"{mib}M", "--each", "0")
        finally:
            place.close()
    print(f"restart: {missed} runs were neither ready within {SOON:.0f} s nor told within {RIGHT:.0%}")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
