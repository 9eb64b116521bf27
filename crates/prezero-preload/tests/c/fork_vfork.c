/*
 * Children of vfork that allocate: they share the parent's memory and its thread's own
 * storage, and run beside the parent's other threads, on another CPU than the parent did.
 */
#include "check.h"
#include <sched.h>

#define SIZE (64 * KIB)
#define ROUNDS 30
#define PAIRS 20000

static volatile int done;

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set); /* where there is one CPU only, no race */
}

/* Takes blocks, marks them as his, and looks whether they stay so. */
static int pairs(int n, unsigned char who)
{
	for (int i = 0; i < n && !done; i++) {
		volatile unsigned char *block = malloc(SIZE);

		if (!block)
			return 1;
		block[0] = block[SIZE - 1] = who;
		for (int turn = 0; turn < 20; turn++)
			if (block[0] != who || block[SIZE - 1] != who)
				return 2;
		block[0] = block[SIZE - 1] = 0;
		free((void *)block);
	}
	return 0;
}

static void *churn(void *failed)
{
	pin(0);
	while (!done && !*(volatile int *)failed)
		*(volatile int *)failed = pairs(PAIRS, 1);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	volatile int failed = 0;

	UNTIL((use_and_free(), thread_named("scrubd")));
	for (int i = 0; i < 100; i++)
		free(memset(malloc(SIZE), 1, SIZE));
	pin(0);
	CHECK(pthread_create(&thread, NULL, churn, (void *)&failed) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		int status;
		pid_t pid = vfork();

		CHECK(pid >= 0);
		if (pid == 0) {
			pin(1);
			_exit(pairs(PAIRS, 2));
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		CHECK(!failed);
		/* The parent goes on as before. */
		CHECK(pairs(PAIRS / 10, 3) == 0);
	}
	done = 1;
	CHECK(pthread_join(thread, NULL) == 0 && !failed);

	/* One that cannot run says so, and errno is the parent's. */
	pid_t pid = vfork();
	if (pid == 0) {
		execl("/nowhere/at/all", "all", (char *)NULL);
		_exit(errno == ENOENT ? 9 : 1);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9);
	puts("good");
	return 0;
}
