#!/bin/bash
# fetch-package.sh DIR PACKAGE FILE: FILE of the Debian package PACKAGE, as DIR/<name of FILE>.
#
# The kernel that the series is for is newer than what a stable Debian installs by itself. Tried in turn,
# each with one line that says what was found there: the installed package; the suites that apt on this
# machine knows; other SUITES of the mirrors that its apt has Debian from (PLACES: other mirrors), whose lists
# are kept in DIR and do not touch the machine's. The archive's keyring vouches for all of them. 3 when none
# of them has it.
set -euo pipefail
dir=$1 package=$2 file=$3
suites=${SUITES:-trixie-backports sid experimental}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
out=$dir/${file##*/}
say() { echo "fetch: $package: $*" >&2; }

mkdir -p "$dir"
if [ -e "/$file" ]; then
    say "installed"
    ln -sfn "/$file" "$out"
    exit 0
fi

# $1: where it is from; then apt's options.
download() {
    local from=$1 deb
    shift
    rm -rf "$dir/deb"
    mkdir -p "$dir/deb"
    (cd "$dir/deb" && apt-get "$@" -qq download "$package" > apt.log 2>&1) || { say "not in $from"; return 1; }
    deb=$(echo "$dir"/deb/*.deb)
    say "$(dpkg-deb -f "$deb" Version) from $from"
    dpkg-deb --fsys-tarfile "$deb" | tar -xO "./$file" > "$out.part"
    mv "$out.part" "$out"
    rm -rf "$dir/deb"
}

command -v apt-get > /dev/null || { say "no apt-get: not a Debian"; exit 3; }
own=(-o "APT::Sandbox::User=$(id -un)")
download "this machine's suites" "${own[@]}" && exit 0
[ -e "$keyring" ] || { say "no $keyring: Debian's archive could not be trusted"; exit 3; }
mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
# What apt has Debian's main archive from: not security's, and no other vendor's.
places=${PLACES:-$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 2> /dev/null |
    sed -n 's,^Debian Debian ,,p' | sort -u)}
[ -n "$places" ] || { say "apt knows no mirror of Debian: PLACES names one"; exit 3; }
own+=(-o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache")
for place in $places; do
    for suite in $suites; do
        echo "deb [signed-by=$keyring] $place $suite main" > "$dir/sources.list"
        if ! apt-get "${own[@]}" -qq -o APT::Update::Error-Mode=any update > "$dir/update.log" 2>&1; then
            say "no list of $suite from $place: $(grep -m1 -E '^[EW]:' "$dir/update.log" || echo 'no reason given')"
            continue
        fi
        download "$suite of $place" "${own[@]}" && exit 0
    done
done
exit 3
