/* Has a zone and scrubd do all that they do, if there is one: says "zone" or "next". */
#include "check.h"

static void rounds(int n)
{
	for (int round = 0; round < n; round++) {
		unsigned char *block = NULL;

		use_and_free();
		for (size_t size = THRESHOLD; size <= 8 * MIB; size *= 2) {
			CHECK(block = realloc(block, size));
			memset(block + size / 2, 1, size / 2);
		}
		free(block);
		CHECK(block = malloc(4 * MIB)); /* untouched for the most part */
		block[0] = 1;
		free(block);
		for (int i = 0; i < 10000000; i++)
			__asm__ volatile("");
	}
}

int main(void)
{
	void *block = malloc(MIB);
	int status;

	puts(in_zone(block) ? "zone" : "next");
	fflush(stdout);
	free(block);
	rounds(5);
	malloc_trim(0);
	rounds(2);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		rounds(3);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	rounds(2);
	return 0;
}
