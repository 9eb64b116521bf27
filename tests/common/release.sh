#!/bin/sh
# Unpacks Debian packages of another release than the host's, without installing them.
#   tests/common/release.sh CODENAME FOLDER PACKAGES...
# Status 1: they cannot be had. Needs apt, and no root.
set -eu
release=$1 folder=$2
shift 2
mirror=$("$(dirname "$0")/mirror.sh") || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/packages" "$folder"
chmod -R a+rwX "$dir"
echo "deb $mirror $release main" >"$dir/sources.list"
: >"$dir/status"
apt() {
    command apt-get -qq -o Dir::State="$dir" -o Dir::State::lists="$dir/lists" -o Dir::State::status="$dir/status" \
        -o Dir::Cache="$dir/cache" -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null "$@" >&2
}
cd "$dir/packages"
command -v apt-get >/dev/null && apt update && apt download "$@" || exit 1
for package in *.deb; do dpkg-deb -x "$package" "$folder"; done
