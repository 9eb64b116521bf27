/* Blocks that grow and shrink across the border, whoever is behind the shim. */
#include "check.h"

int main(void)
{
	size_t sizes[] = { 1, 500, 30000, 65535, 65536, 200000, MIB, 9 * MIB, 100000, 40000, 8 };
	size_t count = sizeof sizes / sizeof *sizes;

	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < count; j++) {
			size_t kept = sizes[i] < sizes[j] ? sizes[i] : sizes[j];
			unsigned char *block = i % 2 ? malloc(sizes[i]) : calloc(1, sizes[i]), *end;

			CHECK(block && (i % 2 || is_zero(block, sizes[i])));
			paint(block, sizes[i], i);
			CHECK(block = realloc(block, sizes[j]));
			CHECK(painted(block, kept, i));
			CHECK(malloc_usable_size(block) >= sizes[j]);
			CHECK(posix_memalign((void **)&end, 4096, sizes[j]) == 0);
			CHECK((uintptr_t)end % 4096 == 0);
			memset(end, 1, sizes[j]);
			free(block);
			free(end);
			free(aligned_alloc(64, sizes[i] / 64 * 64 + 64));
			free(memalign(256, sizes[i]));
			free(valloc(sizes[j]));
			free(reallocarray(NULL, 3, sizes[i]));
			free(strdup("a small one, from libc itself"));
		}
	}
	puts("good");
	return 0;
}
