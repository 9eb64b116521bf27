/*
 * faultcount ROUNDS [all]: instructions from a store into untouched memory to the next instruction;
 * "all": of shared memory and hugetlb, too.
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

/* How many pages hugetlb's pool is to have; has it as many? */
static bool set_pool(int nr)
{
	FILE *pool = fopen("/proc/sys/vm/nr_hugepages", "r+");
	int has = -1;

	if (!pool)
		return false;
	fprintf(pool, "%d\n", nr);
	rewind(pool);
	if (fscanf(pool, "%d", &has) != 1)
		has = -1;
	fclose(pool);
	return has == nr;
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
		if (argc < 3)
			continue;

		int fd = memfd_create("faultcount", 0);

		CHECK(fd >= 0 && !ftruncate(fd, PAGES * PAGE));
		p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(p != MAP_FAILED);
		measure("shmem-4K", round, p, PAGE, PAGES, took);
		munmap(p, PAGES * PAGE);
		close(fd);

		/* New in the pool each time, where there is one. */
		if (set_pool(BLOCKS)) {
			p = mmap(NULL, BLOCKS * HUGE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
			CHECK(p != MAP_FAILED);
			measure("hugetlb-2M", round, p, HUGE, BLOCKS, took);
			munmap(p, BLOCKS * HUGE);
			set_pool(0);
		}
	}
	return 0;
}
