#!/usr/bin/env python3
"""Real programs side by side under prezero, with faults injected, for as long as asked.

    tests/soak/soak.py --prezero target/release/prezero [--time 10m] [--seed N] [--jobs 3]

Which program, with which knobs, which fault and when follows from the seed, which is printed. The
programs are those of tests/programs/ that take seconds, and tests/soak/burst.c, which frees all that
it took and waits until it is as small as it was. The faults:

    none, pauses        stopped and continued at random: its output is that of a run without prezero
    kill, term, quit    at a random moment: all of it ends
    limit               a cgroup with less memory than it wants, or more; where cgroups can be made
    address             RLIMIT_AS: if it succeeds, its output is right
    threads             RLIMIT_NPROC 0 for a user who is not root: no thread, so no scrubd

Always: no page that should be zero and is not, in any process; no process that does not end; and
nothing of the zone that is still out when burst has freed all.
"""

import argparse
import concurrent.futures
import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "programs"), str(HERE.parent / "common")]
import matrix  # noqa: E402
from until import until  # noqa: E402

CASES = ["sort", "compress", "gcc", "git", "make", "sqlite", "allocators", "redis", "java-g1", "node"]
HANGS_S = 1800
MIB = 1 << 20


class Limit:
    """A cgroup with a memory limit, of either version."""

    made = 0
    lock = threading.Lock()

    def __init__(self, size):
        with Limit.lock:
            Limit.made += 1
            name = f"prezero-soak-{os.getpid()}-{Limit.made}"
        root, limit = Limit.root()
        self.folder = root / name
        self.folder.mkdir()
        (self.folder / limit).write_text(str(size))

    @staticmethod
    def root():
        """Where cgroups can be made, and the limit's file; OSError if nowhere."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, names, path = line.split(":", 2)
            if names == "memory":
                return Path("/sys/fs/cgroup/memory") / path.lstrip("/"), "memory.limit_in_bytes"
        root = Path("/sys/fs/cgroup")
        if "memory" not in (root / "cgroup.subtree_control").read_text().split():
            raise OSError("no memory controller for children of the root cgroup")
        return root, "memory.max"

    @staticmethod
    def possible():
        try:
            Limit(1 << 30).remove()
            return True
        except OSError as error:
            print(f"soak: no cgroup limits here: {error}")
            return False

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        """Gone, once the kernel has let go of the last process."""
        def gone():
            try:
                self.folder.rmdir()
                return True
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                return False
        until("a cgroup without a process", gone)


def of_session(session):
    """Processes that are not yet at their end."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[3]) == session and words[0] not in "ZX":
            found.append(int(folder.name))
    return found


def send(session, number):
    for process in of_session(session):
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


class Job:
    """One program, once: what it is and what befalls it."""

    def __init__(self, seed, number, programs, alone, limits):
        draw = random.Random(f"{seed} {number}")
        self.number, self.draw = number, draw
        self.program = draw.choice(programs)
        faults = ["none", "pauses", "kill", "kill", "term", "quit", "address", "threads"] + ["limit"] * 2 * limits
        self.fault = draw.choice(faults)
        if self.fault == "threads":
            self.program = alone
        knobs = {"decay": [None, "0.05", "1"], "scrub-start": [None, None, "0", "never"],
                 "threshold": [None, "128K"], "limit": [None, None, "64M", "512M"],
                 "scrub-rate": [None, "100M"]}
        self.options = [word for name, values in knobs.items() for value in [draw.choice(values)] if value
                        for word in (f"--{name}", value)]
        self.moment, self.factor = draw.random(), draw.choice([0.5, 1, 2, 4])
        self.address = draw.choice([1, 2, 4]) << 30

    def name(self):
        return f"{self.number} {self.program.name} {' '.join(self.options)} ({self.fault})"


class Program:
    """What is run, and what it prints without prezero."""

    def __init__(self, name, command, environment):
        self.name, self.command, self.environment = name, command, environment
        self.expected = self.seconds = self.rss = None

    def learn(self, folder):
        run = folder / "expected"
        run.mkdir()
        before = time.monotonic()
        with open(folder / "expected.out", "wb") as out:
            process = subprocess.Popen(self.command, cwd=run, env=clean() | self.environment,
                                       stdout=out, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"soak: {self.name} does not run without prezero")
        self.seconds, self.rss = time.monotonic() - before, usage.ru_maxrss * 1024
        self.expected = (folder / "expected.out").read_bytes()
        shutil.rmtree(run)


def clean():
    return {name: value for name, value in os.environ.items()
            if not name.startswith("PREZERO_") and name != "LD_PRELOAD"}


class Soak:
    def __init__(self, args, place, prezero):
        self.args, self.place, self.prezero = args, place, prezero
        self.tally, self.wrong, self.pages, self.lock = {}, [], 0, threading.Lock()

    def run(self, job):
        folder = self.place / f"job-{job.number}"
        run, stats = folder / "run", folder / "stats"
        for each in (folder, run, stats):
            each.mkdir()
            each.chmod(0o777)
        command = [str(self.prezero), "run", "--verify", "full", *job.options,
                   "--stats", str(stats / "%p.json"), "--", *job.program.command]
        group = Limit(max(int(job.program.rss * job.factor), 16 * MIB)) if job.fault == "limit" else None

        def prepare():
            if group:
                group.enter()
            if job.fault == "address":
                resource.setrlimit(resource.RLIMIT_AS, (job.address, job.address))
            if job.fault == "threads":
                # Root has no such limit.
                if os.getuid() == 0:
                    os.setgroups([]), os.setgid(65534), os.setuid(65534)
                resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

        with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
            process = subprocess.Popen(command, cwd=run, env=clean() | job.program.environment, stdout=out,
                                       stderr=err, stdin=subprocess.DEVNULL, start_new_session=True,
                                       preexec_fn=prepare)
        hung = self.watch(job, process)
        left = self.cleared(process.pid)
        if group:
            group.remove()
        output = (folder / "out").read_bytes()
        errors = (folder / "err").read_bytes()
        why = []
        if hung:
            why.append(f"it hangs: not at its end after {HANGS_S} s")
        if left:
            why.append(f"processes {left} do not end")
        files = [folder / "err", folder / "out", *(file for file in run.rglob("*") if file.is_file())]
        if any(matrix.complains(file) for file in files if file.stat().st_size < 64 * MIB):
            why.append("a page that should be zero was not")
        pages = 0
        for file in stats.glob("*.json"):
            text = file.read_text()
            if text.endswith("}\n"):
                counters = json.loads(text)
                pages += counters["verified_pages"]
                # scrubd may be on its way with one huge block; what leaks does so at each burst.
                leaked = counters["allocated_bytes"] - 2 * MIB
                if process.returncode == 0 and job.program.name == "burst" and leaked > 0:
                    why.append(f"{counters['allocated_bytes']} bytes of the zone are not free at the end")
                if counters["verify_failures"]:
                    why.append(f"{counters['verify_failures']} pages that should be zero were not")
        expected = job.program.expected
        undisturbed = job.fault in ("none", "pauses", "threads")
        if process.returncode == 0 or undisturbed:
            if process.returncode != 0 or output != expected:
                why.append(f"exit {process.returncode}, not the output of a run without prezero: "
                           f"{(output + errors)[-500:].decode(errors='replace')}")
        with self.lock:
            self.tally[job.fault] = self.tally.get(job.fault, 0) + 1
            self.pages += pages
            if why:
                self.wrong.append(job)
                print(f"WRONG   {job.name()}: {'; '.join(why)}", flush=True)
            elif self.args.verbose:
                print(f"ok      {job.name()}: exit {process.returncode}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)

    def watch(self, job, process):
        """Lets the fault happen and waits for the end; whether it had to be ended."""
        end = time.monotonic() + HANGS_S
        signals = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "quit": signal.SIGABRT}
        number = signals.get(job.fault)
        moment = time.monotonic() + job.moment * 2 * job.program.seconds
        while True:
            try:
                wait = 0.05 if job.fault == "pauses" else min(0.2, max(moment - time.monotonic(), 0.01)) if number else 0.2
                process.wait(timeout=wait)
                return False
            except subprocess.TimeoutExpired:
                pass
            if job.fault == "pauses":
                send(process.pid, signal.SIGSTOP)
                time.sleep(job.draw.random() * 0.03)
                send(process.pid, signal.SIGCONT)
            if number and time.monotonic() > moment:
                send(process.pid, number)
                number = None
            if time.monotonic() > end:
                send(process.pid, signal.SIGKILL)
                process.wait()
                return True

    def cleared(self, session):
        """Ends what a program that was killed left behind; what does not end."""
        def all_gone():
            send(session, signal.SIGKILL)
            return not of_session(session)
        try:
            return not until("the end of a session", all_gone, patience=120)
        except TimeoutError:
            return of_session(session)


def burst(place):
    program = place / "burst"
    subprocess.run(["cc", "-O1", "-g", "-fno-builtin", "-Wall", "-pthread", "-o", program,
                    HERE / "burst.c"], check=True)
    return program


def duration(text):
    """Seconds: 30s, 10m, 2h."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prezero", default="target/release/prezero")
    parser.add_argument("--time", type=duration, default="10m", help="30s, 10m, 2h")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--only", default="", help="programs, with commas between")
    parser.add_argument("--python")
    parser.add_argument("--verbose", action="store_true", help="a line for each program")
    parser.set_defaults(scale="short")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = random.SystemRandom().randrange(10**9) if args.seed is None else args.seed
    print(f"soak: seed {seed}, {args.time:g} s, {args.jobs} at a time", flush=True)
    built = Path(args.prezero).resolve()
    names = args.only.split(",") if args.only else CASES + ["burst"]
    with tempfile.TemporaryDirectory(prefix="prezero-soak-") as scratch:
        place = Path(scratch)
        place.chmod(0o755)
        for name in (built.name, "libprezero.so"):
            shutil.copy(built.parent / name, place)
        soak = Soak(args, place, place / built.name)
        bursts = str(burst(place))
        programs = [Program("burst", [bursts, "40", "1"], {})]
        # One process and no thread but scrubd; without that nobody gives memory back.
        alone = Program("burst without a thread", [bursts, "40", "1", "stay"], {})
        for name in names:
            if name != "burst":
                case = matrix.Case(matrix.CASES / f"{name}.sh")
                programs.append(Program(name, case.command(), case.environment(args)))
        programs = [program for program in programs if program.name in names]
        for program in [alone, *programs]:
            program.learn(place)
        limits = Limit.possible()
        end = time.monotonic() + args.time
        count = iter(range(1 << 60))

        def work():
            while time.monotonic() < end and not soak.wrong:
                with soak.lock:
                    number = next(count)
                soak.run(Job(seed, number, programs, alone, limits))

        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for future in [pool.submit(work) for _ in range(args.jobs)]:
                future.result()
        told = ", ".join(f"{number} {fault}" for fault, number in sorted(soak.tally.items()))
        print(f"soak: seed {seed}: {sum(soak.tally.values())} runs ({told}), {soak.pages} pages checked to be "
              f"zero, {len(soak.wrong)} wrong")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
