#!/bin/bash
# run.sh CLEAR_PAGES_COLD.C SECONDS: builds the litmus test around a kernel source file, runs it.
set -euo pipefail
here=$(dirname "$0")
program=$(mktemp)
trap 'rm -f "$program"' EXIT
"${CC:-gcc}" -O2 -Wall -pthread -I "$here/stub" -o "$program" "$here/barrier.c" "$1"
"$program" "$2"
