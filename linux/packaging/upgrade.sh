#!/bin/bash
# upgrade.sh BUILD VERSION PRISTINE TARBALL SERIES [NEXT]: takes the next point release as the source to build from.
#
# NEXT is its source package's tarball; without it the archive's newest is fetched. TARBALL is replaced only if NEXT
# is newer than PRISTINE, of the same VERSION, and takes each patch of SERIES and of host/ without fuzz.
set -euo pipefail
[ $# -ge 5 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
build=$1 version=$2 pristine=$3 tarball=$4 series=$5 next=${6:-}
linux=$(cd "$(dirname "$0")/.." && pwd)
stage=$build/next
rm -rf "$stage"
mkdir -p "$stage/tree"
trap 'rm -rf "$stage"' EXIT
if [ -z "$next" ]; then
    "$linux/scripts/fetch-package.sh" "$stage" "linux-source-$version" "usr/src/linux-source-$version.tar.xz"
    next=$stage/linux-source-$version.tar.xz
fi
release() { awk '/^(VERSION|PATCHLEVEL|SUBLEVEL) = / { printf "%s%s", dot, $3; dot = "." } /^NAME = / { exit }' "$1"; }

# Of the tree only what a patch names. A patch may bring a file of its own: the tarball does not have that.
mapfile -t patches < <(sed "s/#.*//; /^[[:space:]]*$/d; s|^|$(dirname "$series")/|" "$series"; ls "$linux"/host/*.patch)
{ echo Makefile; sed -n 's,^--- a/\([^\t]*\).*,\1,p' "${patches[@]}"; } | sort -u |
    sed "s,^,linux-source-$version/," > "$stage/list"
LC_ALL=C tar -xJf "$next" -C "$stage/tree" --no-same-owner -T "$stage/list" 2> "$stage/errors" ||
    ! grep -vE 'Not found in archive|Exiting with failure' "$stage/errors" >&2
tree=$stage/tree/linux-source-$version
[ -e "$tree/Makefile" ] || { echo "upgrade: $next has no linux-source-$version" >&2; exit 1; }

old=$(release "$pristine/Makefile") new=$(release "$tree/Makefile")
case $new in
"$version".*) ;;
*) echo "upgrade: $next is Linux $new, and the series is for $version" >&2; exit 1 ;;
esac
[ "$new" != "$old" ] || { echo "upgrade: Linux $old is the newest"; exit 0; }
[ "$(printf '%s\n' "$old" "$new" | sort -V | tail -n 1)" = "$new" ] ||
    { echo "upgrade: Linux $new is older than $old, which is unpacked" >&2; exit 1; }
for fix in "$linux"/host/*.patch; do
    patch -d "$tree" -p1 -s -F0 --no-backup-if-mismatch < "$fix" ||
        { echo "upgrade: $fix does not apply to Linux $new; Linux $old stays" >&2; exit 1; }
done
"$linux/scripts/sync-tree.sh" "$tree" "$stage/patched" "$series" ||
    { echo "upgrade: the series needs a rebase onto Linux $new; Linux $old stays" >&2; exit 1; }

cp "$next" "$stage/tarball"
mkdir -p "$(dirname "$tarball")"
mv "$stage/tarball" "$tarball"
touch "$tarball"
# Debian's configuration of that release comes with it.
rm -f "$build"/source/config.*.xz
echo "upgrade: Linux $old -> $new: the series applies"
