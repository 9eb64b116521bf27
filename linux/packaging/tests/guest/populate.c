/*
 * populate anonymous|huge|shared|heap MIB: takes MIB of memory that has to be zero, and prints how many of its pages
 * the kernel had as zero already (hit) and how many it cleared for it (miss), by its own counters.
 *
 * The first three populate a mapping by MADV_POPULATE_WRITE, heap takes blocks of 1 MiB from calloc().
 */
#include "../../../tests/check.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define BLOCK (1UL << 20)

static long counter(const char *name)
{
	return proc_value("/proc/vmstat", name);
}

static char *populated(const char *how, size_t size)
{
	char *at;

	if (!strcmp(how, "shared")) {
		int fd = memfd_create("populate", 0);

		CHECK(fd >= 0 && !ftruncate(fd, size));
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(at != MAP_FAILED);
		close(fd);
	} else {
		at = map_huge(size);
		if (strcmp(how, "huge"))
			CHECK(!madvise(at, size, MADV_NOHUGEPAGE));
	}
	CHECK(!madvise(at, size, MADV_POPULATE_WRITE), "%s", how);
	return at;
}

int main(int argc, char **argv)
{
	CHECK(argc == 3, "populate anonymous|huge|shared|heap MIB");
	bool heap = !strcmp(argv[1], "heap");
	size_t size = strtoul(argv[2], NULL, 10) << 20;
	char **blocks = calloc(size / BLOCK, sizeof(*blocks));
	long hit = counter("prezero_hit"), miss = counter("prezero_miss");
	size_t i, pages = size / PAGE;

	CHECK(blocks && size && hit >= 0 && miss >= 0);
	if (!heap)
		blocks[0] = populated(argv[1], size);
	for (i = 0; heap && i < size / BLOCK; i++) {
		CHECK(blocks[i] = calloc(1, BLOCK));
		for (size_t at = 0; at < BLOCK; at += PAGE)
			*(volatile char *)(blocks[i] + at) = 0;
	}
	hit = counter("prezero_hit") - hit;
	miss = counter("prezero_miss") - miss;
	for (i = 0; i < size / BLOCK; i++)
		CHECK_ZERO(heap ? blocks[i] : blocks[0] + i * BLOCK, BLOCK);
	printf("%s pages %zu hit %ld miss %ld\n", argv[1], pages, hit, miss);
	return 0;
}
