/*
 * grow: blocks that grow by realloc until each is as large as asked, all of them filled.
 *
 * `grow BLOCKS START_MIB END_MIB PERCENT TIMES NEIGHBOURS` makes every block PERCENT longer in each step. After a step
 * it takes NEIGHBOURS small blocks, which stay. It prints the ms of the first of TIMES, the median of the others, and
 * the MiB that were resident at the peak.
 */
#include <string.h>

#include "../worker.h"

#define MIB ((size_t)1 << 20)
enum { BLOCKS = 64, TIMES = 101, SMALL = 128 << 10, KEPT = 4096 };

static void *kept[KEPT];
static size_t n_kept;

static void fail(const char *why)
{
	fail_as("grow", why);
}

static void take_small(int count)
{
	while (count-- > 0 && n_kept < KEPT) {
		if (!(kept[n_kept] = malloc(SMALL)))
			fail("out of memory");
		memset(kept[n_kept++], 1, SMALL);
	}
}

static double grow_all(int blocks, size_t start, size_t end, int percent, int neighbours)
{
	char *block[BLOCKS];
	size_t size = start;
	uint64_t began = now();
	double took;

	for (int i = 0; i < blocks; i++) {
		if (!(block[i] = malloc(size)))
			fail("out of memory");
		memset(block[i], i + 1, size);
	}
	while (size < end) {
		size_t next = size + size / 100 * percent;

		for (int i = 0; i < blocks; i++) {
			if (!(block[i] = realloc(block[i], next)))
				fail("out of memory");
			memset(block[i] + size, i + 1, next - size);
		}
		take_small(neighbours);
		size = next;
	}
	took = (now() - began) / 1e6;
	for (int i = 0; i < blocks; i++) {
		for (size_t at = 0; at < size; at += 509)
			if (block[i][at] != i + 1)
				fail("a block does not hold what it held");
		free(block[i]);
	}
	while (n_kept > 0)
		free(kept[--n_kept]);
	return took;
}

static int ascending(const void *a, const void *b)
{
	double one = *(const double *)a, other = *(const double *)b;

	return (one > other) - (one < other);
}

int main(int argc, char **argv)
{
	double ms[TIMES];
	struct rusage used;
	int n[7] = { 0 }, times;

	if (argc != 7)
		fail("usage: grow BLOCKS START_MIB END_MIB PERCENT TIMES NEIGHBOURS");
	for (int i = 1; i < argc; i++)
		n[i] = atoi(argv[i]);
	times = n[5];
	if (n[1] < 1 || n[1] > BLOCKS || n[2] < 1 || n[4] < 1 || times < 2 || times > TIMES)
		fail("1 to 64 blocks of 1 MiB or more, 1 percent or more, 2 to 101 times");
	for (int i = 0; i < times; i++)
		ms[i] = grow_all(n[1], n[2] * MIB, n[3] * MIB, n[4], n[6]);
	getrusage(RUSAGE_SELF, &used);
	qsort(ms + 1, times - 1, sizeof *ms, ascending);
	printf("%.2f %.2f %ld\n", ms[0], ms[1 + (times - 1) / 2], used.ru_maxrss / 1024);
	return 0;
}
