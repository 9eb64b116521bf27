/*
 * small: small blocks that come and go together, in a program that had one large block.
 *
 * `small MIB LARGE_MIB` takes MIB of small blocks in a round and frees them. The large block comes first; with 0 there
 * is none. It prints the us of a round.
 */
#include <string.h>

#include "../worker.h"

#define MIB ((size_t)1 << 20)
#define BYTES 1500
#define ROUNDS 500

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) * MIB / BYTES : 0;
	size_t large = argc > 2 ? strtoul(argv[2], NULL, 10) * MIB : 0;
	char **blocks;
	uint64_t began;

	if (argc != 3 || !count)
		fail_as("small", "usage: small MIB-OF-SMALL-BLOCKS MIB-OF-THE-LARGE-BLOCK");
	if (large) {
		char *block = malloc(large);

		memset(block, 1, large);
		free(block);
	}
	blocks = malloc(count * sizeof *blocks);
	began = now();
	for (int round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < count; i++)
			memset(blocks[i] = malloc(BYTES), round, BYTES);
		for (size_t i = count; i-- > 0;)
			free(blocks[i]);
	}
	printf("%.2f\n", (double)(now() - began) / ROUNDS / 1e3);
	return 0;
}
