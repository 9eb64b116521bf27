#!/bin/sh
# Removes what packaging/install.sh put there, and the folders that came into being with it.
#   packaging/uninstall.sh DESTDIR PREFIX
set -eu
destination=$1 prefix=$2
manifest=$destination$prefix/lib/prezero/installed
if [ ! -e "$manifest" ]; then
    echo "uninstall: $manifest is missing: nothing was installed below $destination$prefix by make install" >&2
    exit 1
fi
if [ -z "$destination" ] && [ -d /run/systemd/system ]; then
    systemctl stop prezerod.service prezerod.socket prezerod-metrics.socket 2>/dev/null || true
fi
list=$(mktemp)
trap 'rm -f "$list"' EXIT
sort -r "$manifest" >"$list"
while IFS= read -r path; do
    case $path in
    */) ;;
    *) rm -f "$destination$path" ;;
    esac
done <"$list"
# The deepest folder first. One that holds something of others stays.
while IFS= read -r path; do
    case $path in
    */) rmdir "$destination$path" 2>/dev/null || true ;;
    esac
done <"$list"
if [ -z "$destination" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
