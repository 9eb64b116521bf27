/* A calloc of an odd size clears its pages, and not what the block is longer; that is not taken
 * for zero afterwards, whatever becomes of the block. */
#include "check.h"
#include <prezero.h>

/* Bytes cleared so far while the program waited. */
static size_t cleared(void)
{
	static char text[16384];
	const char *name = "\"miss_bytes\":";

	prezero_stats_json(text, sizeof text);
	char *at = strstr(text, name);
	CHECK(at);
	return strtoull(at + strlen(name), NULL, 10);
}

/* Leaves a block of this length free and full of something. */
static void soil(size_t size)
{
	unsigned char *block = malloc(size);

	memset(block, 0x5e, malloc_usable_size(block));
	free(block);
}

int main(void)
{
	size_t sizes[] = { 65537, 70000, 100000, 131073, 140000, 200000, 262145, 300000, 524289,
			   700000, MIB + 1, 1500000, 2 * MIB - 1, 2 * MIB + 1, 3000000, 4 * MIB - 1 };
	size_t missed = 0;

	for (int round = 0; round < 4; round++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			size_t size = sizes[i], pages = (size + PAGE - 1) / PAGE * PAGE;

			soil(size);
			size_t before = cleared();
			unsigned char *block = calloc(1, size);
			size_t after = cleared();

			CHECK(in_zone(block) && is_zero(block, malloc_usable_size(block)));
			CHECK(after - before <= pages);
			missed += after - before;
			switch (round) {
			case 0:
				free(block);
				break;
			case 1: /* what is behind it goes back as it is */
				prezero_free_zeroed(block);
				break;
			case 2: /* longer, where it is or elsewhere */
				block = realloc(block, pages + 8 * PAGE);
				CHECK(block && is_zero(block, size));
				memset(block, 0, malloc_usable_size(block));
				free(block);
				break;
			default: /* and so short that it leaves the zone */
				free(realloc(block, 100));
			}
			for (size_t other = size; other < 4 * size; other += size / 2 + 1) {
				block = calloc(other, 1);
				CHECK(block && is_zero(block, malloc_usable_size(block)));
				memset(block, 0x5e, malloc_usable_size(block));
				free(block);
			}
		}
	CHECK(missed > 0);
	puts("good");
	return 0;
}
