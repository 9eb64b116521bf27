/*
 * Blocks of calloc are zero, those of its parent are a child's, and what grows stays, on a kernel that pretends to have
 * made a call. Prints whether there is a zone.
 */
#include "check.h"

static unsigned char *block_with_each(size_t step, size_t bytes)
{
	unsigned char *block = malloc(bytes);

	CHECK(block);
	for (size_t at = 0; at < bytes; at += step * PAGE)
		block[at + 100] = 0x5a;
	return block;
}

static void zeroes_after_frees(void)
{
	static const size_t steps[] = { 1, 3, 64 };

	for (int round = 0; round < 6; round++) {
		size_t bytes = (40 + round) * MIB;
		free(block_with_each(steps[round % 3], bytes));
		if (round % 2)
			malloc_trim(0);
		unsigned char *zero = calloc(1, bytes);
		CHECK(zero && is_zero(zero, bytes));
		free(zero);
	}
}

static void growth(void)
{
	unsigned char *block = malloc(MIB);

	CHECK(block);
	paint(block, MIB, 7);
	for (size_t bytes = 2 * MIB; bytes <= 32 * MIB; bytes *= 2) {
		CHECK(block = realloc(block, bytes));
		CHECK(painted(block, MIB, 7));
	}
	free(block);
}

int main(void)
{
	unsigned char *kept = malloc(8 * MIB);
	int status, zone = in_zone(kept);

	CHECK(kept);
	paint(kept, 8 * MIB, 3);
	use_and_free();
	zeroes_after_frees();
	if (zone)
		growth();
	free(block_with_each(1, 64 * MIB));
	for (int round = 0; round < 2; round++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			CHECK(painted(kept, 8 * MIB, 3));
			zeroes_after_frees();
			_exit(0);
		}
		zeroes_after_frees();
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	puts(zone ? "zone" : "next");
	return 0;
}
