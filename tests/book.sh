#!/bin/sh
# The pages as a site of mdBook's: it builds without a warning, each page is in it, its links lead somewhere, and it can be searched.
#   tests/book.sh               where mdBook is installed
#   tests/book.sh --install     `cargo install` brings it into target/tools; `make book` is this
set -eu
cd "$(dirname "$0")/.."
fail() {
    echo "book: $1" >&2
    exit 1
}
for page in docs/*.md; do
    [ "$page" = docs/SUMMARY.md ] || grep -q "(${page#docs/})" docs/SUMMARY.md || fail "$page is not in docs/SUMMARY.md"
done
PATH=$PWD/target/tools/bin:$PATH:$HOME/.cargo/bin
if ! command -v mdbook >/dev/null; then
    [ "${1-}" = --install ] || { echo "book: left out: no mdbook; make book brings it"; exit 0; }
    # Neither its server nor its watcher: a third of the crates.
    CARGO_TARGET_DIR=$PWD/target/tools/build cargo install --quiet --locked --no-default-features --features search \
        --root target/tools mdbook || fail "cargo install mdbook"
    rm -rf target/tools/build
fi
packaging/book.py
rm -rf target/book/html
said=$(mdbook build 2>&1) || fail "mdbook: $said"
if echo "$said" | grep -qi 'warn\|error'; then fail "mdbook: $said"; fi
for page in $(sed -n 's/.*](\(.*\)\.md)$/\1/p' target/book/src/SUMMARY.md); do
    [ -s "target/book/html/$page.html" ] || fail "no $page.html"
done
packaging/book.py --check target/book/html || fail "its links"
ls target/book/html/searchindex*.js* >/dev/null 2>&1 || fail "no index to search in"
echo "book: target/book/html/index.html"
