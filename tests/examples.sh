#!/bin/sh
# Each program of examples/, by the command at its top, and what it prints.
#   tests/examples.sh DIR           where prezero, prezerod and libprezero.so are
#   tests/examples.sh DIR --long    the snapshot too: a kernel of Debian starts twice under emulation
set -eu
bin=$(cd "$1" && pwd)
long=${2-}
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
broker=
finish() {
    [ -z "$broker" ] || kill "$broker" 2>/dev/null || true
    # At its end it writes its state there.
    [ -z "$broker" ] || wait "$broker" 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 1' INT TERM
fail() {
    echo "examples: $1" >&2
    exit 1
}
. tests/common/until.sh
PATH=$bin:$PWD/.venv/bin:$PATH:$HOME/.cargo/bin:/usr/sbin
export PATH PREZERO_SOCKET="$dir/prezerod.sock"
has() {
    command -v "$1" >/dev/null && return
    echo "examples: left out: $file: no $1"
    false
}
# scrubd does not wait for a CPU that idles, and more tries are for one that had none in the moments of an example.
export PREZERO_ABLATE=backoff
# prints FILE PATTERN: a line of what its command prints.
prints() {
    command=$(sed -n 's/.*Run: //p' "examples/$file" | head -n 1)
    [ -n "$command" ] || fail "$file has no command"
    tries() { (cd "$work" && sh -c "$command") >"$dir/said" 2>"$dir/err" || fail "$command: $(tail -n 5 "$dir/err")"; grep -qE "$1" "$dir/said"; }
    within 15 tries "$1" || fail "$command: no '$1' in $(cat "$dir/said")"
    ran="${ran-} $file"
}
work=$PWD
for each in examples/*; do [ "$(wc -l <"$each")" -le 40 ] || fail "$each has more than 40 lines"; done

file=frames.py
if python3 -c 'import numpy' 2>/dev/null; then
    prints '^[1-9][0-9]* MiB were zero already'
    file=images.py
    prints '^40 images, the last of [1-9][0-9]{2,} bytes'
    grep -q '^prezero: ' "$dir/err" || fail "images.py ran without prezero: $(cat "$dir/err")"
else
    echo "examples: left out: frames.py, images.py: no NumPy"
fi
file=server.rs
prints '^200 MiB in answers, [1-9][0-9]* MiB were zero already'
# A reset of each kind, small: the figures are for a look, that each way runs is the test.
cargo run --quiet --release -p prezero-pool --example image 32 100 8 >"$dir/said" 2>"$dir/err" || fail "image: $(tail -n 5 "$dir/err")"
[ "$(grep -cE '^(madvise|memset|pool, (told|found)) .*( +[0-9.]+){6}$' "$dir/said")" = 5 ] || fail "image says $(cat "$dir/said")"
file=pmr.cpp
if has c++ && has pkg-config; then
    make --no-print-directory install DESTDIR="$dir/root" PREFIX=/usr >"$dir/log" 2>&1 || fail "make install: $(tail -n 5 "$dir/log")"
    ln -s "$PWD/examples" "$dir/examples"
    work=$dir
    PKG_CONFIG_PATH=$dir/root/usr/lib/pkgconfig prints '^counted 50 times in 50 rounds$'
    work=$PWD
fi

shared=/sys/kernel/mm/transparent_hugepage/shmem_enabled
if [ -e $shared ] && ! grep -q '\[deny\]' $shared; then
    prezerod --socket "$PREZERO_SOCKET" 2>"$dir/broker" &
    broker=$!
    within 300 grep -q 'serving on' "$dir/broker" || fail "prezerod: $(cat "$dir/broker")"
    file=Start.java
    ! has javac || prints '^a heap of 2[0-9][0-9] MiB, ready'
    file=guest.sh
    ! has qemu-system-x86_64 || prints 'size: +268435456'
else
    echo "examples: left out: Start.java, guest.sh: this kernel makes no transparent huge pages of shared memory"
fi
file=snapshot.sh
if [ "$long" = --long ] && has qemu-system-x86_64 && has busybox && ls /boot/vmlinuz-* >/dev/null 2>&1; then
    prints '^wiped: '
    before=$(sed -n 's/^as it is: \([0-9]*\) MiB$/\1/p' "$dir/said") after=$(sed -n 's/^wiped: \([0-9]*\) MiB$/\1/p' "$dir/said")
    [ "$after" -lt $((before / 2)) ] || fail "a wiped guest: $(cat "$dir/said")"
fi
echo "examples:$ran: good"
