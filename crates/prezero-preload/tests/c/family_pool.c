/* Tests the pool of prezero.h. With an argument: a child makes that mistake, and the exit status is the signal that ended it. */
#include "check.h"
#include <prezero.h>

#define SLOT (64 * PAGE)
#define OWNERS 4

static struct prezero_pool *pool;

/* Writes in one of the ways that there are, and gives the slot back. */
static void use_up(unsigned char *slot, unsigned seed)
{
	size_t first = seed * 7919u % (SLOT - 9000);
	struct prezero_range written[] = {{1, 2}, {first, first + 9000}, {SLOT, SLOT + 9}, {SIZE_MAX, 3}};
	struct prezero_range whole = {0, SIZE_MAX};

	switch (seed % 3) {
	case 0:
		memset(slot + first, 1, 9000);
		prezero_pool_give(pool, slot);
		break;
	case 1:
		memset(slot + first, 2, 9000);
		prezero_pool_give_written(pool, slot, written, 4);
		break;
	default:
		memset(slot, 3, SLOT);
		prezero_pool_give_written(pool, slot, &whole, 1);
	}
}

static void *owner(void *seeds)
{
	for (unsigned seed = 0; seed < 3000; seed++) {
		unsigned char *slot;

		errno = 7;
		slot = prezero_pool_take(pool);
		CHECK(slot && is_zero(slot, SLOT));
		use_up(slot, seed * 5 + *(unsigned *)seeds);
		CHECK(errno == 7);
	}
	return NULL;
}

/* Whether a write there ends the process, tried in a child. */
static int is_guarded(unsigned char *at)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		*(volatile unsigned char *)at = 1;
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return WIFSIGNALED(status);
}

static int is_clear(void)
{
	unsigned char *slot = prezero_pool_take(pool);
	int zero = slot && is_zero(slot, SLOT);

	prezero_pool_give_written(pool, slot, NULL, 0);
	return zero;
}

int main(int argc, char **argv)
{
	unsigned char *slots[OWNERS + 2], *other;
	struct prezero_pool *more;
	unsigned seeds[OWNERS];
	pthread_t threads[OWNERS];
	int status, out = 0;

	errno = 0;
	CHECK(!prezero_pool_new(0, 1, 0) && errno == EINVAL);
	CHECK(!prezero_pool_new(1, 0, 0) && errno == EINVAL);
	CHECK(!prezero_pool_new(9, (size_t)1 << 60, 0) && errno == ENOMEM);
	errno = 7;
	pool = prezero_pool_new(OWNERS, SLOT - 1, 1);
	CHECK(pool && errno == 7);
	other = prezero_pool_take(pool);
	CHECK(other && is_guarded(other - 1) && is_guarded(other + SLOT) && !is_guarded(other + SLOT - 1));

	if (argc > 1) {
		/* In a child: no thread of the pool takes the slot between two mistakes. */
		if (fork() == 0) {
			if (!strcmp(argv[1], "inside"))
				prezero_pool_give(pool, other + PAGE);
			else if (!strcmp(argv[1], "malloc"))
				prezero_pool_give_written(pool, malloc(SLOT), NULL, 0);
			else if (!strcmp(argv[1], "twice"))
				for (int i = 0; i < 2; i++)
					prezero_pool_give(pool, other);
			_exit(0);
		}
		CHECK(wait(&status) > 0);
		return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	}
	prezero_pool_give(pool, other);
	prezero_pool_give(pool, NULL);
	while (out < OWNERS + 2 && (slots[out] = prezero_pool_take(pool)))
		out++;
	CHECK(out >= OWNERS && out <= OWNERS + 1 && errno == 7);
	while (out--)
		prezero_pool_give(pool, slots[out]);

	for (unsigned i = 0; i < OWNERS; i++) {
		seeds[i] = i;
		CHECK(pthread_create(&threads[i], NULL, owner, &seeds[i]) == 0);
	}
	for (unsigned i = 0; i < OWNERS; i++)
		pthread_join(threads[i], NULL);
	CHECK(thread_named("prezero-pool"));

	if (fork() == 0) {
		for (unsigned seed = 0; seed < 30; seed++) {
			CHECK(is_clear());
			use_up(prezero_pool_take(pool), seed);
		}
		prezero_pool_destroy(pool);
		_exit(0);
	}
	CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);

	errno = 7;
	more = prezero_pool_new(1, 1, 0);
	CHECK(more);
	prezero_pool_destroy(more);
	prezero_pool_destroy(pool);
	prezero_pool_destroy(NULL);
	CHECK(errno == 7);
	UNTIL(!thread_named("prezero-pool"));
	puts("good");
	return 0;
}
