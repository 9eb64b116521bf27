/*
 * Every way to get, grow and give back a block, in a random order, beside a description of what each block holds. With an
 * argument: the ways that every allocator has, and fewer rounds.
 */
#include "check.h"

#define SLOTS 48
#define ROUNDS 3000

static struct {
	unsigned char *block;
	size_t size;
	unsigned seed;
} slots[SLOTS];

static uint64_t state = 88172645463325252u;

static size_t random_below(size_t end)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % end;
}

/* From a byte to half a MiB, each power of two as often. */
static size_t a_size(void)
{
	size_t most = (size_t)2 << random_below(18);

	return most / 2 + random_below(most) + 1;
}

int main(int argc, char **argv)
{
	/* In a program at a fixed place these addresses lie in the program. */
	void *(*volatile grow)(void *, size_t) = realloc;
	void (*volatile give)(void *) = free;
	unsigned ways = argc > 1 ? 6 : 10, rounds = argc > 1 ? ROUNDS / 5 : ROUNDS;

	(void)argv;
	for (unsigned round = 1; round <= rounds; round++) {
		size_t at = random_below(SLOTS), size = a_size(), old = slots[at].size;
		unsigned char *block = slots[at].block;
		int how = random_below(ways);

		CHECK(!block || painted(block, old, slots[at].seed));
		if (how < 4) {
			CHECK(block = grow(block, size));
			CHECK(painted(block, slots[at].block ? old < size ? old : size : 0, slots[at].seed));
		} else {
			give(block);
			if (how == 4)
				CHECK(block = malloc(size));
			if (how == 5)
				CHECK((block = calloc(1, size)) && is_zero(block, size));
			if (how == 6)
				CHECK((block = memalign(256, size)) && (uintptr_t)block % 256 == 0);
			if (how == 7)
				CHECK(posix_memalign((void **)&block, PAGE, size) == 0 && (uintptr_t)block % PAGE == 0);
			if (how == 8)
				CHECK(block = aligned_alloc(64, (size + 63) & ~63ul));
			if (how == 9) {
				CHECK(block = (unsigned char *)strdup("from libc itself"));
				size = 17;
			}
		}
		slots[at].block = block;
		slots[at].size = size;
		slots[at].seed = round;
		paint(block, size, round);
		/* Where a tracker of the program's own looks for its mark. */
		if (ways > 6)
			(void)((volatile size_t *)block)[-2];
	}
	for (int at = 0; at < SLOTS; at++)
		give(slots[at].block);
	puts("good");
	return 0;
}
