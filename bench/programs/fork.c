/*
 * fork: what a fork costs a process that has just freed much memory.
 *
 * `fork MIB FORKS [thread]` prints the us of a fork, and of a fork with its child's end, each the median. With `thread`
 * it has a second thread of its own, which sleeps.
 */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../worker.h"

#define EACH ((size_t)16 << 20)
enum { BLOCKS = 1024, FORKS = 2000 };

static int order(const void *one, const void *two)
{
	double a = *(const double *)one, b = *(const double *)two;

	return (a > b) - (a < b);
}

static void *sleeps(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(int argc, char **argv)
{
	static double took[FORKS], gone[FORKS];
	static char *blocks[BLOCKS];
	size_t count = argc > 2 ? ((size_t)strtoul(argv[1], NULL, 10) << 20) / EACH : 0;
	int forks = argc > 2 ? atoi(argv[2]) : 0;
	pthread_t thread;

	if (count > BLOCKS || forks < 1 || forks > FORKS)
		fail_as("fork", "usage: fork MIB (up to 16384) FORKS (1 to 2000) [thread]");
	if (argc > 3 && pthread_create(&thread, NULL, sleeps, NULL))
		fail_as("fork", "no thread");
	for (size_t i = 0; i < count; i++) {
		if (!(blocks[i] = malloc(EACH)))
			fail_as("fork", "out of memory");
		memset(blocks[i], 1, EACH);
	}
	for (size_t i = 0; i < count; i++)
		free(blocks[i]);
	for (int i = 0; i < forks; i++) {
		uint64_t began = now();
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		took[i] = (now() - began) / 1e3;
		if (child < 0 || waitpid(child, NULL, 0) != child)
			fail_as("fork", "no child");
		gone[i] = (now() - began) / 1e3;
	}
	qsort(took, forks, sizeof(*took), order);
	qsort(gone, forks, sizeof(*gone), order);
	printf("%.2f %.2f\n", took[forks / 2], gone[forks / 2]);
	return 0;
}
