/*
 * parts: what calloc, writing and free take by themselves after a pause.
 *
 * `parts BYTES LINES ROUNDS` writes LINES of each page. It prints the ns of calloc, of writing, of free and of all three
 * together, each the median of the rounds.
 */
#include "../loop.h"
#include "../worker.h"

enum { PARTS = 4, PAUSE_NS = 3000000 };

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 3 ? strtoul(argv[1], NULL, 0) : 0;
	size_t lines = argc > 3 ? strtoul(argv[2], NULL, 0) : 0;
	long rounds = argc > 3 ? atol(argv[3]) : 0;
	struct timespec pause = { 0, PAUSE_NS };
	uint64_t *times[PARTS];

	if (bytes == 0 || bytes % 4096 || lines < 1 || lines > 64 || rounds < 1)
		fail_as("parts", "usage: parts BYTES (whole pages) LINES (1 to 64) ROUNDS");
	for (int part = 0; part < PARTS; part++)
		if (!(times[part] = calloc((size_t)rounds, sizeof(uint64_t))))
			fail_as("parts", "out of memory");
	for (long n = 0; n < rounds; n++) {
		uint64_t began, got, written, ended;
		char *p;

		nanosleep(&pause, NULL);
		began = now();
		p = calloc(1, bytes);
		got = now();
		if (!p)
			fail_as("parts", "out of memory");
		escape(p);
		touch_lines(p, bytes, lines);
		written = now();
		free(p);
		ended = now();
		times[0][n] = got - began;
		times[1][n] = written - got;
		times[2][n] = ended - written;
		times[3][n] = ended - began;
	}
	for (int part = 0; part < PARTS; part++) {
		qsort(times[part], (size_t)rounds, sizeof(uint64_t), ascending);
		printf("%s%" PRIu64, part ? " " : "", times[part][rounds / 2]);
	}
	putchar('\n');
	return 0;
}
