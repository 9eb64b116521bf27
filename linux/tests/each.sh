#!/bin/bash
# each.sh BUILD PRISTINE SERIES: does each patch of the series build by itself?
#
# After each patch what it and those before it touch is compiled: for x86-64 with all that the
# series has, and for user-mode Linux without any of it configured. A warning counts as an error.
# What compiled is remembered: called again, it goes on behind the last patch that did.
set -euo pipefail
build=$1 pristine=$2 series=$3
here=$(cd "$(dirname "$0")/.." && pwd)
patches=$(cd "$(dirname "$series")" && pwd)
work=$build/each
mkdir -p "$work"
mapfile -t names < <(sed 's/#.*//; /^[[:space:]]*$/d' "$series")

# configure ARCH FRAGMENT...: what of it exists after this patch is on.
configure() {
    local arch=$1 objects=$work/$1
    shift
    if [ ! -e "$objects/.config" ]; then
        mkdir -p "$objects"
        make -s -C "$work/tree" O="$objects" ARCH="$arch" tinyconfig
    fi
    (cd "$objects" && ARCH=$arch "$work/tree/scripts/kconfig/merge_config.sh" -m .config "$@" > merge.log)
    make -s -C "$work/tree" O="$objects" ARCH="$arch" olddefconfig
}

# compile ARCH OBJECT...
compile() {
    local arch=$1
    shift
    if ! make -s -C "$work/tree" O="$work/$arch" ARCH="$arch" -j"${JOBS:-$(nproc)}" "$@" > "$work/log" 2>&1 ||
        grep -q 'warning: ' "$work/log"; then
        grep -E -A5 '(error|warning): |\*\*\*' "$work/log"
        return 1
    fi
}

echo CONFIG_HIBERNATION=y > "$work/more.config"
# Objects of the .c files that the patches so far touch; not of one that another includes.
touched() {
    local file
    grep '\.c$' "$work/tree/.prezero-files" | grep -v '^tools/' | while IFS= read -r file; do
        [ -e "$work/tree/$file" ] || continue
        grep -qF "#include \"${file##*/}\"" "$work/tree/${file%/*}"/*.c || echo "${file%.c}.o"
    done
}

: > "$work/series.part"
for name in "${names[@]}"; do
    echo "$name" >> "$work/series.part"
    # The content of all patches so far: an edited patch has everything behind it compiled again.
    sum=$( (cd "$patches" && while read -r n; do cat "$n"; done < "$work/series.part") | sha256sum | cut -d' ' -f1)
    if [ -e "$work/done" ] && grep -qx "$sum" "$work/done"; then
        echo "built    $name (earlier)"
        continue
    fi
    ln -sfn "$patches" "$work/patches"
    (cd "$work/patches" && mapfile -t so_far < "$work/series.part" && rm -rf "$work/stage" && mkdir "$work/stage" &&
        cp --parents "${so_far[@]}" "$work/stage" && cp "$work/series.part" "$work/stage/series")
    "$here/scripts/sync-tree.sh" "$pristine" "$work/tree" "$work/stage/series"
    mapfile -t objects < <(touched)
    objects+=(mm/memory.o)
    # What no option of the series decides about.
    mapfile -t always < <(printf '%s\n' "${objects[@]}" | grep -xE 'mm/(page_alloc|memory|mm_init|shmem|vmstat)\.o')
    configure x86_64 "$here/config/x86.config" "$here/config/series.config" "$work/more.config"
    configure um "$here/config/um.config"
    # The kernel's make comes by arch/x86/lib in two ways, at once if it may.
    mapfile -t lib < <(printf '%s\n' "${objects[@]}" | grep '^arch/x86/lib/')
    mapfile -t others < <(printf '%s\n' "${objects[@]}" | grep -v '^arch/x86/lib/')
    { [ ${#lib[@]} -eq 0 ] || JOBS=1 compile x86_64 "${lib[@]}"; } && compile x86_64 "${others[@]}" ||
        { echo "each.sh: $name does not build for x86-64" >&2; exit 1; }
    compile um "${always[@]}" || { echo "each.sh: $name does not build for user-mode Linux" >&2; exit 1; }
    echo "$sum" >> "$work/done"
    echo "built    $name"
done
