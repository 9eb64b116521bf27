#!/bin/sh
# What a program with one thread pays in libc: as it is, with scrubd, and with a second thread of
# its own, which is what scrubd would cost as a pthread. Usage: bench/single.sh PATH/TO/prezero
set -eu
prezero=$(realpath "${1:?usage: bench/single.sh PATH/TO/prezero}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O1 -fno-builtin -pthread -o "$work/single" "$(dirname "$0")/single.c"
for run in 1 2 3; do
    printf 'without:             '
    "$work/single"
    printf 'with prezero:        '
    "$prezero" run --stats off -- "$work/single"
    printf 'a thread of its own: '
    "$work/single" thread
done
