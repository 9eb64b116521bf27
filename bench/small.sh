#!/bin/sh
# What a round of small blocks takes that come and go together, after one large block was freed: us, without prezero and
# under each PATH/TO/prezero in turns. glibc keeps for the small ones what it learnt from the large one.
# Usage: bench/small.sh PATH/TO/prezero...
set -eu
usage='usage: bench/small.sh PATH/TO/prezero...'
: "${1:?$usage}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O1 -fno-builtin -o "$work/small" "$(dirname "$0")/small.c"
for sizes in '1 4' '6 4' '20 16' '1 0'; do
    echo "MiB of small blocks, MiB of the large one: $sizes"
    for run in 1 2 3; do
        printf '  without %s' "$("$work/small" $sizes)"
        for prezero in "$@"; do
            printf '  %s %s' "$prezero" "$("$prezero" run --stats off -- "$work/small" $sizes)"
        done
        echo
    done
done
