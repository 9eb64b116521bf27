#!/bin/bash
# initramfs.sh [--overlay] GEN_INIT_CPIO OUT [--directory NAME] ITEM...: the guest's root: busybox,
# ./init, the directory NAME, and ITEMs.
#
# With --overlay only the ITEMs, for a second archive behind the first (the kernel unpacks both).
# An ITEM is PATH=FILE (FILE appears as /PATH). The kernel's own gen_init_cpio makes device nodes
# without root.
set -euo pipefail
overlay=
[ "$1" != --overlay ] || { overlay=1; shift; }
generator=$1 out=$2
shift 2
directory=
[ "${1:-}" != --directory ] || { directory=$2; shift 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
list=$(mktemp)
trap 'rm -f "$list" "$out.part"' EXIT

base() {
    local busybox dir name
    busybox=$(command -v busybox)
    for dir in bin dev proc sys tmp tests modules mnt; do echo "dir /$dir 0755 0 0"; done
    echo "nod /dev/console 0600 0 0 c 5 1"
    echo "nod /dev/null 0666 0 0 c 1 3"
    echo "file /init $here/init 0755 0 0"
    echo "file /bin/busybox $busybox 0755 0 0"
    "$busybox" --list | grep -vx busybox | while IFS= read -r name; do
        echo "slink /bin/$name busybox 0777 0 0"
    done
}

{
    [ -n "$overlay" ] || base
    [ -z "$directory" ] || echo "dir /$directory 0755 0 0"
    for item; do
        echo "file /${item%%=*} ${item#*=} 0755 0 0"
    done
} > "$list"
"$generator" "$list" | gzip -1 > "$out.part"
mv "$out.part" "$out"
