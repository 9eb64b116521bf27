/* A hostile program: writes through dangling pointers into what it freed. */
#include "check.h"

#define SIZE (256 * KIB)
#define BLOCKS 32

int main(void)
{
	unsigned char *blocks[BLOCKS];
	int good = 1;

	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < BLOCKS; i++) {
			CHECK(blocks[i] = calloc(1, SIZE));
			good &= is_zero(blocks[i], SIZE);
			memset(blocks[i], 1, SIZE);
		}
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		usleep(20000); /* time for scrubd; without it nothing is believed to be zero */
		for (int i = 0; i < BLOCKS; i++)
			for (size_t at = 0; at < SIZE; at += PAGE)
				blocks[i][at + 99] = 0x66;
	}
	puts(good ? "all zero" : "not all zero");
	return 0;
}
