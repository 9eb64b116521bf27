#!/bin/sh
# Builds three Debian packages by debhelper (packaging/debian), in target/debian, out of what `make build` made: prezero
# (commands, library, manuals, pages), libprezero-dev (headers, pkg-config, CMake) and prezerod (the broker and its units).
#   packaging/deb.sh [--source] [ARCH]       for amd64 or arm64 [this machine's]
# --source makes the source package too, with the crates that the build needs: it builds without a network.
# PROGRAMS, LIBRARIES and HERE: what packaging/portable.sh printed. With SOURCE_DATE_EPOCH the same sources give the same bytes.
set -eu
cd "$(dirname "$0")/.."
top=$PWD
for each in dpkg-buildpackage dh; do
    command -v $each >/dev/null || {
        echo "deb: $each is missing: apt-get install dpkg-dev debhelper" >&2
        exit 1
    }
done
source=
[ "${1-}" != --source ] || { source=yes && shift; }
architecture=${1:-$(dpkg --print-architecture)}
umask 022
export LC_ALL=C
about() { packaging/about.sh "$1"; }
version=$(about version) home=$(about homepage)
# Debian wants an address; until Cargo.toml has one a package is a draft.
maintainer=$(about maintainer)
maintainer=${maintainer:-the prezero authors <prezero@example.org>}
out=$top/target/debian
stage=$out/prezero-$version
rm -rf "$stage" "$out"/*_"$architecture".*
mkdir -p "$stage"
# The sources as git has them, or as an archive of them has.
if [ -e .git ]; then git ls-files -z --cached --others --exclude-standard; else find . \( -path ./target -o -path ./.venv -o -path ./linux/build \) -prune -o -type f -print0 -o -type l -print0; fi |
    tar -cf - --null --files-from=- | tar -xf - -C "$stage"
cp -r packaging/debian "$stage/debian"
cd "$stage/debian"
sed -i "s|@MAINTAINER@|$maintainer|; s|@RUST@|$(cd "$top" && about rust-version)|g
    $([ -n "$home" ] && echo "s|@HOMEPAGE@|$home|" || echo '/@HOMEPAGE@/d')" control copyright
sed '1,4d; s/^$/./; s/^/ /' "$top/LICENSE-MIT" >>copyright
# What Debian reads, of the release alone; what users read is CHANGELOG.md.
day=$(date -uR -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")
printf 'prezero (%s) unstable; urgency=medium\n\n  * Release %s: see CHANGELOG.md beside this file.\n\n -- %s  %s\n' \
    "$version" "$version" "$maintainer" "$day" >changelog
cd "$stage"
if [ -n "$source" ]; then
    "$top/packaging/vendor.py" vendor
    rm -f "$out"/*.dsc "$out"/*.tar.xz
    (cd "$out" && dpkg-source --build "$stage")
    rm -r vendor
fi
# No crate is built again: what make built lies there.
ln -s "$top/target" target
: "${PROGRAMS:=$top/target/release}" "${LIBRARIES:=$top/target/library}"
export PROGRAMS LIBRARIES
dpkg-buildpackage --no-pre-clean --no-check-builddeps --unsigned-changes --unsigned-buildinfo --build=binary --host-arch="$architecture"
rm -rf "$stage"
ls "$out"/*_"$architecture".deb
