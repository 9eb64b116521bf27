#!/bin/sh
# The experiments on the kernel of linux/, patched and not, in QEMU without KVM.
#   kernel.sh OUT [MIB]      OUT: where `make seeds` put the programs; the lines go there too
# Builds both kernels where they are not built (linux/README.md: where, and what that takes).
set -eu
out=$(cd "$1" && pwd)
mib=${2:-64}
cd "$(dirname "$0")/../../linux"
build=${BUILD:-${XDG_CACHE_HOME:-$HOME/.cache}/prezero-linux}
make --no-print-directory BUILD="$build" x86 x86-plain initramfs
items=
for file in all.sh faults write lmbench resident; do items="$items mnt/$file=$out/$file"; done
printf '#!/bin/sh\nexec /mnt/all.sh "$@"\n' >"$out/guest"
# shellcheck disable=SC2086 # words
scripts/initramfs.sh --overlay "$build/gen_init_cpio" "$out/overlay.gz" tests/seeds="$out/guest" $items
cat "$build/initramfs.gz" "$out/overlay.gz" >"$out/initramfs.gz"
for kernel in x86-plain x86; do
    GUEST_TIMEOUT=3000 scripts/guest.sh x86 "$build/$kernel/arch/x86/boot/bzImage" "$out/initramfs.gz" "seeds,$mib" \
        >"$out/$kernel.log" || { tail -n 20 "$out/$kernel.log" >&2; exit 1; }
    grep '^{"experiment"' "$out/$kernel.log" >"$out/$kernel.lines"
done
rm "$out/initramfs.gz" "$out/overlay.gz" "$out/guest"
echo "prezero bench seeds --add 'patched kernel (QEMU)=$out/x86.lines,$out/x86-plain.lines'"
