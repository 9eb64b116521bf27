#!/bin/sh
# tests/system/claim.sh once more, as a user who may do nothing in particular: where the tests run as root, the
# other half of the hosts that there are.
#   tests/system/user.sh DIR      where prezero and prezerod are
set -eu
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" -ne 0 ]; then
    echo "user: left out: the tests did not run as root to begin with"
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
chmod 755 "$dir"
mkdir "$dir/bin" "$dir/tmp" "$dir/system"
cp "$bin/prezero" "$bin/prezero-qemu" "$bin/prezerod" "$bin/libprezero_lease_shim.so" "$dir/bin"
cp -r "$here/../common" "$dir"
cp "$here/claim.sh" "$dir/system"
chown 65534:65534 "$dir/tmp"
cd "$dir/tmp"
status=0
setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$dir/tmp" TMPDIR="$dir/tmp" \
    "$dir/system/claim.sh" "$dir/bin" >"$dir/said" || status=$?
sed 's/^claim:/user: claim:/' "$dir/said"
exit "$status"
