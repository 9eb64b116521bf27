/*
 * Small blocks that come and go together, in a program that had one large block: microseconds a round of
 * argv[1] MiB of them. argv[2] is the large block's MiB; 0: there is none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define BYTES 1500
#define ROUNDS 500

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) * MIB / BYTES : 0;
	size_t large = argc > 2 ? strtoul(argv[2], NULL, 10) * MIB : 0;
	char **blocks;
	double began;

	if (argc != 3 || !count) {
		fprintf(stderr, "usage: small MIB-OF-SMALL-BLOCKS MIB-OF-THE-LARGE-BLOCK\n");
		return 2;
	}
	if (large) {
		char *block = malloc(large);

		memset(block, 1, large);
		free(block);
	}
	blocks = malloc(count * sizeof *blocks);
	began = now_us();
	for (int round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < count; i++)
			memset(blocks[i] = malloc(BYTES), round, BYTES);
		for (size_t i = count; i-- > 0;)
			free(blocks[i]);
	}
	printf("%7.0f\n", (now_us() - began) / ROUNDS);
	return 0;
}
