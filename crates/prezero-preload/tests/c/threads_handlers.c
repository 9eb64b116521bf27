/* Signal handlers that allocate, and threads that end or are cancelled in the middle of it. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

static volatile int signals;

static void take_and_give(unsigned seed)
{
	size_t size = THRESHOLD << seed % 4;
	unsigned char *one = malloc(size), *two = calloc(1, size);

	CHECK(one && two && one != two && is_zero(two, size));
	memset(one, seed | 1, size);
	memset(two, ~seed | 1, size);
	CHECK(one[0] == (unsigned char)(seed | 1) && !memcmp(one, one + 1, size - 1));
	CHECK(two[0] == (unsigned char)(~seed | 1) && !memcmp(two, two + 1, size - 1));
	free(one);
	free(two);
}

static void on_signal(int unused)
{
	int before = errno;

	(void)unused;
	errno = 12345;
	take_and_give(++signals);
	CHECK(errno == 12345);
	errno = before;
}

/* Ends with blocks that it just freed, on its CPU's lists. */
static void *passing(void *seed)
{
	for (int i = 0; i < 5; i++)
		take_and_give((unsigned)(uintptr_t)seed + i);
	return NULL;
}

static void *until_cancelled(void *unused)
{
	for (unsigned i = 0;; i++) {
		take_and_give(i);
		pthread_testcancel();
	}
	return unused;
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } };
	pthread_t thread;

	take_and_give(1);
	CHECK(sigaction(SIGPROF, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
	for (unsigned i = 0; signals < 300; i++)
		take_and_give(i);
	for (uintptr_t i = 0; i < 100; i++) {
		void *end;

		CHECK(pthread_create(&thread, NULL, i % 4 ? passing : until_cancelled, (void *)i) == 0);
		if (i % 4 == 0)
			CHECK(pthread_cancel(thread) == 0);
		CHECK(pthread_join(thread, &end) == 0 && (end == PTHREAD_CANCELED) == (i % 4 == 0));
	}
	CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0);
	puts("good");
	return 0;
}
