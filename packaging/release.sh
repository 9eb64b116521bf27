#!/bin/sh
# Makes all that a release consists of out of a tag, in target/release-VERSION: the source archive, the Debian source package and
# packages, the wheels, the crates, a list of what they are built of (SPDX), the tools that built them, notes that say which
# file is for which machine, and the checksums of all.
#   packaging/release.sh [--draft] [--native] TAG
# The same tag and tools give the same bytes, whichever folder they are built in (tests/release.sh). The tag is `v` and the
# version; Cargo.toml names a home page, a repository, places for reports and a maintainer: --draft is content without.
# Packages and wheels are for x86-64 and arm64; --native: for this machine alone, without zig.
# It publishes nothing: docs/contributor.md has the commands.
set -eu
cd "$(dirname "$0")/.."
draft='' native=''
while :; do
    case ${1-} in
    --draft) draft=yes ;;
    --native) native=--native ;;
    *) break ;;
    esac
    shift
done
fail() {
    echo "release: $1" >&2
    exit 1
}
tag=${1:?usage: packaging/release.sh [--draft] [--native] TAG}
commit=$(git rev-parse --verify --quiet "$tag^{commit}") || fail "no tag $tag"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC0
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
git archive --prefix=source/ "$commit" | tar -xf - -C "$work"
source=$work/source
about() { "$source/packaging/about.sh" "$1"; }
version=$(about version)
if [ -z "$draft" ]; then
    [ "$tag" = "v$version" ] || fail "$tag is the tag of another version than $version: --draft builds it all the same"
    lacks=$(for each in homepage repository issues security maintainer; do [ -n "$(about $each)" ] || printf ' %s' $each; done)
    [ -z "$lacks" ] || fail "Cargo.toml says no$lacks: only the repository's owner can fill that"
fi
out=$PWD/target/release-$version
rm -rf "$out"
mkdir -p "$out"
git archive --prefix="prezero-$version/" "$commit" | gzip -9n >"$out/prezero-$version.tar.gz"

# No path of this machine stands in what is built.
registry=${CARGO_HOME:-$HOME/.cargo}
export CARGO_BUILD_RUSTFLAGS="--remap-path-prefix=$source=/prezero --remap-path-prefix=$registry=/cargo"
cd "$source"
cargo=${CARGO:-cargo}
# `make` builds of the lock alone; nothing is there before.
"$cargo" fetch --locked --quiet
step() {
    echo "release: $*" >&2
    "$@" >"$work/out" 2>"$work/log" || {
        tail -n 20 "$work/out" "$work/log" >&2
        fail "$* failed"
    }
}
# packages [--source] [ARCH]: a machine's, taken before the next machine's take their place.
packages() {
    step packaging/deb.sh "$@"
    cp target/debian/*.deb "$out/"
    rm target/debian/*.deb
}
if [ -n "$native" ]; then
    step make --no-print-directory build
    packages --source
    step packaging/wheel.sh --native
    cp target/wheel/*.whl "$out/"
else
    source=--source
    for machine in x86_64 aarch64; do
        step packaging/portable.sh all $machine
        PROGRAMS=$(sed -n 1p "$work/out") LIBRARIES=$(sed -n 2p "$work/out") HERE=$(sed -n 3p "$work/out")
        export PROGRAMS LIBRARIES HERE
        # shellcheck disable=SC2086 # a word or none
        packages $source "$(echo $machine | sed 's/x86_64/amd64/; s/aarch64/arm64/')"
        step packaging/wheel.sh $machine
        cp target/wheel/*.whl "$out/"
        source=
    done
fi
cp target/debian/*.dsc target/debian/*.tar.xz "$out/"
crates=$(grep -L '^publish = false' crates/*/Cargo.toml | sed 's|crates/\(.*\)/Cargo.toml|-p \1|')
# shellcheck disable=SC2086 # words
step "$cargo" package --no-verify --locked --target-dir target $crates
cp target/package/*.crate "$out/"
packaging/sbom.py >"$out/prezero-$version.spdx.json"
packaging/notes.sh "$out" >"$out/prezero-$version.notes.md"
{
    echo "commit $commit"
    rustc --version
    cc --version | head -n 1
    ld --version | head -n 1
    dpkg-deb --version | head -n 1
    dpkg-query --show debhelper
    [ -n "$native" ] || target/wheel/tools/bin/python3 -m pip list --format freeze --disable-pip-version-check
} >"$out/prezero-$version.tools"
cd "$out"
sha256sum -- * >SHA256SUMS
cat SHA256SUMS
