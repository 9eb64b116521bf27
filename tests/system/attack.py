#!/usr/bin/env python3
"""A broker under attack: an unprivileged user does all at once that has ever stopped it, another user claims.

    tests/system/attack.py FOLDER [--seconds N] [--p99 MS] [--load N] [--times N]

FOLDER holds prezerod. Without --p99 it asserts what never depends on the clock: every claim is served and zero,
the broker lives, keeps no descriptor and no memory of the attackers, and tells them why. It prints how long claims
took, for how long of that the broker's thread waited for a CPU, and beside each claim a frame to a process that does
nothing but answer it: what this machine allows.
With --p99 it fails where the 99th percentile is above so many milliseconds, and above 1.2 times that of such frames.
With --load N processes spin all the while; with --times it fails where the attacked 99th percentile is above
so many times the one before the attack. Claims and an operator's reports are timed.
Needs root, to become three other users. Where it can, it puts the broker and those that it serves into one cgroup for
CPU time and the attackers into another, as services and the sessions of users are on a host.
"""
import argparse
import array
import encodings.idna  # noqa: F401  what connecting loads, which another user may not read
import json
import mmap
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "bindings/python"), str(HERE.parent / "common")]
from prezero_lease import Client, NotNow, Refused  # noqa: E402
from until import PATIENCE_S, until  # noqa: E402

VICTIM, TENANT, STRANGER = 65531, 65532, 65533
SERVICES, USERS = 0, 1
HUGE = 2 << 20
HEADER = struct.Struct("<2sBBI")
CONFIG = f"""
metrics = "127.0.0.1:{{port}}"
[[stock]]
size = "4M"
keep = 16
[[tenant]]
name = "operator"
users = ["root"]
[[tenant]]
name = "victim"
users = [{VICTIM}]
[[tenant]]
name = "attacker"
users = [{TENANT}]
quota = "64M"
"""


def frame(kind, body=b"", tag=1):
    return HEADER.pack(b"PZ", 1, kind, tag) + body


LEASE = frame(1, struct.pack("<QQiI", HUGE, HUGE, -1, 60_000))
LARGE = frame(1, struct.pack("<QQiI", 32 * HUGE, HUGE, -1, 60_000))
AVAILABLE = frame(5, struct.pack("<Qi", HUGE, -1))
REPORT = frame(7, struct.pack("<IQ", 1, 0))
METRICS = frame(7, struct.pack("<IQ", 2, 0))


def connect(path):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.settimeout(5)
    made.connect(path)
    return made


def linger(path, _):
    """A TCP socket that lingers for an hour when it is closed, as the last reference to it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    near = socket.create_connection(listener.getsockname())
    near.setblocking(False)
    try:
        while near.send(b"x" * 65536):
            pass
    except BlockingIOError:
        pass
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    while True:
        with connect(path) as broker:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [near.fileno()] * 8))]
            broker.sendmsg([AVAILABLE], rights)


def unread(path, _):
    """Asks for all that there is, and reads nothing."""
    kept = []
    while True:
        kept.append(connect(path))
        kept[-1].settimeout(0.1)
        for _ in range(64):
            kept[-1].send(random.choice([LEASE, REPORT, METRICS]))
        if len(kept) == 64:
            kept = kept[32:]


def reports(path, _):
    """Reads reports as fast as they come, over many connections."""
    brokers = [connect(path) for _ in range(32)]
    while True:
        for broker in brokers:
            broker.send(REPORT)
            broker.send(METRICS)
        for broker in brokers * 2:
            broker.recv(16384)


def churn(path, _):
    """Leases and closes."""
    while True:
        with Client(path) as broker:
            for _ in range(100):
                try:
                    broker.lease(HUGE).close()
                except NotNow:
                    pass


def waits(path, _):
    """Waits for more than there is room for, and leaves."""
    while True:
        brokers = [connect(path) for _ in range(32)]
        for broker in brokers:
            broker.send(random.choice([LEASE, LARGE]))
        time.sleep(0.01)


def noise(path, _):
    """Frames that are none."""
    while True:
        with connect(path) as broker:
            good = bytearray(random.choice([LEASE, AVAILABLE, REPORT]))
            good[random.randrange(len(good))] ^= random.randrange(1, 256)
            broker.send(bytes(good) * random.choice([1, 1, 100]))
            broker.recv(512)  # a frame of a client that has gone is not read


def flood(path, _):
    """Connects, and is a stranger."""
    while True:
        connect(path).close()


def silence(_, port):
    """Connects to the metrics, and says nothing."""
    kept = []
    while True:
        kept.append(socket.create_connection(("127.0.0.1", port)))
        if len(kept) == 200:
            kept = kept[100:]
        time.sleep(0.001)


ATTACKS = [(linger, TENANT), (unread, TENANT), (reports, TENANT), (churn, TENANT), (waits, TENANT), (noise, TENANT),
           (linger, STRANGER), (flood, STRANGER), (silence, STRANGER)]


class Groups:
    """A cgroup for services, of that weight, and one for users, of 100; of version 1 or 2, or none."""

    def __init__(self, weight):
        name = f"prezero-attack-{os.getpid()}"
        self.dirs = []
        for root in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup"):
            dirs = [Path(root, f"{name}-{part}") for part in ("services", "users")]
            try:
                for made in dirs:
                    made.mkdir()
                    self.dirs.append(made)
                for name_of_weight, value in ("cpu.shares", 1024 * weight // 100), ("cpu.weight", weight):
                    if (dirs[0] / name_of_weight).exists():
                        (dirs[0] / name_of_weight).write_text(str(value))
                        return
            except OSError:
                pass
            self.close()

    def put(self, which, pid):
        if self.dirs:
            (self.dirs[which] / "cgroup.procs").write_text(str(pid))

    def close(self):
        """Removes them, if nothing lives there any more."""
        left = []
        for made in self.dirs:
            try:
                made.rmdir()
            except OSError:
                left.append(made)
        self.dirs = left


def attacker(attack, uid, path, port):
    """A process of that user, again and again from the beginning when the broker hangs up."""
    pid = os.fork()
    if pid:
        return pid
    parent = os.getppid()
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        while os.getppid() == parent:
            try:
                attack(path, port)
            except (OSError, Refused, NotNow):
                time.sleep(0.0002)
    except BaseException as error:  # noqa: BLE001  nothing of it is the parent's
        os.write(2, f"{attack.__name__}: {error!r}\n".encode())
    os._exit(1)


def echo(path, groups):
    """A process that answers what it is sent, in the place of the broker: its number."""
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ear.bind(path)
    os.chmod(path, 0o777)
    ear.listen()
    parent = os.getpid()
    if pid := os.fork():
        ear.close()
        return pid
    groups.put(SERVICES, os.getpid())
    ear.settimeout(1)
    while os.getppid() == parent:
        try:
            client, _ = ear.accept()
            with client:
                client.send(client.recv(512))
        except OSError:
            pass
    os._exit(0)


def waited_for_cpu(pid):
    """For how long a process's first thread could run and had no CPU, ms."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e6


def claim(path, pid_of_broker, took):
    """A claim, and a frame to the echo: what each took is added to `took`."""
    begun, before = time.monotonic(), waited_for_cpu(pid_of_broker)
    with Client(path) as broker, broker.lease(2 * HUGE, wait=PATIENCE_S) as lease:
        claimed, lost = time.monotonic(), waited_for_cpu(pid_of_broker) - before
        kind = "made to order" if lease.waited else "from stock"
        memory = mmap.mmap(lease.fd, lease.bytes, mmap.MAP_SHARED)
    assert memory[:] == bytes(len(memory)), "a lease that is not zero"
    memory.close()
    asked = time.monotonic()
    with connect(f"{path}.echo") as other:
        other.settimeout(PATIENCE_S)
        other.send(LEASE)
        other.recv(512)
    for name, ms in (("claims", (claimed - begun) * 1e3), (f"claims {kind}", (claimed - begun) * 1e3),
                     ("waits of the broker for a CPU", lost), ("echoes", (time.monotonic() - asked) * 1e3)):
        took.setdefault(name, []).append(ms)


def victim(path, seconds, groups, pid_of_broker):
    """Claims of another user for so long: what each took, by name, ms."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        groups.put(SERVICES, os.getpid())
        os.setgroups([])
        os.setgid(VICTIM)
        os.setuid(VICTIM)
        took, end = {}, time.monotonic() + seconds
        try:
            while time.monotonic() < end or not took:
                try:
                    claim(path, pid_of_broker, took)
                except Refused as refused:
                    # Memory that is in pieces has no huge page for this one.
                    if refused.reason != "kernel" or time.monotonic() > end + PATIENCE_S:
                        raise
                time.sleep(0.02)
            os.write(writer, json.dumps(took).encode())
        except BaseException as error:
            os.write(writer, json.dumps(f"{type(error).__name__}: {error}").encode())
        os._exit(0)
    os.close(writer)
    reports = []
    while not select.select([reader], [], [], 0.05)[0]:
        asked = time.monotonic()
        with Client(path) as operator:
            operator.stock()
        reports.append((time.monotonic() - asked) * 1e3)
    with open(reader, "rb") as pipe:
        took = json.loads(pipe.read())
    os.waitpid(pid, 0)
    assert isinstance(took, dict), f"a claim was not served: {took}"
    took["reports to the operator"] = reports
    return {name: sorted(ms) for name, ms in took.items()}


def scrape(port):
    """The counters; None: this scrape made way for later ones, as a collector's next one will not."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as scraper:
        text = b""
        try:
            scraper.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            while part := scraper.recv(65536):
                text += part
        except (ConnectionResetError, BrokenPipeError):
            return None
    whole = text.startswith(b"HTTP/1.1 200") and text.endswith(b"# EOF\n")
    return text.decode() if whole else None


def unexplained(path, pid):
    """Descriptors of the broker besides one for each piece of stock and each filler; None: there are leases or requests."""
    with Client(path) as root:
        report, opened = root.stock(), len(os.listdir(f"/proc/{pid}/fd"))
    if report["leased"] or report["waiting"] or report["making_bytes"]:
        return None
    # One that has ended and was not waited for is counted too, and has no descriptor: the sum is wrong until it is.
    fillers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return opened - len(report["ready"]) - len(fillers)


def resisted(port):
    """What the counters tell of attacks, by name; an attacker that had no CPU yet is not among them."""
    text = until("a scrape", lambda: scrape(port))
    counted = dict(line.rsplit(" ", 1) for line in text.split("\r\n\r\n", 1)[1].splitlines() if not line.startswith("#"))
    names = ("malformed_frames_total", "connections_refused_total", 'refusals_total{reason="quota"}')
    return {name: int(counted[f"prezerod_{name}"]) for name in names}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--p99", type=float)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--times", type=float)
    parser.add_argument("--weight", type=int, default=100)
    options = parser.parse_args()
    if os.geteuid() != 0:
        return print("not tried: only root becomes another user")
    # As long as this has the port the kernel gives it to no other, and a broker may listen there.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        path, config = f"{place}/s", f"{place}/config.toml"
        Path(config).write_text(CONFIG.format(port=port))
        command = [f"{options.folder}/prezerod", "--config", config, "--socket", path]
        with open(f"{place}/log", "w") as log:
            broker = subprocess.Popen(command, stderr=log)
        groups = Groups(options.weight)
        groups.put(SERVICES, broker.pid)
        attackers, spinning = [], []
        echoing = echo(f"{path}.echo", groups)
        try:
            until("the broker", lambda: "serving on" in Path(place, "log").read_text())
            with Client(path) as root:
                until("the stock", lambda: len(root.stock()["ready"]) >= 16)
            # Before the first claim, so that nothing but the stock is there.
            before = until("the broker at rest", lambda: unexplained(path, broker.pid))
            for _ in range(options.load):
                spinning.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                groups.put(USERS, spinning[-1].pid)
            calm = victim(path, options.seconds * (1 if options.times else 0.5), groups, broker.pid)
            attackers = [attacker(attack, uid, path, port) for attack, uid in ATTACKS]
            for pid in attackers:
                groups.put(USERS, pid)
            took = victim(path, options.seconds, groups, broker.pid)
            until("each attack to take place", lambda: all(count > 0 for count in resisted(port).values()))
            ended = [attack.__name__ for pid, (attack, _) in zip(attackers, ATTACKS) if os.waitpid(pid, os.WNOHANG)[0]]
            assert not ended, f"these attacks did not last: {ended}"
            for pid in attackers:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            attackers = []
            assert broker.poll() is None, Path(f"{place}/log").read_text()
            # What is learnt of them is stock still, within their share; nothing else of them is.
            until("its descriptors to be closed", lambda: unexplained(path, broker.pid) == before)
            with Client(path) as root:
                report = root.stock()
            assert report["audit_failures"] == 0, report
        finally:
            for pid in attackers:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for process in spinning:
                process.kill()
                process.wait()
            broker.kill()
            broker.wait()
            os.kill(echoing, signal.SIGKILL)
            os.waitpid(echoing, 0)
            until("its fillers to be gone", lambda: groups.close() or not groups.dirs)
    def at(sorted_ms, part):
        return sorted_ms[min(len(sorted_ms) - 1, int(len(sorted_ms) * part))]
    for name, all_of_it in (("alone", calm), ("attacked", took)):
        for what, ms in all_of_it.items():
            print(f"{name}: {len(ms)} {what}, median {at(ms, 0.5):.1f} ms, 90th percentile {at(ms, 0.9):.1f} ms, 99th "
                  f"percentile {at(ms, 0.99):.1f} ms, longest {ms[-1]:.1f} ms")
    claims, echoes = (at(took[name], 0.99) for name in ("claims", "echoes"))
    if options.p99 is not None and claims > max(options.p99, 1.2 * echoes):
        sys.exit(f"the 99th percentile is above {options.p99:g} ms, and above 1.2 times that of the echoes")
    times = {what: at(took[what], 0.99) / at(calm[what], 0.99) for what in calm if what in took}
    print("99th percentile, attacked over alone: " + ", ".join(f"{what} {value:.1f}" for what, value in times.items()))
    if options.times is not None and times["claims"] > options.times:
        sys.exit(f"the 99th percentile of claims is above {options.times:g} times that without an attack")


main()
