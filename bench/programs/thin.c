/*
 * thin: a large zeroed block of which little is touched, again and again.
 *
 * `thin MIB PER_THOUSAND PAUSE_MS` touches so many of each thousand pages, at random, and pauses after each block. It
 * prints the ms of calloc, touch and free together, the mean of all rounds but the first, and the MiB that were
 * resident at the peak.
 */
#include "../worker.h"

#define ROUNDS 20
#define PAGE 4096

int main(int argc, char **argv)
{
	size_t pages = argc > 1 ? strtoul(argv[1], NULL, 0) * 256 : 0;
	size_t touched = pages * (argc > 2 ? strtoul(argv[2], NULL, 0) : 0) / 1000;
	long pause_ms = argc > 3 ? strtol(argv[3], NULL, 0) : 0;
	struct timespec pause = { pause_ms / 1000, pause_ms % 1000 * 1000000 };
	unsigned long random = 88172645463325252ul;
	uint64_t sum = 0;
	struct rusage used;

	if (!pages) {
		fputs("usage: thin MIB PER_THOUSAND PAUSE_MS\n", stderr);
		return 2;
	}
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t began = now();
		char *block = calloc(pages, PAGE);

		if (!block) {
			perror("calloc");
			return 1;
		}
		for (size_t n = 0; n < touched; n++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			((volatile char *)block)[random % pages * PAGE]++;
		}
		free(block);
		sum += round ? now() - began : 0;
		nanosleep(&pause, NULL);
	}
	getrusage(RUSAGE_SELF, &used);
	printf("%.3f %ld\n", (double)sum / (ROUNDS - 1) / 1e6, used.ru_maxrss >> 10);
	return 0;
}
