#!/bin/sh
# Large blocks that grow by realloc: under glibc, whose mappings the kernel moves, under the peers that are
# installed, and under prezero. Usage: bench/grow.sh PATH/TO/prezero
set -eu
prezero=$(realpath "${1:?usage: bench/grow.sh PATH/TO/prezero}")
libraries=/usr/lib/$(uname -m)-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -fno-builtin -o "$work/grow" "$(dirname "$0")/grow.c"
# Blocks, from, to, by so many percent, times, small blocks taken after each step.
for what in "1 1 1024 50 3 0" "1 1 1024 10 3 4" "1 256 384 50 5 0" "2 128 256 50 5 0" "8 16 48 50 5 0" "4 4 16 50 9 0"; do
    echo "blocks, MiB from, to, percent, times, neighbours: $what"
    for run in 1 2; do
        printf '  %-10s' glibc
        "$work/grow" $what
        for peer in mimalloc.so.2 jemalloc.so.2 tcmalloc_minimal.so.4; do
            [ -e "$libraries/lib$peer" ] || continue
            printf '  %-10s' "${peer%%.*}" | cut -c 1-12 | tr -d '\n'
            LD_PRELOAD="$libraries/lib$peer" "$work/grow" $what
        done
        printf '  %-10s' prezero
        "$prezero" run --stats off -- "$work/grow" $what
    done
done
