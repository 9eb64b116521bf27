/*
 * Forks of every kind while threads allocate and free so much that idle memory is kept from
 * children: what is live must reach them, and what they get zeroed must be zero.
 */
#include "check.h"
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>

#define THREADS 2
#define LIVE 8
#define ROUNDS 40

static struct {
	unsigned char *block;
	size_t size;
	unsigned seed;
} live[LIVE];
static volatile int done;

static unsigned next_random(unsigned *state)
{
	return (*state = *state * 1664525u + 1013904223u) >> 8;
}

/* 64 KiB to 6 MiB, more small ones than large ones. */
static size_t some_size(unsigned *state)
{
	size_t size = THRESHOLD << next_random(state) % 7;

	return size + next_random(state) % (size / 2);
}

/* One word a page: time goes to allocation. */
static void fill(unsigned char *block, size_t size, unsigned seed)
{
	for (size_t at = 0; at + sizeof seed <= size; at += PAGE)
		memcpy(block + at, &(unsigned){ seed ^ (unsigned)at }, sizeof seed);
}

static int holds(const unsigned char *block, size_t size, unsigned seed)
{
	for (size_t at = 0; at + sizeof seed <= size; at += PAGE)
		if (memcmp(block + at, &(unsigned){ seed ^ (unsigned)at }, sizeof seed))
			return 0;
	return 1;
}

static int clear(const unsigned char *block, size_t size)
{
	return is_zero(block, PAGE) && is_zero(block + size / 2, PAGE) &&
	       !memcmp(block, block + size - PAGE, PAGE);
}

/* Replaces one of the live blocks, and soils something that is idle then. */
static void change(unsigned *state)
{
	unsigned at = next_random(state) % LIVE;
	size_t size = some_size(state);
	unsigned char *passing = malloc(some_size(state));

	CHECK(passing);
	fill(passing, malloc_usable_size(passing), 0x55aa55aa);
	CHECK(!live[at].block || holds(live[at].block, live[at].size, live[at].seed));
	free(live[at].block);
	unsigned char *block = next_random(state) % 2 ? calloc(1, size) : NULL;
	if (block)
		CHECK(clear(block, size));
	else
		CHECK(block = malloc(size));
	fill(block, size, at + 77);
	if (next_random(state) % 4 == 0) {
		CHECK(block = realloc(block, size + size / 2));
		size += size / 2;
		CHECK(holds(block, size / 3 * 2 / PAGE * PAGE, at + 77));
		fill(block, size, at + 77);
	}
	live[at].block = block;
	live[at].size = size;
	live[at].seed = at + 77;
	free(passing);
}

static void *churn(void *seed)
{
	unsigned state = (unsigned)(uintptr_t)seed;

	while (!done) {
		size_t size = some_size(&state);
		unsigned char *block = calloc(1, size);

		CHECK(block && clear(block, size));
		fill(block, size, state);
		CHECK(holds(block, size, state));
		free(block);
	}
	return NULL;
}

static void look(void)
{
	for (int i = 0; i < LIVE; i++)
		CHECK(!live[i].block || holds(live[i].block, live[i].size, live[i].seed));
}

/* What a child does: looks, allocates, and has children of its own. */
static void be_child(unsigned state, int depth)
{
	look();
	for (int i = 0; i < 6; i++)
		change(&state);
	look();
	if (depth > 0) {
		int status;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			be_child(state, depth - 1);
		change(&state);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		look();
	}
	_exit(0);
}

/* A fork that no handler hears of. */
static pid_t bare_fork(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned state = 5;
	char *arguments[] = { "true", NULL };
	extern char **environ;

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		int status;
		pid_t pid;

		change(&state);
		switch (round % 5) {
		case 0:
			CHECK(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ) == 0);
			break;
		case 1:
			if ((pid = vfork()) == 0) {
				execvp("true", arguments);
				_exit(1);
			}
			break;
		case 2:
			if ((pid = bare_fork()) == 0)
				be_child(round, 0);
			break;
		default:
			if ((pid = fork()) == 0)
				be_child(round, round % 3);
		}
		CHECK(pid > 0);
		/* The parent uses again what it kept from a child that lives. */
		change(&state);
		look();
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	done = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	look();
	puts("good");
	return 0;
}
