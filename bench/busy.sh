#!/bin/sh
# Programs that never pause, of whose patterns the grid knows one: us of a step under glibc told to keep its
# memory, prezero that never scrubs, and prezero, in turns; each one's time over glibc's, run by run, as the median.
# Usage: bench/busy.sh PATH/TO/prezero [SECONDS [LINES [PATTERN...]]]
set -eu
prezero=$(realpath "${1:?usage: bench/busy.sh PATH/TO/prezero [SECONDS [LINES [PATTERN...]]]}")
seconds=${2:-1} lines=${3:-4}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$(dirname "$0")
cc -O2 -pthread -o "$work/busy" "$here/busy.c" "$here/loop.c"
if [ $# -gt 3 ]; then
    shift 3
    patterns=$*
else
    patterns=$("$work/busy" 2>&1 | sed 's/.*patterns: //') || true
fi
runs=7
keep() {
    MALLOC_MMAP_MAX_=0 MALLOC_MMAP_THRESHOLD_=68719476736 MALLOC_TRIM_THRESHOLD_=68719476736 "$@"
}
median() { sort -g | sed -n "$((runs / 2 + 1))p"; }
printf '%-14s %14s %14s %8s %14s %8s\n' "$lines lines" glibc-keep never 'x glibc' prezero 'x glibc'
for pattern in $patterns; do
    rm -f "$work"/times
    for run in $(seq "$runs"); do
        glibc=$(keep "$work/busy" "$pattern" "$seconds" "$lines")
        never=$("$prezero" run --stats off --scrub-start never -- "$work/busy" "$pattern" "$seconds" "$lines")
        ours=$("$prezero" run --stats off -- "$work/busy" "$pattern" "$seconds" "$lines")
        echo "$glibc $never $ours" >>"$work/times"
    done
    of() { awk "{ print $1 }" "$work/times" | median; }
    printf '%-14s %14s %14s %8.2f %14s %8.2f\n' "$pattern" "$(of '$1')" "$(of '$2')" "$(of '$2 / $1')" \
        "$(of '$3')" "$(of '$3 / $1')"
done
