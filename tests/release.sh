#!/bin/sh
# packaging/release.sh: a release is refused where Cargo.toml says not where the project is; built twice in two clones it has
# the same bytes; what it names stands in each artefact; each is installed, used and removed on a bare root; and the page names
# each file. Needs git, Rust, debhelper, and what those tests need; two builds from nothing.
#   tests/release.sh [--native]      for this machine, without zig
set -eu
cd "$(dirname "$0")/.."
for each in git dpkg-deb; do
    command -v $each >/dev/null || { echo "release: left out: no $each"; exit 0; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
fail() {
    echo "release: $1" >&2
    exit 1
}
version=$(packaging/about.sh version)
# made FOLDER: a clone with this tree, tagged, which says where the project is.
made() {
    git clone --quiet --no-hardlinks . "$1"
    git ls-files -z --cached --others --exclude-standard | tar -cf - --null --files-from=- | tar -xf - -C "$1"
    sed -i 's|^homepage = .*|homepage = "https://home.example"|; s|^repository = .*|repository = "https://code.example/prezero"|
        s|^issues = .*|issues = "https://issues.example"|; s|^security = .*|security = "https://secret.example"|; s|^maintainer = .*|maintainer = "A Person <person@home.example>"|' "$1/Cargo.toml"
    (cd "$1" && git add -A && GIT_COMMITTER_DATE='2026-01-02T03:04:05Z' git -c user.name=a -c user.email=a@b.example commit --quiet \
        --date '2026-01-02T03:04:05Z' -m release && git tag "v$version" && git tag other)
}
made "$dir/one"
made "$dir/another"
if "$dir/one/packaging/release.sh" other 2>"$dir/said"; then fail "a tag of another version is released"; fi
grep -q 'other is the tag of another version' "$dir/said" || fail "it says $(cat "$dir/said")"
(cd "$dir/one" && git checkout --quiet -b empty && sed -i 's|^issues = .*|issues = ""|' Cargo.toml &&
    git -c user.name=a -c user.email=a@b.example commit --quiet -am empty && git tag -f "v$version" >/dev/null)
if "$dir/one/packaging/release.sh" "v$version" 2>"$dir/said"; then fail "a release without a place for reports"; fi
grep -q 'Cargo.toml says no issues: only' "$dir/said" || fail "it says $(cat "$dir/said")"
(cd "$dir/one" && git tag -f "v$version" other >/dev/null)

for each in one another; do
    "$dir/$each/packaging/release.sh" "$@" "v$version" >"$dir/$each.sums" || fail "the release in $each"
done
diff "$dir/one.sums" "$dir/another.sums" || fail "two builds differ"
out=$dir/one/target/release-$version
(cd "$out" && sha256sum --quiet --check SHA256SUMS) || fail "its own checksums"
# What the page tells to take is there, and nothing else but what goes with it.
for each in $(sed -n '/^# Install/,/^## /s/^|[^|]*| `\([^`]*\)`.*/\1/p' docs/install.md | sed "s/0\.1\.0/$version/"); do
    case ${1-}$each in
    --native*_arm64.deb | --native*.whl) continue ;;
    esac
    [ -s "$out/$each" ] || fail "no $each among $(ls "$out")"
done
for each in "prezero_$version.dsc" "prezero_$version.tar.xz" "prezero-cli-$version.crate" "prezerod-$version.crate" "prezero-$version.spdx.json" "prezero-$version.notes.md"; do
    [ -s "$out/$each" ] || fail "no $each among $(ls "$out")"
done
architecture=$(dpkg --print-architecture) wheel=$(ls "$out"/*_"$(uname -m)".whl)
# Where the project is, each artefact says.
[ "$(dpkg-deb -f "$out"/prezerod_*_"$architecture".deb Homepage Maintainer)" = 'Homepage: https://home.example
Maintainer: A Person <person@home.example>' ] || fail "the package says $(dpkg-deb -f "$out"/prezerod_*_"$architecture".deb)"
dpkg-deb --fsys-tarfile "$out/prezero_${version}_$architecture.deb" | tar -xOf - ./usr/share/man/man1/prezero-top.1.gz | gzip -d |
    grep -c 'UR https://issues.example\|UR https://secret.example' | grep -qx 2 || fail "a man page has no place for reports"
python3 -c 'import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
said = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA")]
assert "Project-URL: Issues, https://issues.example" in said[0], said' "$wheel" || fail "the wheel"
tar -xOf "$out/prezero-$version.crate" "prezero-$version/Cargo.toml" | grep -q '^repository = "https://code.example/prezero"' || fail "the crate"
python3 -c 'import json, sys
said = json.load(open(sys.argv[1]))
names = {package["name"] for package in said["packages"]}
assert {"prezero", "prezerod", "libc", "clap"} <= names and "proptest" not in names, names' "$out/prezero-$version.spdx.json" || fail "the list of parts"
# No path of the folder that it was built in.
mkdir "$dir/root"
for each in "$out"/*.deb; do dpkg-deb -x "$each" "$dir/root"; done
if grep -rqF "${TMPDIR:-/tmp}/tmp." "$dir/root"; then fail "paths of the build: $(grep -rlF "${TMPDIR:-/tmp}/tmp." "$dir/root" | tr '\n' ' ')"; fi
tests/system/deb.sh "$out"
tests/wheel.sh "$wheel"
tests/crate.sh "$out"
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
tests/system/first.sh "$out" "$codename" "$([ "$codename" = trixie ] && echo bookworm || echo trixie)"
[ "${1-}" = --native ] || tests/system/first.sh "$out" --arm64
echo "release: $(wc -l <"$dir/one.sums") artefacts, twice the same bytes: good"
