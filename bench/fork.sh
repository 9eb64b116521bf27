#!/bin/sh
# What a fork costs a process that has 1 GiB idle, without and with prezero; and, because
# prezero brings a thread and mappings of its own, with a zone that holds nothing.
# Usage: bench/fork.sh PATH/TO/prezero
set -eu
prezero=$(realpath "${1:?usage: bench/fork.sh PATH/TO/prezero}")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -std=gnu11 -O1 -fno-builtin -pthread -o "$work/idle" crates/prezero-preload/tests/c/fork_idle.c
cc -std=gnu11 -O1 -fno-builtin -pthread -DIDLE_THREAD -o "$work/idle2" crates/prezero-preload/tests/c/fork_idle.c
for mebibytes in 0 1024; do
    for run in 1 2 3; do
        printf '%4s MiB freed, without:             ' "$mebibytes"
        "$work/idle" "$mebibytes" 300
        printf '%4s MiB freed, without, two threads: ' "$mebibytes"
        "$work/idle2" "$mebibytes" 300
        printf '%4s MiB freed, with:                ' "$mebibytes"
        "$prezero" run --stats off -- "$work/idle" "$mebibytes" 300
    done
done
