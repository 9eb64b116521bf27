/*
 * rounds: a program that works now and then.
 *
 * `rounds KIB (ROUNDS PERIOD_US HELD_US)...` asks for KIB as zero, writes a line of each page, and frees the block after
 * HELD_US. A round begins PERIOD_US after the one before. All of it is done four times. It prints the mean us of
 * calloc and writing.
 */
#include "../worker.h"

#define TIMES 4
#define PAGE 4096

static void sleep_until(long ns)
{
	struct timespec then = { ns / 1000000000L, ns % 1000000000L };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL);
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 0) * 1024 : 0;
	long begins = (long)now(), count = 0, sum = 0;

	if (!bytes || argc < 5) {
		fputs("usage: rounds KIB (ROUNDS PERIOD_US HELD_US)...\n", stderr);
		return 2;
	}
	for (int part = 2; part + 2 < TIMES * (argc - 2) + 2; part += 3) {
		char **of = argv + 2 + (part - 2) % (argc - 2);
		long period = atol(of[1]) * 1000, held = atol(of[2]) * 1000;

		for (long round = atol(of[0]); round; round--) {
			uint64_t began = now();
			volatile char *block = calloc(1, bytes);

			if (!block) {
				perror("calloc");
				return 1;
			}
			for (size_t at = 0; at < bytes; at += PAGE)
				block[at] = 1;
			sum += (long)(now() - began);
			count++;
			sleep_until(begins + held);
			free((char *)block);
			begins += period;
			sleep_until(begins);
		}
	}
	printf("%.2f\n", sum / 1e3 / count);
	return 0;
}
