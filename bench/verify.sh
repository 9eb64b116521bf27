#!/bin/sh
# What --verify sample costs a calloc that finds its block ready, against --verify off: runs
# that take turns, and the medians. Usage: bench/verify.sh PATH/TO/prezero [TURNS]
set -eu
prezero=$(realpath "${1:?usage: bench/verify.sh PATH/TO/prezero [TURNS]}")
turns=${2:-15}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O1 -fno-builtin -o "$work/hits" "$(dirname "$0")/hits.c"
for turn in $(seq "$turns"); do
    for mode in off sample; do
        "$prezero" run --stats off --verify "$mode" -- "$work/hits" 1000 >>"$work/$mode"
    done
done
median() { sort -n "$work/$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
off=$(median off) sample=$(median sample)
awk -v off="$off" -v sample="$sample" 'BEGIN {
    printf "a ready calloc of 64 KiB: off %s ns, sample %s ns: %+.2f %%\n", off, sample, (sample / off - 1) * 100
}'
