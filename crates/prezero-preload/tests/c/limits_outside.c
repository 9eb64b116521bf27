/*
 * Watched from outside, and limited from outside: address space is about what the program uses, and a limit that comes by
 * a call that the shim does not see leaves room for threads, small blocks and large ones. So does a lower one, after a peak
 * that is over.
 */
#include "check.h"
#include "sandbox_filter.h"
#include <sys/resource.h>

static void use(size_t bytes)
{
	unsigned char *block = calloc(1, bytes), *other = malloc(bytes);

	CHECK(block && other && is_zero(block, bytes));
	memset(block, 1, bytes);
	memset(other, 2, bytes);
	free(block);
	free(other);
}

int main(void)
{
	struct rlimit limit = { 1536 * MIB, 1536 * MIB };
	unsigned char *kept = malloc(3 * MIB);
	pthread_t threads[8];

	CHECK(kept);
	paint(kept, 3 * MIB, 4);
	CHECK(address_space() < 256 * MIB);
	for (size_t mib = 1; mib <= 64; mib *= 2) {
		size_t before = address_space();
		use(mib * MIB);
		CHECK(address_space() <= (before > 256 * MIB ? 2 * before : 512 * MIB));
	}
	/* A block that grows has room, and that room is mapped as it grows. */
	for (size_t mib = 4; mib <= 128; mib *= 2) {
		CHECK(kept = realloc(kept, mib * MIB));
		CHECK(painted(kept, 3 * MIB, 4));
	}
	CHECK(address_space() < GIB);
	/* By the instruction: prlimit of a job's agent. */
	CHECK(unseen(SYS_setrlimit, RLIMIT_AS, (long)&limit, 0) == 0);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&threads[i], NULL, nothing, NULL) == 0);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < 2000; i++)
		CHECK(memset(malloc(10000), 1, 10000));
	for (size_t mib = 1; mib <= 64; mib *= 2)
		use(mib * MIB);
	CHECK(painted(kept, 3 * MIB, 4));
	CHECK(kept = realloc(kept, 3 * MIB));
	/* The peak is over. Without the shim it is at once. */
	UNTIL(address_space() < 200 * MIB);
	limit = (struct rlimit){ 300 * MIB, 300 * MIB };
	CHECK(unseen(SYS_setrlimit, RLIMIT_AS, (long)&limit, 0) == 0);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&threads[i], NULL, nothing, NULL) == 0);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	use(8 * MIB);
	CHECK(painted(kept, 3 * MIB, 4));
	free(kept);
	puts("good");
	return 0;
}
