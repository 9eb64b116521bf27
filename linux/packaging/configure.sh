#!/bin/bash
# configure.sh TREE OUT CONFIG [FRAGMENT...]: OUT/.config is CONFIG with FRAGMENTs, as TREE completes it.
#
# A line of a FRAGMENT that Kconfig drops is an error: a key that is gone would leave a kernel without the series,
# and a pahole that is missing one without BTF.
set -euo pipefail
tree=$1 out=$2 config=$3
shift 3
mkdir -p "$out"
# A build folder's .config is written only when it changes: the rest is not built again.
stage=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$stage"' EXIT
xz -dcf "$config" > "$stage/original"
cp "$stage/original" "$stage/.config"
[ $# -eq 0 ] || "$tree/scripts/kconfig/merge_config.sh" -m -O "$stage" "$stage/.config" "$@" > "$stage/merge.log"
make -s -C "$tree" O="$stage" ARCH=x86_64 olddefconfig
wrong=0
while IFS= read -r line; do
    grep -qxF -- "$line" "$stage/.config" || { echo "configure.sh: not in the result: $line" >&2; wrong=1; }
done < <(cat /dev/null "$@" | grep -E '^(CONFIG_|# CONFIG_.* is not set$)')
if grep -qx CONFIG_DEBUG_INFO_BTF=y "$stage/original" && ! grep -qx CONFIG_DEBUG_INFO_BTF=y "$stage/.config"; then
    echo "configure.sh: no BTF: pahole is missing, or too old" >&2
    wrong=1
fi
[ "$wrong" -eq 0 ] || exit 1
cmp -s "$stage/.config" "$out/.config" || cp "$stage/.config" "$out/.config"
