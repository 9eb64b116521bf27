#!/bin/sh
# What a short compile (g++'s cc1plus, some 0.35 s) takes under prezero, in turns in random order: wall and CPU time over those
# without it, the median of the turns' ratios with twice its standard error, and scrubd's CPU time.
# Usage: bench/short.sh PATH/TO/prezero [TURNS]
set -eu
usage='usage: bench/short.sh PATH/TO/prezero [TURNS]'
prezero=$(realpath "${1:?$usage}")
turns=${2:-60}
compiler=$(g++ -print-prog-name=cc1plus)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/short.cc" <<'SOURCE'
#include <algorithm>
#include <map>
#include <string>
#include <vector>
int main()
{
	std::map<std::string, std::vector<int>> lists;
	lists["a"].push_back(1);
	std::sort(lists["a"].begin(), lists["a"].end());
	return lists.size();
}
SOURCE
python3 - "$prezero" "$turns" "$compiler" "$work" <<'SCRIPT'
import json, os, random, resource, statistics, subprocess, sys, time

prezero, turns, compiler, work = sys.argv[1:]
compile_ = [compiler, "-quiet", "-imultiarch", os.uname().machine + "-linux-gnu", "-D_GNU_SOURCE",
            "-O2", work + "/short.cc", "-o", work + "/short.s"]
library = os.path.join(os.path.dirname(prezero), "libprezero.so")
if not os.path.exists(library):
    sys.exit(f"short: {library}: no such file; give the prezero of a build, target/release/prezero")
ways = {
    "without": (compile_, {}),
    "library alone": (compile_, {"LD_PRELOAD": library}),
    "  no request reaches it": (compile_, {"LD_PRELOAD": library, "PREZERO_THRESHOLD": "1G"}),
    "  never scrubs": (compile_, {"LD_PRELOAD": library, "PREZERO_SCRUB_START": "never"}),
    "prezero run": ([prezero, "run", "--stats", "off", "--", *compile_], {}),
}

def once(way):
    command, settings = ways[way]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env={**os.environ, **settings}, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

for way in ways:
    once(way)
runs = {way: [] for way in ways}
for _ in range(int(turns)):
    for way in random.sample(list(ways), len(ways)):
        runs[way].append(once(way))

print(f"{turns} turns; x: over without, of each turn, median, ± twice its standard error\n"
      f"{'':26}{'wall, s':>8}{'x':>8}{'±':>7}{'CPU, s':>9}{'x':>8}{'±':>7}")
for way, taken in runs.items():
    line = f"{way:26}"
    for part, width in ((0, 8), (1, 9)):
        ratios = [one[part] / other[part] for one, other in zip(taken, runs["without"])]
        # A median's error is 1.25 times a mean's.
        noise = 2 * 1.25 * statistics.stdev(ratios) / len(ratios) ** 0.5
        line += f"{statistics.median(one[part] for one in taken):{width}.3f}{statistics.median(ratios):8.3f}{noise:7.3f}"
    print(line)
file = work + "/stats"
subprocess.run([prezero, "run", "--stats", file, "--", *compile_], check=True)
print(f"scrubd: {json.load(open(file))['daemon_cpu_ns'] / 1e6:.1f} ms of CPU time")
SCRIPT
