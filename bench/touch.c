/*
 * touch: allocate zeroed, touch, free; and say how long each took.
 *
 * The worker of `prezero bench grid`. In C so that malloc is whatever the dynamic linker
 * put there, and nothing else in the process allocates while the clock runs. It reads one
 * command a line from stdin and answers with one line:
 *
 *   run BYTES LINES AT SAMPLES ROUNDS IDLE_NS   nanoseconds of each sample. A sample is ROUNDS
 *       times calloc(BYTES), one byte written to each of LINES cache lines (spread evenly,
 *       from line AT on) of each 4 KiB, free. IDLE_NS of sleep come before each sample and are
 *       not in it. With LINES 0 it is malloc and free alone: what a call costs.
 *   bare BYTES LINES AT SAMPLES ROUNDS   the same without an allocator: a block of our own, which
 *       begins with a page, is cleared where `run` allocates, and never freed.
 *   check BYTES    bytes that were not zero in a fresh calloc; all are written before free.
 *   usage          user ns, system ns, minor faults, major faults of the whole process.
 *
 * `touch warm BYTES` faults memory in and gives it back: a hypervisor backs guest memory
 * only when it is first touched, and that must not fall into anybody's measurement.
 * `touch spin CPU` keeps that CPU busy until its parent is gone.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "loop.h"
#include "worker.h"

enum { LINE = 64, MAX_LINES = 64 };

static void fail(const char *what)
{
	fail_as("touch", what);
}

__attribute__((noinline)) static void one_round(size_t bytes, size_t lines, size_t at)
{
	char *p = lines ? calloc(1, bytes) : malloc(bytes);

	if (!p)
		fail("out of memory");
	escape(p);
	if (lines)
		touch_lines(p + at * LINE, bytes, lines);
	escape(p);
	free(p);
}

__attribute__((noinline)) static void bare_round(char *p, size_t bytes, size_t lines, size_t at)
{
	memset(p, 0, bytes);
	escape(p);
	touch_lines(p + at * LINE, bytes, lines);
	escape(p);
}

static char *own_block(size_t bytes)
{
	static char *block;
	static size_t has;

	if (has >= bytes)
		return block;
	if (has)
		munmap(block, has);
	block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (block == MAP_FAILED)
		fail("bare: mmap: out of memory");
	has = bytes;
	return block;
}

/* In a block of our own, or else in one that is allocated. */
static void run(char *own, size_t bytes, size_t lines, size_t at, long samples, long rounds,
		long idle_ns)
{
	struct timespec idle = { idle_ns / 1000000000, idle_ns % 1000000000 };

	for (long sample = 0; sample < samples; sample++) {
		uint64_t start;

		if (idle_ns)
			nanosleep(&idle, NULL);
		start = now();
		for (long i = 0; i < rounds; i++)
			if (own)
				bare_round(own, bytes, lines, at);
			else
				one_round(bytes, lines, at);
		printf("%s%" PRIu64, sample ? " " : "", now() - start);
	}
	putchar('\n');
}

static void check(size_t bytes)
{
	unsigned char *p = calloc(1, bytes);
	size_t wrong = 0;

	if (!p)
		fail("calloc: out of memory");
	escape(p);
	for (size_t i = 0; i < bytes; i++)
		wrong += p[i] != 0;
	memset(p, 0xa5, bytes);
	escape(p);
	free(p);
	printf("%zu\n", wrong);
}

static void warm(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("warm: mmap: out of memory");
	/* In huge pages where there are any: free memory is reported to the hypervisor in
	 * those, and what is freed last is handed out first. */
	madvise(p, bytes, MADV_HUGEPAGE);
	touch_lines(p, bytes, 1);
}

static void spin(int cpu)
{
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("spin: no such CPU for this process");
	for (;;)
		escape(&set);
}

int main(int argc, char **argv)
{
	static char answers[1 << 16], line[256];

	if (argc == 3 && !strcmp(argv[1], "warm")) {
		warm(strtoull(argv[2], NULL, 10));
		return 0;
	}
	if (argc == 3 && !strcmp(argv[1], "spin"))
		spin(atoi(argv[2]));
	if (argc != 1)
		fail("usage: touch [warm BYTES | spin CPU]");

	/* Own buffers: stdio's would come from the allocator under test, in mid-measurement. */
	setvbuf(stdout, answers, _IOFBF, sizeof(answers));
	setvbuf(stdin, NULL, _IONBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		size_t bytes, lines, at;
		long samples, rounds, idle_ns;

		if (sscanf(line, "run %zu %zu %zu %ld %ld %ld", &bytes, &lines, &at, &samples,
			   &rounds, &idle_ns) == 6) {
			if (lines > MAX_LINES || (lines && at >= MAX_LINES / lines) || samples < 1 ||
			    rounds < 1 || idle_ns < 0)
				fail("run: out of range");
			run(NULL, bytes, lines, at, samples, rounds, idle_ns);
		} else if (sscanf(line, "bare %zu %zu %zu %ld %ld", &bytes, &lines, &at, &samples,
				  &rounds) == 5) {
			if (!bytes || !lines || lines > MAX_LINES || at >= MAX_LINES / lines ||
			    samples < 1 || rounds < 1)
				fail("bare: out of range");
			run(own_block(bytes), bytes, lines, at, samples, rounds, 0);
		} else if (sscanf(line, "check %zu", &bytes) == 1) {
			check(bytes);
		} else if (!strcmp(line, "usage\n")) {
			usage();
		} else {
			fail("no such command");
		}
		fflush(stdout);
	}
	return 0;
}
