/* The corners of the malloc family, printed, to be compared with glibc's own answers. */
#include "check.h"

static void say(const char *what, void *block)
{
	printf("%s: %s, errno %d\n", what, block ? "block" : "null", errno);
	errno = 0;
}

int main(void)
{
	volatile size_t huge = SIZE_MAX, zero = 0;
	size_t sizes[] = { 0, 1, 100, 65535, 65536, 65537, 1000000, 5 * MIB };
	size_t aligns[] = { 0, 1, 3, 4, 8, 16, 24, 32, 100, 4096, 5000, 1 << 16, 1 << 21 };
	char what[128];
	void *block, *out;

	errno = 0;
	say("malloc(0)", block = malloc(zero));
	free(block);
	say("calloc(0, 5)", block = calloc(zero, 5));
	free(block);
	say("calloc(5, 0)", block = calloc(5, zero));
	free(block);
	say("realloc(NULL, 0)", block = realloc(NULL, zero));
	free(block);
	say("malloc(max)", malloc(huge));
	say("malloc(max / 2 + 1)", malloc(huge / 2 + 1));
	say("malloc(max / 2)", malloc(huge / 2));
	say("calloc(max, 2)", calloc(huge, 2));
	say("calloc(2^33, 2^33)", calloc((size_t)1 << 33, (size_t)1 << 33));
	say("calloc(1, max)", calloc(1, huge));
	say("reallocarray(NULL, max, 2)", reallocarray(NULL, huge, 2));
	say("reallocarray(NULL, 10, 10000)", block = reallocarray(NULL, 10, 10000));
	say("reallocarray(block, max, 2)", reallocarray(block, huge, 2));
	((char *)block)[99999] = 1;
	say("realloc(block, max)", realloc(block, huge));
	((char *)block)[99999] = 1;
	say("realloc(large, 0)", realloc(block, zero));
	say("realloc(small, 0)", realloc(malloc(10), zero));
	say("reallocarray(large, 0, 5)", reallocarray(malloc(100000), zero, 5));
	free(NULL);
	printf("usable(NULL): %zu\n", malloc_usable_size(NULL));
	say("valloc(max)", valloc(huge));
	say("pvalloc(max)", pvalloc(huge));
	say("pvalloc(1)", block = pvalloc(1));
	CHECK(malloc_usable_size(block) >= PAGE);
	free(block);
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
		for (size_t a = 0; a < sizeof aligns / sizeof *aligns; a++) {
			snprintf(what, sizeof what, "memalign(%zu, %zu)", aligns[a], sizes[s]);
			say(what, block = memalign(aligns[a], sizes[s]));
			free(block);
			snprintf(what, sizeof what, "aligned_alloc(%zu, %zu)", aligns[a], sizes[s]);
			say(what, block = aligned_alloc(aligns[a], sizes[s]));
			free(block);
			out = (void *)0x5a5a;
			int rc = posix_memalign(&out, aligns[a], sizes[s]);
			printf("posix_memalign(%zu, %zu): %d, %s, errno %d\n", aligns[a], sizes[s], rc,
			       rc ? (out == (void *)0x5a5a ? "kept" : "changed") : "set", errno);
			errno = 0;
			if (!rc)
				free(out);
		}
	}
	say("memalign(max / 2 + 2, 100000)", memalign(huge / 2 + 2, 100000));
	say("memalign(2^63, 100000)", memalign((size_t)1 << 63, 100000));
	say("memalign(4096, max)", memalign(4096, huge));
	say("aligned_alloc(2 MiB, max)", aligned_alloc(2 * MIB, huge));
	errno = 0;
	printf("posix_memalign(64, max): %d\n", posix_memalign(&out, 64, huge));
	return 0;
}
