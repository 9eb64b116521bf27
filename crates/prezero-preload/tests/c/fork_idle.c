/*
 * Forks of a process that has just freed argv[1] MiB, argv[2] of them: how long each takes, in
 * the parent, and how much of it the child has. Says the medians.
 */
#include "check.h"
#include <time.h>

#define EACH (16 * MIB)
#define MOST 2000

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int order(const void *one, const void *two)
{
	double a = *(const double *)one, b = *(const double *)two;

	return (a > b) - (a < b);
}

#ifdef IDLE_THREAD
static void *sleep_on(void *unused)
{
	for (;;)
		pause();
	return unused;
}
#endif

int main(int argc, char **argv)
{
	static double took[MOST], gone[MOST];
	static unsigned char *blocks[1024];

	CHECK(argc == 3);
#ifdef IDLE_THREAD
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, sleep_on, NULL) == 0);
#endif
	size_t count = strtoul(argv[1], NULL, 10) * MIB / EACH, forks = strtoul(argv[2], NULL, 10);
	CHECK(count <= 1024 && forks > 0 && forks <= MOST);
	unsigned char *used = malloc(EACH);

	paint(used, EACH, 3);
	for (size_t i = 0; i < count; i++)
		CHECK(blocks[i] = memset(malloc(EACH), 1, EACH));
	for (size_t i = 0; i < count; i++)
		free(blocks[i]);
	size_t before = resident();

	for (size_t i = 0; i < forks; i++) {
		double began = now_us();
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (pid == 0) {
			if (i == 0)
				CHECK(painted(used, EACH, 3) && resident() < 2 * EACH + 8 * MIB);
			_exit(0);
		}
		took[i] = now_us() - began;
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		gone[i] = now_us() - began;
	}
	qsort(took, forks, sizeof *took, order);
	qsort(gone, forks, sizeof *gone, order);
	printf("%zu MiB resident: fork %.0f us, with _exit and wait %.0f us\n", before / MIB,
	       took[forks / 2], gone[forks / 2]);
	return 0;
}
