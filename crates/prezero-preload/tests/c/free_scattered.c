/* Writes through a dangling pointer into each argv[1]th page of memory that the zone gave back to the kernel. */
#include "check.h"

#define SIZE (24 * MIB)

int main(int argc, char **argv)
{
	size_t step = strtoul(argv[1], NULL, 0);
	unsigned char *block = malloc(SIZE), *dangling = block;

	CHECK(block);
	memset(block, 1, SIZE);
	free(block);
	malloc_trim(0);
	for (size_t at = 0; at < SIZE; at += step * PAGE)
		dangling[at + 9] = 0x5a;
	unsigned char *zero = calloc(1, SIZE);
	CHECK(zero == dangling);
	CHECK(is_zero(zero, SIZE));
	return 0;
}
