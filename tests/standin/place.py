"""A folder with the stand-ins for CUDA, the programs that stand for servers, and a broker of their own."""
import json
import os
import subprocess
import sys
from pathlib import Path

STANDIN = Path(__file__).resolve().parent
sys.path.insert(0, str(STANDIN.parent / "common"))
from until import until  # noqa: E402

LEASE_MIB = 512
LIBRARIES = {"libcuda.so.1": "cuda.c", "libcudart.so.12": "cudart.c"}
PROGRAMS = sorted(path.stem for path in STANDIN.glob("*.c") if path.name not in LIBRARIES.values())


def built(folder):
    """The stand-ins and the programs."""
    def gcc(*words):
        subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Wno-unused-function", *map(str, words)], check=True)
    for library, source in LIBRARIES.items():
        gcc("-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", folder / library, STANDIN / source, "-ldl", "-lpthread")
    for program in PROGRAMS:
        gcc("-o", folder / program, STANDIN / f"{program}.c", folder / "libcudart.so.12", "-ldl", "-lpthread")


class Place:
    """A folder with the stand-ins, and a broker."""

    def __init__(self, bin_folder, folder, config='backing = "thp"\n', library=None):
        self.bin, self.calls = bin_folder, folder / "calls"
        self.folder = library or folder
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(self.folder), "STANDIN_DIR": str(folder),
                            "PREZERO_SOCKET": str(folder / "socket"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.log = open(folder / "log", "w")
        (folder / "config").write_text(config)
        line = [bin_folder / "prezerod", "--config", folder / "config", "--socket", folder / "socket"]
        self.broker = subprocess.Popen(line, stderr=self.log)
        until("prezerod", lambda: "serving on" in (folder / "log").read_text())

    def close(self):
        self.broker.kill()
        self.broker.wait()
        self.log.close()

    def run(self, *words, size=LEASE_MIB, program=None, before=None, inside=(), **variables):
        """A program with a lease; what the stand-ins were called for is in `calls` afterwards."""
        self.calls.unlink(missing_ok=True)
        line = [*inside, self.bin / "prezero", "claim", f"{size}M", "--pinned", *words, "--", *(program or ["true"])]
        environment = {**self.environment, **variables}
        return subprocess.run(line, capture_output=True, text=True, timeout=300, env=environment, cwd=self.folder, preexec_fn=before)

    def stock(self):
        line = [self.bin / "prezero", "stock", "--json"]
        return json.loads(subprocess.run(line, capture_output=True, text=True, check=True, env=self.environment).stdout)

    def leased(self):
        """The number of leases that the broker gave."""
        stock = self.stock()
        return stock["hits"] + stock["misses"]

    def stocked(self, size, page=2):
        """Waits until a lease of so many MiB is ready: --or-plain makes none to order, nor would a page of 1 GiB be there twice."""
        if page == 2:
            self.run(size=size)
        is_it = {"bytes": size << 20, "page_bytes": page << 20}.items()
        until(f"a lease of {size} MiB", lambda: any(is_it <= part.items() for part in self.stock()["ready"]))

    def called(self, name):
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line.split(" ", 1)[1] for line in lines if line.split(" ")[1] == name]


def good(what, done, *wanted):
    said = done.stdout + done.stderr
    if done.returncode != 0 or any(text not in said for text in wanted):
        sys.exit(f"pinned: {what}: status {done.returncode}, wanted {wanted}:\n{said}")
    return said
