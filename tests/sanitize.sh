#!/usr/bin/env bash
# The library's own tests under AddressSanitizer and ThreadSanitizer.
#   tests/sanitize.sh
# Sanitizers are a nightly option of rustc; RUSTC_BOOTSTRAP=1 opens it in the stable compiler that
# builds everything else here. Nothing that is shipped is built so.
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
place=${CARGO_TARGET_DIR:-target}
export RUSTC_BOOTSTRAP=1
tests=(-p prezero -p prezero-host -p prezero-report -p prezero-sys --lib --tests --target "$host")
# Not leaks: what scrubd and the tests keep for good (Box::leak) is not told from what is lost.
address() {
    ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS="-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer" \
        CARGO_TARGET_DIR=$place/address cargo test --quiet "$@"
}
address "${tests[@]}"
# The thread that libc does not know of: of the preloaded library the one part that is tested by itself.
address -p prezero-preload --test bare_thread --target "$host"

# ThreadSanitizer must see the standard library's atomics too, so that is built from its source.
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
    echo "no ThreadSanitizer: the standard library's source is not here (rustup component add rust-src)"
    exit 0
fi
RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=$place/thread PROPTEST_CASES=32 \
    cargo test -Zbuild-std --quiet "${tests[@]}" \
    -- --test-threads=1
