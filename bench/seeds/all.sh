#!/bin/sh
# Every experiment once, as JSON lines, for a machine that has no prezero command: a guest, a
# patched kernel. Build with `make seeds`, copy the folder in, run there, and bring the lines
# back: prezero bench seeds --add "patched kernel=FILE".
#   all.sh [MIB]      memory of Lameter's test [256]
set -eu
cd "$(dirname "$0")"
mib=${1:-256}
for threads in 1 2 4 8; do
    ./faults --json --from mmap --mib "$mib" --threads $threads --warm 1
    ./faults --json --from mmap --mib "$mib" --threads $threads --warm 1 --pause-ms 300
done
for lines in 2 4 8 16 32 64; do
    ./faults --json --from mmap --mib "$mib" --lines $lines --warm 1 --pause-ms 300
done
for run in 1 2 3 4 5 6 7 8 9; do ./write --json; done
./write --json --loop 200 --pause-us 3000
for what in fork exec sh mmap protect pagefault zerofill; do ./lmbench $what --json; done
for scrub in off cached bypassing; do
    for kib in 16 1024 262144; do ./lmbench memory --json --kib $kib --scrub $scrub --runs 21; done
done
for thp in never always; do
    ./resident read --json --thp $thp || true
    ./resident sparse --json --mib 192 --thp $thp || true
done
