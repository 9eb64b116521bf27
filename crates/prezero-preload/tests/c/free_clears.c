/* With zero-on-free: what was freed is gone when free returns, and malloc never shows it. */
#include "check.h"

static void nothing_left(unsigned char *freed, size_t size)
{
	CHECK(is_zero(freed, size)); /* a dangling pointer, to look only */
}

int main(void)
{
	size_t sizes[] = { THRESHOLD, 3 * THRESHOLD, MIB, 2 * MIB, 9 * MIB, 70 * MIB };

	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			size_t size = sizes[i];
			unsigned char *block = malloc(size);

			CHECK(in_zone(block) && is_zero(block, size));
			memset(block, 0x5e, size);
			free(block);
			nothing_left(block, size);

			CHECK(block = calloc(1, size));
			block[size / 2] = 0x5e; /* most of it is never touched */
			free(block);
			nothing_left(block, size);

			CHECK(block = malloc(2 * size));
			memset(block, 0x5e, 2 * size);
			unsigned char *shorter = realloc(block, size);
			CHECK(shorter == block && block[size - 1] == 0x5e);
			nothing_left(block + size, size);
			unsigned char *longer = realloc(shorter, 3 * size);
			CHECK(longer && longer[size - 1] == 0x5e && is_zero(longer + size, size));
			if (longer != shorter)
				nothing_left(shorter, size);
			free(longer);
			nothing_left(longer, 3 * size);
		}
	puts("good");
	return 0;
}
