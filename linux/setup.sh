#!/bin/sh
# setup.sh [LIST]: Debian packages that building, booting and testing the kernel series use: its source, what
# its build needs, QEMU for the x86-64 guest, and a static busybox for the initramfs.
set -eu
as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo
$as_root apt-get update -q
list=${1:-packages}
# shellcheck disable=SC2046 # one word a package
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -q -y \
    --no-install-recommends $(sed 's/#.*//' "$(dirname "$0")/$list")
