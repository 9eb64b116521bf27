#!/bin/bash
# mutate.sh BUILD PATCHED: breaks the series in one place at a time; a test has to fail each time.
#
# A mutation is a file and a sed expression that has to change it, and the shortest test that should
# notice. Kernels are built in BUILD/um and BUILD/x86, incrementally, and PATCHED is as it was when
# this ends, however it ends. MUTATE: only those whose title matches this. MUTATE_DRY: only try whether
# each changes something.
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
    GUEST_APPEND="kunit.enable=1 kunit.filter_glob=prezero*" GUEST_TIMEOUT=90 \
        "$here/../scripts/guest.sh" um "$build/um/linux" "$build/initramfs.gz" kunit,prezero 2>&1
}

# kunit_x86 [CPU [ARG]]: the guest's CPU, and an argument of its kernel
kunit_x86() {
    build x86 || return
    GUEST_APPEND="kunit.enable=1 kunit.filter_glob=prezero* hugepages=1 ${2:-}" GUEST_TIMEOUT=900 GUEST_MEM=512 GUEST_CPU=${1:-max} \
        "$here/../scripts/guest.sh" x86 "$build/x86/arch/x86/boot/bzImage" "$build/initramfs.gz" kunit,prezero 2>&1
}

# The same on two nodes, a CPU each.
kunit_nodes() {
    GUEST_QEMU="$(make -s -C "$here/.." BUILD="$build" nodes)" GUEST_CPUS=2,sockets=2 kunit_x86
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
    GUEST_TIMEOUT=240 "$here/../scripts/guest.sh" um "$build/um/linux" "$build/initramfs.gz" "$1" 2>&1
}

vouched() {
    build um || return
    GUEST_APPEND=prezero=on GUEST_MEM=192 GUEST_TIMEOUT=240 \
        "$here/../scripts/guest.sh" um "$build/um/linux" "$build/initramfs.gz" vouched 2>&1
}

barrier() {
    "$here/barrier/run.sh" "$patched" 10 2>&1
}

# noticed OUTPUT: the tests of KUnit that failed, a line each; or the test, and how the guest ended.
noticed() {
    local names
    names=$(sed -n 's/^ *not ok [0-9]* \([a-z_0-9]*\).*/\1/p' <<< "$1" | grep -vx 'prezero' | sort -u)
    echo "${names:-$test $(sed -n 's/^guest.sh: \([a-z ]*\).*/(\1)/p' <<< "$1")}"
}

# mutate TITLE TEST FILE SED: TEST is one of the functions above and its arguments. A catch is a test that
# fails in each of BOOTS boots: one that fails now and then says nothing of the mutation.
BOOTS=${MUTATE_BOOTS:-3}
titles=() tests=() files=() seds=()
mutate() {
    [[ $1 =~ ${MUTATE:-} ]] || return 0
    titles+=("$1") tests+=("$2") files+=("$3") seds+=("$4")
}

# try INDEX
try() {
    local output status=0 boot by='' now title=${titles[$1]}
    test=${tests[$1]}
    cp -p "$patched/${files[$1]}" "$build/mutant.orig" || exit 1
    file=${files[$1]}
    sed -i "${seds[$1]}" "$patched/$file"
    if cmp -s "$patched/$file" "$build/mutant.orig"; then
        echo "mutate.sh: '$title' changes nothing in $file" >&2
        exit 1
    fi
    [ -z "${MUTATE_DRY:-}" ] || { restore; return; }
    for ((boot = 1; boot <= BOOTS; boot++)); do
        status=0
        # shellcheck disable=SC2086 # words
        output=$($test) || status=$?
        if [ "$status" -eq 99 ]; then
            echo "mutate.sh: '$title' does not build:" "$output" >&2
            exit 1
        fi
        now=
        [ "$status" -eq 0 ] || now=$(noticed "$output")
        [ "$boot" -eq 1 ] && by=$now || by=$(comm -12 <(sort <<< "$by") <(sort <<< "$now"))
        [ -n "$by" ] || break
    done
    if [ -n "$by" ]; then
        echo "caught    $title    by $(paste -sd' ' <<< "$by")"
    else
        echo "SURVIVED  $title"
        survivors=$((survivors + 1))
    fi
    restore
}

mutate "keep: a page that is allocated keeps its bit" kunit \
    mm/prezero.c '/^unsigned int __prezero_drop/,/^}/s/prezero_fill(page_to_pfn(page), 1U << order, false);/;/'
mutate "keep: a block that is isolated keeps its bits" kunit \
    mm/page_alloc.c '/^int __isolate_free_page/,/^}/s/prezero_drop(page, order);/;/'
mutate "merge: a block of which a part is zero counts as zero" kunit \
    mm/prezero.c 's/return prezero_word(page) && prezero_count(page, order) == 1U << order;/return prezero_word(page) \&\& prezero_count(page, order);/'
mutate "free: the tails of a block with another reference are vouched for" kunit \
    mm/page_alloc.c '/^void __free_pages_zeroed/,/^}/s/__free_pages(page, order);/___free_pages(page, order, FPI_ZEROED);/'
mutate "count: a block that is allocated stays counted" kunit \
    mm/prezero.c '/^unsigned int __prezero_drop/,/^}/s/-(long)nr_zeroed/0/'
mutate "count: what is vouched for is not counted" kunit \
    mm/prezero.c '/^void prezero_vouch/,/^}/s/NR_FREE_ZEROED, nr_pages/NR_FREE_ZEROED, 0/'
mutate "write: two owners of a word lose an update" kunit \
    mm/prezero.c 's/atomic_long_or(mask, (atomic_long_t \*)word);/WRITE_ONCE(*word, READ_ONCE(*word) | mask);/'
mutate "write: two owners of a word lose what one clears" kunit \
    mm/prezero.c 's/atomic_long_andnot(mask, (atomic_long_t \*)word);/WRITE_ONCE(*word, READ_ONCE(*word) \& ~mask);/'
mutate "verify: what is vouched for is not read" kunit \
    mm/prezero.c '/^void prezero_vouch/,/^}/s/prezero_check(page, nr_pages);/;/'
mutate "verify: the first page alone is read" kunit \
    mm/prezero.c '/^void prezero_check/,/^}/s/for (; nr_pages; page++, nr_pages--) {/for (nr_pages = 1; nr_pages; page++, nr_pages--) {/'
mutate "verify: a page that is not zero does not taint" kunit \
    mm/prezero.c '/add_taint(TAINT_BAD_PAGE/d'
mutate "verify: on by default" kunit \
    mm/prezero.c 's/= IS_ENABLED(CONFIG_DEBUG_VM);/= !IS_ENABLED(CONFIG_DEBUG_VM);/'
mutate "recall: a kprezerod that sleeps passes for interrupted" kunit \
    mm/page_alloc.c 's/if (READ_ONCE(zone->prezero_cpu) == raw_smp_processor_id())/if (READ_ONCE(zone->prezero_cpu) < 0 || READ_ONCE(zone->prezero_cpu) == raw_smp_processor_id())/'
mutate "clearing: no barrier after non-temporal stores" barrier \
    arch/x86/lib/clear_pages_cold_64.c '/sfence/d'
mutate "clearing: clear_pages_cold() forgets the barrier" barrier \
    include/linux/highmem.h '/^\tclear_pages_cold_done();$/d'
mutate "clearing: a step of kprezerod forgets the barrier" kunit \
    mm/prezero_clear.c 's/^\t\tprezero_clear_cold_done();$/\t\t;/'
mutate "clearing: a step that is cut short forgets the barrier" kunit \
    mm/prezero_clear.c '/^\t\tif (done && prezero_recalled(zone))$/{n;s/break/return done/}'

mutate "count: vmstat does not hear of the nodes' pages" kunit \
    mm/vmstat.c 's/^\tprezero_vm_events(ret);$//'
mutate "clearing: the allocator clears a page too few" kunit \
    mm/page_alloc.c '/^static noinline void prezero_init_pages/,/^}/s/init_pages(page, 1 << order, gfp_flags);/init_pages(page, (1 << order) - !!order, gfp_flags);/'
mutate "clearing: of a large block the allocator clears a page too few" kunit \
    mm/page_alloc.c 's/init_dirty_pages(page + first, nr_pages - first, gfp_flags);/init_dirty_pages(page + first, nr_pages - first - (nr_pages > first), gfp_flags);/'
mutate "clearing: of a half zero block the allocator clears too few" kunit \
    mm/page_alloc.c 's/init_pages(page + (start - pfn), end - start, gfp_flags);/init_pages(page + (start - pfn), (end - start + 1) \/ 2, gfp_flags);/'
mutate "clearing: the first pages of a block are not" kunit \
    mm/page_alloc.c 's/^\t\tinit_dirty_pages(page, first, gfp_flags);$/\t\t;/'
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
    mm/shmem.c 's/i < n && !(alloced && zero_gfp); i++/i < n \&\& !prezero_user_gfp(); i++/'
mutate "users: shmem takes for zero what the allocator did not clear" "pages shmem" \
    mm/shmem.c 's/folio = shmem_alloc_and_add_folio(vmf, gfp | zero_gfp, inode, index,/folio = shmem_alloc_and_add_folio(vmf, gfp, inode, index,/'
mutate "users: shmem takes a large folio for zero that the allocator did not clear" "pages shmemfolios" \
    mm/shmem.c 's/shmem_alloc_and_add_folio(vmf, huge_gfp | zero_gfp,/shmem_alloc_and_add_folio(vmf, huge_gfp,/'
mutate "wake: kprezerod does not hear of a block that coalesces" kunit \
    mm/page_alloc.c 's/^\t\t\tprezero_coalesced(zone, order);$/\t\t\t;/'
mutate "wake: a block that is zero wakes kprezerod" kunit \
    mm/page_alloc.c 's/^\t\telse if (!(fpi_flags \& FPI_SKIP_REPORT_NOTIFY))$/\t\tif (!(fpi_flags \& FPI_SKIP_REPORT_NOTIFY))/'
mutate "now: the rate holds for vm.prezero_now too" "um now" \
    mm/prezero_clear.c 's/if (!rate || READ_ONCE(node->now))/if (!rate)/'
mutate "now: the write returns at once" "um now" \
    mm/kprezerod.c 's/^\t\t\t\t\t\t       !READ_ONCE(node->now));$/\t\t\t\t\t\t       true);/'
mutate "hugetlb: a folio that was used half cleared is resumed" kunit_x86 \
    mm/hugetlb.c 's/if (likely(hugetlb_prezeros\[nid\].folio != folio))/if (1)/'
mutate "hugetlb: what was used counts as zero when it comes back" "pages hugetlbcopy" \
    mm/hugetlb.c '/^static void hugetlb_forget_zeroed/,/^}/s/folio_clear_hugetlb_zeroed(folio);/;/'
mutate "hugetlb: a step of 128 KiB with interrupts off" kunit_x86 \
    mm/hugetlb.c 's/^#define HUGETLB_PREZERO_CHUNK\t((SZ_16K/#define HUGETLB_PREZERO_CHUNK\t((SZ_128K/'
mutate "hugetlb: a folio is taken before the chunk is done" kunit_x86 \
    mm/hugetlb.c 's/while (smp_load_acquire(&hugetlb_prezeros\[nid\].busy))/while (0)/'
mutate "hugetlb: a chunk is cleared though its folio was taken" kunit_x86 \
    mm/hugetlb.c 's/ours = READ_ONCE(state->folio) == folio \&\& !folio_test_hwpoison(folio);/ours = true;/'
mutate "hugetlb: a folio counts as zero before its last step" "pages hugetlb" \
    mm/hugetlb.c 's/if (state->nr_zeroed == folio_nr_pages(folio)) {/if (state->nr_zeroed + HUGETLB_PREZERO_STEP >= folio_nr_pages(folio)) {/'

# What one dirty page is enough for, and what may vouch.
mutate "state: one dirty page of a large block does not count" kunit \
    mm/prezero.c 's/return bitmap_weight(&prezero_bits\[BIT_WORD(pfn)\], nr);/return min(bitmap_weight(\&prezero_bits[BIT_WORD(pfn)], nr) + 1, nr);/'
mutate "state: the last page does not matter" kunit \
    mm/prezero.c 's/return bitmap_weight(&prezero_bits\[BIT_WORD(pfn)\], nr);/return bitmap_weight(\&prezero_bits[BIT_WORD(pfn)], nr - 1) + 1;/'
mutate "state: of a small block the last page does not matter" kunit \
    mm/prezero.c '/^unsigned int prezero_count/,/^}/s/BITMAP_LAST_WORD_MASK(nr));/BITMAP_LAST_WORD_MASK(nr - (nr > 1))) + (nr > 1);/'
mutate "state: set before all code follows the key" kunit \
    mm/prezero.c '/^void prezero_vouch/,/^}/s/if (!READ_ONCE(prezero_ready))/if (0)/'
mutate "vouched: the tails of alloc_pages_exact()" kunit \
    mm/page_alloc.c 's/__free_pages_ok(page, 0, FPI_TO_TAIL);/__free_pages_ok(page, 0, FPI_TO_TAIL | FPI_ZEROED);/'
mutate "vouched: free_contig_range() and vfree()" kunit \
    mm/page_alloc.c 's/__free_frozen_pages(page, order, FPI_PREPARED);/__free_frozen_pages(page, order, FPI_PREPARED | FPI_ZEROED);/'
mutate "vouched: what compaction took in vain" vouched \
    mm/compaction.c 's/__free_pages(page, order);/__free_pages_zeroed(page, order);/'
mutate "vouched: a folio that was not asked for as zero" kunit \
    mm/folio.c '/^void folio_put_unused/,/^}/s/if (!(gfp & __GFP_ZERO)) {/if (0) {/'
mutate "vouched: a folio to which others have a reference" kunit \
    mm/folio.c '/^void folio_put_unused/,/^}/s/if (!folio_put_testzero(folio))/if (folio_put_testzero(folio), 0)/'
mutate "choice: a zone gives whatever is first" kunit \
    mm/page_alloc.c 's/return prezero_full(last, order) ? last : first;/return first;/'
mutate "choice: many pages at once are whatever there is" kunit \
    mm/page_alloc.c '/^unsigned long alloc_pages_bulk_noprof/,/^}/s/alloc_flags |= ALLOC_ZERO;/;/'
mutate "choice: the generic fault does not ask" "um taken" \
    include/linux/highmem.h 's/return vma_alloc_folio(GFP_HIGHUSER_MOVABLE | __GFP_ZERO, 0,/if (0) return vma_alloc_folio(GFP_HIGHUSER_MOVABLE | __GFP_ZERO, 0,/'

mutate "choice: a per-CPU list gives whatever is first" kunit \
    mm/page_alloc.c 's/^\t\t\tpage = prefer_zero(page, list, order);$/\t\t\t;/'
mutate "choice: on a per-CPU list a zero page that was freed is first" kunit \
    mm/page_alloc.c 's/list_move_tail(&page->pcp_list, &pcp->lists\[pindex\]);/;/'
mutate "choice: on a per-CPU list zero pages from the zone are among dirty ones" kunit \
    mm/page_alloc.c 's/^\t\tpcp_sort_zeroed(list, order);$/\t\t;/'
mutate "choice: in the zone a zero block that was freed is first" kunit \
    mm/page_alloc.c '/^\t\tif (prezero_full(page, order))$/{n;s/to_tail = true;/;/}'

# Each reason to rest, and each knob.
mutate "rest: not for the load" kunit \
    mm/prezero_clear.c 's/^\tif (prezero_overload())$/\tif (0 \&\& prezero_overload())/'
mutate "rest: prezero/load is ignored" kunit \
    mm/prezero_clear.c 's/long load = READ_ONCE(prezero_load) ?: num_online_cpus();/long load = num_online_cpus();/'
mutate "rest: not for memory pressure" kunit \
    mm/prezero_clear.c 's/^\tif (prezero_pressure())$/\tif (0 \&\& prezero_pressure())/'
mutate "rest: prezero/rate is ignored" kunit \
    mm/prezero_clear.c 's/if (!rate || READ_ONCE(node->now))/if (true)/'
mutate "rest: the target is ignored" kunit \
    mm/prezero_clear.c 's/if (node->target == PREZERO_TARGET_MAX || READ_ONCE(node->now))/if (true)/'
mutate "rest: below the watermark blocks are lent" kunit \
    mm/prezero_clear.c 's/return zone_watermark_ok(zone, 0, high_wmark_pages(zone) +/return zone_watermark_ok(zone, 0, 0 * high_wmark_pages(zone) +/'
mutate "rest: prezero/stop is ignored" kunit \
    mm/prezero_clear.c 's/const int stop = now ? 0 : min(READ_ONCE(prezero_stop), NR_PAGE_ORDERS);/const int stop = 0;/'
mutate "rest: the smallest blocks are cleared first" kunit \
    mm/prezero_clear.c 's/for (order = MAX_PAGE_ORDER; order >= stop; order--) {/for (order = stop; order <= MAX_PAGE_ORDER; order++) {/'
mutate "rest: vm.prezero_order is ignored" kunit \
    mm/prezero_clear.c 's/^\tfor (order = start; order < NR_PAGE_ORDERS; order++)$/\tfor (order = 0; order < NR_PAGE_ORDERS; order++)/; s/for (order = start; order < NR_PAGE_ORDERS; order++)/for (order = 0; order < NR_PAGE_ORDERS; order++)/'
mutate "rest: never is not never" kunit \
    mm/prezero_clear.c '/^static enum rest prezero_look/,/^}/s/if (READ_ONCE(prezero_order) == PREZERO_NEVER)/if (0)/; /^static bool prezero_wanted/,/^}/s/return false;/return true;/'
mutate "lend: blocks that are kept for atomic allocations" kunit \
    mm/page_alloc.c 's/if (is_migrate_isolate(mt) || mt == MIGRATE_HIGHATOMIC)/if (is_migrate_isolate(mt))/'
mutate "lend: memory that failed is written to" kunit_x86 \
    mm/prezero_clear.c 's/^\t       PageHWPoison(page);$/\t       0;/'
mutate "lend: a block of which nothing can be cleared is first again" kunit_x86 \
    mm/page_alloc.c 's/(nr_pages ? FPI_NONE : FPI_TO_TAIL));/FPI_NONE);/'
mutate "recall: no allocation asks" kunit \
    mm/page_alloc.c 's/return prezero_recall(zone, order) &&$/return 0 \&\&/'
mutate "recall: no request waits" kunit \
    mm/page_alloc.c 's/^#define PREZERO_RECALL_SPINS\t200$/#define PREZERO_RECALL_SPINS\t0/'
mutate "now: no thread is no failure" kunit \
    mm/kprezerod.c 's/^\t\t\tret = err;$/\t\t\t;/'
mutate "thread: RCU waits for it" kunit_x86 \
    mm/prezero_clear.c '/^\tcond_resched_tasks_rcu_qs();$/d'
mutate "thread: any CPU will do" kunit_nodes \
    mm/kprezerod.c 's/task = kthread_create_on_node(kprezerod, NODE_DATA(nid), nid,/task = kthread_create_on_node(kprezerod, NODE_DATA(nid), NUMA_NO_NODE,/'
mutate "count: all pages are those of the first node" kunit_nodes \
    mm/prezero.h 's/raw_cpu_add(prezero_pages\[page_to_nid(page)\]->nr/raw_cpu_add(prezero_pages[first_online_node]->nr/'
# Each test passes on the clean kernel, or what it says of a mutant is worth nothing.
if [ -z "${MUTATE_DRY:-}" ]; then
    while IFS= read -r test; do
        # shellcheck disable=SC2086 # words
        output=$($test) || { echo "mutate.sh: $test fails on the clean kernel" >&2; echo "$output"; exit 1; }
    done < <(printf '%s\n' "${tests[@]}" | sort -u)
    echo "unchanged: all pass"
fi
for ((index = 0; index < ${#titles[@]}; index++)); do try "$index"; done
[ "$survivors" -eq 0 ] || { echo "mutate.sh: $survivors mutations survived" >&2; exit 1; }
