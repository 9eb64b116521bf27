// SPDX-License-Identifier: GPL-2.0
/*
 * What an allocation of zeroed memory costs, in the allocator and in its consumer.
 *
 * The same module is built against the unpatched and the patched kernel and uses nothing that
 * only one of them has. One experiment a write to /sys/kernel/debug/prezero_bench/run:
 *
 *	MODE ORDER CLEAR TOUCH
 *
 * MODE	 cold	allocate the whole working set block by block, touch, then free it; memory
 *		was written before and left the caches; nanoseconds a block, allocation and
 *		touch only
 *	 pair	allocate and free one block again and again, cache and lists hot;
 *		nanoseconds a pair
 *	 idle	single pages that were written to and freed, after a pause in which kprezerod may
 *		clear them where they are; they left the caches before it; nanoseconds a page.
 *		With CLEAR none the bound of that: the pages are cleared after the pause, before the
 *		clock starts, and are in the cache
 *	 spoil	write every byte of the working set (that is: use up what is zero)
 *	 bare	clear the working set with clear_page(), as kprezerod does small blocks
 *	 barecold	the same with clear_pages_cold(), as it does large ones, 1 << ORDER pages at
 *		once: each time has a barrier (patched kernels)
 *	 evict	read so much that what was written before has left the caches
 *	 clear	wait until kprezerod, started before, has cleared all that is free, or clears no
 *		more; nanoseconds a page between the first and the last look at which it was at
 *		work (patched kernels)
 * CLEAR none	no __GFP_ZERO
 *	 zero	__GFP_ZERO: the allocator clears, or has cleared
 * TOUCH none, page (one write a page) or line (one write each 64 bytes)
 *
 * Reading the file gives "NANOSECONDS-PER-BLOCK-TIMES-1000 BLOCKS BAD", where BAD counts blocks
 * that were asked for zeroed and had another byte; the check is made after the clock stopped and
 * before anything is freed (in `pair` once, on the last block).
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>

static unsigned int set_mb = 256;
module_param(set_mb, uint, 0444);
MODULE_PARM_DESC(set_mb, "megabytes of the cold working set");

static unsigned int evict_mb = 640;
module_param(evict_mb, uint, 0444);
MODULE_PARM_DESC(evict_mb, "megabytes read before a cold run, so that the set leaves the caches");

static unsigned int pairs = 1000000;
module_param(pairs, uint, 0444);
MODULE_PARM_DESC(pairs, "pairs of a hot run at order 0; fewer above, in proportion to size");

/* Enough to see neither the clock nor the loop's start. */
#define PAIRS_MIN 2000

/* Pages that a CPU wants at once after idle time, how often, and how long kprezerod may take: two looks. */
#define IDLE_PAGES 32
#define IDLE_TIMES 8
#define IDLE_MS 4500

/* Pages that may be dirty in a full stock: what was freed while kprezerod ended. */
#define SLACK 16

enum mode { COLD, PAIR, IDLE, SPOIL, BARE, BARECOLD, EVICT, CLEAR };
enum clear { CLEAR_NONE, CLEAR_ZERO };
enum touch { TOUCH_NONE, TOUCH_PAGE, TOUCH_LINE };

static const char * const modes[] = { "cold", "pair", "idle", "spoil", "bare",
				      "barecold", "evict", "clear", NULL };
static const char * const clears[] = { "none", "zero", NULL };
static const char * const touches[] = { "none", "page", "line", NULL };

static DEFINE_MUTEX(bench_lock);
static struct dentry *dir;
static struct page **blocks;
static u8 *evict_from;
static u64 last_ns, last_blocks, last_bad;

static __always_inline void consume(void *p, size_t bytes, enum touch touch)
{
	size_t step = touch == TOUCH_PAGE ? PAGE_SIZE : 64, i;

	if (touch == TOUCH_NONE)
		return;
	for (i = 0; i < bytes; i += step)
		WRITE_ONCE(*(u64 *)(p + i), i + 1);
}

static __always_inline struct page *take(unsigned int order, enum clear clear, enum touch touch)
{
	struct page *page = alloc_pages(clear == CLEAR_ZERO ? GFP_KERNEL | __GFP_ZERO :
							      GFP_KERNEL, order);

	if (unlikely(!page))
		return NULL;
	consume(page_address(page), PAGE_SIZE << order, touch);
	return page;
}

/* A caller that asked for zeroes and touched nothing must find nothing else. */
static bool bad(struct page *page, unsigned int order, enum clear clear, enum touch touch)
{
	return clear != CLEAR_NONE && touch == TOUCH_NONE &&
	       memchr_inv(page_address(page), 0, PAGE_SIZE << order);
}

static void evict(void)
{
	size_t i, size = (size_t)evict_mb << 20;
	unsigned long sum = 0;

	for (i = 0; i < size; i += 64)
		sum += READ_ONCE(evict_from[i]);
	barrier_data(&sum);
}

static int run_cold(unsigned int order, enum clear clear, enum touch touch, bool spoil)
{
	unsigned long n = ((unsigned long)set_mb << 20) >> (PAGE_SHIFT + order), i, got;
	u64 start, end;

	if (!spoil)
		evict();
	start = ktime_get_ns();
	for (got = 0; got < n; got++) {
		blocks[got] = take(order, clear, touch);
		if (!blocks[got])
			break;
	}
	end = ktime_get_ns();
	last_bad = 0;
	for (i = 0; i < got; i++) {
		last_bad += bad(blocks[i], order, clear, touch);
		/* What is freed is dirty, as memory that was in use is. */
		memset(page_address(blocks[i]), 0xa5, PAGE_SIZE << order);
	}
	for (i = 0; i < got; i++)
		__free_pages(blocks[i], order);
	last_ns = got ? div64_u64((end - start) * 1000, got) : 0;
	last_blocks = got;
	return got == n ? 0 : -ENOMEM;
}

/* What clearing the working set takes without an allocator; a page of it. */
static int run_bare(bool cold, unsigned int order)
{
	unsigned long n = ((unsigned long)set_mb << 20) >> (PAGE_SHIFT + MAX_PAGE_ORDER), i, got;
	unsigned int j;
	u64 start, end;

#ifndef CONFIG_PREZERO
	if (cold)
		return -ENOSYS;
#endif
	for (got = 0; got < n; got++) {
		blocks[got] = alloc_pages(GFP_KERNEL, MAX_PAGE_ORDER);
		if (!blocks[got])
			break;
	}
	evict();
	start = ktime_get_ns();
	for (i = 0; i < got; i++) {
#ifdef CONFIG_PREZERO
		if (cold) {
			for (j = 0; j < MAX_ORDER_NR_PAGES; j += 1 << order)
				clear_pages_cold(page_address(blocks[i] + j), 1 << order);
			continue;
		}
#endif
		for (j = 0; j < MAX_ORDER_NR_PAGES; j++)
			clear_page(page_address(blocks[i] + j));
	}
	end = ktime_get_ns();
	for (i = 0; i < got; i++)
		__free_pages(blocks[i], MAX_PAGE_ORDER);
	last_blocks = got * MAX_ORDER_NR_PAGES;
	last_ns = got ? div64_u64((end - start) * 1000, last_blocks) : 0;
	last_bad = 0;
	return got == n ? 0 : -ENOMEM;
}

#ifdef CONFIG_PREZERO
static unsigned long cleared(void)
{
	static unsigned long events[NR_VM_EVENT_ITEMS];

	all_vm_events(events);
	return events[PREZERO_CLEARED] + events[PREZERO_CLEARED_COLD];
}

static bool all_zero(void)
{
	return global_zone_page_state(NR_FREE_ZEROED) + SLACK >=
	       global_zone_page_state(NR_FREE_PAGES);
}

/*
 * A rate, without the time that it takes a thread of the least priority to get hold of the CPU: from
 * the first time that the counter was seen to move to the last time after which it moved again. So
 * it was at work from the one to the other, however late we look.
 */
static int run_clear(void)
{
	unsigned long first = cleared(), before = first, last = first, now;
	u64 start = ktime_get_ns(), end = start, before_at = start, at;
	bool moved = false;

	do {
		usleep_range(1000, 1100);
		now = cleared();
		at = ktime_get_ns();
		if (now != before) {
			if (moved) {
				last = before;
				end = before_at;
			} else {
				first = last = now;
				start = end = at;
			}
			moved = true;
			before = now;
			before_at = at;
		}
	} while (at - before_at < 300 * NSEC_PER_MSEC && !(end > start && all_zero()));
	last_blocks = last - first;
	last_ns = last_blocks ? div64_u64((end - start) * 1000, last_blocks) : 0;
	last_bad = 0;
	return 0;
}
#else
static int run_clear(void)
{
	return -ENOSYS;
}
#endif

static int run_pair(unsigned int order, enum clear clear, enum touch touch)
{
	unsigned long n = max_t(unsigned long, pairs >> order, PAIRS_MIN), i;
	struct page *page;
	u64 start, end;

	/* Warm: lists, code, and the block itself. */
	for (i = 0; i < 16; i++) {
		page = take(order, clear, touch);
		if (!page)
			return -ENOMEM;
		__free_pages(page, order);
	}
	start = ktime_get_ns();
	for (i = 0; i < n; i++) {
		page = take(order, clear, touch);
		if (unlikely(!page))
			return -ENOMEM;
		__free_pages(page, order);
	}
	end = ktime_get_ns();
	page = take(order, clear, touch);
	if (!page)
		return -ENOMEM;
	last_bad = bad(page, order, clear, touch);
	__free_pages(page, order);
	last_ns = div64_u64((end - start) * 1000, n);
	last_blocks = n;
	return 0;
}

static int ascending(const void *a, const void *b)
{
	return *(const u64 *)a < *(const u64 *)b ? -1 : *(const u64 *)a > *(const u64 *)b;
}

/* The median of some pauses. */
static int run_idle(enum clear clear, enum touch touch)
{
	u64 took[IDLE_TIMES];
	unsigned int i, j;

	last_bad = 0;
	for (i = 0; i < IDLE_TIMES; i++) {
		u64 start;

		for (j = 0; j < IDLE_PAGES; j++) {
			blocks[j] = alloc_page(GFP_HIGHUSER_MOVABLE);
			if (!blocks[j])
				return -ENOMEM;
			memset(page_address(blocks[j]), 0xa5, PAGE_SIZE);
		}
		for (j = 0; clear == CLEAR_ZERO && j < IDLE_PAGES; j++)
			__free_page(blocks[j]);
		evict();
		msleep(IDLE_MS);
		for (j = 0; clear == CLEAR_NONE && j < IDLE_PAGES; j++) {
			clear_page(page_address(blocks[j]));
			__free_page(blocks[j]);
		}
		start = ktime_get_ns();
		for (j = 0; j < IDLE_PAGES; j++) {
			blocks[j] = alloc_page(clear == CLEAR_ZERO ? GFP_HIGHUSER_MOVABLE | __GFP_ZERO :
								     GFP_HIGHUSER_MOVABLE);
			if (!blocks[j])
				return -ENOMEM;
			consume(page_address(blocks[j]), PAGE_SIZE, touch);
		}
		took[i] = ktime_get_ns() - start;
		for (j = 0; j < IDLE_PAGES; j++) {
			last_bad += bad(blocks[j], 0, clear, touch);
			__free_page(blocks[j]);
		}
	}
	sort(took, IDLE_TIMES, sizeof(*took), ascending, NULL);
	last_ns = took[IDLE_TIMES / 2] * 1000 / IDLE_PAGES;
	last_blocks = IDLE_TIMES * IDLE_PAGES;
	return 0;
}

static ssize_t run_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	char line[64], mode[16], clear[8], touch[8];
	unsigned int order;
	int m, c, t, err = 0;

	if (count >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, from, count))
		return -EFAULT;
	line[count] = 0;
	if (sscanf(line, "%15s %u %7s %7s", mode, &order, clear, touch) != 4)
		return -EINVAL;
	m = match_string(modes, -1, mode);
	c = match_string(clears, -1, clear);
	t = match_string(touches, -1, touch);
	if (m < 0 || c < 0 || t < 0 || order > MAX_PAGE_ORDER)
		return -EINVAL;

	mutex_lock(&bench_lock);
	if (m == PAIR)
		err = run_pair(order, c, t);
	else if (m == IDLE)
		err = run_idle(c, t);
	else if (m == BARE || m == BARECOLD)
		err = run_bare(m == BARECOLD, order);
	else if (m == EVICT)
		evict();
	else if (m == CLEAR)
		err = run_clear();
	else
		err = run_cold(order, c, t, m == SPOIL);
	mutex_unlock(&bench_lock);
	return err ?: count;
}

static int run_show(struct seq_file *m, void *unused)
{
	seq_printf(m, "%llu %llu %llu\n", last_ns, last_blocks, last_bad);
	return 0;
}

static int run_open(struct inode *inode, struct file *file)
{
	return single_open(file, run_show, NULL);
}

static const struct file_operations run_fops = {
	.owner = THIS_MODULE,
	.open = run_open,
	.read = seq_read,
	.write = run_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int __init bench_init(void)
{
	unsigned long n = ((unsigned long)set_mb << 20) >> PAGE_SHIFT;

	blocks = vmalloc_array(n, sizeof(*blocks));
	evict_from = vzalloc((size_t)evict_mb << 20);
	if (!blocks || !evict_from) {
		vfree(evict_from);
		vfree(blocks);
		return -ENOMEM;
	}
	dir = debugfs_create_dir("prezero_bench", NULL);
	debugfs_create_file("run", 0600, dir, NULL, &run_fops);
	return 0;
}
module_init(bench_init);

static void __exit bench_exit(void)
{
	debugfs_remove(dir);
	vfree(evict_from);
	vfree(blocks);
}
module_exit(bench_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Cost of zeroed memory in the page allocator and in its consumer");
