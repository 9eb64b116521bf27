#!/bin/sh
# The seeds' experiments: alone as static programs, by the command, and interrupted.
#   tests/seeds.sh DIR      where prezero is
set -eu
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
fail() {
    echo "seeds: $1" >&2
    exit 1
}
. tests/common/until.sh
make --no-print-directory -s -C bench/seeds OUT="$dir/alone"
"$dir/alone/all.sh" 16 >"$dir/lines"
for experiment in faults write lmbench resident sparse; do
    grep -q "\"experiment\":\"$experiment\"" "$dir/lines" || fail "all.sh says nothing of $experiment"
done
for alone in faults write lmbench resident; do
    "$dir/alone/$alone" --help >"$dir/help" || fail "$alone --help"
    grep -q "^Example: $alone " "$dir/help" || fail "$alone --help has no example"
    [ "$(wc -l <"$dir/help")" -le 24 ] && ! grep -q '.\{81\}' "$dir/help" || fail "$alone --help does not fit a screen"
    if "$dir/alone/$alone" --colour 2>"$dir/no"; then fail "$alone --colour"; fi
    grep -q "^$alone: --colour: no such .* $alone --help$" "$dir/no" || fail "$(cat "$dir/no")"
done
"$dir/alone/faults" --mib 16 | grep -q 'flt/cpu/s' || fail "faults has not his columns"
if "$dir/alone/write" --loop 0 2>"$dir/no"; then fail "a run of nothing is a result"; fi
[ "$(cat "$dir/no")" = "write: --loop 0: nothing would be measured" ] || fail "$(cat "$dir/no")"

"$bin/prezero" bench seeds --mib 16 --runs 1 --peers glibc-keep --add "a guest=$dir/lines" --json "$dir/json" >"$dir/table"
for part in 'post, patched' 'kernel default' 'process (prezero)' 'a guest' 'not comparable:' 'held: '; do
    grep -q -- "$part" "$dir/table" || fail "the tables lack '$part'"
done
python3 - "$dir/json" <<'PYTHON' || fail "its JSON"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["complete"] is True
posts = [sheet["title"].split(",")[0] for sheet in report["sheets"]]
assert posts == sorted(posts, key=["Lameter", "Arcangeli", "Thorpe", "Shutemov"].index) and len(set(posts)) == 4, posts
is_judged = lambda sheet: sheet["says"] or any("wanted" in figure for figure in sheet["figures"])
judged = {sheet["title"].split(",")[0] for sheet in report["sheets"] if is_judged(sheet)}
assert len(judged) == 4, f"a post whose claims nothing judges: {judged} have a sentence or a bound"
for sheet in report["sheets"]:
    levels = {figure["who"] for figure in sheet["figures"]}
    assert any(level.startswith("post") for level in levels) or "NPB" in sheet["title"], sheet["title"]
    assert {"kernel default", "process (prezero)"} <= levels or "latency" in sheet["title"], levels
PYTHON

listens() {
    kill -0 $process 2>/dev/null || fail "it ended early: $(cat "$dir/table")"
    grep -q '^SigCgt:.*[2367abef]$' "/proc/$process/status"
}
# Ctrl-C, and being told to end: what was measured to its end is a valid result. Heard from the first step on.
for signal in INT TERM; do
    setsid "$bin/prezero" bench seeds --only resident,faults --mib 16 --runs 1 --peers glibc-keep --json "$dir/partial" \
        >"$dir/table" 2>&1 &
    process=$!
    until_true "it listens to signals" listens
    kill -$signal $process
    ended=0
    wait $process || ended=$?
    [ "$ended" = 130 ] || fail "interrupted, it ends with $ended: $(cat "$dir/table")"
    python3 - "$dir/partial" <<'PYTHON' || fail "interrupted, its JSON"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["complete"] is False and len(report["sheets"]) < 4, report["complete"]
PYTHON
    grep -q '^interrupted' "$dir/table" || fail "it does not say that it was interrupted"
done
echo "seeds: good"
