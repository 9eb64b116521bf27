/*
 * The huge zero page (Shutemov, 2012; in mainline since 3.8): every point of that series, on this
 * kernel. Reading huge memory that was never written costs no memory; writing it gives a page of
 * one's own; the page appears with the first reader and goes with the last.
 */
#include "check.h"

#define KPF_THP 22
#define KPF_ZERO_PAGE 24

static int pagemap, kpageflags;

static uint64_t flags_of(const void *at)
{
	uint64_t entry, flags;

	CHECK(pread(pagemap, &entry, 8, (uintptr_t)at / PAGE * 8) == 8);
	if (!(entry >> 63))
		return 0;
	CHECK(pread(kpageflags, &flags, 8, (entry & ((1ULL << 55) - 1)) * 8) == 8);
	return flags;
}

static bool is_huge_zero(const void *at)
{
	uint64_t flags = flags_of(at);

	return flags >> KPF_ZERO_PAGE & 1 && flags >> KPF_THP & 1;
}

/* The 4 KiB one: what a split huge zero page is mapped as. */
static bool is_small_zero(const void *at)
{
	uint64_t flags = flags_of(at);

	return flags >> KPF_ZERO_PAGE & 1 && !(flags >> KPF_THP & 1);
}

static long allocated(void)
{
	return proc_value("/proc/vmstat", "thp_zero_page_alloc");
}

static long rss_kb(void)
{
	return proc_value("/proc/self/status", "RssAnon");
}

static char read_byte(const volatile char *at)
{
	return *at;
}

/* A child opens its own view of itself. */
static void open_self(void)
{
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	CHECK(pagemap >= 0);
}

static void point(const char *text)
{
	printf("ok  %s\n", text);
}

static void lazy(void)
{
	long before = allocated();

	CHECK(before >= 0);
	IN_CHILD({
		char *p = map_huge(HUGE);

		open_self();
		CHECK(allocated() == before);
		CHECK(read_byte(p) == 0);
		CHECK(allocated() == before + 1);
		CHECK(is_huge_zero(p) && is_huge_zero(p + HUGE - PAGE));
		CHECK_ZERO(p, HUGE);
	});
	point("lazy: allocated by the first read, not before");
}

/* Shutemov's program: 200 MiB read, a byte a page. */
static void read_is_free(void)
{
	IN_CHILD({
		size_t size = 200UL << 20;
		char *p = map_huge(size);
		long before = rss_kb();

		open_self();
		for (size_t i = 0; i < size; i += PAGE)
			CHECK(read_byte(p + i) == 0);
		printf("    200 MiB read: RSS grew by %ld KiB\n", rss_kb() - before);
		CHECK(rss_kb() - before < 1024);
		CHECK(is_huge_zero(p) && is_huge_zero(p + size - HUGE));
	});
	point("reading 200 MiB takes less than 1 MiB");
}

static void use_zero_page_off(void)
{
	static const char knob[] = "/sys/kernel/mm/transparent_hugepage/use_zero_page";

	CHECK(!write_file(knob, "0"));
	IN_CHILD({
		char *p = map_huge(HUGE);
		long before = rss_kb();

		open_self();
		CHECK(read_byte(p) == 0);
		CHECK(!is_huge_zero(p));
		CHECK(rss_kb() - before >= (long)(HUGE >> 10) - 64);
	});
	CHECK(!write_file(knob, "1"));
	CHECK(write_file(knob, "2") && write_file(knob, "x") && write_file(knob, "-1"));
	point("use_zero_page=0 turns it off; nonsense is refused");
}

static void write_gives_a_page(void)
{
	IN_CHILD({
		char *p = map_huge(2 * HUGE);

		open_self();
		CHECK(read_byte(p) == 0 && read_byte(p + HUGE) == 0);
		p[12345] = 1;
		CHECK(!is_huge_zero(p) && is_huge_zero(p + HUGE));
		CHECK(!is_small_zero(p + 12345));
		/* Kernels before 6.13 split and copy one small page; later ones give a huge one. */
		printf("    the page that the first write gives: %s\n",
		       flags_of(p + 12345) >> KPF_THP & 1 ? "2 MiB" : "4 KiB");
		CHECK(p[12345] == 1);
		p[12345] = 0;
		memset(p + HUGE, 0xff, HUGE);
		CHECK_BYTES(p + HUGE, HUGE, 0xff);
		memset(p + HUGE, 0, HUGE);
		CHECK_ZERO(p, 2 * HUGE);
	});
	point("COW: the first write gives a page of one's own, zero but for that byte");
}

/* Whole blocks of two orders that hold a huge page: how many of them are zero. -1 without the series. */
static long zero_blocks(void)
{
	FILE *file = fopen("/sys/kernel/debug/prezero/zeroed_blocks", "r");
	long blocks[11] = { 0 };

	if (!file)
		return -1;
	for (int order = 0; order < 11; order++)
		CHECK(fscanf(file, "%ld", &blocks[order]) == 1);
	fclose(file);
	return blocks[9] + blocks[10];
}

/* With the series, and a huge page that is zero: the write takes that. */
static void write_takes_the_stock(void)
{
	static const char knob[] = "/proc/sys/vm/prezero_order";
	char before[32] = "";
	int fd = open(knob, O_RDONLY);

	if (fd < 0)
		return;
	CHECK(read(fd, before, sizeof(before) - 1) > 0);
	close(fd);
	if (zero_blocks() < 0 || write_file(knob, "0") || write_file("/sys/kernel/debug/prezero/load", "1000000"))
		return;
	for (int tries = 0; zero_blocks() < 8; tries++) {
		CHECK(tries < 12000, "%ld blocks are zero", zero_blocks());
		usleep(10000);
	}
	CHECK(!write_file(knob, "never"));
	IN_CHILD({
		char *p = map_huge(HUGE);

		open_self();
		CHECK(read_byte(p) == 0 && is_huge_zero(p));
		p[12345] = 1;
		CHECK(flags_of(p) >> KPF_THP & 1 && !is_huge_zero(p));
		CHECK_ZERO(p, 12345);
		CHECK_ZERO(p + 12346, HUGE - 12346);
		memset(p, 0xff, HUGE);
	});
	CHECK(!write_file(knob, before));
	point("COW, a step beyond: the page of one's own is huge if one is zero already");
}

static void survives_fork(void)
{
	IN_CHILD({
		char *p = map_huge(HUGE);

		CHECK(read_byte(p) == 0);
		IN_CHILD({
			open_self();
			CHECK(is_huge_zero(p));
			memset(p, 0xff, HUGE);
			CHECK_BYTES(p, HUGE, 0xff);
		});
		open_self();
		CHECK(is_huge_zero(p));
		CHECK_ZERO(p, HUGE);
	});
	point("fork: shared without a copy; what the child writes stays the child's");
}

static void mprotect_keeps_protection(void)
{
	IN_CHILD({
		char *p = map_huge(HUGE);
		char *q = map_huge(HUGE);

		open_self();
		CHECK(read_byte(p) == 0 && read_byte(q) == 0);
		CHECK(!mprotect(p, HUGE, PROT_READ));
		CHECK(!mprotect(p, HUGE, PROT_READ | PROT_WRITE));
		CHECK(is_huge_zero(p));
		memset(p, 0xff, HUGE);
		CHECK(!is_huge_zero(p) && is_huge_zero(q));
		CHECK_ZERO(q, HUGE);
	});
	point("mprotect: writable again, it is still not written to");
}

static void mremap_moves(void)
{
	IN_CHILD({
		char *p = map_huge(HUGE);
		char *to = map_huge(HUGE);

		open_self();
		CHECK(read_byte(p) == 0);
		CHECK(mremap(p, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
		CHECK(is_huge_zero(to));
		CHECK_ZERO(to, HUGE);
		to[7] = 7;
		CHECK(first_other(to, HUGE, 0) == 7 && first_other(to + 8, HUGE - 8, 0) == HUGE - 8);
	});
	point("mremap: moved as it is, and written there");
}

static void splits(void)
{
	IN_CHILD({
		char *p = map_huge(4 * HUGE);
		long before = rss_kb();

		open_self();
		for (int i = 0; i < 4; i++)
			CHECK(read_byte(p + i * HUGE) == 0 && is_huge_zero(p + i * HUGE));
		/* A hole, another protection, a part moved, a part discarded. */
		CHECK(!munmap(p + 3 * PAGE, PAGE));
		CHECK(!mprotect(p + HUGE + 3 * PAGE, PAGE, PROT_READ));
		CHECK(mremap(p + 2 * HUGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 3 * PAGE) == p + 3 * PAGE);
		CHECK(!madvise(p + 3 * HUGE + 5 * PAGE, PAGE, MADV_DONTNEED));
		for (int i = 0; i < 4; i++)
			CHECK(is_small_zero(p + i * HUGE + 9 * PAGE), "block %d", i);
		CHECK(rss_kb() - before < 256);
		CHECK_ZERO(p, 2 * HUGE);
		CHECK_ZERO(p + 2 * HUGE + PAGE, 2 * HUGE - PAGE);
		p[9 * PAGE] = 1;
		CHECK(is_small_zero(p + 8 * PAGE) && !is_small_zero(p + 9 * PAGE));
	});
	point("split by munmap, mprotect, mremap and madvise: 4 KiB zero pages, no memory");
}

/* The page is counted, and freed by a shrinker when it has no user. */
static void refcounted_and_shrunk(void)
{
	long before;
	int ready[2], done[2];
	pid_t holder;
	char byte = 0;

	CHECK(!write_file("/proc/sys/vm/drop_caches", "2"));
	before = allocated();
	CHECK(!pipe(ready) && !pipe(done));
	holder = fork();
	if (!holder) {
		char *p = map_huge(HUGE);

		CHECK(read_byte(p) == 0);
		CHECK(write(ready[1], &byte, 1) == 1);
		CHECK(read(done[0], &byte, 1) == 1);
		CHECK_ZERO(p, HUGE);
		_exit(0);
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	CHECK(allocated() == before + 1);

	CHECK(!write_file("/proc/sys/vm/drop_caches", "2"));
	IN_CHILD({ CHECK(read_byte(map_huge(HUGE)) == 0); });
	CHECK(allocated() == before + 1, "freed under its holder");

	CHECK(write(done[1], &byte, 1) == 1);
	CHECK(waitpid(holder, &(int){ 0 }, 0) == holder);
	/* It has no user, but there is no need for its memory yet. */
	IN_CHILD({ CHECK(read_byte(map_huge(HUGE)) == 0); });
	CHECK(allocated() == before + 1, "freed without need");

	CHECK(!write_file("/proc/sys/vm/drop_caches", "2"));
	IN_CHILD({ CHECK(read_byte(map_huge(HUGE)) == 0); });
	CHECK(allocated() == before + 2, "not freed by the shrinker");
	point("refcounted: stays while it has a user; the shrinker frees it; the next reader makes it again");
}

static void many_at_once(void)
{
	pid_t pids[16];

	for (int i = 0; i < 16; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (!pids[i]) {
			char *p = map_huge(8 * HUGE);

			for (int round = 0; round < 20; round++) {
				for (int block = 0; block < 8; block++)
					CHECK(read_byte(p + block * HUGE + round * PAGE) == 0);
				p[round % 8 * HUGE + round * 64] = i + 1;
				CHECK(p[round % 8 * HUGE + round * 64] == i + 1);
				if (round % 5 == 4)
					CHECK(!write_file("/proc/sys/vm/drop_caches", "2"));
				CHECK(!madvise(p, 8 * HUGE, MADV_DONTNEED));
				CHECK_ZERO(p + i % 8 * HUGE, HUGE);
			}
			_exit(0);
		}
	}
	for (int i = 0; i < 16; i++) {
		int status;

		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "0x%x", status);
	}
	point("16 processes read, write, discard and shrink at once");
}

int main(void)
{
	kpageflags = open("/proc/kpageflags", O_RDONLY);
	CHECK(kpageflags >= 0);
	CHECK(!write_file("/sys/kernel/mm/transparent_hugepage/use_zero_page", "1"));
	setvbuf(stdout, NULL, _IONBF, 0);
	lazy();
	read_is_free();
	use_zero_page_off();
	write_gives_a_page();
	write_takes_the_stock();
	survives_fork();
	mprotect_keeps_protection();
	mremap_moves();
	splits();
	refcounted_and_shrunk();
	many_at_once();
	return 0;
}
