#!/usr/bin/env python3
"""A small lease made to order beside the large ones of another user: it does not wait behind them.

    tests/system/beside.py FOLDER [--seconds N]

FOLDER holds prezerod, which keeps no stock. One user waits for 1 GiB again and again, another for 4 MiB. While some
large order is made several small ones must be served; how long those took is printed. Needs root, to be two users.
"""
import argparse
import contextlib
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
# Served beside one large lease.
LEAST = 3
CONFIG = f"""
limit = "0"
[[tenant]]
name = "small"
users = [{SMALL}]
[[tenant]]
name = "large"
users = [{LARGE}]
"""


def orders(path, uid, size):
    """A process of that user that asks again and again, and a pipe with the times at which it asked and was served."""
    reader, writer = os.pipe()
    parent = os.getpid()
    if pid := os.fork():
        os.close(writer)
        os.set_blocking(reader, False)
        return pid, reader
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    patience = time.monotonic() + PATIENCE_S
    try:
        with os.fdopen(writer, "w") as pipe:
            while os.getppid() == parent:
                asked = time.monotonic()
                try:
                    with Client(path) as broker, broker.lease(size, wait=PATIENCE_S):
                        served = time.monotonic()
                    print(asked, served, file=pipe, flush=True)
                except Refused as refused:
                    # Memory that is in pieces has no huge page for this one.
                    if refused.reason != "kernel" or asked > patience:
                        raise
    except BaseException as error:  # noqa: BLE001  nothing of it is the parent's
        os.write(2, f"beside: {size >> 20}M: {error!r}\n".encode())
    os._exit(1)


def orders_of(text):
    """What whole lines tell of orders."""
    return [[float(number) for number in line.split()] for line in text.rpartition("\n")[0].splitlines()]


def within(large, small):
    """How many small ones were asked for and served during each large one."""
    return [sum(began <= asked and served <= ended for asked, served in small) for began, ended in large]


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
        users, pipes = [], []
        try:
            until("the broker", lambda: "serving on" in Path(place, "log").read_text())
            began = time.monotonic()
            for uid, size in (LARGE, 1 << 30), (SMALL, 4 << 20):
                pid, pipe = orders(path, uid, size)
                users.append(pid)
                pipes.append(pipe)
            texts = ["", ""]

            def beside():
                for number, pipe in enumerate(pipes):
                    with contextlib.suppress(BlockingIOError):
                        read = os.read(pipe, 1 << 16).decode()
                        assert read, "one of the users has ended"
                        texts[number] += read
                # On a busy machine the small one may have no CPU while a large one is made.
                is_long = time.monotonic() - began >= options.seconds
                large, small = map(orders_of, texts)
                return is_long and max(within(large, small), default=0) >= LEAST and (large, small)
            large, small = until(f"{LEAST} small leases served while a large one is made", beside)
        finally:
            for pid in users:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            broker.send_signal(signal.SIGKILL)
            broker.wait()
    took = sorted((served - asked) * 1e3 for asked, served in small)
    print(f"beside: {len(took)} leases of 4M beside {len(large)} of 1G: median {took[len(took) // 2]:.0f} ms, 90th "
          f"percentile {took[len(took) * 9 // 10]:.0f} ms, longest {took[-1]:.0f} ms")


main()
