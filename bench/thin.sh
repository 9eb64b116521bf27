#!/bin/sh
# Large zeroed blocks of which little is touched, with and without prezero.
# Usage: bench/thin.sh PATH/TO/prezero
set -eu
prezero=$(realpath "${1:?usage: bench/thin.sh PATH/TO/prezero}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -o "$work/thin" "$(dirname "$0")/thin.c"
for block in '1024 20' '64 50' '64 200' '8 100'; do
    for pause in 0 30; do
        echo "MiB, pages touched of 1000, ms of pause: $block $pause"
        for run in 1 2 3; do
            printf 'without:      '
            "$work/thin" $block $pause
            printf 'with prezero: '
            "$prezero" run --stats off -- "$work/thin" $block $pause
        done
    done
done
