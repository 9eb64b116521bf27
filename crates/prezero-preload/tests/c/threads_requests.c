/*
 * Requests of every kind, from the first on, in two threads and in the children of forks. Beside scrubd_poison.c: while
 * `requests_only` is set nothing else is done, and whatever locks elsewhere than in malloc ends the process.
 */
#include "check.h"

volatile int requests_only;

static _Atomic int turn;

/* Blocks of all sizes round the threshold, that are asked for, grow and go. */
static void requests(unsigned seed)
{
	void *kept[8] = { NULL };

	for (unsigned i = 0; i < 400; i++) {
		size_t size = (size_t)(1 + (i * 7 + seed) % 40) * 13 * KIB;
		void **slot = &kept[i % 8];

		switch (i % 6) {
		case 0:
			free(*slot);
			*slot = malloc(size);
			break;
		case 1:
			free(*slot);
			*slot = calloc(1, size * 4);
			break;
		case 2:
			free(*slot);
			*slot = aligned_alloc(PAGE, size);
			break;
		case 3:
			free(*slot);
			if (posix_memalign(slot, 64, size * 2))
				*slot = NULL;
			break;
		default:
			*slot = realloc(*slot, size * (1 + i % 9));
		}
		if (!*slot)
			abort();
		memset(*slot, 1, size);
		if (malloc_usable_size(*slot) < size)
			abort();
	}
	for (int i = 0; i < 8; i++)
		free(kept[i]);
	free(realloc(malloc(70 * MIB), 140 * MIB));
}

static void *other(void *unused)
{
	while (turn != 1)
		;
	requests(3);
	turn = 2;
	while (turn != 3)
		;
	return unused;
}

int main(void)
{
	pthread_t thread;
	int status;

	CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
	for (int zone = 0; zone < 2; zone++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0) {
			requests_only = 1;
			requests(5);
			requests_only = 0;
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		requests_only = 1;
		/* The first makes the zone in one round, a thread that did not ask before is the first in it. */
		if (zone == 0) {
			turn = 1;
			while (turn != 2)
				;
		}
		requests(1);
		requests_only = 0;
	}
	turn = 3;
	CHECK(pthread_join(thread, NULL) == 0);
	puts("good");
	return 0;
}
