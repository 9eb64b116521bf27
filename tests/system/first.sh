#!/bin/sh
# The first two commands of the README, of a release's files, on bare roots of several distributions: installed, tried, removed,
# and timed.
#   tests/system/first.sh RELEASE [CODENAME[=MIRROR]]...      [this machine's release of Debian]; MIRROR: another distribution's
#   tests/system/first.sh RELEASE --arm64                     Debian for arm64, under emulation
# Needs root and mmdebstrap, and the host's own package sources; for arm64 qemu-user-static too.
set -eu
cd "$(dirname "$0")/../.."
release=$(realpath "${1:?usage: tests/system/first.sh RELEASE [CODENAME]...}")
shift
left_out() {
    echo "first: left out: $1"
    exit 0
}
[ "$(id -u)" -eq 0 ] && command -v mmdebstrap >/dev/null || left_out "needs root and mmdebstrap (make setup)"
root=
finish() { [ -z "$root" ] || leave_root; }
trap finish EXIT INT TERM
fail() {
    echo "first: $1" >&2
    exit 1
}
. tests/common/root.sh
within() { chroot "$root" "$@"; }
machine=$(uname -m) architecture=$(dpkg --print-architecture)
if [ "${1-}" = --arm64 ]; then
    . tests/common/aarch64.sh
    within() { whole sh -ec 'mount --rbind /proc "$0/proc"; mount --rbind /dev "$0/dev"; exec chroot "$0" "$@"' "$root" "$@"; }
    machine=aarch64 architecture=arm64
    set -- "$(. /etc/os-release && echo "$VERSION_CODENAME")"
fi
packages=$(cd "$release" && ls -- "prezero_"*"_$architecture.deb") wheel=$(cd "$release" && ls -- *"_$machine.whl")
said=$(mktemp)
# timed WHAT COMMAND...: in the root; how long it took.
timed() {
    what=$1 began=$(date +%s%N)
    shift
    within env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1 \
        ${emulated-} "$@" >"$said" 2>&1 || fail "$name: $what: $(tail -n 5 "$said")"
    took=$((($(date +%s%N) - began) / 100000000))
    echo "first: $name: $what: $((took / 10)).$((took % 10)) s"
}
files() { (cd "$root" && find usr etc opt \( -name __pycache__ -o -path etc/ld.so.cache \) -prune -o -print | sort); }
[ $# -gt 0 ] || set -- "$(. /etc/os-release && echo "$VERSION_CODENAME")"
for each; do
    name=${each%%=*}
    if [ "$architecture" = arm64 ]; then
        emulated=PREZERO_NO_MOVE=on name="$name arm64"
        root=$(mktemp -d)
        whole mmdebstrap --mode=root --quiet --arch=arm64 --variant=apt --include=python3,python3-venv --skip=check/qemu \
            --aptopt='APT::Install-Recommends "false"' "$each" "$root" "$mirror" 2>"$said" || left_out "no $name: $(tail -n 1 "$said")"
    elif [ "$name" != "$each" ]; then
        root=$(mktemp -d)
        mmdebstrap --quiet --variant=apt --include=python3,python3-venv "$name" "$root" "deb [trusted=yes] ${each#*=} $name main universe" \
            2>"$said" || left_out "no $name: $(tail -n 1 "$said")"
        enter_root
    else
        make_root apt python3,python3-venv "$name" || left_out "no $name"
    fi
    cat >"$root/tmp/frames.py" <<'PYTHON'
import time
for i in range(60):
    image = bytearray(8 << 20)
    image[::4096] = b"x" * len(image[::4096])
    time.sleep(0.004)
print("good")
PYTHON
    cp "$release/$packages" "$release/$wheel" "$root/tmp/"
    files >"$root/tmp/before"
    timed "apt install" apt-get install --quiet --yes "/tmp/$packages"
    timed "doctor" prezero doctor
    timed "run" prezero run -- python3 /tmp/frames.py
    grep -qx good "$said" && grep -q '^prezero: ' "$said" || fail "$name: run says $(cat "$said")"
    timed "try" prezero try --for 10s -- python3 /tmp/frames.py
    sed "s/^/    /" "$said"
    timed "apt purge" apt-get purge --quiet --yes prezero
    files | diff "$root/tmp/before" - || fail "$name: apt purge leaves something"
    timed "a virtual environment" python3 -m venv /tmp/venv
    timed "pip install" /tmp/venv/bin/pip install --quiet --no-index "/tmp/$wheel"
    timed "doctor" /tmp/venv/bin/prezero doctor
    timed "run" /tmp/venv/bin/prezero run -- /tmp/venv/bin/python3 /tmp/frames.py
    grep -qx good "$said" && grep -q '^prezero: ' "$said" || fail "$name: run says $(cat "$said")"
    timed "pip uninstall" /tmp/venv/bin/pip uninstall --quiet --yes prezero
    [ -z "$(find "$root/tmp/venv" -name '*prezero*')" ] || fail "$name: pip uninstall leaves $(find "$root/tmp/venv" -name '*prezero*')"
    leave_root
    root=
done
rm -f "$said"
echo "first: good"
