#!/bin/bash
# config.sh ORIGINAL PLAIN OURS FRAGMENT: OURS differs from PLAIN by what FRAGMENT says, each line of it and no other.
#
# PLAIN is Debian's ORIGINAL as this machine's compiler completes it. What that compiler decides differently from
# Debian's is listed, so that a build on another release than the kernel's own shows what it lacks.
set -euo pipefail
original=$1 plain=$2 ours=$3 fragment=$4
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
fail() { echo "test-deb-config: $*" >&2; exit 1; }
settings() { grep -E '^(CONFIG_[A-Z]|# CONFIG_.* is not set$)' | LC_ALL=C sort; }
name() { sed 's/^# //; s/[ =].*//'; }

settings < "$plain" > "$stage/plain"
settings < "$ours" > "$stage/ours"
settings < "$fragment" > "$stage/wanted"
LC_ALL=C comm -13 "$stage/plain" "$stage/ours" > "$stage/new"
# What stands in FRAGMENT and is so already is a line too much.
diff "$stage/wanted" "$stage/new" > "$stage/diff" ||
    fail "what $fragment says (<) is not what differs (>):
$(cat "$stage/diff")"
LC_ALL=C comm -23 "$stage/plain" "$stage/ours" | name | LC_ALL=C sort > "$stage/gone"
name < "$stage/new" | LC_ALL=C sort > "$stage/named"
LC_ALL=C comm -23 "$stage/gone" "$stage/named" > "$stage/lost"
[ ! -s "$stage/lost" ] || fail "gone, and nothing says so: $(cat "$stage/lost")"

for each in PREZERO=y DEBUG_INFO_BTF=y; do
    grep -qx "CONFIG_$each" "$stage/ours" || fail "no $each"
done
for toy in EDU_DMA DMATEST PREZERO_KUNIT_TEST PREZERO_DMA; do
    ! grep -q "^CONFIG_$toy=" "$stage/ours" || fail "$toy is for tests"
done

xz -dcf "$original" | settings > "$stage/original"
echo "by this machine's compiler and tools, against Debian's own (<):"
LC_ALL=C diff "$stage/original" "$stage/plain" | grep '^[<>]' || true
echo "test-deb-config: good: $(wc -l < "$stage/ours") settings, $(wc -l < "$stage/new") by $fragment"
