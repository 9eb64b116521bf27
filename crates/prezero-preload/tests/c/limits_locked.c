/* mlockall before and after the zone exists must not make the reservation resident. */
#include "check.h"

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
