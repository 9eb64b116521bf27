#!/usr/bin/env bash
# The library's own tests under AddressSanitizer, and what ThreadSanitizer can judge.
#   tests/sanitize.sh [address] [thread]
# Sanitizers are a nightly option of rustc; RUSTC_BOOTSTRAP=1 opens it in the stable compiler that
# builds everything else here. Nothing that is shipped is built so.
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}
under() {
    local sanitizer=$1
    shift
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" CARGO_TARGET_DIR="$target/$sanitizer" \
        cargo test --quiet -p prezero -p prezero-sys --lib --tests --target "$host" -- "$@"
}
for sanitizer in "${@:-address}"; do
    echo "== $sanitizer"
    under "$sanitizer"
done
