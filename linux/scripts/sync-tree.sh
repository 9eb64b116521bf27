#!/bin/bash
# sync-tree.sh PRISTINE PATCHED SERIES...: makes PATCHED what PRISTINE is with each SERIES applied in turn.
#
# Only files whose content changes are written, so that a build after an edited patch compiles
# what the edit touched and nothing else. Patches apply without fuzz or not at all.
set -euo pipefail
pristine=$1 patched=$2
shift 2

if [ ! -d "$patched" ]; then
    rm -rf "$patched.part"
    cp -a --reflink=auto "$pristine" "$patched.part"
    mv "$patched.part" "$patched"
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
names=()
for series; do
    while IFS= read -r name; do names+=("$(dirname "$series")/$name"); done < <(sed 's/#.*//; /^[[:space:]]*$/d' "$series")
done

# Every file that a patch names, on either side.
touched() {
    [ ${#names[@]} -eq 0 ] && return
    sed -n 's,^--- a/\([^\t]*\).*,\1,p; s,^+++ b/\([^\t]*\).*,\1,p' "${names[@]}" | sort -u
}
touched > "$stage.list"
trap 'rm -rf "$stage" "$stage.list"' EXIT

while IFS= read -r file; do
    [ -e "$pristine/$file" ] || continue
    mkdir -p "$stage/$(dirname "$file")"
    cp -p "$pristine/$file" "$stage/$file"
done < "$stage.list"

for name in "${names[@]}"; do
    if ! patch -d "$stage" -p1 -s -F0 --no-backup-if-mismatch < "$name" > "$stage.list.log"; then
        echo "sync-tree.sh: $name does not apply:" >&2
        cat "$stage.list.log" >&2
        rm -f "$stage.list.log"
        exit 1
    fi
done
rm -f "$stage.list.log"

# What the series named last time goes back to the original where it is not named any more.
{ cat "$stage.list"; [ ! -e "$patched/.prezero-files" ] || cat "$patched/.prezero-files"; } | sort -u |
while IFS= read -r file; do
    source=$stage/$file
    grep -qxF -- "$file" "$stage.list" || source=$pristine/$file
    if [ -e "$source" ]; then
        cmp -s "$source" "$patched/$file" && continue
        mkdir -p "$patched/$(dirname "$file")"
        cp "$source" "$patched/$file"
    else
        rm -f "$patched/$file"
    fi
done
cp "$stage.list" "$patched/.prezero-files"
