#!/usr/bin/env bash
# The library's own tests under AddressSanitizer.
#   tests/sanitize.sh
# Sanitizers are a nightly option of rustc; RUSTC_BOOTSTRAP=1 opens it in the stable compiler that
# builds everything else here. Nothing that is shipped is built so.
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer" \
    CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/address" \
    cargo test --quiet -p prezero -p prezero-sys --lib --tests --target "$host"
