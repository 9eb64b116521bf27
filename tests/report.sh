#!/bin/sh
# A report of small runs, opened in a browser.
#   tests/report.sh DIR      where prezero is
set -eu
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
bench() { "$bin/prezero" bench "$@" --json "$dir/$1.json" >/dev/null; }
bench grid --idle all --sizes 64K,128K --lines 1,64 --peers glibc,glibc-keep
bench seeds --only faults --mib 16 --runs 1 --peers glibc-keep
bench waste --only never,steady --times 0.05 --peers glibc
bench disturb --scenes ticks-idle --rounds 5 --seconds 0.05 --peers glibc
"$bin/prezero" bench report --from "$dir/grid.json" "$dir/seeds.json" "$dir/waste.json" "$dir/disturb.json" \
    --output "$dir/report.html" >/dev/null
"$bin/prezero" bench compare "$dir/grid.json" "$dir/grid.json" | grep -q '^grid: 0 of [1-9]' ||
    { echo "report: a run differs from itself" >&2; exit 1; }
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "report: left out: no chromium; make setup"; exit 0; }
./report.py "$dir/report.html" "$browser"
