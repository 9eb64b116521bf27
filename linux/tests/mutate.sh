#!/bin/bash
# mutate.sh BUILD PATCHED: breaks the series in one place at a time; a test has to fail each time.
#
# A mutation is a file and a sed expression that has to change it, and the shortest test that should
# notice. Kernels are built in BUILD/um and BUILD/x86, incrementally, and PATCHED is as it was when
# this ends, however it ends. MUTATE: only those whose title has this in it.
set -uo pipefail
build=$1 patched=$2
here=$(cd "$(dirname "$0")" && pwd)
survivors=0 file= test=
export PREZERO_MUTATING=1

restore() {
    [ -n "$file" ] || return 0
    cp -p "$build/mutant.orig" "$patched/$file"
    # What was built from the mutant has to be built again; nothing else has.
    [ "$test" = barrier ] || touch "$patched/$file"
    file=
}
trap restore EXIT

# build KERNEL
build() {
    make -s -C "$here/.." BUILD="$build" "$1" > "$build/mutant.log" 2>&1 || { tail "$build/mutant.log"; return 99; }
}

kunit() {
    build um || return
    GUEST_APPEND="kunit.enable=1 kunit.filter_glob=prezero*" GUEST_TIMEOUT=60 \
        "$here/../scripts/guest.sh" um "$build/um/linux" "$build/initramfs.gz" kunit,prezero 2>&1
}

# kunit_x86 [CPU [ARG]]: the guest's CPU, and an argument of its kernel
kunit_x86() {
    build x86 || return
    GUEST_APPEND="kunit.enable=1 kunit.filter_glob=prezero* hugepages=1 ${2:-}" GUEST_TIMEOUT=900 GUEST_MEM=384 GUEST_CPU=${1:-max} \
        "$here/../scripts/guest.sh" x86 "$build/x86/arch/x86/boot/bzImage" "$build/initramfs.gz" kunit,prezero 2>&1
}

# pages WAY...
pages() {
    build x86 || return
    GUEST_TIMEOUT=900 GUEST_MEM=192 \
        "$here/../scripts/guest.sh" x86 "$build/x86/arch/x86/boot/bzImage" "$build/initramfs.gz" \
        "$(IFS=,; echo "pages,$*")" 2>&1
}

# um TEST: of the guest's, in user-mode Linux
um() {
    build um || return
    GUEST_TIMEOUT=120 "$here/../scripts/guest.sh" um "$build/um/linux" "$build/initramfs.gz" "$1" 2>&1
}

barrier() {
    "$here/barrier/run.sh" "$patched" 10 2>&1
}

# mutate TITLE TEST FILE SED: TEST is one of the functions above and its arguments
mutate() {
    local output status=0
    [[ $1 == *"${MUTATE:-}"* ]] || return 0
    test=$2
    cp -p "$patched/$3" "$build/mutant.orig" || exit 1
    file=$3
    sed -i "$4" "$patched/$3"
    if cmp -s "$patched/$3" "$build/mutant.orig"; then
        echo "mutate.sh: '$1' changes nothing in $3" >&2
        exit 1
    fi
    # shellcheck disable=SC2086 # words
    output=$($2) || status=$?
    if [ "$status" -eq 99 ]; then
        echo "mutate.sh: '$1' does not build:" "$output" >&2
        exit 1
    elif [ "$status" -eq 0 ]; then
        echo "SURVIVED  $1"
        survivors=$((survivors + 1))
    else
        echo "caught    $1"
        grep -E 'not ok|EXPECTATION|times not zero|^FAIL|guest.sh' <<< "$output" | sed 's/^ */          /' | head -4
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

mutate "count: a block that compaction captures stays counted" kunit \
    mm/page_alloc.c '/^\t\tif (compaction_capture(capc, page, order, migratetype)) {$/{n;n;s/prezero_leave/if (0) prezero_leave/}'
mutate "count: vmstat does not hear of the nodes' pages" kunit \
    mm/vmstat.c 's/^\tprezero_vm_events(ret);$//'
mutate "clearing: the allocator clears a page too few" "pages small folios" \
    mm/page_alloc.c 's/init_pages(page + first, nr_pages - first, gfp_flags);/init_pages(page + first, nr_pages - first - !!first, gfp_flags);/'
mutate "clearing: of a half zero block the allocator clears too few" kunit \
    mm/page_alloc.c 's/init_pages(page + start - bit, end - start, gfp_flags);/init_pages(page + start - bit, (end - start + 1) \/ 2, gfp_flags);/'
mutate "clearing: a page too few past the cache" kunit \
    arch/x86/lib/clear_pages_cold_64.c 's/nr_pages \* PAGE_SIZE/(nr_pages - (nr_pages > 1)) * PAGE_SIZE/'
mutate "clearing: a page too few where there is no ERMS" "kunit_x86 max,-erms,-fsrm clearcpuid=rep_good" \
    arch/x86/lib/clear_page_64.S '/^SYM_TYPED_FUNC_START(__clear_pages_unrolled)$/{n;s/.*/\tshrq $6, %rcx; cmpq $64, %rcx; jbe .Lloop; subq $64, %rcx/}'
mutate "users: an mTHP folio is not cleared" "pages folios" \
    mm/memory.c 's/folio = vma_alloc_folio(gfp, order, vma, addr);/folio = vma_alloc_folio(gfp \& ~__GFP_ZERO, order, vma, addr);/'
mutate "users: an mTHP folio is not cleared while nothing is tracked" "pages folios" \
    mm/memory.c 's/if (!(gfp & __GFP_ZERO) && user_alloc_needs_zeroing())/if (0)/'
mutate "users: a huge page is not cleared" "pages huge" \
    mm/huge_memory.c 's/if (!(gfp & __GFP_ZERO) && user_alloc_needs_zeroing())/if (0)/'
mutate "users: shmem takes what was fallocated for zero" "pages shmem" \
    mm/shmem.c 's/i < n && !zero_gfp; i++/i < n \&\& !prezero_user_gfp(); i++/'
mutate "users: shmem takes for zero what the allocator did not clear" "pages shmem" \
    mm/shmem.c 's/folio = shmem_alloc_and_add_folio(vmf, gfp | zero_gfp, inode, index,/folio = shmem_alloc_and_add_folio(vmf, gfp, inode, index,/'
mutate "users: shmem takes a large folio for zero that the allocator did not clear" "pages shmemfolios" \
    mm/shmem.c 's/shmem_alloc_and_add_folio(vmf, huge_gfp | zero_gfp,/shmem_alloc_and_add_folio(vmf, huge_gfp,/'
mutate "wake: kscrubd does not hear of a block that coalesces" kunit \
    mm/page_alloc.c '/^\t\tprezero_coalesced(zone, page, order);$/d'
mutate "wake: a block that is zero gets kscrubd up" kunit \
    mm/kscrubd.c 's/^\tif (READ_ONCE(node->coalesced) || prezero_full(page, order))$/\tif (READ_ONCE(node->coalesced))/'
mutate "now: the rate holds for vm.scrub_now too" "um now" \
    mm/prezero_scrub.c 's/if (!rate || READ_ONCE(node->now))/if (!rate)/'
mutate "now: the write returns at once" "um now" \
    mm/kscrubd.c 's/^\t\t\t\t\t\t       !READ_ONCE(node->now));$/\t\t\t\t\t\t       true);/'
mutate "hugetlb: a folio that was used half cleared is resumed" "pages hugetlb" \
    mm/hugetlb.c 's/if (hugetlb_scrubs\[nid\].folio == folio)/if (0)/'
mutate "hugetlb: what was used counts as zero when it comes back" "pages hugetlbcopy" \
    mm/hugetlb.c '/^static void hugetlb_forget_zeroed/,/^}/s/folio_clear_hugetlb_zeroed(folio);/;/'
mutate "hugetlb: a step of 128 KiB with the lock held" kunit_x86 \
    mm/hugetlb.c 's/^#define HUGETLB_SCRUB_STEP\t((SZ_16K/#define HUGETLB_SCRUB_STEP\t((SZ_128K/'
mutate "hugetlb: a folio counts as zero before its last step" "pages hugetlb" \
    mm/hugetlb.c 's/if (scrub->nr_zeroed == folio_nr_pages(folio)) {/if (scrub->nr_zeroed + HUGETLB_SCRUB_STEP >= folio_nr_pages(folio)) {/'

[ "$survivors" -eq 0 ] || { echo "mutate.sh: $survivors mutations survived" >&2; exit 1; }
