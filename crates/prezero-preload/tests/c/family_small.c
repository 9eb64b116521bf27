/*
 * Small blocks that come and go by the megabyte, in a program that had a large one: the C library has learnt
 * from that to keep what they lie in.
 */
#include <sys/resource.h>
#include "check.h"

#define BLOCKS 1000
#define BYTES 1500
#define ROUNDS 50

static long faults(void)
{
	struct rusage usage;

	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_minflt;
}

static void once(void)
{
	static char *blocks[BLOCKS];

	for (int i = 0; i < BLOCKS; i++) {
		CHECK(blocks[i] = malloc(BYTES));
		memset(blocks[i], i, BYTES);
	}
	for (int i = BLOCKS; i-- > 0;)
		free(blocks[i]);
}

/* A large block of a kind, all of it used. */
static void large(const char *kind)
{
	char *block;

	switch (*kind) {
	case 'm':
		block = malloc(4 * MIB);
		break;
	case 'c':
		block = calloc(1, 4 * MIB);
		break;
	case 'g':
		CHECK(block = malloc(MIB / 8));
		block = realloc(block, 4 * MIB);
		break;
	default:
		CHECK(block = malloc(1000));
		block = realloc(block, 4 * MIB);
	}
	CHECK(block);
	memset(block, 1, 4 * MIB);
	free(block);
}

int main(int argc, char **argv)
{
	long before;

	CHECK(argc == 2);
	large(argv[1]);
	once();
	before = faults();
	for (int i = 0; i < ROUNDS; i++)
		once();
	/* One round's worth, where each would fault it all in again. */
	CHECK(faults() - before < BLOCKS * BYTES / (long)PAGE);
	puts("good");
	return 0;
}
