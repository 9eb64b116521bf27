/* Frees what must not be freed, in the way that the first argument names. */
#include "check.h"

int main(int argc, char **argv)
{
	char *block = malloc(MIB);
	const char *how = argc > 1 ? argv[1] : "";

	CHECK(in_zone(block));
	if (!strcmp(how, "double")) {
		free(block);
		free(block);
	} else if (!strcmp(how, "inside")) {
		free(block + THRESHOLD);
	} else if (!strcmp(how, "odd")) {
		free(block + 16);
	} else if (!strcmp(how, "never")) {
		/* In the zone for certain, and no block ever started there. */
		char *large = malloc(32 * MIB);

		CHECK(in_zone(large));
		free(large);
		free(large + 16 * MIB);
	} else if (!strcmp(how, "realloc")) {
		free(block);
		realloc(block, 2 * MIB);
	}
	puts("not caught");
	return 0;
}
