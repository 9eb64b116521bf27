#!/bin/sh
# packaging/release.sh: a release is refused where Cargo.toml says not where the project is; a draft, built twice in two clones,
# has the same bytes; and what it names stands in each artefact. Needs git, Rust and dpkg-dev; two builds from nothing.
#   tests/release.sh [--native]      with the wheel of this machine, without zig
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
        s|^issues = .*|issues = "https://issues.example"|; s|^maintainer = .*|maintainer = "A Person <person@home.example>"|' "$1/Cargo.toml"
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
grep -q 'Cargo.toml names no issues' "$dir/said" || fail "it says $(cat "$dir/said")"
(cd "$dir/one" && git tag -f "v$version" other >/dev/null)

for each in one another; do
    "$dir/$each/packaging/release.sh" "$@" "v$version" >"$dir/$each.sums" || fail "the release in $each"
done
diff "$dir/one.sums" "$dir/another.sums" || fail "two builds differ"
out=$dir/one/target/release-$version
(cd "$out" && sha256sum --quiet --check SHA256SUMS) || fail "its own checksums"
for each in "prezero-$version.tar.gz" "prezero_${version}_*.deb" "libprezero-dev_${version}_*.deb" "prezerod_${version}_*.deb" \
    'prezero-*.whl' "prezero-$version.crate" "prezero-cli-$version.crate" "prezerod-$version.crate" "prezero-$version.spdx.json"; do
    ls "$out"/$each >/dev/null 2>&1 || fail "no $each among $(ls "$out")"
done
# Where the project is, each artefact says.
[ "$(dpkg-deb -f "$out"/prezerod_*.deb Homepage Maintainer)" = 'Homepage: https://home.example
Maintainer: A Person <person@home.example>' ] || fail "the package says $(dpkg-deb -f "$out"/prezerod_*.deb)"
dpkg-deb --fsys-tarfile "$out"/prezero_*.deb | tar -xOf - ./usr/share/man/man1/prezero-top.1.gz | gzip -d | grep -q 'UR https://issues.example' ||
    fail "a man page has no place for reports"
python3 -c 'import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
said = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA")]
assert "Project-URL: Issues, https://issues.example" in said[0], said' "$out"/*.whl || fail "the wheel"
tar -xOf "$out/prezero-$version.crate" "prezero-$version/Cargo.toml" | grep -q '^repository = "https://code.example/prezero"' || fail "the crate"
python3 -c 'import json, sys
said = json.load(open(sys.argv[1]))
names = {package["name"] for package in said["packages"]}
assert {"prezero", "prezerod", "libc", "clap"} <= names and "proptest" not in names, names' "$out/prezero-$version.spdx.json" || fail "the list of parts"
# No path of the folder that it was built in.
mkdir "$dir/root"
for each in "$out"/*.deb; do dpkg-deb -x "$each" "$dir/root"; done
if grep -rqF "${TMPDIR:-/tmp}/tmp." "$dir/root"; then fail "paths of the build: $(grep -rlF "${TMPDIR:-/tmp}/tmp." "$dir/root" | tr '\n' ' ')"; fi
echo "release: $(wc -l <"$dir/one.sums") artefacts, twice the same bytes: good"
