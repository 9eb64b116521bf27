/* Idle memory is left out of core dumps after a while, and what is in use never. */
#include "check.h"

#define SIZE (16 * MIB)
#define BLOCKS 4

int main(void)
{
	unsigned char *blocks[BLOCKS], *used = malloc(SIZE);

	memset(used, 1, SIZE);
	/*
	 * Bursts for zero, so that a stock of it stays; or, where to clear it ahead does not pay (in debug
	 * builds it is dear), memory that stays since it was wanted back after longer and longer.
	 */
	for (int pause = 2; left_out(NULL) < 2 * SIZE; pause += pause < 64 ? pause : 0) {
		for (int i = 0; i < BLOCKS; i++) {
			CHECK(blocks[i] = calloc(1, SIZE));
			memset(blocks[i], 1, SIZE);
		}
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		(void)WITHIN(50 * pause, left_out(NULL) >= 2 * SIZE);
	}
	CHECK(left_out(used) == 0);
	for (int i = 0; i < BLOCKS; i++) {
		CHECK(blocks[i] = calloc(1, SIZE));
		CHECK(is_zero(blocks[i], SIZE) && left_out(blocks[i]) == 0);
		CHECK(left_out(blocks[i] + SIZE - 1) == 0);
	}
	puts("good");
	return 0;
}
