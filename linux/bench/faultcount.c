/*
 * faultcount ROUNDS: instructions from a store into untouched memory to the next instruction.
 *
 * For a guest under QEMU's -icount shift=0, where the time stamp counter counts instructions: the
 * same program on the same kernel gives the same figures. Each iteration of a `rep stosq` counts as
 * one, so a cleared page shows as 512 and more; cycles are another matter.
 */
#include "../tests/check.h"
#include <x86intrin.h>

#define PAGES 4096
#define BLOCKS 16

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void measure(const char *what, int round, char *at, size_t step, size_t count, uint64_t *took)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t start = __rdtsc();

		*(volatile char *)(at + i * step) = 1;
		took[i] = __rdtsc() - start;
	}
	for (size_t i = 0; i < count; i++)
		CHECK(first_other(at + i * step + 8, step - 8, 0) == step - 8, "%s %zu", what, i);
	qsort(took, count, sizeof(*took), ascending);
	printf("FAULT %s %d median %lu p10 %lu p90 %lu\n", what, round, took[count / 2], took[count / 10],
	       took[count * 9 / 10]);
}

int main(int argc, char **argv)
{
	static uint64_t took[PAGES];
	int rounds = argc > 1 ? atoi(argv[1]) : 1;

	for (int round = 0; round < rounds; round++) {
		char *p = map_huge((BLOCKS + 1) * HUGE);

		/* The page-table pages above are not what is measured. */
		*(volatile char *)p = 1;
		measure("2M", round, p + HUGE, HUGE, BLOCKS, took);
		munmap(p, (BLOCKS + 1) * HUGE);

		p = map_huge(PAGES * PAGE);
		/* User-mode Linux has no huge pages */
		CHECK(!madvise(p, PAGES * PAGE, MADV_NOHUGEPAGE) || errno == EINVAL);
		measure("4K", round, p, PAGE, PAGES, took);
		munmap(p, PAGES * PAGE);
	}
	return 0;
}
