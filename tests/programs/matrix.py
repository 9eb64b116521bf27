#!/usr/bin/env python3
"""Programs that nobody here wrote: without prezero, and under `prezero run --verify full`.

    tests/programs/matrix.py --prezero target/release/prezero [--scale long | --all] [--only redis,git]
                    [--runs 3] [--json FILE]
    tests/programs/matrix.py --table FILE [--into docs/guarantees.md]

Each `tests/programs/NAME.sh` is one program and its work. It is run in a fresh directory, all that
it starts is under prezero or nothing is, and it prints what must not depend on that. Its first
lines say what it needs:

    # about: what it does, for people
    # version: a command that prints the program's version
    # needs: commands on the path, or patterns of files (tests/setup.sh installs their packages)
    # python: modules; $PYTHON is then a Python that has them
    # source: Debian source packages; $SOURCE/PACKAGE is then where one is unpacked
    # release: a release of Debian and packages of it, unpacked together below $RELEASE
    # scale: long                                       (too long for the short run, or shows little there;
                                                         --all has its short form)

$SCALE is short or long, $TOP this repository. What differs is tried once more, both ways, as some
of the programs' own tests depend on time; the report says so. A program that is missing is named and left
out. A page that should be zero and is
not fails at once. Time is from start to end, with every zero page read back; the resident size is
the peak of the largest process. With several runs the medians count, and they take turns.
"""

import argparse
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
CASES = TOP / "tests" / "programs"
SOURCES = TOP / "target" / "matrix"
# A program that hangs ends the run; no program is this slow on a starved machine.
HANGS_S = {"short": 1800, "long": 4 * 3600}
# Not where it stands in quotes: in prezero's own sources, which git checks out.
# Not its own text: the git case has clones of this repository in its folder.
COMPLAINT = re.compile(rb'(?<!")prezero: a free page that should be [z]ero was written to')
MARKERS = ("<!-- matrix -->", "<!-- end of matrix -->")


class Missing(Exception):
    """What a program needs is not here."""


class Case:
    def __init__(self, script):
        self.script, self.name = script, script.stem
        lines = (line for line in script.read_text().splitlines() if line.startswith("# "))
        heads = (re.match(r"# (about|version|needs|python|source|release|scale): (.*)", line) for line in lines)
        self.head = {head[1]: head[2].strip() for head in heads if head}

    def words(self, key):
        return self.head.get(key, "").split()

    def environment(self, args):
        """What the script finds set, or why it cannot run."""
        for command in self.words("needs"):
            if not shutil.which(command) and not glob.glob(command):
                raise Missing(f"no {command} on the path: tests/setup.sh installs it")
        found = {"SCALE": args.scale, "TOP": str(TOP), "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
        if modules := self.words("python"):
            found["PYTHON"] = python_with(modules, args.python)
        if packages := self.words("source"):
            found["SOURCE"] = str(SOURCES)
            for package in packages:
                fetch(package)
        if release := self.words("release"):
            found["RELEASE"] = str(unpacked(*release))
        return found

    def command(self):
        return ["bash", "-o", "pipefail", str(self.script)]

    def version(self, environment):
        command = self.head.get("version", "true")
        done = subprocess.run(["bash", "-c", command], env=os.environ | environment,
                              capture_output=True, text=True)
        return (done.stdout or done.stderr).strip().split("\n")[0]


def python_with(modules, given):
    known = [given, "/usr/bin/python3", "python3", str(TOP / ".venv/bin/python3")]
    for python in filter(None, known):
        found = shutil.which(python)
        found = found and os.path.abspath(found)  # the scripts run elsewhere; not realpath: a venv is a link
        if found and subprocess.run([found, "-c", "import " + ", ".join(modules)],
                                    capture_output=True).returncode == 0:
            return found
    raise Missing(f"no Python has {', '.join(modules)}: give --python one that has")


def fetch(package):
    """Unpacks a Debian source package, once."""
    if (SOURCES / package).is_dir():
        return
    with tempfile.TemporaryDirectory(prefix="prezero-source-") as folder:
        command = [CASES / "source", package]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        unpacked = [entry for entry in Path(folder).iterdir() if entry.is_dir()]
        if done.returncode != 0 or not unpacked:
            raise Missing(f"no source of {package}: {(done.stdout + done.stderr).strip()[-300:]}")
        SOURCES.mkdir(parents=True, exist_ok=True)
        shutil.move(unpacked[0], SOURCES / package)


def unpacked(release, *packages):
    """Where packages of another release of Debian lie, unpacked once."""
    folder = SOURCES / release
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(prefix="prezero-release-") as made:
            command = [TOP / "tests" / "common" / "release.sh", release, made, *packages]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise Missing(f"no packages of Debian {release}: {(done.stdout + done.stderr).strip()[-300:]}")
            SOURCES.mkdir(parents=True, exist_ok=True)
            shutil.copytree(made, folder, symlinks=True)
    return folder


def complains(file):
    """Whether a file holds prezero's complaint. Read in parts: what this process has resident when it
    starts a program counts as the program's, to the kernel."""
    rest = b""
    with open(file, "rb") as opened:
        while part := opened.read(1 << 20):
            if COMPLAINT.search(rest + part):
                return True
            rest = (rest + part)[-len(COMPLAINT.pattern):]
    return False


class Run:
    """One program, once, one way."""

    def __init__(self, case, environment, place, prezero, args):
        run, stats = place / "run", place / "stats"
        for folder in (run, stats):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            folder.chmod(0o777)
        command = case.command()
        if prezero:
            options = ["--verify", args.verify, "--stats", str(stats / "%p.json")]
            command = [str(prezero), "run", *options, "--", *command]
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith("PREZERO_") and name != "LD_PRELOAD"}
        with open(place / "out", "wb") as out, open(place / "err", "wb") as err:
            start = time.monotonic()
            process = subprocess.Popen(command, cwd=run, env=clean | environment, stdout=out,
                                       stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)
            self.hung = False
            signal.signal(signal.SIGALRM, lambda *_: self.hang(process))
            signal.alarm(HANGS_S[args.scale])
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                # Interrupted: what was started ends with us.
                os.killpg(process.pid, signal.SIGKILL)
                raise
            signal.alarm(0)
            self.wall_s = time.monotonic() - start
        process.returncode = self.status = os.waitstatus_to_exitcode(status)
        self.rss_mib = usage.ru_maxrss / 1024
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.output, self.errors = (place / "out").read_bytes(), (place / "err").read_bytes()
        self.complaints = sum(complains(file)
                              for file in [place / "err", place / "out", *run.rglob("*")]
                              if file.is_file() and file.stat().st_size < 64 << 20)
        self.processes = [json.loads(text) for file in stats.glob("*.json")
                          if (text := file.read_text()).endswith("}\n")]

    def hang(self, process):
        self.hung = True
        os.killpg(process.pid, signal.SIGABRT)
        time.sleep(5)
        os.killpg(process.pid, signal.SIGKILL)

    def count(self, name):
        return sum(process.get(name, 0) for process in self.processes)

    def failures(self):
        return self.count("verify_failures") + self.complaints

    def says(self):
        return self.status, self.hung, self.output


def tell(text):
    print(text, flush=True)


def show_difference(one, two, place):
    for name, run in (("without", one), ("with", two)):
        (place / name).write_bytes(run.output + f"\nexit {run.status}\n".encode())
    diff = subprocess.run(["diff", "-u", "without", "with"], cwd=place, capture_output=True, text=True)
    tell("\n".join("    " + line for line in diff.stdout.splitlines()[:40]))
    for way, run in (("without", one), ("under", two)):
        tell(f"    -- {way} prezero: exit {run.status}{', it hung' if run.hung else ''}; the end of what it said:")
        said = (run.output + run.errors).decode(errors="replace").splitlines()[-15:]
        tell("\n".join("    " + line for line in said))


def measure(case, place, prezero, args):
    row = {"program": case.name, "about": case.head.get("about", ""), "scale": args.scale,
           "verify": args.verify, "result": "missing"}
    try:
        environment = case.environment(args)
    except Missing as missing:
        return row | {"why": str(missing)}
    row["version"] = case.version(environment)
    runs = {None: [], prezero: []}
    for turn in range(args.runs + args.warm):
        ways = [None, prezero] if turn % 2 == 0 else [prezero, None]
        for way in ways:
            run = Run(case, environment, place, way, args)
            if turn >= args.warm:
                runs[way].append(run)
    without, with_ = runs[None], runs[prezero]
    row["tries"] = 1
    # Every pair must agree; and a pair that does not is tried once more.
    pairs = list(zip(without, with_))
    differing = [pair for pair in pairs if pair[0].says() != pair[1].says()]
    for one, two in differing:
        tell(f"differs {case.name}")
        show_difference(one, two, place)
        if two.failures() == 0 and row["tries"] == 1:
            row["tries"] = 2
            again = [Run(case, environment, place, way, args) for way in (None, prezero)]
            if again[0].says() == again[1].says():
                continue
            show_difference(*again, place)
        row["result"] = "DIFFERS"
    failures = sum(run.failures() for run in with_)
    if without[0].status != 0 or not without[0].output:
        row["result"] = "BROKEN WITHOUT"
        show_difference(*pairs[0], place)
    if failures:
        row["result"] = "FALSE ZERO"
        show_difference(*pairs[0], place)
    elif row["result"] == "missing":
        row["result"] = "same"
    middle = lambda ours, value: statistics.median(value(run) for run in ours)
    row |= {"status": with_[-1].status, "runs": args.runs,
            "digest": hashlib.sha256(with_[-1].output).hexdigest()[:16],
            "lines": with_[-1].output.count(b"\n"),
            "processes": len(with_[-1].processes),
            "verify_failures": failures}
    for name in ("verified_pages", "zero_requests", "plain_requests", "hits", "scrubbed_bytes"):
        row[name] = with_[-1].count(name)
    for name, value in (("wall_s", lambda run: run.wall_s), ("cpu_s", lambda run: run.cpu_s),
                        ("rss_mib", lambda run: run.rss_mib)):
        row[name] = {"without": round(middle(without, value), 3), "with": round(middle(with_, value), 3)}
    row["time_ratio"] = round(row["wall_s"]["with"] / row["wall_s"]["without"], 3)
    row["rss_ratio"] = round(row["rss_mib"]["with"] / row["rss_mib"]["without"], 3)
    return row


def line(row):
    if row["result"] == "missing":
        return f"MISSING {row['program']}: {row['why']}"
    mark = "ok     " if row["result"] == "same" else row["result"]
    again = ", at the second try" if row["tries"] > 1 else ""
    return (f"{mark} {row['program']} ({row['version']}): exit {row['status']}, {row['lines']} lines{again}; "
            f"{row['wall_s']['without']:.1f} s, time x{row['time_ratio']:.2f}, RSS x{row['rss_ratio']:.2f}; "
            f"{row['processes']} processes with a zone, {row['verified_pages']} pages checked")


def machine():
    with open("/proc/cpuinfo") as info:
        cpu = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "")
    return f"{cpu or platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}"


def table(report):
    """Markdown, of what the run wrote."""
    # What else ran makes one run slower than another; no ratio of times is worth much then.
    busy = " (others used the machine: the times say little)" if report["load"] > os.cpu_count() else ""
    scales = sorted({row["scale"] for row in report["programs"]})
    lines = [f"`tests/programs/matrix.py`, {' and '.join(scales)}, `--verify {report['verify']}`, on "
             f"{report['machine']}, load {report['load']:.1f} at the start{busy}:", "",
             "| program | version | result | time | peak RSS | zero pages checked |",
             "|---|---|---|---|---|---|"]
    for row in report["programs"]:
        if row["result"] == "missing":
            lines.append(f"| {row['program']} | | not run: {row['why']} | | | |")
            continue
        result = row["result"] + (", at the second try" if row["tries"] > 1 else "")
        version = re.search(r"\d+(?:\.\d+)*[\w.+~-]*|$", row["version"])[0]
        lines.append(f"| {row['program']} | {version} | {result} | "
                     f"x{row['time_ratio']:.2f} | x{row['rss_ratio']:.2f} | {row['verified_pages']:,} |")
    return "\n".join(lines)


def publish(report, into):
    text = Path(into).read_text()
    start, end = (text.find(marker) for marker in MARKERS)
    if not 0 <= start < end:
        sys.exit(f"matrix.py: {into}: no {MARKERS[0]} and {MARKERS[1]}; put both on lines of their own")
    start += len(MARKERS[0])
    Path(into).write_text(f"{text[:start]}\n{table(report)}\n{text[end:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prezero", default="target/release/prezero")
    parser.add_argument("--scale", choices=["short", "long"], default="short")
    parser.add_argument("--all", action="store_true", help="programs of the long run, too")
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--runs", type=int, default=1, help="each way")
    parser.add_argument("--warm", type=int, default=0, help="runs before them that do not count")
    parser.add_argument("--verify", choices=["off", "sample", "full"], default="full")
    parser.add_argument("--python", help="a Python to look for modules in first")
    parser.add_argument("--json", help="write the report; rows of other programs that it has stay")
    parser.add_argument("--table", help="print the table of a report, or put it --into a file")
    parser.add_argument("--into")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.table:
        report = json.loads(Path(args.table).read_text())
        return publish(report, args.into) if args.into else tell(table(report))
    built = Path(args.prezero).resolve()
    cases = [Case(script) for script in sorted(CASES.glob("*.sh"))]
    asked = [name for name in args.only.split(",") if name]
    if unknown := set(asked) - {case.name for case in cases}:
        parser.error(f"--only {','.join(unknown)}: there are {','.join(case.name for case in cases)}")
    cases = [case for case in cases if case.name in asked or not asked]
    if args.scale == "short" and not asked and not args.all:
        cases = [case for case in cases if case.head.get("scale") != "long"]
    report = {"benchmark": "matrix", "machine": machine(), "load": os.getloadavg()[0],
              "verify": args.verify, "taken_s": int(time.time()), "programs": []}
    old = {}
    if args.json and Path(args.json).exists():
        old = {row["program"]: row for row in json.loads(Path(args.json).read_text())["programs"]}
    with tempfile.TemporaryDirectory(prefix="prezero-matrix-") as scratch:
        place = Path(scratch)
        place.chmod(0o755)
        # Where other users can read them, too: PostgreSQL does not run as root.
        for name in (built.name, "libprezero.so"):
            shutil.copy(built.parent / name, place)
        for case in cases:
            row = measure(case, place, place / built.name, args)
            tell(line(row))
            report["programs"].append(row)
            if args.json:
                rows = old | {row["program"]: row for row in report["programs"]}
                whole = report | {"programs": [rows[name] for name in sorted(rows)]}
                Path(args.json).write_text(json.dumps(whole, indent=1) + "\n")
    names = {result: [row["program"] for row in report["programs"] if row["result"] == result]
             for result in ("same", "missing")}
    bad = [row["program"] for row in report["programs"] if row["result"] not in names]
    told = lambda what, programs: f", {len(programs)} {what}: {', '.join(programs)}" if programs else ""
    tell(f"{len(names['same'])} the same{told('not', bad)}{told('not run', names['missing'])}")
    return 1 if bad or not names["same"] else 0


if __name__ == "__main__":
    sys.exit(main())
