/*
 * To libc a program with one thread stays one, although scrubd runs, and so libc leaves its locks out. "last": the
 * program ends with the last thread that libc knows. "several": scrubd is one of libc's threads.
 */
#include "check.h"
#include <signal.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/time.h>

#define FORKS 300

static volatile int forks;

static int tasks(void)
{
	struct dirent *entry;
	int count = 0;
	DIR *folder = opendir("/proc/self/task");

	CHECK(folder);
	while ((entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}

/* The last thread that libc knows ends: so does the process, as it does without scrubd. */
static void *last(void *first)
{
	CHECK(pthread_join(*(pthread_t *)first, NULL) == 0);
	puts("good");
	fflush(stdout);
	return NULL;
}

/* Wherever it interrupts malloc, there is no lock of libc's that fork would wait for. */
static void forks_once(int signal)
{
	int child = fork();

	(void)signal;
	if (child == 0)
		_exit(0);
	CHECK(child > 0 && waitpid(child, NULL, 0) == child);
	forks++;
}

static void fork_in_a_handler(void)
{
	struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	void *small[64] = {NULL};

	CHECK(signal(SIGALRM, forks_once) != SIG_ERR);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (unsigned i = 0; forks < FORKS; i++) {
		free(small[i % 64]);
		CHECK(small[i % 64] = malloc(1500 + i * 7 % 3000));
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

int main(int count, char **arguments)
{
	static pthread_t first, other;

	UNTIL((use_and_free(), counter("scrubbed_bytes") > 0));
	CHECK(tasks() == 2);
	if (count > 1 && strcmp(arguments[1], "several") == 0) {
		CHECK(!__libc_single_threaded);
		puts("good");
		return 0;
	}
	CHECK(__libc_single_threaded);
	fork_in_a_handler();
	CHECK(__libc_single_threaded);
	if (count > 1) {
		first = pthread_self();
		CHECK(pthread_create(&other, NULL, last, &first) == 0);
		pthread_exit(NULL);
	}
	puts("good");
	return 0;
}
