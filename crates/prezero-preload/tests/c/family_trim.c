/* malloc_trim gives back what is free in the zone as well, zero or not, and leaves what is used. */
#include "check.h"

#define COUNT 16
#define BYTES (4 * MIB)

int main(void)
{
	unsigned char *used, *blocks[COUNT];
	size_t full;

	CHECK(used = malloc(BYTES));
	paint(used, BYTES, 5);
	for (int i = 0; i < COUNT; i++)
		CHECK(blocks[i] = memset(malloc(BYTES), 1, BYTES));
	CHECK(in_zone(used) && in_zone(blocks[0]));
	full = resident();
	for (int i = 0; i < COUNT; i++)
		free(blocks[i]);
	errno = 0;
	CHECK(malloc_trim(0) == 1 && errno == 0);
	CHECK(resident() < full - COUNT * BYTES * 9 / 10);
	CHECK(painted(used, BYTES, 5));
	for (int i = 0; i < COUNT; i++) {
		CHECK(blocks[i] = calloc(1, BYTES));
		CHECK(is_zero(blocks[i], BYTES));
	}
	puts("good");
	return 0;
}
