#!/bin/bash
# mutate.sh BUILD PATCHED: breaks the series in one place at a time; a test has to fail each time.
#
# A mutation is a file and a sed expression that has to change it. Kernels are built in BUILD/um,
# incrementally, and PATCHED is as it was when this ends, however it ends.
set -uo pipefail
build=$1 patched=$2
here=$(cd "$(dirname "$0")" && pwd)
survivors=0 file=
export PREZERO_MUTATING=1

restore() {
    [ -z "$file" ] || { cp "$build/mutant.orig" "$patched/$file"; file=; }
}
trap restore EXIT

kunit() {
    make -s -C "$here/.." BUILD="$build" um > "$build/mutant.log" 2>&1 || { tail "$build/mutant.log"; exit 1; }
    GUEST_APPEND="kunit.enable=1 kunit.filter_glob=prezero*" GUEST_TIMEOUT=60 \
        "$here/../scripts/guest.sh" um "$build/um/linux" "$build/initramfs.gz" kunit,prezero 2>&1
}

barrier() {
    "$here/barrier/run.sh" "$patched/arch/x86/lib/clear_pages_cold_64.c" 10 2>&1
}

# mutate TITLE TEST FILE SED
mutate() {
    local output
    cp "$patched/$3" "$build/mutant.orig" || exit 1
    file=$3
    sed -i "$4" "$patched/$3"
    if cmp -s "$patched/$3" "$build/mutant.orig"; then
        echo "mutate.sh: '$1' changes nothing in $3" >&2
        exit 1
    fi
    if output=$("$2"); then
        echo "SURVIVED  $1"
        survivors=$((survivors + 1))
    else
        echo "caught    $1"
        grep -E 'not ok|EXPECTATION|times not zero|guest.sh' <<< "$output" | sed 's/^ */          /' | head -4
    fi
    restore
}

echo "unchanged: all pass"
kunit > "$build/mutant.out" || { cat "$build/mutant.out"; exit 1; }
barrier || exit 1

mutate "merge: a dirty page that enters the free lists keeps an old bit" kunit \
    mm/prezero.c 's/if (nr_zeroed && !keep) {/if (nr_zeroed \&\& !keep \&\& false) {/'
mutate "merge: a block of which a part is zero counts as zero" kunit \
    mm/page_alloc.c 's/if (nr_zeroed == nr_pages) {/if (nr_zeroed) {/'
mutate "write: what a page's owner left in it passes for the allocator's tag" kunit \
    mm/page_alloc.c 's/^\tpage->private = 0;$//'
mutate "clearing: no barrier after non-temporal stores" barrier \
    arch/x86/lib/clear_pages_cold_64.c '/sfence/d'

[ "$survivors" -eq 0 ] || { echo "mutate.sh: $survivors mutations survived" >&2; exit 1; }
