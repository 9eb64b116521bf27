#!/bin/bash
# guest.sh um|x86 KERNEL INITRD [NAME[,ARG...]]: boots a guest, and runs /tests/NAME in it.
#
# With NAME: its output, and its exit status as ours; 124 when the guest does not end within
# GUEST_TIMEOUT seconds (1200), 70 when it ends without saying how. Without NAME: a shell.
# GUEST_MEM (megabytes; 512 in user mode, 2048 in QEMU), GUEST_CPUS (2), GUEST_APPEND and GUEST_ALSO (kernel
# arguments) say how the guest looks; QEMU's too GUEST_ACCEL ("kvm"; software emulation), GUEST_CPU
# ("max"), GUEST_THREADS ("single" for -icount) and GUEST_QEMU (its arguments).
set -uo pipefail
kind=$1 kernel=$2 initrd=$3 run=${4:-}
limit=${GUEST_TIMEOUT:-1200}
append="${GUEST_APPEND:-} ${GUEST_ALSO:-}${run:+ run=$run}"
[ -z "$run" ] || append="panic=-1 $append"

case $kind in
um)
    # Its memory is a file in TMPDIR, or else in /dev/shm, which in a container may be too small or
    # not let programs there be executed.
    if [ -z "${TMPDIR:-}" ] && { grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts ||
        [ "$(df -Pm /dev/shm | awk 'END { print $4 }')" -lt "${GUEST_MEM:-512}" ]; }; then
        export TMPDIR=/tmp
    fi
    # Several CPUs take seccomp.
    command=("$kernel" "mem=${GUEST_MEM:-512}M" seccomp=on "ncpus=${GUEST_CPUS:-2}" "initrd=$initrd"
        con=null con0=fd:0,fd:1 console=tty0 quiet rdinit=/init)
    # shellcheck disable=SC2206 # words
    command+=($append)
    ;;
x86)
    # no_timer_check: on a host without time to spare the timer seems not to work, and Linux panics.
    # oops=panic: a test that lost a task ends at once, not after the time limit.
    command=(qemu-system-x86_64 -accel "${GUEST_ACCEL:-tcg,thread=${GUEST_THREADS:-multi}}" -cpu "${GUEST_CPU:-max}" -m "${GUEST_MEM:-2048}"
        -smp "${GUEST_CPUS:-2}" -nographic -no-reboot -nodefaults -serial mon:stdio
        -kernel "$kernel" -initrd "$initrd"
        -append "console=ttyS0 quiet no_timer_check ${run:+oops=panic} rdinit=/init $append")
    # shellcheck disable=SC2206 # words
    command+=(${GUEST_QEMU:-})
    ;;
*)
    echo "guest.sh: um or x86, not $kind" >&2
    exit 64
    ;;
esac

[ -n "$run" ] || exec "${command[@]}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# QEMU's software emulation loses, once in some 60 boots, the breakpoint by which the kernel patches
# itself while another CPU runs there: an oops "int3" (seen in sched_clock_cpu(), run_timer_softirq()
# and __timekeeping_advance(), patched or not) at a RIP before which memory no longer has an int3 (cc).
# It says nothing of the test, if it is the first that the kernel complains of.
lost_breakpoint() {
    awk '!oops && /Oops|BUG:|WARNING: |KASAN:/ { oops = 1; if (!/Oops: int3/) exit }
        oops && /Code: .*</ { lost = !/ cc </; exit }
        END { exit !lost }' "$log"
}
for boot in 1 2 3; do
    timeout -k 5 "$limit" "${command[@]}" < /dev/null 2>&1 |
        sed -u 's/\r//g; s/\x1b\[[?0-9;]*[a-zA-Z]//g; s/\x1bc//g' | tee "$log"
    status=${PIPESTATUS[0]}
    lost_breakpoint || break
    echo "guest.sh: the emulator lost a breakpoint of the kernel: boot $boot of 3" >&2
done
[ "$status" -ne 124 ] && [ "$status" -ne 137 ] || { echo "guest.sh: no end after $limit s" >&2; exit 124; }
code=$(sed -n 's/^== exit \([0-9]*\)$/\1/p' "$log" | tail -1)
[ -n "$code" ] || { echo "guest.sh: the guest died (status $status)" >&2; exit 70; }
exit "$code"
