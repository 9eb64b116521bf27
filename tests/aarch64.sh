#!/bin/sh
# aarch64 under emulation: unit tests, and programs of C and Python with prezero in front of them.
#   tests/aarch64.sh            what is built here: unit tests of the core, the command, the library, programs in C
#   tests/aarch64.sh --python   Debian's Python for arm64, too
# Needs crossbuild-essential-arm64, qemu-user-static and `rustup target add aarch64-unknown-linux-gnu`; the second root, mmdebstrap
# and Debian's packages.
# Emulation shows that programs run and what they print. Its times mean nothing.
set -eu
cd "$(dirname "$0")/.."
arm=aarch64-unknown-linux-gnu
libraries=/usr/aarch64-linux-gnu
left_out() {
    echo "aarch64: left out: $1"
    exit 0
}
fail() {
    echo "aarch64: $1" >&2
    exit 1
}
. tests/common/aarch64.sh
{ command -v aarch64-linux-gnu-gcc >/dev/null && [ -e $libraries/lib/crti.o ]; } || left_out "no C for arm64 (apt-get install crossbuild-essential-arm64)"
[ -d "$(rustc --print sysroot)/lib/rustlib/$arm" ] || left_out "no Rust for $arm (rustup target add $arm)"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$qemu -L $libraries"
cargo build --quiet --release --target $arm -p prezero-cli
cargo build --quiet --profile library --target $arm -p prezero-preload
built=$(pwd)/target/$arm
prezero=$built/release/prezero
cp "$built/library/libprezero.so" "$built/release"

# Left out are tests that race threads for seconds.
PROPTEST_CASES=16 cargo test --quiet --release --target $arm -p prezero -p prezero-host -p prezero-report -p prezero-sys --lib -- \
    --skip tests::threads >"$dir/log" 2>&1 || fail "unit tests: $(tail -n 40 "$dir/log")"

run() { QEMU_LD_PREFIX=$libraries inside "$prezero" run "$@"; }
QEMU_LD_PREFIX=$libraries inside "$prezero" engines >"$dir/engines" 2>&1 || fail "engines: $(cat "$dir/engines")"
grep -q dc-zva "$dir/engines" || fail "no engine dc-zva: $(cat "$dir/engines")"
c=crates/prezero-preload
for source in start_main family_blocks family_corners realloc_border fork_kinds threads_blocks; do
    aarch64-linux-gnu-gcc -std=gnu11 -w -O1 -fno-builtin -pthread -I$c/include -o "$dir/$source" $c/tests/c/$source.c -ldl
    for engine in dc-zva plain; do
        run --verify full --threshold 64K --no-move on --engine $engine --stats off -- "$dir/$source" >"$dir/out" 2>"$dir/err" ||
            fail "$source, $engine: $(cat "$dir/out" "$dir/err")"
    done
done
run --verify full --no-move on -- "$dir/start_main" >"$dir/out" 2>"$dir/err" && grep -qx zone "$dir/out" ||
    fail "no zone: $(cat "$dir/out" "$dir/err")"

if [ "${1-}" = --python ]; then
    arm_root "$dir/root" python3
    libraries=$dir/root
    python() {
        PYTHONHOME=$dir/root/usr PYTHONDONTWRITEBYTECODE=1 \
            run --verify full --no-move on --engine dc-zva -- "$dir/root/usr/bin/python3" -c '
import platform, time, zlib
print(platform.machine())
for i in range(1, 13):
    image = bytearray(4 << 20)
    assert not any(image[::512])
    image[::64] = bytes([i]) * (len(image) // 64)
    assert zlib.decompress(zlib.compress(image, 1)) == image
    time.sleep(0.05)'
    }
    python >"$dir/out" 2>"$dir/err" || fail "Python: $(tail -n 5 "$dir/err")"
    grep -qx aarch64 "$dir/out" || fail "Python says $(cat "$dir/out")"
    grep -q '^prezero: ' "$dir/err" || fail "no report: $(cat "$dir/err")"
    echo "aarch64: Python: $(grep '^prezero: ' "$dir/err" | head -n 1)"
fi
echo "aarch64: good"
