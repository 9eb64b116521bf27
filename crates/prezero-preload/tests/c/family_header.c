/* The functions of prezero.h. */
#include "check.h"
#include <prezero.h>

int main(void)
{
	char text[16384], cut[10];
	unsigned char *block = prezero_alloc(MIB), *zeroed = prezero_zalloc(MIB), *small = prezero_zalloc(10);

	CHECK(in_zone(block) && in_zone(zeroed) && small && !in_zone(small));
	CHECK(is_zero(zeroed, MIB) && is_zero(small, 10));
	memset(block, 1, MIB);
	prezero_free(block);
	prezero_free(small);
	prezero_free(NULL);
	prezero_free_zeroed(NULL);
	prezero_free_zeroed(zeroed);
	errno = 5;
	for (int first_use = -1; first_use <= 3; first_use++) {
		unsigned char *used = prezero_zalloc_for(MIB, (enum prezero_use)first_use);

		CHECK(used && is_zero(used, MIB));
		memset(used, 1, MIB);
		free(used);
	}
	CHECK(prezero_try_zalloc(10) == NULL && errno == 5);
	block = prezero_try_zalloc(MIB);
	CHECK(!block || is_zero(block, malloc_usable_size(block)));
	if (block)
		memset(block, 1, MIB);
	free(block);
	CHECK(errno == 5);
	free(prezero_zalloc(MIB));
	prezero_free(malloc(MIB));
	int len = prezero_stats_json(text, sizeof text);
	CHECK(len > 2 && (size_t)len < sizeof text && strlen(text) == (size_t)len);
	CHECK(text[0] == '{' && text[len - 1] == '}');
	CHECK(prezero_stats_json(NULL, 0) > 2);
	CHECK(prezero_stats_json(cut, sizeof cut) > 9 && strlen(cut) == 9);
	puts(text);
	return 0;
}
