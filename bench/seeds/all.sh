#!/bin/sh
# Every experiment once, as JSON lines, for a machine that has no prezero command: a guest, a
# patched kernel. Build with `make seeds`, copy the folder in, run there, and bring the lines
# back: prezero bench seeds --add "patched kernel=FILE".
#   all.sh [MIB]      memory of Lameter's test [256]
# A kernel that has the knobs of linux/ scrubs meanwhile, whatever its load; they are put back.
set -eu
cd "$(dirname "$0")"
mib=${1:-256}
knobs=/proc/sys/vm patched=false
if [ -w $knobs/scrub_start ]; then
    patched=true
    start=$(cat $knobs/scrub_start) stop=$(cat $knobs/scrub_stop) load=$(cat $knobs/scrub_load)
    trap 'echo "$start" >$knobs/scrub_start; echo "$stop" >$knobs/scrub_stop; echo "$load" >$knobs/scrub_load' EXIT
    echo 1000000 >$knobs/scrub_load
    echo 0 >$knobs/scrub_stop
    echo 0 >$knobs/scrub_start
    # What is free now is made zero first; the experiments' own pauses are for what they free.
    last=-1 now=0
    while [ "$now" -ne "$last" ]; do
        last=$now
        sleep 1
        now=$(sed -n 's/^nr_free_zeroed //p' /proc/vmstat)
        now=${now:-0}
    done
fi
printf '{"experiment":"machine","kernel":"%s","patched":%s}\n' "$(uname -rm)" $patched
for threads in 1 2 4 8; do
    ./faults --json --from mmap --mib "$mib" --threads $threads --warm 1
    ./faults --json --from mmap --mib "$mib" --threads $threads --warm 1 --pause-ms 300
done
for lines in 2 4 8 16 32 64; do
    ./faults --json --from mmap --mib "$mib" --lines $lines --warm 1 --pause-ms 300
done
for run in 1 2 3 4 5 6 7 8 9; do ./write --json; done
./write --json --loop 200
./write --json --loop 200 --pause-us 3000
for what in fork exec sh mmap protect pagefault zerofill; do ./lmbench $what --json; done
for scrub in off cached bypassing; do
    for kib in 16 1024 262144; do ./lmbench memory --json --kib $kib --scrub $scrub --runs 21; done
done
for thp in never always; do
    ./resident read --json --thp $thp || true
    ./resident sparse --json --mib 192 --thp $thp || true
done
if $patched; then sed -n 's/^\(prezero_[a-z_]*\) \([0-9]*\)$/{"experiment":"counter","name":"\1","value":\2}/p' /proc/vmstat; fi
