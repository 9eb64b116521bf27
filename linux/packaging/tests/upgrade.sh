#!/bin/bash
# upgrade.sh PRISTINE SERIES: what upgrade.sh of the folder above does with made-up point releases of the real source.
#
# They hold what the series touches, and no more.
set -euo pipefail
pristine=$1 series=$(realpath "$2")
linux=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "test-upgrade: $*" >&2; exit 1; }

version=$(awk '/^VERSION = / { v = $3 } /^PATCHLEVEL = / { print v "." $3; exit }' "$pristine/Makefile")
sublevel=$(awk '/^SUBLEVEL = / { print $3; exit }' "$pristine/Makefile")
mapfile -t patches < <(sed "s/#.*//; /^[[:space:]]*$/d; s|^|$(dirname "$series")/|" "$series")
# host/ is applied to PRISTINE already, so a source to come has its files as they were before.
mkdir -p "$dir/base"
{ echo Makefile; sed -n 's,^--- a/\([^\t]*\).*,\1,p' "${patches[@]}" "$linux"/host/*.patch; } | sort -u |
    (cd "$pristine" && while IFS= read -r file; do [ ! -e "$file" ] || echo "$file"; done) > "$dir/list"
(cd "$pristine" && cp --parents $(cat "$dir/list") "$dir/base")
for fix in $(ls -r "$linux"/host/*.patch); do patch -d "$dir/base" -R -p1 -s --no-backup-if-mismatch < "$fix"; done

# release NUMBER [SED FILE]: a tarball of that point release, one of its files changed.
release() {
    rm -rf "$dir/unpacked"
    mkdir -p "$dir/unpacked"
    cp -a "$dir/base" "$dir/unpacked/linux-source-$version"
    sed -i "s/^SUBLEVEL = .*/SUBLEVEL = $1/" "$dir/unpacked/linux-source-$version/Makefile"
    [ $# -eq 1 ] || sed -i "$2" "$dir/unpacked/linux-source-$version/$3"
    tar -C "$dir/unpacked" -c "linux-source-$version" | xz -0 > "$dir/next.tar.xz"
}
upgrade() {
    rm -rf "$dir/build"
    mkdir -p "$dir/build/source"
    echo old > "$dir/build/source/tarball"
    echo old > "$dir/build/source/config.a.xz"
    "$linux/packaging/upgrade.sh" "$dir/build" "$version" "$pristine" "$dir/build/source/tarball" "$series" \
        "$dir/next.tar.xz" > "$dir/said" 2>&1
}
untouched() {
    [ "$(cat "$dir/build/source/tarball" "$dir/build/source/config.a.xz")" = "$(printf 'old\nold')" ] || fail "$1: replaced the source"
}

release $((sublevel + 1)) '1i /* a line more: the patches find their place */' mm/page_alloc.c
upgrade || fail "a release that fits: $(cat "$dir/said")"
grep -qx "upgrade: Linux $version.$sublevel -> $version.$((sublevel + 1)): the series applies" "$dir/said" || fail "$(cat "$dir/said")"
cmp "$dir/next.tar.xz" "$dir/build/source/tarball" || fail "the source was not taken"
[ ! -e "$dir/build/source/config.a.xz" ] || fail "keeps the older configuration"
[ ! -e "$dir/build/next" ] || fail "leaves its folder"

release "$sublevel"
upgrade || fail "the same release: $(cat "$dir/said")"
grep -q 'is the newest$' "$dir/said" || fail "$(cat "$dir/said")"
untouched "the same release"

# What the series changes there is called something else.
release $((sublevel + 1)) 's/post_alloc_hook/after_alloc_hook/' mm/page_alloc.c
! upgrade || fail "a release that does not fit is taken"
grep -q '\.patch does not apply' "$dir/said" || fail "does not name the patch: $(cat "$dir/said")"
grep -q "needs a rebase onto Linux $version.$((sublevel + 1))" "$dir/said" || fail "$(cat "$dir/said")"
untouched "a release that does not fit"

[ "$sublevel" -eq 0 ] || {
    release $((sublevel - 1))
    ! upgrade || fail "an older release is taken"
    untouched "an older release"
}
sed -i 's/^PATCHLEVEL = .*/PATCHLEVEL = 99/' "$dir/base/Makefile"
release 1
! upgrade || fail "another version is taken: $(cat "$dir/said")"
untouched "another version"
echo "test-upgrade: good"
