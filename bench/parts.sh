#!/bin/sh
# What calloc, writing and free take by themselves after a pause of 3 ms, under two builds of prezero in turns: ns, and the
# second's over the first's, run by run, as the median.
# Usage: bench/parts.sh PATH/TO/prezero PATH/TO/another/prezero [RUNS [BYTES LINES]...]
set -eu
usage='usage: bench/parts.sh PATH/TO/prezero PATH/TO/another/prezero [RUNS [BYTES LINES]...]'
first=$(realpath "${1:?$usage}") second=$(realpath "${2:?$usage}")
runs=${3:-21}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$(dirname "$0")
cc -O2 -o "$work/parts" "$here/parts.c" "$here/loop.c"
if [ $# -gt 3 ]; then shift 3; else set -- 65536 1 65536 64 262144 4 1048576 16; fi
if [ $(($# % 2)) -ne 0 ]; then
    echo "parts: BYTES $*: the last has no LINES; $usage" >&2
    exit 2
fi
under() { "$1" run --stats off -- "$work/parts" "$2" "$3" 200; }
median() { sort -g | sed -n "$(((runs + 1) / 2))p"; }
printf '%-12s %26s %26s %26s %26s\n' 'bytes, lines' calloc write free all
while [ $# -ge 2 ]; do
    rm -f "$work"/times
    for run in $(seq "$runs"); do
        # Each comes first as often as the other.
        if [ $((run % 2)) -eq 1 ]; then
            one=$(under "$first" "$@") two=$(under "$second" "$@")
        else
            two=$(under "$second" "$@") one=$(under "$first" "$@")
        fi
        echo "$one $two" >>"$work/times"
    done
    of() { awk "{ print $1 }" "$work/times" | median; }
    printf '%-12s' "$1 $2"
    for part in 1 2 3 4; do
        printf ' %10s %10s %4.2f' "$(of "\$$part")" "$(of "\$$((part + 4))")" "$(of "\$$((part + 4)) / \$$part")"
    done
    echo
    shift 2
done
