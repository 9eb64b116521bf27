#!/bin/bash
# run.sh KERNEL_TREE SECONDS: builds the litmus test around the kernel's own functions, runs it.
set -euo pipefail
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The generic function is inline, in a header that nothing but the kernel can include.
sed -n '/^static inline void clear_pages_cold(/,/^}/p' "$1/include/linux/highmem.h" > "$work/clear_pages_cold.h"
grep -q __clear_pages_cold "$work/clear_pages_cold.h" || { echo "run.sh: no clear_pages_cold() in highmem.h" >&2; exit 70; }
"${CC:-gcc}" -O2 -Wall -pthread -I "$here/stub" -I "$work" -o "$work/barrier" "$here/barrier.c" \
    "$1/arch/x86/lib/clear_pages_cold_64.c"
"$work/barrier" "$2"
