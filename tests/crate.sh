#!/bin/sh
# The Rust example of docs/library.md, in a crate of its own as a user makes one; then what `cargo publish` would send.
#   tests/crate.sh              the example
#   tests/crate.sh FOLDER       those of a release, from their files alone: the example, and the command, built and run
#   tests/crate.sh --long       each crate that is published, as it is packed; and the programs of bindings/rust
set -eu
cd "$(dirname "$0")/.."
top=$PWD
cargo=${CARGO:-cargo}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "crate: $1" >&2
    exit 1
}
. tests/common/blocks.sh
. tests/common/until.sh
# licensed FOLDER: a crate that others get has its licences with it.
licensed() { for file in LICENSE-MIT LICENSE-APACHE REUSE.toml; do [ -s "$1/$file" ] || fail "$1 has no $file"; done; }
for each in $(grep -L '^publish = false' crates/*/Cargo.toml); do licensed "${each%/*}"; done
export CARGO_TARGET_DIR="$top/target/doors"
mkdir -p "$dir/user/src"
cat >"$dir/user/Cargo.toml" <<TOML
[package]
name = "user"
version = "0.1.0"
edition = "2024"
[dependencies]
prezero = { path = "$top/crates/prezero" }
[workspace]
TOML
cp Cargo.lock "$dir/user/"
if [ -d "${1-}" ]; then
    # As cargo has them of crates.io: each by its file, with its licence.
    for each in "$1"/*.crate; do
        tar -xf "$each" -C "$dir"
        name=$(basename "$each" .crate)
        licensed "$dir/$name"
        grep -qx 'license = "MIT OR Apache-2.0"' "$dir/$name/Cargo.toml" || fail "$name says no licence"
    done
    version=$(packaging/about.sh version)
    {
        printf '[patch.crates-io]\n'
        for each in "$dir"/prezero*-"$version"; do printf '%s = { path = "%s" }\n' "$(basename "$each" "-$version")" "$each"; done
    } >"$dir/patch"
    sed "s|{ path = .*|\"$version\"|" "$dir/user/Cargo.toml" | cat - "$dir/patch" >"$dir/user/whole" && mv "$dir/user/whole" "$dir/user/Cargo.toml"
fi
blocks rust docs/library.md 1 >"$dir/user/src/main.rs"
(cd "$dir/user" && "$cargo" run --quiet --release) >"$dir/said" 2>&1 || fail "the example: $(tail -n 5 "$dir/said")"
# It shows what it is for as soon as scrubd has a CPU.
export PREZERO_ABLATE=backoff
shows() { "$CARGO_TARGET_DIR/release/user" >"$dir/said" && grep -q '^[1-9][0-9]* MiB were zero already$' "$dir/said"; }
within 60 shows || fail "the example says $(cat "$dir/said")"
echo "crate: the example: $(cat "$dir/said")"

if [ -d "${1-}" ]; then
    # The command's own manifest, and its neighbours by their files.
    printf '\n[workspace]\n' | cat - "$dir/patch" >>"$dir/prezero-cli-$version/Cargo.toml"
    cp Cargo.lock "$dir/prezero-cli-$version/"
    (cd "$dir/prezero-cli-$version" && "$cargo" build --quiet) >"$dir/said" 2>&1 || fail "the command: $(tail -n 5 "$dir/said")"
    "$CARGO_TARGET_DIR/debug/prezero" --version | grep -qx "prezero $version" || fail "the command says $("$CARGO_TARGET_DIR/debug/prezero" --version)"
    echo "crate: prezero-cli by its file: $("$CARGO_TARGET_DIR/debug/prezero" --version)"
fi
if [ "${1-}" = --long ]; then
    "$cargo" publish --dry-run --workspace --allow-dirty >"$dir/said" 2>&1 || fail "cargo publish: $(tail -n 20 "$dir/said")"
    echo "crate: packed and built: $(grep -c '^ *Uploading' "$dir/said") crates"
    # It fails where prezero has no zone, or draws something else.
    cd bindings/rust/render
    "$cargo" run --quiet --release --locked >"$dir/said" 2>"$dir/err" || fail "render: $(tail -n 5 "$dir/err")"
    sed 's/^/crate: render: /' "$dir/said"
    # It fails where an instance finds another's bytes.
    cd ../wasm
    needs=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    rust=$("$cargo" --version | cut -d ' ' -f 2)
    if [ "$(printf '%s\n' "$needs" "$rust" | sort -V | head -n 1)" = "$needs" ]; then
        "$cargo" run --quiet --release --locked -- 1 20 >"$dir/said" 2>"$dir/err" || fail "wasm: $(tail -n 5 "$dir/err")"
        # Four ways that each kernel has, for modules of three sizes.
        [ "$(grep -cE '^  [a-z].*( +[0-9.]+){12}' "$dir/said")" -ge 12 ] || fail "wasm says $(cat "$dir/said")"
        sed 's/^/crate: wasm: /' "$dir/said"
    else
        echo "crate: left out: wasm: Rust $rust, and wasmtime needs $needs"
    fi
    # It fails where a round finds another number than the first, or where no request reaches the zone.
    cd ../numeric
    "$cargo" build --quiet --release --locked 2>"$dir/err" || fail "numeric: $(tail -n 5 "$dir/err")"
    sum() { sed 's/.*"checksum": \([-0-9.e]*\),.*/\1/' "$dir/said"; }
    for each in winterfell ndarray candle; do
        "$CARGO_TARGET_DIR/release/numeric" "$each" 0.1 >"$dir/said" 2>"$dir/err" || fail "numeric $each: $(tail -n 5 "$dir/err")"
        plain=$(sum)
        "$CARGO_TARGET_DIR/release/numeric" "$each" 0.1 global >"$dir/said" 2>"$dir/err" || fail "numeric $each global: $(tail -n 5 "$dir/err")"
        echo "$plain $(sum)" | awk '{ exit !($1 != 0 && ($1 - $2) ^ 2 < ($1 / 1e4) ^ 2) }' || fail "numeric $each: $plain, under prezero $(sum)"
        echo "crate: numeric: $(cat "$dir/said")"
    done
fi
echo "crate: good"
