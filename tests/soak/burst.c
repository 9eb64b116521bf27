/* Takes memory in bursts, finds it zero, frees it all, and becomes as small as it was.
 *
 *	burst MIB BURSTS [stay]
 *
 * Its size is read from the kernel. It waits for it to shrink however long that takes: who calls it
 * knows when it hangs. What may stay: a tenth of what it had, and 4 MiB; or all, if it is told so.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define KIB 1024UL

static size_t resident(void)
{
	size_t total, pages;
	FILE *file = fopen("/proc/self/statm", "re");

	if (!file || fscanf(file, "%zu %zu", &total, &pages) != 2)
		abort();
	fclose(file);
	return pages * 4096;
}

int main(int argc, char **argv)
{
	size_t most = argc > 1 ? strtoul(argv[1], NULL, 10) * MIB : 40 * MIB;
	int bursts = argc > 2 ? atoi(argv[2]) : 1;
	size_t base = resident(), count = most / (256 * KIB);
	unsigned char **blocks = calloc(count, sizeof *blocks);

	for (int burst = 0; burst < bursts; burst++) {
		struct timespec rest = { .tv_nsec = 2000000 };

		for (int round = 0; round < 20; round++) {
			for (size_t i = 0; i < count; i++) {
				size_t size = 64 * KIB + (i * 7919 + round * 104729) % (384 * KIB);

				blocks[i] = calloc(1, size);
				if (!blocks[i])
					abort();
				for (size_t b = 0; b < size; b++)
					if (blocks[i][b]) {
						printf("byte %zu of %zu is not zero\n", b, size);
						return 1;
					}
				memset(blocks[i], 0xa5, size);
			}
			for (size_t i = 0; i < count; i++)
				free(blocks[i]);
			nanosleep(&rest, NULL);
		}
		while (argc < 4 && resident() > base + most / 10 + 4 * MIB)
			nanosleep(&rest, NULL);
	}
	free(blocks);
	/* A buddy that scrubd splits or merges at the very end would be counted as not free. */
	for (size_t was = 0, is = resident(); was != is; was = is, is = resident()) {
		struct timespec rest = { .tv_nsec = 50000000 };

		nanosleep(&rest, NULL);
	}
	puts("as small as before");
	return 0;
}
