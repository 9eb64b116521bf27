#!/bin/bash
# apt.sh: an apt repository of made-up kernels, seen by an apt of its own: what it offers, and what it refuses.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
export GNUPGHOME=$dir/gnupg
finish() {
    gpgconf --kill gpg-agent
    rm -rf "$dir"
}
trap finish EXIT
fail() { echo "test-apt: $*" >&2; exit 1; }

mkdir -m 700 "$GNUPGHOME"
for name in builder stranger; do
    gpg --batch --quiet --passphrase '' --quick-generate-key "$name@example.org" ed25519 sign never 2> /dev/null
done

# kernel RELEASE VERSION: the packages that the kernel's own build makes.
kernel() {
    rm -rf "$dir/debs"
    mkdir -p "$dir/debs"
    for name in linux-image linux-headers; do
        mkdir -p "$dir/root/DEBIAN"
        printf '%s\n' "Package: $name-$1-prezero-try" "Version: $2" "Architecture: amd64" \
            "Maintainer: a builder <builder@example.org>" "Description: made up" > "$dir/root/DEBIAN/control"
        dpkg-deb --root-owner-group --build "$dir/root" "$dir/debs/${name}_$2.deb" > /dev/null
        rm -rf "$dir/root"
    done
}
publish() { ./apt.sh "$dir/apt" "$1" try "$dir"/debs/*.deb > "$dir/said" 2>&1; }

# An apt whose only source is the repository. Each has lists of its own: nothing of another's is trusted.
mkdir -p "$dir/own/etc/apt/sources.list.d" "$dir/own/etc/apt/preferences.d" "$dir/own/var/lib/dpkg"
: > "$dir/own/var/lib/dpkg/status"
own=(-o "Dir=$dir/own" -o "Dir::State::status=$dir/own/var/lib/dpkg/status" -o APT::Architecture=amd64
    -o "APT::Sandbox::User=$(id -un)" -o Dir::Etc::trustedparts=/dev/null -o Debug::NoLocking=1)
update() {
    rm -rf "$dir/own/var/lib/apt" "$dir/own/var/cache"
    mkdir -p "$dir/own/var/lib/apt/lists/partial" "$dir/own/var/cache/apt/archives/partial"
    apt-get "${own[@]}" -qq -o APT::Update::Error-Mode=any update > "$dir/update" 2>&1
}
# offered FIELDS...: the packages that an installation would bring, a line each.
offered() { apt-get "${own[@]}" -s -qq install "$@" | sed -n 's/^Inst \([^ ]*\) (\([^ ]*\).*/\1 \2/p' | sort; }

kernel 7.3.4 7.3.4-20261128.1500
publish builder@example.org || fail "no repository: $(cat "$dir/said")"
cp "$dir/apt/prezero.sources" "$dir/own/etc/apt/sources.list.d/"
update || fail "apt refuses what the builder signed: $(cat "$dir/update")"
# What Debian's own archive would bring is not here: a package of that name.
for name in kmod initramfs-tools; do
    printf '%s\n' "Package: $name" "Status: install ok installed" "Version: 1" "Architecture: amd64" \
        "Maintainer: x <x@example.org>" "Description: made up" "" >> "$dir/own/var/lib/dpkg/status"
done
want="linux-headers-7.3.4-prezero-try 7.3.4-20261128.1500
linux-headers-prezero-try 7.3.4-20261128.1500
linux-image-7.3.4-prezero-try 7.3.4-20261128.1500
linux-image-prezero-try 7.3.4-20261128.1500
linux-prezero-settings 7.3.4-20261128.1500"
got=$(offered linux-image-prezero-try linux-headers-prezero-try)
[ "$got" = "$want" ] || fail "offers
$got
and not
$want"

# A point release on top: the newest is what is followed, and the older one stays.
kernel 7.3.12 7.3.12-20261201.0900
publish builder@example.org || fail "no second kernel: $(cat "$dir/said")"
update || fail "apt refuses the second: $(cat "$dir/update")"
offered linux-image-prezero-try | grep -x 'linux-image-7.3.12-prezero-try 7.3.12-20261201.0900' > /dev/null ||
    fail "does not follow the newest: $(offered linux-image-prezero-try)"
[ -n "$(offered linux-image-7.3.4-prezero-try)" ] || fail "the older kernel is gone"

# The package of the settings has the file, where systemd looks for it.
dpkg-deb -c "$dir"/apt/pool/linux-prezero-settings_7.3.12*.deb |
    grep ' ./usr/lib/sysctl.d/60-prezero-kernel.conf$' > /dev/null ||
    fail "no sysctl.d"

# Refused: another's signature, a changed package list, a changed package.
cp -a "$dir/apt" "$dir/good"
publish stranger@example.org || fail "a stranger cannot sign: $(cat "$dir/said")"
! update || fail "apt takes the signature of another key"
rm -rf "$dir/apt"
cp -a "$dir/good" "$dir/apt"
sed -i 's/made up/made down/' "$dir/apt/dists/prezero/main/binary-amd64/Packages"
rm "$dir/apt/dists/prezero/main/binary-amd64/Packages.xz"
! update || fail "apt takes a package list that was changed"
rm -rf "$dir/apt"
cp -a "$dir/good" "$dir/apt"
deb=$(echo "$dir"/apt/pool/linux-image_7.3.12*.deb)
rm "$deb"
echo something else > "$deb"
update || fail "apt refuses the good list: $(cat "$dir/update")"
! (cd "$dir" && apt-get "${own[@]}" -qq download linux-image-7.3.12-prezero-try > "$dir/download" 2>&1) ||
    fail "apt takes a package that was changed"

# An error leaves what was there, and a folder that is no repository is not replaced.
rm -rf "$dir/apt"
cp -a "$dir/good" "$dir/apt"
! publish absent@example.org || fail "signed without a key"
diff -r "$dir/good" "$dir/apt" || fail "an error changed the repository"
[ "$(find "$dir" -maxdepth 1 -name 'apt.*' | wc -l)" -eq 0 ] || fail "an error left its folder"
mkdir "$dir/others"
touch "$dir/others/file"
! ./apt.sh "$dir/others" builder@example.org try "$dir"/debs/*.deb 2> /dev/null || fail "replaced another folder"
[ -e "$dir/others/file" ] || fail "removed another folder's file"
echo "test-apt: good"
