/*
 * resident: Shutemov's demonstration ("Introduce huge zero page", 2012), and his reason.
 *
 * read: N MiB (200) aligned to 2 MiB are allocated, one byte of each page is read and must be
 * zero. sparse: as in NPB's ft, N MiB (384) in three arrays are read throughout, and then one
 * page in --every (16) is written. What is resident before and after, and the most meanwhile.
 * --thp sets what the kernel may do with this process: never (prctl), always (madvise), or
 * what the machine is set to. --used: as much was allocated, written and freed before, and
 * calloc is asked, since posix_memalign may hand out what it has.
 *
 * Reading what is resident is tried first, on memory that is known to be: 8 MiB are written,
 * and if the reading does not rise by that much and fall again, nothing that it says counts.
 */
#include "seed.h"
#include <sys/prctl.h>

static const char help[] =
	"Shutemov's demonstration: memory that is only read, and what is resident then.\n"
	"\n"
	"  resident [read|sparse] [OPTIONS]\n"
	"\n"
	"  --mib N       [200; sparse: 384, in three arrays]\n"
	"  --every N     sparse: one page in so many is written [16]\n"
	"  --thp HOW     what the kernel may do here: never, always, asis [asis]\n"
	"  --used        as much was used and freed before\n"
	"  --smaps FILE  where what is resident is read [/proc/self/smaps_rollup]\n"
	"  --json        one object, for programs\n"
	"\n"
	"Example: resident read --thp always\n";

enum { HUGE_BYTES = 2 << 20, PROBE = 8 << 20, ARRAYS = 3 };

static const char *smaps = "/proc/self/smaps_rollup";

static long rss_kib(void)
{
	long kib = kib_in(smaps, "Rss:");

	if (kib <= 0)
		stop(BROKEN, "%s says nothing of what is resident", smaps);
	return kib;
}

/* Small pages from the kernel, whatever allocator there is. */
static void try_reading(void)
{
	struct source mapping = { "mmap", 0 };
	char *p = obtain(mapping, PROBE);
	long before, full, after;

	madvise(p, PROBE, MADV_NOHUGEPAGE);
	before = rss_kib();
	memset(p, 1, PROBE);
	escape(p);
	full = rss_kib();
	give_back(mapping, p, PROBE);
	after = rss_kib();
	if (labs(full - before - (PROBE >> 10)) > 256 || labs(after - before) > 256)
		stop(BROKEN, "wrong reading: %d KiB were written and given back, %s says %ld, %ld, %ld",
		     PROBE >> 10, smaps, before, full, after);
}

/* As his program does; in a process with a past by calloc, since what posix_memalign reuses
 * need not be zero. */
static char *aligned(size_t bytes, int always, int used)
{
	void *p = used ? calloc(1, bytes) : NULL;

	if (used && !p)
		stop(1, "no memory for %zu bytes", bytes);
	if (!used && posix_memalign(&p, HUGE_BYTES, bytes))
		stop(1, "no memory for %zu bytes", bytes);
	if (always && madvise(p, bytes, MADV_HUGEPAGE))
		stop(MISTAKE, "--thp always: this kernel has no transparent huge pages");
	return p;
}

static void all_zero(const char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		if (*(volatile const char *)(p + i))
			stop(BROKEN, "byte %zu was not zero when it was handed out", i);
}

/* As in any program that has lived for a while: the allocator has something to reuse. */
static void use(size_t bytes)
{
	for (int round = 0; round < 2; round++) {
		char *p = calloc(1, bytes);

		if (!p)
			stop(1, "no memory for %zu bytes", bytes);
		memset(p, 1, bytes);
		escape(p);
		free(p);
		rest(20000000);
	}
}

int main(int argc, char **argv)
{
	int json = 0, sparse = 0, used = 0, always = 0;
	uint64_t mib = 0, every = 16, start;
	const char *thp = "asis";
	long before, after, peak;
	double took_ms;
	size_t bytes;
	char *array[ARRAYS];

	program_name = "resident";
	for (int i = 1; i < argc; i++) {
		const char *option = argv[i];

		if (!strcmp(option, "--json")) {
			json = 1;
		} else if (!strcmp(option, "--used")) {
			used = 1;
		} else if (!strcmp(option, "sparse") || !strcmp(option, "read")) {
			sparse = *option == 's';
		} else if (++i >= argc) {
			no_such(option, help);
		} else if (!strcmp(option, "--mib")) {
			mib = at_least_one(option, argv[i]);
		} else if (!strcmp(option, "--every")) {
			every = at_least_one(option, argv[i]);
		} else if (!strcmp(option, "--smaps")) {
			smaps = argv[i];
		} else if (!strcmp(option, "--thp")) {
			thp = argv[i];
		} else {
			no_such(option, help);
		}
	}
	if (!mib)
		mib = sparse ? 384 : 200;
	always = !strcmp(thp, "always");
	if (!strcmp(thp, "never") && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		stop(MISTAKE, "--thp never: this kernel does not know it for one process");
	if (!always && strcmp(thp, "never") && strcmp(thp, "asis"))
		stop(MISTAKE, "--thp %s: give never, always or asis", thp);
	try_reading();

	bytes = (size_t)(mib << 20) / (sparse ? ARRAYS : 1) / HUGE_BYTES * HUGE_BYTES;
	if (!bytes)
		stop(BROKEN, "--mib %" PRIu64 ": nothing would be measured", mib);
	if (used)
		use(bytes);
	before = rss_kib();
	start = now_ns();
	for (int i = 0; i < (sparse ? ARRAYS : 1); i++) {
		array[i] = aligned(bytes, always, used);
		escape(array[i]);
		all_zero(array[i], bytes);
	}
	peak = rss_kib();
	if (sparse)
		for (int i = 0; i < ARRAYS; i++)
			for (size_t at = 0; at < bytes; at += every * PAGE)
				*(volatile char *)(array[i] + at) = 1;
	took_ms = (double)(now_ns() - start) / 1e6;
	after = rss_kib();
	if (json)
		printf("{\"experiment\":\"%s\",\"mib\":%" PRIu64 ",\"every\":%" PRIu64
		       ",\"thp\":\"%s\",\"used\":%d,\"rss_before_kib\":%ld,\"rss_read_kib\":%ld"
		       ",\"rss_after_kib\":%ld,\"read_mib\":%.4f,\"end_mib\":%.4f,\"took_ms\":%.3f}\n",
		       sparse ? "sparse" : "resident", mib, every, thp, used, before, peak, after,
		       (double)(peak - before) / 1024, (double)(after - before) / 1024, took_ms);
	else
		printf("%s, %" PRIu64 " MiB, THP %s: %ld KiB resident before, %ld after reading, "
		       "%ld at the end, %.1f ms\n",
		       sparse ? "sparse" : "read", mib, thp, before, peak, after, took_ms);
	return 0;
}
