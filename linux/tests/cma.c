/*
 * cma SECONDS: contiguous memory, which isolates free pages that are known to be zero, moves pages
 * that are in use, and comes back as it was left.
 *
 * First by itself: all of the area is free and zero, is taken, written to and given back, and not a
 * page of it may count as zero from then on; and what was not zero is not when a part is taken.
 * Then for SECONDS, while kprezerod clears and others fault: half of the area is ours, every byte is
 * looked at after it had to move, and what was taken is ours alone as long as we have it. At the end
 * once more by itself.
 *
 * The kernel needs an area (cma=), CMA_DEBUGFS to take from it and /dev/mem to write to what was taken.
 */
#include "check.h"
#include <dirent.h>
#include <signal.h>
#include <time.h>

#define AREAS "/sys/kernel/debug/cma"
#define CHUNK 256 /* pages */
#define BLOCK 1024 /* pages: the largest block of the buddy, of two pageblocks */
#define FAULTERS 2
#define TAKEN 0xdd /* what is in pages that we took */
#define NOISE 256 /* pages that the rest of the guest may free or use meanwhile */

static char area[128];
static unsigned long base, count;
static int pagemap, mem;
static unsigned long refused, moved_in_all;

static char *ours;
static unsigned long our_pages;
static uint8_t *expect; /* 0: not there */
static uint64_t *pfns;

static uint64_t state = 0x9e3779b97f4a7c15ULL;

static uint64_t random_below(uint64_t bound)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % bound;
}

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

/* ---- the area ---------------------------------------------------------------------------------- */

static char *area_text(const char *name)
{
	static char text[1 << 17];
	char path[256];
	ssize_t got, size = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", area, name);
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0, "%s", path);
	while ((got = read(fd, text + size, sizeof(text) - 1 - size)) > 0)
		size += got;
	CHECK(got == 0 && size > 0, "%s", path);
	close(fd);
	text[size] = 0;
	return text;
}

static unsigned long area_value(const char *name)
{
	return strtoul(area_text(name), NULL, 10);
}

static int area_write(const char *name, unsigned long pages)
{
	char path[256], text[32];

	snprintf(path, sizeof(path), "%s/%s", area, name);
	snprintf(text, sizeof(text), "%lu", pages);
	return write_file(path, text);
}

static void find_area(void)
{
	DIR *areas = opendir(AREAS);
	struct dirent *entry;

	CHECK(areas, "the kernel has no CMA_DEBUGFS");
	while ((entry = readdir(areas)))
		if (entry->d_name[0] != '.')
			snprintf(area, sizeof(area), AREAS "/%.64s", entry->d_name);
	closedir(areas);
	CHECK(area[0], "no area: cma=64M on the kernel's command line");
	CHECK(area_value("order_per_bit") == 0);
	base = area_value("base_pfn");
	count = area_value("count");
	CHECK(count >= 8 * BLOCK, "%lu pages are too few", count);
}

/* All that is taken is written to, or is found to be as we wrote it. */
static void each_taken(bool write)
{
	static char page[PAGE];
	char *bitmap = area_text("bitmap");
	uint32_t word = 0;

	for (unsigned long i = 0; i < count; i++) {
		off_t at = (base + i) * PAGE;

		if (i % 32 == 0)
			word = strtoul(bitmap, &bitmap, 10);
		if (!(word >> i % 32 & 1))
			continue;
		if (write) {
			memset(page, TAKEN, PAGE);
			CHECK(pwrite(mem, page, PAGE, at) == (ssize_t)PAGE);
		} else {
			CHECK(pread(mem, page, PAGE, at) == (ssize_t)PAGE);
			CHECK_BYTES(page, PAGE, TAKEN);
		}
	}
}

/* A page that is in use for a moment makes the range busy: not for long. */
static void take(unsigned long pages)
{
	for (int err, tries = 0; (err = area_write("alloc", pages)); tries++) {
		CHECK(err == ENOMEM && tries < 100, "%lu pages: %d", pages, err);
		refused++;
		usleep(10000);
	}
}

/* In parts of any size; only we wrote to them. */
static void give_back(unsigned long pages)
{
	each_taken(false);
	for (unsigned long part; pages; pages -= part) {
		part = 1 + random_below(pages < 3000 ? pages : 3000);
		CHECK(!area_write("free", part));
	}
	CHECK(area_value("used") == 0);
}

/* ---- the counts -------------------------------------------------------------------------------- */

static long vmstat(const char *name)
{
	/* What CPUs counted and did not tell yet. */
	CHECK(!write_file("/proc/sys/vm/stat_refresh", "1"));
	return proc_value("/proc/vmstat", name);
}

/* Pages in blocks that are zero as a whole. */
static long pages_in_zero_blocks(void)
{
	FILE *file = fopen("/sys/kernel/debug/prezero/zeroed_blocks", "r");
	unsigned long blocks;
	long pages = 0;

	CHECK(file);
	for (int order = 0; fscanf(file, "%lu", &blocks) == 1; order++)
		pages += blocks << order;
	fclose(file);
	return pages;
}

/*
 * What is counted lies between what can be seen in the free lists and what is free. They are not read
 * at once, so they may differ for a moment; a count that went astray stays so.
 */
static void check_sums(const char *when)
{
	long blocks, zeroed, available, cma;

	for (int tries = 0; tries < 50; tries++) {
		blocks = pages_in_zero_blocks();
		zeroed = vmstat("nr_free_zeroed");
		available = vmstat("nr_free_pages");
		cma = vmstat("nr_free_cma");
		if (blocks <= zeroed && zeroed <= available && cma <= (long)count)
			return;
		usleep(100000);
	}
	CHECK(false, "%s: %ld pages in zero blocks, %ld zero, %ld free; %ld of the area's %lu", when, blocks,
	      zeroed, available, cma, count);
}

/* What kprezerod did so far, pages. */
static long cleared(void)
{
	return vmstat("prezero_cleared") + vmstat("prezero_cleared_cold");
}

static void clear_ahead(bool on)
{
	CHECK(!write_file("/proc/sys/vm/prezero_order", on ? "0" : "never"));
	/* A step or two may be under way. */
	if (!on)
		usleep(200000);
}

/*
 * Until nearly all that is free is zero. How much kprezerod wants to be follows what zero pages were
 * used for, and we moved memory, which is no use for zeros: so fault some in between.
 */
static void wait_for_stock(void)
{
	clear_ahead(true);
	for (int tries = 0; vmstat("nr_free_zeroed") + (long)count / 16 < vmstat("nr_free_pages"); tries++) {
		char *at = mmap(NULL, CHUNK * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		CHECK(tries < 3000, "%ld zero of %ld", vmstat("nr_free_zeroed"), vmstat("nr_free_pages"));
		CHECK(at != MAP_FAILED);
		memset(at, 0x5a, CHUNK * PAGE);
		munmap(at, CHUNK * PAGE);
		/* It looks again at once. */
		clear_ahead(true);
		usleep(100000);
	}
	clear_ahead(false);
}

/* ---- our memory -------------------------------------------------------------------------------- */

static void check_ours(void)
{
	for (unsigned long i = 0; i < our_pages; i++)
		if (expect[i])
			CHECK_BYTES(ours + i * PAGE, PAGE, expect[i]);
}

static void read_pfns(void)
{
	ssize_t size = our_pages * sizeof(*pfns);

	CHECK(pread(pagemap, pfns, size, (uintptr_t)ours / PAGE * 8) == size);
	for (unsigned long i = 0; i < our_pages; i++)
		pfns[i] = expect[i] ? pfns[i] & ((1ULL << 55) - 1) : 0;
}

static bool in_area(uint64_t pfn)
{
	return pfn >= base && pfn < base + count;
}

static void let_go(unsigned long page)
{
	CHECK(!madvise(ours + page * PAGE, PAGE, MADV_DONTNEED));
	expect[page] = 0;
}

/* Memory that reads zero, every byte, and is filled, until half of the area is gone; ours elsewhere goes back. */
static unsigned long occupy(void)
{
	unsigned long there = 0;

	for (unsigned long i = 0; i < our_pages && proc_value("/proc/vmstat", "nr_free_cma") > (long)count / 2;
	     i += CHUNK)
		for (unsigned long page = i; page < i + CHUNK && page < our_pages; page++) {
			volatile char *byte = ours + page * PAGE + random_below(PAGE);

			if (expect[page])
				continue;
			*byte = 1;
			*byte = 0;
			CHECK_ZERO(ours + page * PAGE, PAGE);
			expect[page] = 1 + random_below(255);
			memset(ours + page * PAGE, expect[page], PAGE);
		}
	read_pfns();
	for (unsigned long i = 0; i < our_pages; i++) {
		if (in_area(pfns[i]))
			there++;
		else if (expect[i])
			let_go(i);
	}
	CHECK(there >= count / 4, "%lu pages of the area's %lu", there, count);
	return there;
}

/* How many of our pages are not any more where read_pfns() found them in the area. */
static unsigned long moved(void)
{
	uint64_t *before = malloc(our_pages * sizeof(*before));
	unsigned long pages = 0;

	CHECK(before);
	memcpy(before, pfns, our_pages * sizeof(*before));
	read_pfns();
	for (unsigned long i = 0; i < our_pages; i++)
		pages += in_area(before[i]) && pfns[i] != before[i];
	free(before);
	return pages;
}

static void give_all_up(void)
{
	for (unsigned long i = 0; i < our_pages; i++)
		if (expect[i])
			let_go(i);
}

/* Small and huge pages, which have to read zero, and what was written to them has to stay. */
static void fault(unsigned int seed)
{
	state *= seed + 2;
	for (;;) {
		size_t size = random_below(4) ? (1 + random_below(512)) * PAGE : HUGE;
		char *at = map_huge(size);
		uint8_t value = 1 + random_below(255);

		if (size < HUGE)
			CHECK(!madvise(at, size, MADV_NOHUGEPAGE));
		for (size_t i = 0; i < size; i += PAGE) {
			volatile char *byte = at + i + random_below(PAGE);

			*byte = 1;
			*byte = 0;
		}
		CHECK_ZERO(at, size);
		memset(at, value, size);
		/* kprezerod works while no task does. */
		usleep(random_below(20000));
		CHECK_BYTES(at, size, value);
		munmap(at, size);
	}
}

/* ---- the test ---------------------------------------------------------------------------------- */

/* All of the area, free and zero, is taken, written to, and given back by and by. */
static void by_itself(void)
{
	long before, taken, after, hits;
	unsigned long there;

	wait_for_stock();
	check_sums("stock");
	before = vmstat("nr_free_zeroed");
	take(count);
	taken = vmstat("nr_free_zeroed");
	CHECK(vmstat("nr_free_cma") == 0, "%ld", vmstat("nr_free_cma"));
	CHECK(taken <= before - (long)count / 16 * 15 + NOISE, "%ld zero, and %ld without the area's %lu", before, taken,
	      count);
	check_sums("taken");

	each_taken(true);
	give_back(count);
	after = vmstat("nr_free_zeroed");
	CHECK(after <= taken + NOISE, "%ld zero, and %ld when the area is back", taken, after);
	check_sums("given back");

	/* Its next owner reads zeros all the same. */
	hits = vmstat("prezero_hit");
	there = occupy();
	hits = vmstat("prezero_hit") - hits;
	check_sums("occupied");
	CHECK(vmstat("prezero_bad") == 0);
	printf("by itself: zero %ld, area taken %ld, given back %ld; then %ld hits, %lu pages in the area\n", before,
	       taken, after, hits, there);
	give_all_up();
}

/*
 * A free block of two pageblocks that is not zero, and one of the two is taken: that splits it, and the
 * other is not zero now.
 */
static void in_part(void)
{
	unsigned long first = -base % BLOCK, block;
	long before, after;

	/* No other code has a page in there. */
	take(count);
	each_taken(true);
	give_back(count);
	wait_for_stock();
	for (block = first; block + BLOCK <= count; block += (count - first) / BLOCK / 4 * BLOCK) {
		take(block + BLOCK);
		each_taken(true);
		give_back(block + BLOCK);
		before = vmstat("nr_free_zeroed");
		/* What waits on per-CPU lists goes back before the next is taken, and the block is whole. */
		take(1);
		each_taken(true);
		give_back(1);
		take(block + 1 + random_below(100));
		after = vmstat("nr_free_zeroed");
		CHECK(after <= before + NOISE, "%ld zero, and %ld after %lu were taken", before, after, block);
		each_taken(true);
		give_back(area_value("used"));
	}
	check_sums("in part");
	occupy();
	CHECK(vmstat("prezero_bad") == 0);
	give_all_up();
}

/* What kprezerod works on at that moment is wanted. */
static void take_many(void)
{
	for (int i = 0; i < 20; i++) {
		take(1 + random_below(2 * BLOCK));
		each_taken(true);
		give_back(area_value("used"));
	}
}

static void round_in_company(unsigned int number)
{
	unsigned long there = occupy(), pieces = number % 3 ? 1 + random_below(12) : 1, gone;

	/* All at once, or pieces that end within pageblocks. */
	for (unsigned long i = 0; i < pieces; i++)
		take(pieces == 1 ? count : 1 + random_below(count / pieces));
	each_taken(true);
	check_ours();
	gone = moved();
	if (pieces == 1)
		CHECK(gone == there, "%lu of %lu moved", gone, there);
	moved_in_all += gone;
	if (number % 2)
		write_file("/proc/sys/vm/compact_memory", "1");
	give_back(area_value("used"));
	check_ours();
	give_all_up();
	take_many();
}

int main(int argc, char **argv)
{
	unsigned int seconds = argc > 1 ? atoi(argv[1]) : 0, rounds = 0;
	pid_t faulters[FAULTERS];
	double end;
	long cleared_now;

	CHECK(seconds > 0, "usage: cma SECONDS");
	find_area();
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	mem = open("/dev/mem", O_RDWR);
	CHECK(pagemap >= 0 && mem >= 0);
	our_pages = proc_value("/proc/meminfo", "MemAvailable") / 4;
	ours = mmap(NULL, our_pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	expect = calloc(our_pages, 1);
	pfns = calloc(our_pages, sizeof(*pfns));
	CHECK(ours != MAP_FAILED && expect && pfns);
	/* Small pages: which ones are in the area can be said one by one. */
	CHECK(!madvise(ours, our_pages * PAGE, MADV_NOHUGEPAGE));

	by_itself();
	in_part();
	cleared_now = cleared();
	clear_ahead(true);
	for (int i = 0; i < FAULTERS; i++) {
		faulters[i] = fork();
		CHECK(faulters[i] >= 0);
		if (!faulters[i])
			fault(i);
	}
	for (end = now() + seconds; now() < end; rounds++)
		round_in_company(rounds);
	for (int i = 0; i < FAULTERS; i++) {
		CHECK(waitpid(faulters[i], NULL, WNOHANG) == 0, "a fault found something");
		kill(faulters[i], SIGKILL);
		CHECK(waitpid(faulters[i], NULL, 0) == faulters[i]);
	}
	cleared_now = cleared() - cleared_now;
	printf("in company: %u rounds, %lu pages moved, %ld cleared, %lu times busy\n", rounds, moved_in_all, cleared_now,
	       refused);
	CHECK(moved_in_all > 0 && cleared_now > 0);
	give_all_up();
	by_itself();
	return 0;
}
