/*
 * touch: allocate zeroed, touch, free; and say how long that took.
 *
 * A program of `prezero bench grid`. In C so that malloc is whatever the dynamic linker
 * put there, and nothing else in the process allocates while the clock runs.
 *
 *   touch round BYTES LINES AT IDLE_NS SAMPLE_NS   the median time of a round, ns: calloc(BYTES), one byte
 *       written to each of LINES cache lines (spread evenly, from line AT on) of each 4 KiB, free. IDLE_NS of sleep
 *       come before each and are not in it. Without them a sample is of as many rounds as take SAMPLE_NS. The
 *       rounds of the first 0.1 s do not count, without pauses those of 0.02 s. With LINES 0 it is malloc and free
 *       alone: what a call costs. At last a fresh calloc is read: one that is not zero is a failure.
 *   touch bare BYTES LINES AT IDLE_NS SAMPLE_NS    the same without an allocator: a block of our own, which
 *       begins with a page, is cleared where `round` allocates, and never freed.
 *   touch warm BYTES   faults memory in and gives it back: a hypervisor backs guest memory
 *       only when it is first touched, and that must not fall into anybody's measurement.
 *   touch spin CPU     keeps that CPU busy until its parent is gone.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "loop.h"
#include "worker.h"

enum {
	LINE = 64,
	MAX_LINES = 64,
	/* Samples that count, of one process. */
	SAMPLES = 5,
	/* Rounds before them: for how long, with pauses and without, and how many at least. */
	WARM_NS = 100000000,
	WARM_BUSY_NS = 20000000,
	WARM_LEAST = 8,
};

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
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("bare: mmap: out of memory");
	return p;
}

/* ns of some rounds, in a block of our own or else in one that is allocated. */
static uint64_t sample(char *own, size_t bytes, size_t lines, size_t at, long rounds, long idle_ns)
{
	struct timespec idle = { idle_ns / 1000000000, idle_ns % 1000000000 };
	uint64_t start;

	if (idle_ns)
		nanosleep(&idle, NULL);
	start = now();
	for (long i = 0; i < rounds; i++)
		if (own)
			bare_round(own, bytes, lines, at);
		else
			one_round(bytes, lines, at);
	return now() - start;
}

static int ascending(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
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
	if (wrong)
		fail("calloc: not zero");
	free(p);
}

static void run(char *own, size_t bytes, size_t lines, size_t at, long idle_ns, long sample_ns)
{
	uint64_t times[SAMPLES], fastest = UINT64_MAX, began = now(), took;
	uint64_t warm = idle_ns ? WARM_NS : WARM_BUSY_NS;
	long rounds = 1;

	for (int nth = 0; nth < WARM_LEAST || now() - began < warm; nth++) {
		took = sample(own, bytes, lines, at, 1, idle_ns);
		fastest = took < fastest ? took : fastest;
	}
	if (!idle_ns && fastest < (uint64_t)sample_ns)
		rounds = sample_ns / (fastest ? fastest : 1) + 1;
	for (int nth = 0; nth < SAMPLES; nth++)
		times[nth] = sample(own, bytes, lines, at, rounds, idle_ns);
	qsort(times, SAMPLES, sizeof(*times), ascending);
	printf("%f\n", (double)times[SAMPLES / 2] / rounds);
	if (!own && lines)
		check(bytes);
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
	if (argc == 3 && !strcmp(argv[1], "warm")) {
		warm(strtoull(argv[2], NULL, 10));
		return 0;
	}
	if (argc == 3 && !strcmp(argv[1], "spin"))
		spin(atoi(argv[2]));
	if (argc == 7 && (!strcmp(argv[1], "round") || !strcmp(argv[1], "bare"))) {
		size_t bytes = strtoull(argv[2], NULL, 10), lines = strtoull(argv[3], NULL, 10);
		size_t at = strtoull(argv[4], NULL, 10);
		int bare = argv[1][0] == 'b';

		if (!bytes || lines > MAX_LINES || (lines && at >= MAX_LINES / lines) || (bare && !lines))
			fail("out of range");
		run(bare ? own_block(bytes) : NULL, bytes, lines, at, atol(argv[5]), atol(argv[6]));
		return 0;
	}
	fail("usage: touch round|bare BYTES LINES AT IDLE_NS SAMPLE_NS | warm BYTES | spin CPU");
}
