#!/usr/bin/env python3
"""A small lease made to order beside the large ones of another user: it does not wait behind them.

    tests/system/beside.py FOLDER [--seconds N]

FOLDER holds prezerod, which keeps no stock. One user waits for 1 GiB again and again, another for 4 MiB. While some
large order is made several small ones must be served; how long those took is printed. Needs root, to be two users.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "bindings/python"), str(HERE.parent / "common")]
from prezero_lease import Client, Refused  # noqa: E402
from until import PATIENCE_S, until  # noqa: E402

SMALL, LARGE = 65531, 65532
CONFIG = f"""
limit = "0"
[[tenant]]
name = "small"
users = [{SMALL}]
[[tenant]]
name = "large"
users = [{LARGE}]
"""


def orders(path, uid, size, seconds):
    """A pipe with the times at which a process of that user asked and was served, for so long."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        times, now = [], time.monotonic()
        end, patience = now + seconds, now + PATIENCE_S
        try:
            while time.monotonic() < end or not times:
                asked = time.monotonic()
                try:
                    with Client(path) as broker, broker.lease(size, wait=PATIENCE_S):
                        times.append((asked, time.monotonic()))
                except Refused as refused:
                    # Memory that is in pieces has no huge page for this one.
                    if refused.reason != "kernel" or asked > patience:
                        raise
            with os.fdopen(writer, "w") as pipe:
                json.dump(times, pipe)
        except BaseException as error:  # noqa: BLE001  nothing of it is the parent's
            os.write(2, f"beside: {size >> 20}M: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    os.close(writer)
    return os.fdopen(reader)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    if os.geteuid() != 0:
        return print("beside: left out: only root becomes another user")
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        path, config = f"{place}/s", Path(place, "config.toml")
        config.write_text(CONFIG)
        command = [f"{options.folder}/prezerod", "--config", config, "--socket", path]
        with open(f"{place}/log", "w") as log:
            broker = subprocess.Popen(command, stderr=log)
        try:
            until("the broker", lambda: "serving on" in Path(place, "log").read_text())
            pipes = [orders(path, LARGE, 1 << 30, options.seconds), orders(path, SMALL, 4 << 20, options.seconds)]
            large, small = [json.load(pipe) for pipe in pipes]
        finally:
            broker.send_signal(signal.SIGKILL)
            broker.wait()
    within = [sum(began <= asked and served <= ended for asked, served in small) for began, ended in large]
    assert large and max(within) >= 3, f"small leases served while a large one was made: {within}"
    took = sorted((served - asked) * 1e3 for asked, served in small)
    print(f"beside: {len(took)} leases of 4M beside {len(large)} of 1G: median {took[len(took) // 2]:.0f} ms, 90th "
          f"percentile {took[len(took) * 9 // 10]:.0f} ms, longest {took[-1]:.0f} ms")


main()
