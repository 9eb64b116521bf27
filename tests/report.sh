#!/bin/sh
# A report of small runs, opened in a browser; one that is interrupted; two runs compared.
#   tests/report.sh DIR      where prezero is
set -eu
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
fail() {
    echo "report: $1" >&2
    exit 1
}
. common/until.sh
# What this test does beside it is no load of others.
export PREZERO_BENCH_LOAD=0.25
python=$PWD/../.venv/bin/python3
"$python" -c 'import matplotlib' 2>/dev/null || python=python3
"$python" -c 'import matplotlib' 2>/dev/null || { echo "report: left out: no matplotlib; make setup"; exit 0; }
bench() { "$bin/prezero" bench "$@" --json "$dir/$1.json" >/dev/null; }
bench grid --idle on --sizes 64K,128K --lines 1,64 --peers glibc,glibc-keep --passes-s 2
bench seeds --only faults,resident --mib 16 --runs 1 --peers glibc-keep
bench waste --only never,steady --times 0.05 --peers glibc
bench disturb --scenes ticks-idle --rounds 5 --seconds 0.4 --pairs-s 2 --peers glibc
PREZERO_SCRUB_RATE=2G bench pair --runs 9 --threads 1 --peers glibc
"$bin/prezero" bench report --python "$python" --from "$dir"/*.json --output "$dir/report.html" --pictures "$dir/pictures" >"$dir/written"
[ -s "$dir/pictures/grid-idle-heat.svg" ] || fail "no picture of the grid: $(cat "$dir/written")"
grep -q 'scrub-rate 2G' "$dir/report.html" || fail "it does not say which knob was turned"

# On a terminal a bar says how much is done and how long the rest will take.
if command -v script >/dev/null; then
    script -qec "'$bin/prezero' bench pair --runs 9 --threads 1,2 --peers glibc" /dev/null </dev/null >"$dir/bar"
    grep -q '\[#[#-]*\] [0-9]*/[0-9]*, [0-9]*:[0-9][0-9] left' "$dir/bar" || fail "no time left: $(tail -c 300 "$dir/bar")"
fi

# Interrupted in the first benchmark, itself alone: a page of what there is.
catches() { grep -q '^SigCgt:.*[2367abef]$' "/proc/$1/status" 2>/dev/null; }
"$bin/prezero" bench report --python "$python" --output "$dir/partial.html" >"$dir/written" 2>&1 &
process=$!
both_catch() {
    kill -0 "$process" 2>/dev/null || fail "it ended early: $(cat "$dir/written")"
    catches "$process" && child=$(pgrep -P "$process") && catches "$child"
}
until_true "both catch the signal" both_catch
kill -TERM "$process"
ended=0
wait "$process" || ended=$?
[ "$ended" = 130 ] || fail "interrupted, it ends with $ended, not with 130: $(cat "$dir/written")"
grep -q 'Interrupted: incomplete' "$dir/partial.html" || fail "it does not say that it was interrupted"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "report: left out: no chromium; make setup"; exit 0; }
"$python" report.py "$dir/report.html" "$dir/pictures" "$browser"
