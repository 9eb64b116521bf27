/* mlockall before and after the zone exists must not make the reservation resident. */
#include "check.h"

static size_t resident(void)
{
	size_t total = 0, pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	CHECK(file && fscanf(file, "%zu %zu", &total, &pages) == 2);
	fclose(file);
	return pages * PAGE;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		free(malloc(MIB));
	CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	CHECK(resident() < 256 * MIB);
	unsigned char *block = calloc(1, 4 * MIB);

	CHECK(block && is_zero(block, 4 * MIB));
	printf("%s\n", in_zone(block) ? "zone" : "next");
	free(block);
	CHECK(munlockall() == 0);
	return 0;
}
