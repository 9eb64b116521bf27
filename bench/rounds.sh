#!/bin/sh
# Programs that pause, hold their block for a part of each round, and change their pace: time to get
# and write a block, what was found zero, how often scrubd woke and stepped aside, and its CPU time. Usage: bench/rounds.sh PATH/TO/prezero
set -eu
prezero=$(realpath "${1:?usage: bench/rounds.sh PATH/TO/prezero}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -o "$work/rounds" "$(dirname "$0")/rounds.c"
for rounds in '64 250 3000 3' '1024 250 3000 1000' '4096 250 3000 100' '4096 250 3000 2000' \
    '4096 50 16000 100' '4096 50 16000 8000' '4096 20 16000 100 60 3000 100'; do
    echo "KiB, then rounds, us from one to the next, us held: $rounds"
    for run in 1 2; do
        printf 'without:      '
        "$work/rounds" $rounds
        printf 'with prezero: '
        "$prezero" run --stats "$work/stats.json" -- "$work/rounds" $rounds | tr -d '\n'
        for name in hits misses daemon_wakeups asides daemon_cpu_ns; do
            printf ', %s' "$(grep -o "\"$name\":[0-9]*" "$work/stats.json" | tr -d '"')"
        done
        echo
    done
done
