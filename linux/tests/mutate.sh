#!/bin/bash
# mutate.sh BUILD PATCHED: breaks the series in one place at a time; a test has to fail each time.
#
# A mutation is a file and a sed expression that has to change it. Kernels are built in BUILD/um,
# incrementally, and PATCHED is as it was when this ends, however it ends.
set -uo pipefail
build=$1 patched=$2
here=$(cd "$(dirname "$0")" && pwd)
survivors=0 file= test=
export PREZERO_MUTATING=1

restore() {
    [ -n "$file" ] || return 0
    cp -p "$build/mutant.orig" "$patched/$file"
    # What was built from the mutant has to be built again; nothing else has.
    [ "$test" != kunit ] || touch "$patched/$file"
    file=
}
trap restore EXIT

kunit() {
    make -s -C "$here/.." BUILD="$build" um > "$build/mutant.log" 2>&1 || { tail "$build/mutant.log"; return 99; }
    GUEST_APPEND="kunit.enable=1 kunit.filter_glob=prezero*" GUEST_TIMEOUT=60 \
        "$here/../scripts/guest.sh" um "$build/um/linux" "$build/initramfs.gz" kunit,prezero 2>&1
}

barrier() {
    "$here/barrier/run.sh" "$patched" 10 2>&1
}

# mutate TITLE TEST FILE SED
mutate() {
    local output status=0
    test=$2
    cp -p "$patched/$3" "$build/mutant.orig" || exit 1
    file=$3
    sed -i "$4" "$patched/$3"
    if cmp -s "$patched/$3" "$build/mutant.orig"; then
        echo "mutate.sh: '$1' changes nothing in $3" >&2
        exit 1
    fi
    output=$("$2") || status=$?
    if [ "$status" -eq 99 ]; then
        echo "mutate.sh: '$1' does not build:" "$output" >&2
        exit 1
    elif [ "$status" -eq 0 ]; then
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
mutate "merge: a per-CPU list takes a part for the whole" kunit \
    mm/page_alloc.c 's/^\treturn nr_zeroed == 1 << order ? FPI_ZEROED : FPI_KEEP_ZEROED;$/\treturn FPI_ZEROED;/'
mutate "free: what one vouches for is true of those who could not have the lock" kunit \
    mm/page_alloc.c '/split_large_buddy(zone, p, page_to_pfn(p), p_order,$/{n;s/ & ~FPI_ZERO_MASK//}'
mutate "free: the tails of a block with another reference are vouched for" kunit \
    mm/page_alloc.c '/__free_frozen_pages(page + (1 << order), order,$/{n;s/ & ~FPI_ZERO_MASK//}'
mutate "count: a block that is stolen stays counted" kunit \
    mm/page_alloc.c '/account_freepages(zone, nr_added, start_type);$/{n;s/prezero_leave/if (0) prezero_leave/}'
mutate "write: two zones that share a word lose an update" kunit \
    mm/prezero.c 's/atomic_long_or(mask, (atomic_long_t \*)word);/WRITE_ONCE(*word, READ_ONCE(*word) | mask);/'
mutate "recall: a kscrubd that sleeps passes for interrupted" kunit \
    mm/page_alloc.c 's/if (READ_ONCE(zone->prezero_cpu) == raw_smp_processor_id())/if (READ_ONCE(zone->prezero_cpu) < 0 || READ_ONCE(zone->prezero_cpu) == raw_smp_processor_id())/'
mutate "clearing: no barrier after non-temporal stores" barrier \
    arch/x86/lib/clear_pages_cold_64.c '/sfence/d'
mutate "clearing: clear_pages_cold() forgets the barrier" barrier \
    include/linux/highmem.h '/^\tclear_pages_cold_done();$/d'
mutate "clearing: a step of kscrubd forgets the barrier" kunit \
    mm/prezero_scrub.c 's/^\t\tscrub_cold_done();$/\t\t;/'
mutate "clearing: a step that is cut short forgets the barrier" kunit \
    mm/prezero_scrub.c '/^\t\tif (done && prezero_recalled(zone))$/{n;s/break/return done/}'

[ "$survivors" -eq 0 ] || { echo "mutate.sh: $survivors mutations survived" >&2; exit 1; }
