#!/bin/sh
# `make demo` as a newcomer types it, on a Debian that has git and make and nothing else.
# Rust is the host's, and so is what was built already for the same release. Needs root and mmdebstrap.
#   tests/system/newcomer.sh                       this machine's release of Debian
#   tests/system/newcomer.sh --test                `make test` too
#   tests/system/newcomer.sh --suite CODENAME      another release: `make demo`, `make check`, and every package of `make test`
set -eu
cd "$(dirname "$0")/../.."
top=$PWD suite=
[ "${1-}" != --suite ] || suite=${2:?--suite CODENAME}
cargo_home=${CARGO_HOME:-$HOME/.cargo} rustup_home=${RUSTUP_HOME:-$HOME/.rustup}
if [ "$(id -u)" -ne 0 ] || ! command -v mmdebstrap >/dev/null || [ ! -x "$cargo_home/bin/cargo" ] || [ ! -d "$rustup_home" ]; then
    echo "newcomer: left out: needs root, mmdebstrap and a Rust of rustup's"
    exit 0
fi
root=
finish() { [ -z "$root" ] || leave_root; }
trap finish EXIT INT TERM
fail() {
    echo "newcomer: $1" >&2
    [ ! -s "$root/tmp/said" ] || tail -n 20 "$root/tmp/said" >&2
    exit 1
}
. tests/common/root.sh
if ! make_root minbase git,make,ca-certificates "$suite"; then
    echo "newcomer: left out: no $suite to be had"
    exit 0
fi
share /dev
share /dev/pts
share "$cargo_home"
share "$rustup_home"
# The files as git has them, with the times of those that were built from; no environment, and nothing that is ignored.
built=$top/target${suite:+/$suite}
mkdir -p "$built" "$root$top"
git ls-files -z --cached --others --exclude-standard | tar -cf - --null --files-from=- | tar -xf - -C "$root$top"
share "$top/target" "$built"
online "$root"
settings=$(env | sed -n '/^\(PIP_[A-Z_]*\|[a-zA-Z_]*_proxy\|[A-Z_]*_PROXY\)=[^ ]*$/p')
# as WHO PATH HOME COMMAND...: in the root, with this folder of programs in front.
as() {
    who=$1 front=$2 home=$3
    shift 3
    # shellcheck disable=SC2086 # one word a setting
    chroot --userspec="$who" "$root" env -i PATH="$front:/usr/bin:/bin:/usr/sbin:/sbin" HOME="$home" CARGO_HOME="$cargo_home" \
        RUSTUP_HOME="$rustup_home" $settings sh -c 'cd "$0" && exec "$@"' "$top" "$@" >"$root/tmp/said" 2>&1
}
newcomer() { as root:root "$cargo_home/bin" /root "$@" || fail "$*"; }
# refused WHAT WHO PATH HOME: `make demo` fails, and one line says this.
refused() {
    what=$1
    shift
    if as "$@" make demo; then fail "make demo goes on: $what"; fi
    [ "$(grep -vc '^make' "$root/tmp/said")" -eq 1 ] || fail "more than one line says what is missing"
    grep -q "^setup: .*$what" "$root/tmp/said" || fail "it does not say: $what"
    echo "newcomer: $(grep '^setup' "$root/tmp/said")"
}

mkdir "$root/none" "$root/old"
printf '#!/bin/sh\necho rustc 1.63.0\n' >"$root/old/rustc"
chmod 755 "$root/old/rustc"
chmod 755 "$root/root"
# What brings Rust depends on the release: a package where there is one that is late enough.
refused 'Rust .* is missing (found: none): \(curl\|as root: apt-get install [a-z]*;\) ' root:root /none /none
refused 'Rust .* is missing (found: 1.63.0): \(curl\|as root: apt-get install [a-z]*;\) ' root:root /old /none
refused 'missing: gcc libc6-dev python3 python3-venv. As root: apt-get install gcc ' nobody:nogroup "$cargo_home/bin" /none

began=$(date +%s)
newcomer make demo
grep -q '^setup: installs through apt, as root: gcc libc6-dev python3 python3-venv$' "$root/tmp/said" || fail "it does not say what it installs"
[ "$(grep -c '^a frame takes' "$root/tmp/said")" -eq 2 ] || fail "make demo shows no two frames"
grep -q '^prezero: ' "$root/tmp/said" || fail "make demo shows no account"
echo "newcomer: make demo in $(($(date +%s) - began)) s: $(grep '^a frame takes' "$root/tmp/said" | tr '\n' ' ')"
# What was left half made is not taken for finished.
rm "$root$top/.venv/ready"
rm -r "$root$top/.venv/bin" "$root$top/.venv/lib"
newcomer make demo
if grep -q '^setup:' "$root/tmp/said"; then fail "make demo installs twice"; fi

if [ -n "$suite" ]; then
    began=$(date +%s)
    newcomer make check
    echo "newcomer: make check in $(($(date +%s) - began)) s: $(grep -c '^test result: ok' "$root/tmp/said") binaries of tests"
    # Each package of `make test`, by its name there.
    newcomer tests/setup.sh build lint python test
    if grep '^setup: \(missing\|not among\)' "$root/tmp/said"; then fail "packages of $suite"; fi
    newcomer tests/setup.sh --strict build lint python test
    echo "newcomer: $suite has every package of make test"
fi
if [ "${1-}" = --test ]; then
    began=$(date +%s)
    newcomer make test
    running=$(ls "$root"/etc/systemd/system/*.wants/ 2>/dev/null | grep -E 'redis|memcached|postgresql|ssh' || true)
    [ -z "$running" ] || fail "servers are left to start: $running"
    echo "newcomer: make test in $(($(date +%s) - began)) s: $(grep '^each: ' "$root/tmp/said")"
fi
echo "newcomer: good"
