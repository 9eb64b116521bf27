#!/bin/sh
# What is to be true of the library as it is released, apart from what it does.
# Usage: tests/library.sh target/release
set -eu
library=${1:?usage: tests/library.sh DIRECTORY}/libprezero.so

# Linux puts a mapping of 2 MiB or more at a multiple of that, and all libraries that are loaded later below it: the
# program's code then lies where it would not without us. SQLite was slower so (`prezero bench real --only sqlite`).
set -- $(readelf -lW "$library" | awk '$1 == "LOAD" { last = $3 " " $6 } END { print last }')
bytes=$(($1 + $2))
if [ "$bytes" -ge $((2 << 20)) ]; then
    echo "$library takes $bytes bytes of address space; with 2 MiB or more it moves the program's libraries" >&2
    exit 1
fi
echo "library: $((bytes >> 10)) KiB of address space, less than a huge page"
