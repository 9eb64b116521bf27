#!/bin/bash
# measure.sh KERNEL GEN_INIT_CPIO INITRAMFS [PREZERO]: guest/measure in the series' own guest, with prezero of a folder.
set -euo pipefail
kernel=$1 generator=$2 initramfs=$3 prezero=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
files=()
for each in populate activate; do
    gcc -O2 -Wall -Wextra -Werror -Wno-format-zero-length -o "$stage/$each" "$here/guest/$each.c"
    files+=("/try/$each=$stage/$each")
done
files+=("/tests/measure=$here/guest/measure" /bin/bash=/bin/bash)
if [ -x "$prezero/prezero" ] && [ -x "$prezero/prezerod" ] && [ -e "$prezero/libprezero.so" ]; then
    for each in prezero prezerod libprezero.so; do files+=("/try/prezero/$each=$(realpath "$prezero/$each")"); done
fi
# They are linked to libraries of this machine.
mapfile -t libraries < <(ldd "${files[@]#*=}" 2> /dev/null | grep -oE '/[^ :]+ \(' | sed 's/ (//' | sort -u)
for each in "${libraries[@]}"; do files+=("$each=$(realpath "$each")"); done
for each in "${files[@]%%=*}"; do
    while each=$(dirname "$each"); [ "$each" != / ]; do echo "dir $each 0755 0 0"; done
done | sort -u > "$stage/list"
for each in "${files[@]}"; do echo "file ${each%%=*} ${each#*=} 0755 0 0"; done >> "$stage/list"
"$generator" "$stage/list" | gzip -1 | cat "$initramfs" - > "$stage/initramfs"
GUEST_MEM=1280 "$here/../../scripts/guest.sh" x86 "$kernel" "$stage/initramfs" measure
