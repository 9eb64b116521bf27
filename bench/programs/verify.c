/*
 * verify: calloc of blocks that lie ready.
 *
 * `verify ROUNDS` takes 32 blocks of 64 KiB in each round, after a pause in which they are cleared. It prints the mean
 * ns of a calloc over the middle half of the rounds, the first byte of each page read along.
 */
#include <string.h>
#include <unistd.h>

#include "../worker.h"

#define BLOCKS 32
#define SIZE (64 << 10)

static int order(const void *one, const void *two)
{
	double a = *(const double *)one, b = *(const double *)two;

	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1000;
	double *took = malloc(rounds * sizeof *took), sum = 0;
	char *blocks[BLOCKS];
	long seen = 0;

	for (int round = 0; round < rounds; round++) {
		usleep(1500);
		uint64_t began = now();
		for (int i = 0; i < BLOCKS; i++) {
			blocks[i] = calloc(1, SIZE);
			for (int at = 0; at < SIZE; at += 4096)
				seen += blocks[i][at];
		}
		took[round] = (double)(now() - began) / BLOCKS;
		for (int i = 0; i < BLOCKS; i++) {
			memset(blocks[i], 1, SIZE);
			free(blocks[i]);
		}
	}
	qsort(took, rounds, sizeof *took, order);
	for (int round = rounds / 4; round < rounds * 3 / 4; round++)
		sum += took[round];
	printf("%.1f\n", seen ? -1 : sum / (rounds * 3 / 4 - rounds / 4));
	return seen != 0;
}
