/*
 * A hostile program: writes through dangling pointers into what it freed. argv[1] "found": for as
 * long as it takes until that is found; on busy CPUs scrubd may clear nothing for seconds.
 */
#include "check.h"

#define SIZE (256 * KIB)
#define BLOCKS 32

static int is_found(void)
{
	return counter("verify_failures") > 0;
}

int main(int argc, char **argv)
{
	unsigned char *blocks[BLOCKS];
	int good = 1, until_found = argc > 1 && !strcmp(argv[1], "found");

	for (int round = 0; round < 40 || (until_found && !is_found()); round++) {
		for (int i = 0; i < BLOCKS; i++) {
			CHECK(blocks[i] = calloc(1, SIZE));
			good &= is_zero(blocks[i], SIZE);
			memset(blocks[i], 1, SIZE);
		}
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		/* Nothing is believed to be zero before scrubd has cleared some of it. */
		long long cleared = counter("scrubbed_bytes");
		(void)WITHIN(20, counter("scrubbed_bytes") > cleared + SIZE);
		for (int i = 0; i < BLOCKS; i++)
			for (size_t at = 0; at < SIZE; at += PAGE)
				blocks[i][at + 99] = 0x66;
	}
	puts(good ? "all zero" : "not all zero");
	return 0;
}
