#!/bin/sh
# Prints the notes of a release: which of its files is for which machine, what the version brings, how to check a file.
#   packaging/notes.sh FOLDER      with the artefacts
set -eu
cd "$(dirname "$0")/.."
out=$1
version=$(packaging/about.sh version)
name() { (cd "$out" && ls -- $1 2>/dev/null | head -n 1); }
# row MACHINE PATTERN COMMAND [AFTER]: where there is such a file, the command round its name.
row() {
    file=$(name "$2")
    [ -z "$file" ] || printf '| %s | `%s` | `%s%s%s` |\n' "$1" "$file" "$3" "$file" "${4-}"
}
printf '# prezero %s\n\n| machine | file | type |\n|---|---|---|\n' "$version"
row 'Debian, Ubuntu: x86-64' "prezero_${version}_amd64.deb" 'sudo apt install ./'
row 'Debian, Ubuntu: arm64' "prezero_${version}_arm64.deb" 'sudo apt install ./'
row 'any glibc from 2.28 with Python from 3.9: x86-64' '*_x86_64.whl' 'pip install '
row 'the same: arm64' '*_aarch64.whl' 'pip install '
printf '| Rust %s | `prezero-%s.crate` | `cargo add prezero` |\n' "$(packaging/about.sh rust-version)" "$version"
row 'to build a Debian package' "prezero_$version.dsc" 'dpkg-source -x '
row 'anything else' "prezero-$version.tar.gz" 'tar -xf ' ", then make build && sudo make install"
printf '\n`libprezero-dev` has the headers, `prezerod` the broker. Linux 5.10 or later; on arm64, kernels with pages of 4 KiB.\n'
printf 'Check what you took: `sha256sum --check --ignore-missing SHA256SUMS`.\n\n'
sed -n "/^## $(echo "$version" | sed 's/\./\\./g')\$/,/^## /p" CHANGELOG.md | sed '1,2d; /^## /d; s/\[\([^]]*\)\]([^)]*)/\1/g'
