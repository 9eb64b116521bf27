#!/bin/sh
# The Debian package, installed on a root that has nothing else, used there, and removed.
# Needs root and mmdebstrap, and the host's own package sources.
set -eu
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ] || ! command -v mmdebstrap >/dev/null; then
    echo "deb: left out: needs root and mmdebstrap (make setup)"
    exit 0
fi
make --no-print-directory deb >/dev/null
package=$(ls target/debian/prezero_*.deb)
root=$(mktemp -d)
finish() {
    umount "$root/proc" "$root/sys" "$root/dev/shm" 2>/dev/null || true
    rm -rf --one-file-system "$root"
}
trap finish EXIT INT TERM
fail() {
    echo "deb: $1" >&2
    exit 1
}
sources=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true)
deb822=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null || true)
printf '%s\n' "$sources" | grep '^deb ' >"$root.list" || true
[ -s "$root.list" ] || printf '%s\n' "$deb822" >"$root.list"
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
mmdebstrap --quiet --variant=apt --aptopt='APT::Install-Recommends "false"' "$codename" "$root" - <"$root.list" ||
    fail "no clean root: mmdebstrap"
rm -f "$root.list"
chmod 755 "$root"
mkdir -p "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/dev/shm"
find "$root/usr" "$root/etc" | sort >"$root/tmp/before"

cp "$package" "$root/tmp/prezero.deb"
inside() { chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root XDG_RUNTIME_DIR=/tmp "$@"; }
inside dpkg --install /tmp/prezero.deb >/dev/null || fail "it cannot be installed on what Debian itself needs"
inside prezero --version | grep -q "^prezero " || fail "--version"
inside prezero engines | grep -q stosb || [ "$(uname -m)" != x86_64 ] || fail "engines"
inside prezero run -- perl -e 'for (1 .. 20) { my $text = "x" x 5_000_000 } print "good\n"' >"$root/tmp/out" 2>"$root/tmp/err" ||
    fail "run: $(cat "$root/tmp/err")"
grep -qx good "$root/tmp/out" && grep -q '^prezero: ' "$root/tmp/err" || fail "run says $(cat "$root/tmp/out" "$root/tmp/err")"
inside sh -c 'prezerod 2>/tmp/broker & broker=$!
    tries=100
    until prezero claim 4M --wait 20 -- sh -c "cmp -n 4194304 \"\$1\" /dev/zero" sh "{lease}" 2>/tmp/claim; do
        tries=$((tries - 1)); [ $tries -gt 0 ] || { cat /tmp/broker /tmp/claim; exit 1; }; sleep 0.1
    done
    kill $broker' || fail "claim"
for file in man/man1/prezero.1.gz man/man1/prezero-ctl.1.gz man/man8/prezerod.8.gz bash-completion/completions/prezero \
    zsh/site-functions/_prezero fish/vendor_completions.d/prezero.fish doc/prezero/prezerod.toml; do
    [ -s "$root/usr/share/$file" ] || fail "no /usr/share/$file"
done
grep -q '^ExecStart=/usr/bin/prezerod' "$root/usr/lib/systemd/system/prezerod.service" || fail "the unit"
inside bash -c 'complete() { words=$*; }; . /usr/share/bash-completion/completions/prezero; [ -n "$words" ]' || fail "completions"
inside dpkg --purge prezero >/dev/null
find "$root/usr" "$root/etc" | sort | diff "$root/tmp/before" - || fail "it leaves something behind"
echo "deb: $package: good"
