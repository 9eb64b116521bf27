/* Frees what must not be freed, in the way that the first argument names. */
#include "check.h"

int main(int argc, char **argv)
{
	char *block = malloc(MIB), *other = malloc(MIB);
	const char *how = argc > 1 ? argv[1] : "";

	CHECK(in_zone(block) && in_zone(other));
	if (!strcmp(how, "double")) {
		free(block);
		free(block);
	} else if (!strcmp(how, "inside")) {
		free(block + THRESHOLD);
	} else if (!strcmp(how, "odd")) {
		free(block + 16);
	} else if (!strcmp(how, "never")) {
		free(other + 32 * MIB);
	} else if (!strcmp(how, "realloc")) {
		free(block);
		realloc(block, 2 * MIB);
	}
	puts("not caught");
	return 0;
}
