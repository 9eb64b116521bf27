/*
 * busy: programs that never pause.
 *
 * `busy PATTERN SECONDS LINES` writes LINES of each page of the blocks of its pattern. It prints the us of a step. No
 * pattern leaves time to scrub in without being in the way.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>

#include "../loop.h"
#include "../worker.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define PAGE 4096
#define MOST 32

/* Blocks of `least` to `most` bytes, whole pages, of which `live` are alive, or freed all at once. */
struct pattern {
	const char *name;
	size_t least, most;
	int live;
	enum { RING, SPARE, BATCH, MIXED } kind;
	int threads;
};

static const struct pattern patterns[] = {
	{ "one-4m", 4 * MIB, 4 * MIB, 1, RING, 1 },
	{ "spare-4m", 4 * MIB, 4 * MIB, 1, SPARE, 1 },
	{ "spare-8m", 8 * MIB, 8 * MIB, 1, SPARE, 1 },
	{ "spare-16m", 16 * MIB, 16 * MIB, 1, SPARE, 1 },
	{ "two-4m", 4 * MIB, 4 * MIB, 2, RING, 1 },
	{ "two-16m", 16 * MIB, 16 * MIB, 2, RING, 1 },
	{ "eight-256k", 256 * KIB, 256 * KIB, 8, RING, 1 },
	{ "any-256k-4m", 256 * KIB, 4 * MIB, 1, RING, 1 },
	{ "any-1m-16m", 1 * MIB, 16 * MIB, 1, RING, 1 },
	{ "any-4m-64m", 4 * MIB, 64 * MIB, 1, RING, 1 },
	{ "four-1m-16m", 1 * MIB, 16 * MIB, 4, RING, 1 },
	{ "three-4m-64m", 4 * MIB, 64 * MIB, 3, RING, 1 },
	{ "batch-256k", 256 * KIB, 256 * KIB, 32, BATCH, 1 },
	{ "batch-1m", 1 * MIB, 1 * MIB, 16, BATCH, 1 },
	{ "batch-4m", 4 * MIB, 4 * MIB, 8, BATCH, 1 },
	{ "mixed-4m", 4 * MIB, 4 * MIB, 1, MIXED, 1 },
	{ "threads-1m", 1 * MIB, 1 * MIB, 1, RING, 2 },
	{ "threads-4m", 4 * MIB, 4 * MIB, 1, RING, 2 },
};

static const struct pattern *pattern;
static uint64_t until;
static size_t lines;

static char *touched(char *p, size_t bytes)
{
	if (!p)
		fail_as("busy", "out of memory");
	touch_lines(p, bytes, lines);
	return p;
}

/* Marsaglia's xorshift, from the same seed each time. */
static size_t next_size(uint64_t *seed)
{
	const struct pattern *p = pattern;

	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return p->least == p->most ? p->least : (p->least + *seed % (p->most - p->least)) & -PAGE;
}

/* One block in, one out (where as much again was freed before, too); or all in, all out; or a zeroed one among plain ones, one twice as large. */
static void step(char **live, long n, uint64_t *seed)
{
	size_t bytes = next_size(seed);
	char *plain;

	switch (pattern->kind) {
	case SPARE:
		if (n == 0)
			free(touched(calloc(2, bytes), 2 * bytes));
		/* fall through */
	case RING:
		free(live[n % pattern->live]);
		live[n % pattern->live] = touched(calloc(1, bytes), bytes);
		break;
	case BATCH:
		for (int i = 0; i < pattern->live; i++)
			live[i] = touched(calloc(1, bytes), bytes);
		for (int i = 0; i < pattern->live; i++) {
			free(live[i]);
			live[i] = NULL;
		}
		break;
	case MIXED:
		live[0] = touched(calloc(1, bytes), bytes);
		plain = touched(malloc(bytes), bytes);
		free(live[0]);
		live[0] = touched(malloc(2 * bytes), 2 * bytes);
		free(plain);
		free(live[0]);
		live[0] = NULL;
		break;
	}
}

static void *run(void *steps)
{
	char *live[MOST] = { NULL };
	uint64_t seed = UINT64_C(88172645463325252);

	for (long n = 0; now() < until; n++) {
		step(live, n, &seed);
		++*(long *)steps;
	}
	for (int i = 0; i < MOST; i++)
		free(live[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 2 ? atof(argv[2]) : 0;
	long steps[2] = { 0 };
	pthread_t other;

	for (size_t i = 0; argc > 1 && i < sizeof(patterns) / sizeof(*patterns); i++)
		if (!strcmp(argv[1], patterns[i].name))
			pattern = &patterns[i];
	lines = argc > 3 ? strtoul(argv[3], NULL, 0) : 0;
	if (!pattern || seconds <= 0 || lines < 1 || lines > 64) {
		fputs("usage: busy PATTERN SECONDS LINES; patterns:", stderr);
		for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
			fprintf(stderr, " %s", patterns[i].name);
		fputc('\n', stderr);
		return 2;
	}
	until = now() + (uint64_t)(seconds * 1e9);
	if (pattern->threads > 1 && pthread_create(&other, NULL, run, &steps[1]))
		fail_as("busy", "no thread");
	run(&steps[0]);
	if (pattern->threads > 1)
		pthread_join(other, NULL);
	printf("%.2f\n", seconds * 1e6 * pattern->threads / (double)(steps[0] + steps[1]));
	return 0;
}
