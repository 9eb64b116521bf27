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
from prezero_lease import Client  # noqa: E402
from until import until  # noqa: E402

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
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            asked = time.monotonic()
            with Client(path) as broker, broker.lease(size, wait=60):
                times.append((asked, time.monotonic()))
        with os.fdopen(writer, "w") as pipe:
            json.dump(times, pipe)
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
        broker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            until("the socket", lambda: os.path.exists(path))
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
