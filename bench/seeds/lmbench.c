/*
 * lmbench: the lines of lmbench's tables that Thorpe showed ("Support for zero'ing pages in
 * idle loop", 2000), each as that suite measures it.
 *
 * fork: a child that exits; exec: one that becomes another program; sh: a shell that starts
 * it. mmap: 8 MiB of a file mapped, a tenth of it touched each 16 KiB, unmapped. protect: a
 * write to a page that must not be written, until the handler runs. pagefault: a page of a
 * mapped file. zerofill: a page of anonymous memory, which his suite did not have and which is
 * what prepared pages are for. Medians, in microseconds.
 *
 * memory: the time of one load from a set of N KiB, in ns, as a program finds it after an
 * idle moment. --scrub is who uses that moment: nobody; this CPU's idle loop, as his did,
 * clearing 16 MiB through the cache (his "ouch") or past it; or whoever prepares what the
 * program has freed just before.
 */
#include "seed.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

static const char help[] =
	"The lines of lmbench that Thorpe showed: us, medians; memory: ns of a load.\n"
	"\n"
	"  lmbench fork|exec|sh|mmap|protect|pagefault|zerofill [--runs N] [--json]\n"
	"  lmbench memory [--kib N] [--scrub WHO] [--runs N] [--json]\n"
	"\n"
	"  --kib N       size of the set that is loaded from [16]\n"
	"  --scrub WHO   who uses the pause before: off, nobody; cached or bypassing, an\n"
	"                idle loop of this CPU; program, whoever prepares what is freed\n"
	"  --runs N      [101]\n"
	"  --json        one object, for programs\n"
	"\n"
	"Example: lmbench memory --kib 1024 --scrub cached\n";

enum { FILE_BYTES = 8 << 20, TOUCH_STEP = 16 << 10, TOUCHED = 10 };
enum { FAULT_PAGES = 256, IDLE_BYTES = 16 << 20, FREED_BYTES = 512 << 10, FREED = 16 };
enum { MOST_RUNS = 10000, MOST_HOPS = 1 << 16 };
enum { IDLE_NS = 5000000 };

static double samples[MOST_RUNS];

static void done(pid_t child)
{
	int status;

	if (child < 0)
		stop(1, "no process");
	if (waitpid(child, &status, 0) != child || status)
		stop(BROKEN, "the child failed: status %d", status);
}

static double one_process(const char *what)
{
	uint64_t start = now_ns();
	pid_t child = fork();

	if (!child) {
		static char command[64];

		if (!strcmp(what, "fork"))
			_exit(0);
		if (!strcmp(what, "exec"))
			execl("/proc/self/exe", "hello", "hello", (char *)NULL);
		snprintf(command, sizeof(command), "/proc/%d/exe hello", (int)getppid());
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	done(child);
	return (double)(now_ns() - start) / 1e3;
}

static int a_file(void)
{
	static char page[PAGE] = { 1 };
	int fd = memfd_create("lmbench", MFD_CLOEXEC);

	if (fd < 0)
		stop(1, "no file in memory");
	for (size_t at = 0; at < FILE_BYTES; at += PAGE)
		if (pwrite(fd, page, PAGE, (off_t)at) != PAGE)
			stop(1, "no memory for a file");
	return fd;
}

static char *map(int fd, size_t bytes, int protection)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	char *p = mmap(NULL, bytes, protection, flags, fd, 0);

	if (p == MAP_FAILED)
		stop(1, "no mapping");
	if (fd < 0)
		madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

static double one_mmap(int fd)
{
	uint64_t start = now_ns();
	char *p = map(fd, FILE_BYTES, PROT_READ | PROT_WRITE);

	for (size_t at = 0; at < FILE_BYTES / TOUCHED; at += TOUCH_STEP)
		*(volatile char *)(p + at) = 1;
	munmap(p, FILE_BYTES);
	return (double)(now_ns() - start) / 1e3;
}

/* A page of a file or, without one, of nothing. */
static double one_fault(int fd)
{
	char *p = map(fd, FAULT_PAGES * PAGE, PROT_READ | PROT_WRITE);
	struct rusage before, after;
	uint64_t took;

	madvise(p, FAULT_PAGES * PAGE, MADV_RANDOM);
	getrusage(RUSAGE_SELF, &before);
	took = now_ns();
	for (size_t page = 0; page < FAULT_PAGES; page++)
		*(volatile char *)(p + page * PAGE) = 1;
	took = now_ns() - took;
	getrusage(RUSAGE_SELF, &after);
	munmap(p, FAULT_PAGES * PAGE);
	if (fd < 0 && after.ru_minflt - before.ru_minflt < FAULT_PAGES)
		stop(BROKEN, "%ld faults for %d pages", after.ru_minflt - before.ru_minflt, FAULT_PAGES);
	return (double)took / FAULT_PAGES / 1e3;
}

static sigjmp_buf behind;
static volatile uint64_t handled_ns;

static void handler(int signal)
{
	(void)signal;
	handled_ns = now_ns();
	siglongjmp(behind, 1);
}

static double one_protection(char *page)
{
	static uint64_t start;

	handled_ns = 0;
	if (!sigsetjmp(behind, 0)) {
		start = now_ns();
		*(volatile char *)page = 1;
	}
	if (!handled_ns)
		stop(BROKEN, "a protected page was written");
	return (double)(handled_ns - start) / 1e3;
}

static void clear_cached(char *start, size_t bytes)
{
	memset(start, 0, bytes);
	escape(start);
}

static void clear_bypassing(char *start, size_t bytes)
{
#if defined(__x86_64__)
	for (size_t at = 0; at < bytes; at += sizeof(__m128i))
		_mm_stream_si128((__m128i *)(start + at), _mm_setzero_si128());
	_mm_sfence();
#else
	(void)bytes;
	stop(MISTAKE, "--scrub bypassing: not on this processor; try cached");
#endif
	escape(start);
}

/* The lines of a set, each holding the address of the next in an order that no prefetcher
 * guesses: Sattolo's shuffle, one cycle through all. */
static void **chain(size_t lines)
{
	static uint64_t state = 88172645463325252u;
	char *set = map(-1, lines * LINE, PROT_READ | PROT_WRITE);
	size_t *order = malloc(lines * sizeof(*order));

	if (!order)
		stop(1, "no memory");
	for (size_t i = 0; i < lines; i++)
		order[i] = i;
	for (size_t i = lines - 1; i > 0; i--) {
		size_t j, kept = order[i];

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		j = state % i;
		order[i] = order[j];
		order[j] = kept;
	}
	for (size_t i = 0; i < lines; i++)
		*(void **)(set + order[i] * LINE) = set + order[(i + 1) % lines] * LINE;
	free(order);
	return (void **)set;
}

static void **follow(void **at, size_t hops)
{
	for (size_t i = 0; i < hops; i++)
		at = (void **)*at;
	escape(at);
	return at;
}

static void idle(const char *scrub, char *region)
{
	uint64_t now, until = now_ns() + IDLE_NS;
	static size_t turn;

	if (!strcmp(scrub, "cached") || !strcmp(scrub, "bypassing")) {
		char *part = region + (turn++ % 4) * IDLE_BYTES;

		(*scrub == 'c' ? clear_cached : clear_bypassing)(part, IDLE_BYTES);
	}
	now = now_ns();
	if (now < until)
		rest(until - now);
}

/* What the program is done with, for somebody to prepare. */
static void leave_work(void)
{
	char *block[FREED];

	for (int i = 0; i < FREED; i++) {
		block[i] = calloc(1, FREED_BYTES);
		if (!block[i])
			stop(1, "no memory");
		memset(block[i], 1, FREED_BYTES);
		escape(block[i]);
	}
	for (int i = 0; i < FREED; i++)
		free(block[i]);
}

static void memory(const char *scrub, size_t kib, uint64_t runs)
{
	size_t lines = (kib << 10) / LINE, hops = lines < MOST_HOPS ? lines : MOST_HOPS;
	char *region = map(-1, 4 * (size_t)IDLE_BYTES, PROT_READ | PROT_WRITE);
	void **at;

	if (lines < 2)
		stop(BROKEN, "--kib %zu: nothing would be measured", kib);
	at = chain(lines);
	memset(region, 1, 4 * (size_t)IDLE_BYTES);
	for (uint64_t run = 0; run < runs; run++) {
		uint64_t start;

		if (!strcmp(scrub, "program"))
			leave_work();
		/* Twice around, or as much as is timed, so that it is where it will be. */
		if (hops == lines)
			at = follow(at, 2 * hops);
		idle(scrub, region);
		start = now_ns();
		at = follow(at, hops);
		samples[run] = (double)(now_ns() - start) / (double)hops;
	}
}

static int upwards(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void say(int json, const char *what, size_t kib, const char *scrub, uint64_t runs)
{
	int is_memory = !strcmp(what, "memory");
	const char *unit = is_memory ? "ns" : "us";

	qsort(samples, runs, sizeof(*samples), upwards);
	if (samples[0] <= 0)
		stop(BROKEN, "%s in no time: the clock stands", what);
	if (!json) {
		if (is_memory)
			printf("memory, %zu KiB, scrub %s: %.1f ns\n", kib, scrub, samples[runs / 2]);
		else
			printf("%s: %.2f us\n", what, samples[runs / 2]);
		return;
	}
	printf("{\"experiment\":\"lmbench\",\"what\":\"%s\",", what);
	if (is_memory)
		printf("\"kib\":%zu,\"scrub\":\"%s\",", kib, scrub);
	printf("\"runs\":%" PRIu64 ",\"%s\":{\"median\":%.4f,\"p10\":%.4f,\"p90\":%.4f}}\n", runs, unit,
	       samples[runs / 2], samples[runs / 10], samples[runs * 9 / 10]);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *scrub = "off";
	uint64_t runs = 101, kib = 16;
	char *page = NULL;
	int json = 0, fd = -1;

	program_name = "lmbench";
	if (!strcmp(what, "hello"))
		return 0;
	for (int i = 2; i < argc; i++) {
		const char *option = argv[i];

		if (!strcmp(option, "--json")) {
			json = 1;
			continue;
		}
		i++;
		if (!strcmp(option, "--runs"))
			runs = at_least_one(option, argv[i]);
		else if (!strcmp(option, "--kib"))
			kib = at_least_one(option, argv[i]);
		else if (!strcmp(option, "--scrub") && argv[i])
			scrub = argv[i];
		else
			no_such(option, help);
	}
	if (runs > MOST_RUNS)
		stop(MISTAKE, "--runs: give %d or less", MOST_RUNS);
	if (strcmp(scrub, "off") && strcmp(scrub, "cached") && strcmp(scrub, "bypassing") &&
	    strcmp(scrub, "program"))
		stop(MISTAKE, "--scrub %s: give off, cached, bypassing or program", scrub);
	if (!strcmp(what, "mmap") || !strcmp(what, "pagefault"))
		fd = a_file();
	if (!strcmp(what, "protect")) {
		struct sigaction action = { .sa_handler = handler, .sa_flags = SA_NODEFER };

		sigaction(SIGSEGV, &action, NULL);
		page = map(-1, PAGE, PROT_READ);
	}
	if (!strcmp(what, "memory")) {
		memory(scrub, kib, runs);
		say(json, what, kib, scrub, runs);
		return 0;
	}
	for (uint64_t run = 0; run < runs; run++) {
		if (!strcmp(what, "fork") || !strcmp(what, "exec") || !strcmp(what, "sh"))
			samples[run] = one_process(what);
		else if (!strcmp(what, "mmap"))
			samples[run] = one_mmap(fd);
		else if (!strcmp(what, "protect"))
			samples[run] = one_protection(page);
		else if (!strcmp(what, "pagefault") || !strcmp(what, "zerofill"))
			samples[run] = one_fault(fd);
		else
			no_such(what, help);
	}
	say(json, what, 0, scrub, runs);
	return 0;
}
