/*
 * Goes on working when the kernel refuses argv[2...] (system calls by number) with the error
 * argv[1] in all threads, from the time when the zone is in use.
 */
#include "check.h"
#include "sandbox_filter.h"

#define THREADS 2
#define ROUNDS 400

static void refuse(long call, int error)
{
	int number = call;
	struct sock_fprog filter = filter_of(&number, 1, SECCOMP_RET_ERRNO | error, SECCOMP_RET_ALLOW);

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(unseen(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, (long)&filter) == 0);
}

static void *work(void *seed)
{
	unsigned state = (unsigned)(uintptr_t)seed;
	unsigned char *kept[8] = { 0 };
	size_t sizes[8] = { 0 };

	for (int round = 0; round < ROUNDS; round++) {
		unsigned at = (state = state * 1664525u + 1013904223u) >> 29;
		size_t size = THRESHOLD << (state >> 20) % 7;

		if (kept[at])
			CHECK(kept[at][0] == at + 1 && kept[at][sizes[at] - 1] == at + 1);
		free(kept[at]);
		unsigned char *block = round % 2 ? calloc(1, size) : malloc(size);
		CHECK(block && (round % 2 == 0 || is_zero(block, size)));
		memset(block, at + 1, size / (1 + round % 3)); /* not all is touched */
		if (round % 5 == 0) {
			CHECK(block = realloc(block, size *= 2));
			CHECK(block[0] == at + 1);
		}
		block[0] = block[size - 1] = at + 1;
		kept[at] = block;
		sizes[at] = size;
		if (round % 100 == 50)
			usleep(2000); /* a pause, as programs have */
	}
	for (int i = 0; i < 8; i++)
		free(kept[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int status;

	work((void *)9);
	UNTIL((use_and_free(), counter("scrubbed_bytes") != 0));
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)) == 0);
	for (int i = 2; i < argc; i++)
		refuse(atol(argv[i]), atoi(argv[1]));
	work((void *)7);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		for (int i = 0; i < 4; i++)
			work((void *)(uintptr_t)i);
		_exit(0);
	}
	work((void *)3);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	puts("good");
	return 0;
}
