#!/bin/sh
# The Debian packages, installed on a root that has nothing else, used there, and removed. lintian has nothing to say of them,
# where it is installed.
#   tests/system/deb.sh               made of target/release
#   tests/system/deb.sh FOLDER        those of a release, for this machine
# Needs root and mmdebstrap, and the host's own package sources.
set -eu
cd "$(dirname "$0")/../.."
folder=${1-}
if [ "$(id -u)" -ne 0 ] || ! command -v mmdebstrap >/dev/null; then
    echo "deb: left out: needs root and mmdebstrap (make setup)"
    exit 0
fi
[ -n "$folder" ] || make --no-print-directory deb >/dev/null 2>&1
packages=$(ls "${folder:-target/debian}"/*_"$(dpkg --print-architecture)".deb)
root=
finish() { [ -z "$root" ] || leave_root; }
trap finish EXIT INT TERM
fail() {
    echo "deb: $1" >&2
    exit 1
}
if command -v lintian >/dev/null; then
    # shellcheck disable=SC2086 # words
    said=$(lintian --allow-root --fail-on none --tag-display-limit 0 $packages 2>&1 | grep '^[EW]:' || true)
    [ -z "$said" ] || fail "lintian: $said"
else
    echo "deb: no lintian"
fi
. tests/common/root.sh
make_root apt ""
find "$root/usr" "$root/etc" | sort >"$root/tmp/before"

# shellcheck disable=SC2086 # words
cp $packages "$root/tmp/"
inside() { chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root XDG_RUNTIME_DIR=/tmp "$@"; }
inside sh -c 'dpkg --install /tmp/*.deb' >/dev/null || fail "it cannot be installed on what Debian itself needs"
for file in bin/prezero bin/prezerod lib/prezero/prezero-bench lib/prezero/libprezero.so lib/prezero/libprezero_lease_shim.so lib/prezero/libprezero_pinned.so \
    lib/prezero/libprezero_numpy.so; do
    if readelf -SW "$root/usr/$file" | grep -v gdb_scripts | grep -q '\.debug_\|\.symtab'; then fail "$file is not stripped"; fi
done
readelf -n "$root/usr/lib/prezero/libprezero.so" | grep -q stapsdt || fail "the library has no probes"
inside prezero --version | grep -q "^prezero " || fail "--version"
inside prezero engines | grep -q stosb || [ "$(uname -m)" != x86_64 ] || fail "engines"
inside prezero bench --help | grep -q '^Usage: prezero bench' || fail "bench"
inside prezero run -- perl -e 'for (1 .. 20) { my $text = "x" x 5_000_000 } print "good\n"' >"$root/tmp/out" 2>"$root/tmp/err" ||
    fail "run: $(cat "$root/tmp/err")"
grep -qx good "$root/tmp/out" && grep -q '^prezero: ' "$root/tmp/err" || fail "run says $(cat "$root/tmp/out" "$root/tmp/err")"
cp tests/common/until.sh "$root/tmp"
inside sh -c '. /tmp/until.sh
    prezerod 2>/tmp/broker & broker=$!
    claims() { prezero claim 4M --wait 20 -- sh -c "cmp -n 4194304 \"\$1\" /dev/zero" sh "{lease}" 2>/tmp/claim; }
    within 300 claims || { cat /tmp/broker /tmp/claim; exit 1; }
    kill $broker' || fail "claim"
# What runs is seen and turned there too.
inside sh -c '. /tmp/until.sh
    prezero run --stats off -- perl -e "for (;;) { my \$text = qq(x) x (5_000_000 + \$i++); undef \$text; select undef, undef, undef, 0.01 }" & process=$!
    turns() { prezero ctl $process set scrub_rate 64M 2>/tmp/said; }
    within 300 turns || { cat /tmp/said; exit 1; }
    prezero top --once -d 0.1 | grep -q "^ *$process perl" || { echo "top does not show it"; exit 1; }
    [ "$(prezero ctl $process get scrub-rate)" = 64M ] || { echo "the knob was not turned"; exit 1; }
    kill $process' || fail "ctl, top"
for file in man/man1/prezero.1.gz man/man1/prezero-ctl.1.gz man/man1/prezero-bench-grid.1.gz man/man8/prezerod.8.gz bash-completion/completions/prezero \
    bash-completion/completions/prezerod zsh/site-functions/_prezerod fish/vendor_completions.d/prezerod.fish \
    zsh/site-functions/_prezero fish/vendor_completions.d/prezero.fish doc/prezerod/prezerod.toml doc/prezerod/changelog.gz doc/libprezero-dev/copyright doc/prezero/docs/operator.md \
    doc/prezero/docs/pictures/grid-idle-heat.svg doc/prezero/copyright; do
    [ -s "$root/usr/share/$file" ] || fail "no /usr/share/$file"
done
grep -q '^ExecStart=/usr/bin/prezerod' "$root/usr/lib/systemd/system/prezerod.service" || fail "the unit"
grep -q '^usdt:/usr/lib/prezero/libprezero.so:prezero:hit' "$root/usr/share/doc/prezero/probes.bt" || fail "the example of probes"
if grep -q /usr/local "$root/usr/share/doc/prezero/docs/library.md"; then fail "library.md is of another prefix"; fi
# Nothing of the folder stays in what is linked by it; what is linked needs the package that has the library.
grep -qx 'Libs: -L${libdir} -lprezero' "$root"/usr/lib/*/pkgconfig/prezero.pc || fail "prezero.pc"
[ -e "$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/libprezero.so.0" ] || fail "the linker does not find the library"
grep -q '^libprezero 0 prezero (>= ' "$root"/var/lib/dpkg/info/prezero*.shlibs && grep -q '^ prezero_zalloc@Base' "$root"/var/lib/dpkg/info/prezero*.symbols ||
    fail "no symbols"
# The completions answer: the commands of prezero, the knobs of run and ctl.
inside bash -c '. /usr/share/bash-completion/completions/prezero && . /usr/share/bash-completion/completions/prezerod
    set -- $(complete -p prezero)
    while [ "$1" != -F ]; do shift; done
    completes=$2
    asked() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); $completes prezero "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; }
    asked prezero ct; [ "${COMPREPLY[*]}" = ctl ] || exit 1
    asked prezero bench gri; [ "${COMPREPLY[*]}" = grid ] || exit 1
    asked prezero run --scrub-r; [ "${COMPREPLY[*]}" = --scrub-rate ] || exit 1
    asked prezero run --verify f; [ "${COMPREPLY[*]}" = full ] || exit 1
    asked prezero ctl 4711 set scrub-r; [ "${COMPREPLY[*]}" = scrub-rate ]' || fail "completions"
readelf -n "$root/usr/lib/prezero/libprezero.so" | grep -q 'Name: scrub__begin' || fail "its probes were stripped"
inside dpkg --purge prezero libprezero-dev prezerod >/dev/null
find "$root/usr" "$root/etc" | sort | diff "$root/tmp/before" - || fail "it leaves something behind"
echo "deb: $(echo "$packages" | wc -l) packages: good"
