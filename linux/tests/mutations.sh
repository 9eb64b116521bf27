# shellcheck shell=bash
# The mutations of mutate.sh: a title, the shortest test that should notice, a file, and a sed expression that has
# to change it.

mutate "keep: a page that is allocated keeps its bit" "kunit prezero_ways.taken_and_given_back" \
    mm/prezero.c '/^unsigned int __prezero_drop/,/^}/s/prezero_fill(page_to_pfn(page), 1U << order, false);/;/'
mutate "keep: a block that is isolated keeps its bits" "kunit prezero_ways.taken_and_given_back" \
    mm/page_alloc.c '/^int __isolate_free_page/,/^}/s/prezero_drop(page, order);/;/'
mutate "merge: a block of which a part is zero counts as zero" "kunit prezero.begins_with_start" \
    mm/prezero.c 's/return prezero_word(page) && prezero_count(page, order) == 1U << order;/return prezero_word(page) \&\& prezero_count(page, order);/'
mutate "free: the tails of a block with another reference are vouched for" "kunit prezero.tails_of_referenced_block" \
    mm/page_alloc.c '/^void __free_pages_zeroed/,/^}/s/__free_pages(page, order);/___free_pages(page, order, FPI_ZEROED);/'
mutate "count: a block that is allocated stays counted" "kunit prezero.dirty_free_forgets" \
    mm/prezero.c '/^unsigned int __prezero_drop/,/^}/s/-(long)nr_zeroed/0/'
mutate "count: what is vouched for is not counted" "kunit prezero.counter_is_exact" \
    mm/prezero.c '/^void prezero_vouch/,/^}/s/NR_FREE_ZEROED, nr_pages/NR_FREE_ZEROED, 0/'
mutate "write: two owners of a word lose an update" "kunit prezero.word_is_shared" \
    mm/prezero.c 's/atomic_long_or(mask, (atomic_long_t \*)word);/WRITE_ONCE(*word, READ_ONCE(*word) | mask);/'
mutate "write: two owners of a word lose what one clears" "kunit prezero.word_is_shared" \
    mm/prezero.c 's/atomic_long_andnot(mask, (atomic_long_t \*)word);/WRITE_ONCE(*word, READ_ONCE(*word) \& ~mask);/'
mutate "verify: what is vouched for is not read" "kunit prezero.verify_catches" \
    mm/prezero.c '/^void prezero_vouch/,/^}/s/prezero_check(page, nr_pages);/;/'
mutate "verify: the first page alone is read" "kunit prezero.verify_catches" \
    mm/prezero.c '/^void prezero_check/,/^}/s/for (; nr_pages; page++, nr_pages--) {/for (nr_pages = 1; nr_pages; page++, nr_pages--) {/'
mutate "verify: a page that is not zero does not taint" "kunit prezero.verify_catches" \
    mm/prezero.c '/add_taint(TAINT_BAD_PAGE/d'
mutate "verify: on by default" "um shown" \
    mm/prezero.c 's/= IS_ENABLED(CONFIG_DEBUG_VM);/= !IS_ENABLED(CONFIG_DEBUG_VM);/'
mutate "clearing: no barrier after non-temporal stores" barrier \
    arch/x86/lib/clear_pages_cold_64.c '/sfence/d'
mutate "clearing: clear_pages_cold() forgets the barrier" barrier \
    include/linux/highmem.h '/^\tclear_pages_cold_done();$/d'
mutate "clearing: a step of kprezerod forgets the barrier" "kunit prezero.step_ends_with_barrier" \
    mm/prezero_clear.c 's/^\t\tprezero_clear_cold_done();$/\t\t;/'
mutate "clearing: a step that is cut short forgets the barrier" "kunit prezero.step_ends_with_barrier" \
    mm/prezero_clear.c '/^\t\tif (done && prezero_recalled(zone))$/{n;s/break/return done/}'

mutate "count: vmstat does not hear of the nodes' pages" "kunit prezero.counted_by_node" \
    mm/vmstat.c 's/^\tprezero_vm_events(ret);$//'
mutate "clearing: the allocator clears a page too few" "kunit prezero_ways.taken_and_given_back" \
    mm/page_alloc.c '/^static noinline void prezero_init_pages/,/^}/s/init_pages(page, 1 << order, gfp_flags);/init_pages(page, (1 << order) - !!order, gfp_flags);/'
mutate "clearing: of a large block the allocator clears a page too few" "kunit prezero_ways.taken_and_given_back" \
    mm/page_alloc.c 's/init_dirty_pages(page + first, nr_pages - first, gfp_flags);/init_dirty_pages(page + first, nr_pages - first - (nr_pages > first), gfp_flags);/'
mutate "clearing: of a half zero block the allocator clears too few" "kunit prezero.half_zero_block" \
    mm/page_alloc.c 's/init_pages(page + (start - pfn), end - start, gfp_flags);/init_pages(page + (start - pfn), (end - start + 1) \/ 2, gfp_flags);/'
mutate "clearing: the first pages of a block are not" "kunit prezero.one_dirty_page" \
    mm/page_alloc.c 's/^\t\tinit_dirty_pages(page, first, gfp_flags);$/\t\t;/'
mutate "clearing: a page too few past the cache" "kunit prezero.clearing_is_exact" \
    arch/x86/lib/clear_pages_cold_64.c 's/nr_pages \* PAGE_SIZE/(nr_pages - (nr_pages > 1)) * PAGE_SIZE/'
mutate "clearing: a page too few where there is no ERMS" "kunit_x86 prezero.clearing_is_exact max,-erms,-fsrm clearcpuid=rep_good" \
    arch/x86/lib/clear_page_64.S '/^SYM_TYPED_FUNC_START(__clear_pages_unrolled)$/{n;s/.*/\tshrq $6, %rcx; cmpq $64, %rcx; jbe .Lloop; subq $64, %rcx/}'
mutate "users: an mTHP folio is not cleared" "pages folios" \
    mm/memory.c 's/folio = vma_alloc_folio(gfp, order, vma, addr);/folio = vma_alloc_folio(gfp \& ~__GFP_ZERO, order, vma, addr);/'
mutate "users: an mTHP folio is not cleared while nothing is tracked" "pages folios" \
    mm/memory.c 's/if (!(gfp & __GFP_ZERO) && user_alloc_needs_zeroing())/if (0)/'
mutate "users: a huge page is not cleared" "pages huge" \
    mm/huge_memory.c 's/if (!(gfp & __GFP_ZERO) && user_alloc_needs_zeroing())/if (0)/'
mutate "users: shmem takes what was fallocated for zero" "pages shmem" \
    mm/shmem.c 's/if (alloced \&\& (zero_gfp ||/if ((alloced || prezero_user_gfp()) \&\& (zero_gfp || prezero_user_gfp() ||/'
mutate "users: shmem takes for zero what the allocator did not clear" "pages shmem" \
    mm/shmem.c 's/folio = shmem_alloc_and_add_folio(vmf, gfp | zero_gfp, inode, index,/folio = shmem_alloc_and_add_folio(vmf, gfp, inode, index,/'
mutate "users: shmem takes a large folio for zero that the allocator did not clear" "pages shmemfolios" \
    mm/shmem.c 's/shmem_alloc_and_add_folio(vmf, huge_gfp | zero_gfp,/shmem_alloc_and_add_folio(vmf, huge_gfp,/'
mutate "wake: kprezerod does not hear of a block that coalesces" "kunit prezero.coalesced_block_wakes" \
    mm/page_alloc.c 's/^\t\t\tprezero_coalesced(zone, order);$/\t\t\t;/'
mutate "wake: a block that is zero wakes kprezerod" "kunit prezero.coalesced_block_wakes" \
    mm/page_alloc.c 's/^\t\telse if (!(fpi_flags \& FPI_SKIP_REPORT_NOTIFY))$/\t\tif (!(fpi_flags \& FPI_SKIP_REPORT_NOTIFY))/'
mutate "now: the rate holds for vm.prezero_now too" "kunit prezero_thread.hears_again" \
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
mutate "hugetlb: a chunk is cleared though its folio was taken" "kunit_x86 prezero.hugetlb_taken_is_left_alone" \
    mm/hugetlb.c 's/ours = READ_ONCE(state->folio) == folio \&\& !folio_test_hwpoison(folio);/ours = true;/'
mutate "hugetlb: a folio counts as zero before its last step" "kunit_x86 prezero.hugetlb_step_is_bounded" \
    mm/hugetlb.c 's/if (state->nr_zeroed == folio_nr_pages(folio)) {/if (state->nr_zeroed + HUGETLB_PREZERO_STEP >= folio_nr_pages(folio)) {/'

# What one dirty page is enough for, and what may vouch.
mutate "state: one dirty page of a large block does not count" "kunit prezero.one_dirty_page" \
    mm/prezero.c 's/return bitmap_weight(&prezero_bits\[BIT_WORD(pfn)\], nr);/return min(bitmap_weight(\&prezero_bits[BIT_WORD(pfn)], nr) + 1, nr);/'
mutate "state: the last page does not matter" "kunit prezero.one_dirty_page" \
    mm/prezero.c 's/return bitmap_weight(&prezero_bits\[BIT_WORD(pfn)\], nr);/return bitmap_weight(\&prezero_bits[BIT_WORD(pfn)], nr - 1) + 1;/'
mutate "state: of a small block the last page does not matter" "kunit prezero.one_dirty_page" \
    mm/prezero.c '/^unsigned int prezero_count/,/^}/s/BITMAP_LAST_WORD_MASK(nr));/BITMAP_LAST_WORD_MASK(nr - (nr > 1))) + (nr > 1);/'
mutate "state: set before all code follows the key" "kunit prezero.begins_with_start" \
    mm/prezero.c '/^void prezero_vouch/,/^}/s/if (!READ_ONCE(prezero_ready))/if (0)/'
mutate "vouched: the tails of alloc_pages_exact()" "kunit prezero.begins_with_start" \
    mm/page_alloc.c 's/__free_pages_ok(page, 0, FPI_TO_TAIL);/__free_pages_ok(page, 0, FPI_TO_TAIL | FPI_ZEROED);/'
mutate "vouched: free_contig_range() and vfree()" "kunit prezero.other_ways_to_free" \
    mm/page_alloc.c '/^bool free_pages_prepare(/,/^}/s/FPI_NONE/FPI_ZEROED/'
mutate "vouched: what compaction took in vain" vouched \
    mm/compaction.c 's/__free_pages(page, order);/__free_pages_zeroed(page, order);/'
mutate "vouched: a folio that was not asked for as zero" "kunit prezero.unused_folio_stays_zero" \
    mm/folio.c '/^void folio_put_unused/,/^}/s/if (!(gfp & __GFP_ZERO)) {/if (0) {/'
mutate "vouched: a folio to which others have a reference" "kunit prezero.unused_folio_stays_zero" \
    mm/folio.c '/^void folio_put_unused/,/^}/s/if (!folio_put_testzero(folio))/if (folio_put_testzero(folio), 0)/'
mutate "choice: a zone gives whatever is first" "kunit prezero.zone_gives_what_fits" \
    mm/page_alloc.c 's/return prezero_full(last, order) ? last : first;/return first;/'
mutate "choice: many pages at once are whatever there is" "kunit prezero.bulk_gets_what_fits" \
    mm/page_alloc.c '/^unsigned long alloc_pages_bulk_noprof/,/^}/s/alloc_flags |= ALLOC_ZERO;/;/'
mutate "choice: the generic fault does not ask" "um taken" \
    include/linux/highmem.h 's/return vma_alloc_folio(GFP_HIGHUSER_MOVABLE | __GFP_ZERO, 0,/if (0) return vma_alloc_folio(GFP_HIGHUSER_MOVABLE | __GFP_ZERO, 0,/'

mutate "choice: a per-CPU list gives whatever is first" "kunit prezero.bulk_gets_what_fits" \
    mm/page_alloc.c 's/^\t\t\tpage = prefer_zero(page, list, order);$/\t\t\t;/'
mutate "choice: on a per-CPU list a zero page that was freed is first" "kunit prezero.bulk_gets_what_fits" \
    mm/page_alloc.c 's/list_move_tail(&page->pcp_list, &pcp->lists\[pindex\]);/;/'
mutate "choice: on a per-CPU list zero pages from the zone are among dirty ones" "kunit prezero.pcp_sorts_what_it_gets" \
    mm/page_alloc.c 's/^\t\tpcp_sort_zeroed(list, order);$/\t\t;/'
mutate "choice: in the zone a zero block that was freed is first" "kunit prezero.coalesced_block_wakes" \
    mm/page_alloc.c '/^\t\tif (prezero_full(page, order))$/{n;s/to_tail = true;/;/}'

# Each reason to rest, and each knob.
mutate "rest: not for the load" "kunit prezero.rests_for_load" \
    mm/prezero_clear.c 's/^\tif (prezero_overload())$/\tif (0 \&\& prezero_overload())/'
mutate "rest: prezero/load is ignored" "kunit prezero.rests_for_load" \
    mm/prezero_clear.c 's/long load = READ_ONCE(prezero_load) ?: num_online_cpus();/long load = num_online_cpus();/'
mutate "rest: not for memory pressure" "kunit prezero.rests_for_pressure" \
    mm/prezero_clear.c 's/^\tif (prezero_pressure())$/\tif (0 \&\& prezero_pressure())/'
mutate "rest: prezero/rate is ignored" "kunit prezero.largest_first" \
    mm/prezero_clear.c 's/if (!rate || READ_ONCE(node->now))/if (true)/'
mutate "rest: the target is ignored" "kunit prezero.rests_at_target" \
    mm/prezero_clear.c 's/if (node->target == PREZERO_TARGET_MAX || READ_ONCE(node->now))/if (true)/'
mutate "rest: below the watermark blocks are lent" "kunit prezero.rests_below_watermark" \
    mm/prezero_clear.c 's/return zone_watermark_ok(zone, 0, high_wmark_pages(zone) +/return zone_watermark_ok(zone, 0, 0 * high_wmark_pages(zone) +/'
mutate "rest: prezero/stop is ignored" "kunit prezero.begins_with_start" \
    mm/prezero_clear.c 's/const int stop = now ? 0 : min(READ_ONCE(prezero_stop), NR_PAGE_ORDERS);/const int stop = 0;/'
mutate "rest: the smallest blocks are cleared first" "kunit prezero.largest_first" \
    mm/prezero_clear.c 's/for (order = MAX_PAGE_ORDER; order >= stop; order--) {/for (order = stop; order <= MAX_PAGE_ORDER; order++) {/'
mutate "rest: vm.prezero_order is ignored" "kunit prezero.begins_with_start" \
    mm/prezero_clear.c 's/^\tfor (order = start; order < NR_PAGE_ORDERS; order++)$/\tfor (order = 0; order < NR_PAGE_ORDERS; order++)/; s/for (order = start; order < NR_PAGE_ORDERS; order++)/for (order = 0; order < NR_PAGE_ORDERS; order++)/'
mutate "rest: never is not never" "kunit prezero.begins_with_start" \
    mm/prezero_clear.c '/^static enum rest prezero_look/,/^}/s/if (READ_ONCE(prezero_order) == PREZERO_NEVER)/if (0)/; /^static bool prezero_wanted/,/^}/s/return false;/return true;/'
mutate "lend: blocks that are kept for atomic allocations" "kunit prezero.highatomic_is_not_lent" \
    mm/page_alloc.c 's/if (is_migrate_isolate(mt) || mt == MIGRATE_HIGHATOMIC)/if (is_migrate_isolate(mt))/'
mutate "lend: memory that failed is written to" "kunit_x86 prezero.poisoned_is_left_alone" \
    mm/prezero_clear.c 's/^\t       PageHWPoison(page);$/\t       0;/'
mutate "lend: a block of which nothing can be cleared is first again" "kunit_x86 prezero.poisoned_takes_no_time" \
    mm/page_alloc.c 's/(nr_pages ? FPI_NONE : FPI_TO_TAIL));/FPI_NONE);/'
mutate "recall: no allocation asks" "kunit prezero.allocation_recalls" \
    mm/page_alloc.c 's/return prezero_recall(zone, order) &&$/return 0 \&\&/'
mutate "recall: no request waits" "kunit prezero.block_is_recalled" \
    mm/page_alloc.c 's/^#define PREZERO_RECALL_SPINS\t200$/#define PREZERO_RECALL_SPINS\t0/'
mutate "now: no thread is no failure" "kunit prezero.now_without_thread_fails" \
    mm/kprezerod.c 's/^\t\t\tret = err;$/\t\t\t;/'
mutate "thread: RCU waits for it" "kunit_x86 prezero.rcu_tasks_need_not_wait" \
    mm/prezero_clear.c '/^\tcond_resched_tasks_rcu_qs();$/d'
mutate "thread: any CPU will do" "kunit_nodes prezero.thread_keeps_to_node" \
    mm/kprezerod.c 's/task = kthread_create_on_node(kprezerod, NODE_DATA(nid), nid,/task = kthread_create_on_node(kprezerod, NODE_DATA(nid), NUMA_NO_NODE,/'
mutate "count: all pages are those of the first node" "kunit_nodes prezero.counted_by_node" \
    mm/prezero.h 's/raw_cpu_add(prezero_pages\[page_to_nid(page)\]->nr/raw_cpu_add(prezero_pages[first_online_node]->nr/'

# By the kinds of which most survived the tests of 28 November.
mutate "leak: pages freed without the lock are vouched for" "kunit prezero_ways.taken_and_given_back" \
    mm/page_alloc.c '/^void free_frozen_pages_nolock/,/^}/s/FPI_NOLOCK/FPI_NOLOCK | FPI_ZEROED/'
mutate "leak: a batch of folios is vouched for" "kunit prezero_ways.taken_and_given_back" \
    mm/page_alloc.c '/^void free_unref_folios/,/^}/s/__free_pages_prepare(&folio->page, order, FPI_NONE)/__free_pages_prepare(\&folio->page, order, FPI_ZEROED)/'
mutate "leak: what is deferred for want of the lock is vouched for" "kunit prezero_ways.taken_and_given_back" \
    mm/page_alloc.c '/^static void free_one_page/,/^}/s/^\t\t\tsplit_large_buddy(zone, p, /\t\t\tprezero_vouch(p, 1 << p_order); split_large_buddy(zone, p, /'
mutate "leak: a block that is captured keeps its bits" "kunit prezero_ways.taken_and_given_back" \
    mm/page_alloc.c '/^static noinline void init_zeroed_pages/,/^}/s/nr_zeroed = __prezero_drop(page, order);/nr_zeroed = order ? prezero_count(page, order) : __prezero_drop(page, order);/'
mutate "leak: a page that failed keeps its bit" "kunit_x86 prezero_ways.taken_and_given_back" \
    mm/page_alloc.c '/^bool take_page_off_buddy/,/^}/s/prezero_drop(page, 0);/;/'
mutate "leak: memory that is taken away keeps its bits" "rule hotplug" \
    mm/page_alloc.c '/^unsigned long __offline_isolated_pages/,/^}/s/prezero_drop(page, order);/;/'
mutate "leak: no grace period" "kunit prezero_ways.waits_for_code" \
    mm/prezero.c '/^int prezero_enable/,/^}/s/prezero_wait_for_code();/;/'
mutate "leak: a restored image keeps what was known of the first zone" "kunit prezero.forget_all" \
    mm/prezero.c '/^void prezero_forget_all/,/^}/s/for_each_populated_zone(zone) {/for_each_populated_zone(zone) { if (zone_idx(zone) == ZONE_NORMAL) continue;/'
mutate "leak: zero state though free pages are zeroed anyway" "params_free" \
    mm/prezero.c '/^int prezero_enable/,/^}/s/want_init_on_free() ||//'
mutate "verification: a block that is handed out is not read" "kunit prezero_ways.handed_out_is_read" \
    mm/page_alloc.c '/^static noinline void init_zeroed_pages/,/^}/s/prezero_check(page, nr_pages);/;/'
mutate "verification: the zero part of a block is not read" "kunit prezero_ways.handed_out_is_read" \
    mm/page_alloc.c '/^static void init_dirty_pages/,/^}/s/prezero_check(page + (start - pfn), end - start);/;/'
mutate "verification: what is not zero is not cleared" "kunit prezero.verify_catches" \
    mm/prezero.c '/^void prezero_check/,/^}/s/memset(addr, 0, PAGE_SIZE);/;/'
mutate "accounting: MemZero is MemFree" "um shown" \
    fs/proc/meminfo.c 's/min(global_zone_page_state(NR_FREE_ZEROED), i.freeram)/i.freeram/'
mutate "accounting: what is cleared past the cache counts as the other" "kunit prezero_thread.counts_what_it_clears" \
    mm/prezero_clear.c '/^unsigned int prezero_step/,/^}/s/order >= PREZERO_COLD_ORDER ?/order < PREZERO_COLD_ORDER ?/'
mutate "accounting: every free block is shown as zero" "um shown" \
    mm/prezero.c '/^static unsigned long count_zero_blocks/,/^}/s/nr += prezero_full(page, order);/nr++;/'
mutate "accounting: a recall is not counted" "kunit prezero_thread.recall_is_counted" \
    mm/page_alloc.c 's/^\tcount_vm_event(PREZERO_RECALLED);$//'
mutate "accounting: the target counts since boot" "kunit prezero.target_is_fed" \
    mm/prezero_clear.c '/^static unsigned long prezero_since/,/^}/s/\*last = now;/;/'
mutate "accounting: the target adapts at each look" "kunit prezero.target_is_fed" \
    mm/prezero_clear.c '/^static void prezero_adapt_target/,/^}/s/if (time_before(jiffies, node->target_at + PREZERO_TARGET_INTERVAL))/if (0)/'
mutate "accounting: the target never adapts" "kunit prezero.target_is_fed" \
    mm/prezero_clear.c 's/^\tprezero_adapt_target(pgdat, node);$//'
mutate "accounting: hit and waste are swapped" "kunit prezero.counts_are_ours" \
    mm/page_alloc.c 's/init ? PREZERO_HIT : PREZERO_WASTE, nr_zeroed/init ? PREZERO_WASTE : PREZERO_HIT, nr_zeroed/'
mutate "default: kprezerod is on" "um shown" \
    mm/prezero_clear.c 's/^int prezero_order __read_mostly = PREZERO_NEVER;/int prezero_order __read_mostly = 9;/'
mutate "default: single pages are cleared" "um shown" \
    mm/prezero_clear.c 's/^u32 prezero_stop __read_mostly = 2;/u32 prezero_stop __read_mostly = 0;/'
mutate "default: a new thread aims at nothing" "kunit prezero.ends_with_stop" \
    mm/prezero_clear.c '/^void prezero_node_begin/,/^}/s/PREZERO_TARGET_MAX;/PREZERO_TARGET_MIN;/'
mutate "reason: a recall is none" "kunit prezero_thread.rests_for_recall" \
    mm/prezero_clear.c '/^static enum rest prezero_clear_order/,/^}/s/return REST_MEMORY;/continue;/'
mutate "reason: a thread that is to stop goes on" "kunit prezero_thread.stops_at_work" \
    mm/prezero_clear.c 's/if (kthread_should_stop() || freezing(current))/if (freezing(current))/'
mutate "reason: the freezer waits" "rule freeze" \
    mm/prezero_clear.c 's/if (kthread_should_stop() || freezing(current))/if (kthread_should_stop())/'
mutate "reason: kprezerod at work never looks again" "kunit prezero_thread.looks_up" \
    mm/prezero_clear.c 's/^\treturn prezero_look(node);$/\treturn REST_NOT;/'
mutate "reason: the watermark without the block" "kunit prezero_thread.rests_near_watermark" \
    mm/prezero_clear.c '/^static bool prezero_may_take/,/^}/s/(1UL << order)/0/'
mutate "reason: memory pressure of a hundredth is none" "kunit prezero.rests_for_pressure" \
    mm/prezero_clear.c 's/^#define PREZERO_PRESSURE_MAX\t1$/#define PREZERO_PRESSURE_MAX\t2/'
mutate "knob: a change does not kick" "kunit prezero_thread.change_kicks" \
    mm/kprezerod.c '/int prezero_set_order(int start)$/,/^}/s/^\tkprezerod_kick();$//'
mutate "knob: order 99 is accepted" "um toggled" \
    mm/kprezerod.c 's/if (start < 0 || start > MAX_PAGE_ORDER)/if (start < 0)/'
mutate "knob: init_on_alloc does not prefer zero pages" "kunit prezero_thread.init_on_alloc_prefers_zero init_on_alloc=1" \
    mm/page_alloc.c '/^struct page \*rmqueue(/,/^}/s/want_init_on_alloc(gfp_flags)/(gfp_flags \& __GFP_ZERO)/'
mutate "wake: nothing queues the wake-up" "kunit prezero_thread.block_wakes" \
    mm/kprezerod.c 's/^\tirq_work_queue(&node->work);$//'
mutate "wake: kprezerod keeps what it heard" "kunit prezero_thread.hears_again" \
    mm/kprezerod.c 's/^\t\tWRITE_ONCE(node->coalesced, false);$//; s/^\tWRITE_ONCE(node->coalesced, false);$//'
mutate "wake: a change is heard once" "kunit prezero_thread.hears_again" \
    mm/kprezerod.c 's/^\t\tWRITE_ONCE(node->kick, false);$//; s/^\tWRITE_ONCE(node->kick, false);$//'
mutate "thread: no back-off" "kunit prezero_thread.backs_off" \
    mm/kprezerod.c 's/min(node->rest_time \* 2, PREZERO_REST_MAX)/PREZERO_REST_MIN/'
mutate "thread: not of the idle class" "kunit prezero_thread.now_drains" \
    mm/kprezerod.c 's/^\tsched_setscheduler_nocheck(task, SCHED_IDLE, &param);$//'
mutate "thread: a step may be preempted" "kunit_x86 prezero_thread.step_is_not_preempted" \
    mm/prezero_clear.c '/^static void prezero_pin/,/^}/s/preempt_disable();/migrate_disable();/; /^static void prezero_unpin/,/^}/s/preempt_enable();/migrate_enable();/'
mutate "thread: lends without a floor" "kunit prezero_thread.rests_near_watermark" \
    mm/prezero_clear.c '/^static enum rest prezero_clear_order/,/^}/s/while (prezero_may_take(zone, order)) {/while (1) {/'
mutate "thread: a drain takes the whole list" "kunit prezero.pcp_excess_is_drained" \
    mm/page_alloc.c '/^void prezero_drain_pcp/,/^}/s/min(pcp->count - pcp->high_min,/min(pcp->count,/'
mutate "thread: kprezerod drains no list" "kunit prezero_thread.drains_idle_lists" \
    mm/prezero_clear.c '/^enum rest prezero_node/,/^}/s/if (node->lists \&\& populated_zone/if (0 \&\& populated_zone/'
mutate "now: does not drain" "kunit prezero_thread.now_drains" \
    mm/kprezerod.c 's/^\tdrain_all_pages(NULL);$//'
mutate "recall: for a block that is too small" "kunit prezero_thread.recall_is_counted" \
    mm/prezero.h 's/return READ_ONCE(zone->prezero_away) > order \&\&$/return READ_ONCE(zone->prezero_away) \&\&/'
mutate "recall: a step goes on" "kunit prezero.step_ends_with_barrier" \
    mm/prezero_clear.c 's/^\t\tif (done && prezero_recalled(zone))$/\t\tif (0)/'
mutate "lend: what was reported to the host is cleared" "rule reporting" \
    mm/page_alloc.c '/^static struct page \*find_dirty_block/,/^}/s/if (!page_reported(page) \&\& !prezero_full/if (!prezero_full/'
mutate "lend: only the first block is looked at" "kunit prezero_thread.finds_behind_zero" \
    mm/page_alloc.c 's/^#define PREZERO_SCAN\t32$/#define PREZERO_SCAN\t1/'
mutate "hugetlb: a folio that leaves the pool stays counted" "kunit_x86 prezero.hugetlb_is_counted" \
    mm/hugetlb.c '/^static void hugetlb_unlist_folio/,/^}/s/h->zeroed_huge_pages_node\[nid\]--;/;/'
mutate "hugetlb: what is handed out is not read" "kunit_x86 prezero.hugetlb_is_counted" \
    mm/hugetlb.c '/^void hugetlb_zero_user/,/^}/s/prezero_check(&folio->page, folio_nr_pages(folio));/;/'
mutate "hugetlb: the pool is no work" "kunit_x86 prezero.hugetlb_is_counted" \
    mm/prezero_clear.c '/^enum rest prezero_node/,/^}/s/rest = prezero_hugetlb_pool(pgdat, node);/rest = REST_NOT;/'
mutate "hugetlb: a dirty folio comes first" "kunit_x86 prezero.hugetlb_zero_is_first" \
    mm/hugetlb.c '/^static void hugetlb_list_folio/,/^}/s/list_move_tail(/list_move(/'
mutate "hugetlb: a new folio is zero that nothing cleared" "pages hugetlb" \
    mm/hugetlb.c 's/if (!user_alloc_needs_zeroing())/if (1)/'
