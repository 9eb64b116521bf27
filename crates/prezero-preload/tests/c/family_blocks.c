/* Sizes, alignments, content, errno: each block is what was asked for. */
#include "check.h"

static void sizes(void)
{
	for (size_t size = 1; size <= 64 * MIB; size = size * 5 / 3 + 1) {
		unsigned char *plain = malloc(size), *zeroed = calloc(1, size);

		CHECK(plain && zeroed);
		CHECK(malloc_usable_size(plain) >= size && malloc_usable_size(zeroed) >= size);
		CHECK(in_zone(plain) == (size >= THRESHOLD));
		CHECK(in_zone(zeroed) == (size >= THRESHOLD));
		CHECK(is_zero(zeroed, size));
		/* To the last usable byte, and nobody else's. */
		memset(plain, 1, malloc_usable_size(plain));
		memset(zeroed, 2, malloc_usable_size(zeroed));
		CHECK(plain[0] == 1 && plain[malloc_usable_size(plain) - 1] == 1);
		free(plain);
		free(zeroed);
		/* Freed dirty: the next calloc of that size must be clear again. */
		zeroed = calloc(size, 1);
		CHECK(is_zero(zeroed, size));
		free(zeroed);
	}
}

static void alignments(void)
{
	for (size_t align = 8; align <= GIB; align *= 2) {
		size_t some[] = { 1, THRESHOLD - 1, THRESHOLD, 3 * THRESHOLD + 5, 3 * MIB };

		for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
			void *all[3] = { memalign(align, some[i]), aligned_alloc(align, some[i]) };

			CHECK(posix_memalign(&all[2], align, some[i]) == 0);
			for (int n = 0; n < 3; n++) {
				CHECK(all[n] && (uintptr_t)all[n] % align == 0);
				CHECK(malloc_usable_size(all[n]) >= some[i]);
				memset(all[n], n + 1, some[i]);
			}
			for (int n = 0; n < 3; n++) {
				CHECK(((char *)all[n])[some[i] - 1] == n + 1);
				free(all[n]);
			}
		}
	}
	void *large = memalign(2 * MIB, MIB), *page = valloc(MIB), *pages = pvalloc(MIB + 1);

	CHECK(in_zone(large) && in_zone(page) && in_zone(pages));
	CHECK((uintptr_t)page % PAGE == 0 && (uintptr_t)pages % PAGE == 0);
	CHECK(malloc_usable_size(pages) >= MIB + PAGE);
	free(large);
	free(page);
	free(pages);
}

static void errno_is_kept(void)
{
	void *blocks[4] = { malloc(10), malloc(100000), calloc(1, 70 * MIB), memalign(2 * MIB, 5 * MIB) };

	memset(blocks[2], 1, 70 * MIB);
	errno = 77;
	for (int i = 0; i < 4; i++) {
		free(blocks[i]);
		CHECK(errno == 77);
	}
	void *block = realloc(realloc(malloc(100000), 200000), 100);

	CHECK(errno == 77);
	free(block);
}

static void reallocs(void)
{
	size_t sizes[] = { 10, 1000, 40000, 65535, 65536, 100000, 30000, 131072, 131073, MIB,
			   3 * MIB, 2 * MIB, 33 * MIB, 5 * MIB, 70000, 60000, 20000, 80000, 1 };
	size_t count = sizeof sizes / sizeof *sizes;

	/* From each size to each other one: both borders, both directions. */
	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < count; j++) {
			size_t kept = sizes[i] < sizes[j] ? sizes[i] : sizes[j];
			unsigned char *block = malloc(sizes[i]);

			paint(block, sizes[i], i);
			block = realloc(block, sizes[j]);
			CHECK(block && malloc_usable_size(block) >= sizes[j]);
			CHECK(painted(block, kept, i));
			paint(block, sizes[j], j);
			block = reallocarray(block, sizes[i], 1);
			CHECK(block && painted(block, kept, j));
			free(block);
		}
	}
	/* Up crosses into the zone, far down leaves it. */
	void *block = malloc(100);

	CHECK(!in_zone(block));
	block = realloc(block, MIB);
	CHECK(in_zone(block));
	block = realloc(block, 100);
	CHECK(block && !in_zone(block));
	free(block);
	/* A tail that is given back is free, and the block before it lives on. */
	unsigned char *first = malloc(8 * MIB);

	paint(first, 8 * MIB, 5);
	CHECK(realloc(first, MIB) == first);
	void *others[16];
	for (int i = 0; i < 16; i++)
		memset(others[i] = malloc(MIB), 0xee, MIB);
	CHECK(painted(first, MIB, 5));
	for (int i = 0; i < 16; i++)
		free(others[i]);
	free(first);
}

int main(void)
{
	sizes();
	alignments();
	errno_is_kept();
	reallocs();
	puts("good");
	return 0;
}
