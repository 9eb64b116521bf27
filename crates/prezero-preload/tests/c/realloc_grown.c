/*
 * Large blocks that grow where there is no room: their pages move, and hold what they held; what
 * they leave is nobody's memory, and zero for the next who wants that.
 */
#include "check.h"
#include <sys/resource.h>
#include <sys/syscall.h>

#define LARGE (48 * MIB)

/* Who keeps a block from growing where it is, among others. */
struct neighbours {
	void *all[64];
	int n;
};

/*
 * The lower one of the first two blocks that lie side by side. Not simply the first: scrubd may
 * have had the pages behind it in its hands when the second was asked for.
 */
static unsigned char *hemmed_in(size_t size, struct neighbours *its)
{
	unsigned char *block, *next;

	for (its->n = 0; its->n < 64; its->n++) {
		CHECK(its->all[its->n] = next = malloc(size));
		CHECK(in_zone(next));
		for (int i = 0; i < its->n; i++) {
			unsigned char *other = its->all[i];

			block = other < next ? other : next;
			if (block + size != (other < next ? next : other))
				continue;
			its->all[i] = block == other ? next : other;
			paint(block, size, 5);
			return block;
		}
	}
	CHECK(!"two blocks side by side");
	return NULL;
}

static void leave(struct neighbours *its)
{
	while (its->n > 0)
		free(its->all[--its->n]);
}

static unsigned char *grow(unsigned char *block, size_t from, size_t to)
{
	unsigned char *was = block;

	CHECK(block = realloc(block, to));
	CHECK(block != was && in_zone(block) && malloc_usable_size(block) >= to);
	CHECK(painted(block, from, 5));
	return block;
}

/* Takes blocks until one lies on what is free at `was`, or partly: whether one does. `zero`: whether all of them are zero. */
static int finds(unsigned char *was, size_t size, int *zero)
{
	unsigned char *taken[1024];
	int n = 0, found = 0;

	while (n < 1024 && !found) {
		CHECK(taken[n] = calloc(1, size));
		found = taken[n] < was + size && was < taken[n] + size;
		*zero &= is_zero(taken[n++], size);
	}
	while (n > 0)
		free(taken[--n]);
	return found;
}

/* On a machine that starves, scrubd may have what is free at `was` in its hands for as long as all blocks of a look take. */
static int is_zero_when_taken(unsigned char *was, size_t size)
{
	int zero = 1;

	UNTIL(finds(was, size, &zero));
	return zero;
}

/* What moved is not resident twice, and what is left of it is zero for the next. */
static void moves(void)
{
	struct neighbours its;
	unsigned char *block = hemmed_in(LARGE, &its), *next;
	size_t before = resident();

	block = grow(block, LARGE, 2 * LARGE);
	CHECK(!may_move() || resident() < before + LARGE / 2);
	CHECK(next = calloc(1, LARGE));
	CHECK(is_zero(next, LARGE));
	paint(block, 2 * LARGE, 6);
	CHECK(is_zero(next, LARGE));
	CHECK(block = realloc(block, LARGE));
	CHECK(painted(block, LARGE, 6));
	free(block);
	free(next);
	leave(&its);
	for (int i = 0; i < 4; i++) {
		CHECK(next = calloc(1, 2 * LARGE));
		CHECK(is_zero(next, 2 * LARGE));
		memset(next, 1, 2 * LARGE);
		free(next);
	}
}

/* A file that the program mapped over a part, unseen: what stays there is not taken for zero. */
static void leaves_no_file_behind(void)
{
	struct neighbours its;
	unsigned char *block = hemmed_in(LARGE, &its), *was = block;
	const size_t at = 7 * MIB, len = 3 * MIB;
	int file = memfd_create("file", MFD_CLOEXEC);

	CHECK(file >= 0 && ftruncate(file, len) == 0);
	for (size_t done = 0; done < len;) {
		ssize_t wrote = write(file, block + at + done, len - done);

		CHECK(wrote > 0);
		done += wrote;
	}
	CHECK(syscall(SYS_mmap, block + at, len, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, file, 0L) ==
	      (long)(block + at));
	block = grow(block, LARGE, 2 * LARGE);
	CHECK(is_zero_when_taken(was + at, len));
	CHECK(painted(block, LARGE, 5));
	free(block);
	leave(&its);
	close(file);
}

/* What grew once may become longer than any block that is asked for. */
static void grows_long(void)
{
	struct neighbours its;
	unsigned char *block = hemmed_in(LARGE, &its);
	size_t size = LARGE;

	for (size_t next = 3 * GIB / 8; next <= 3 * GIB; next *= 2) {
		CHECK(block = realloc(block, next));
		CHECK(in_zone(block) && painted(block, LARGE, 5));
		block[next - 1] = 1;
		size = next;
	}
	CHECK(size == 3 * GIB);
	CHECK(block = realloc(block, LARGE));
	CHECK(painted(block, LARGE, 5));
	free(block);
	leave(&its);
}

/* Whatever was done to the mapping of a part. */
static void moves_what_was_changed(void)
{
	for (int what = 0; what < 5; what++) {
		struct neighbours its;
		unsigned char *block = hemmed_in(LARGE, &its), *part = block + 7 * PAGE;
		int status;

		switch (what) {
		case 0:
			CHECK(mprotect(part, 9 * PAGE, PROT_READ) == 0);
			break;
		case 1:
			CHECK(madvise(part, 9 * PAGE, MADV_DONTFORK) == 0);
			break;
		case 2:
			CHECK(madvise(part, 9 * PAGE, MADV_DONTDUMP) == 0);
			break;
		case 3:
			CHECK(mlock(part, 9 * PAGE) == 0 || errno == ENOMEM || errno == EPERM);
			break;
		case 4:
			CHECK(mmap(part, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0) == part);
			paint(block, 16 * PAGE, 5);
			break;
		}
		block = grow(block, LARGE, LARGE + 8 * MIB);
		memset(block + LARGE, 1, 8 * MIB);
		pid_t child = fork();

		CHECK(child >= 0);
		if (!child) {
			unsigned char *own = calloc(1, LARGE);

			CHECK(is_zero(own, LARGE));
			CHECK(what == 1 || painted(block, LARGE, 5));
			memset(own, 1, LARGE);
			CHECK(what == 1 || painted(block, LARGE, 5));
			free(own);
			free(block);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(painted(block, LARGE, 5));
		free(block);
		leave(&its);
		CHECK(block = calloc(1, LARGE + 8 * MIB));
		CHECK(is_zero(block, LARGE + 8 * MIB));
		memset(block, 1, LARGE + 8 * MIB);
		free(block);
	}
}

/* The kernel's move unlocks what stays of the mapping too: so what is locked does not move. */
static void leaves_others_locked(void)
{
	struct neighbours its;
	unsigned char *block = hemmed_in(LARGE, &its), *other = block + LARGE;

	if (mlock(block, 2 * LARGE) == 0) {
		CHECK(flagged(" lo", " lo", other));
		block = grow(block, LARGE, 2 * LARGE);
		CHECK(flagged(" lo", " lo", other));
	} else
		CHECK(errno == ENOMEM || errno == EPERM);
	free(block);
	leave(&its);
}

/* Beside others who grow, and forks. */
static void *one_of_many(void *seed)
{
	unsigned which = (unsigned)(uintptr_t)seed;
	size_t size = 34 * MIB;
	unsigned char *block = malloc(size);

	CHECK(block);
	for (size_t at = 0; at < size; at += PAGE)
		block[at] = mark(at, which);
	for (int round = 0; round < 6; round++) {
		CHECK(block = realloc(block, size + 3 * MIB));
		for (size_t at = size; at < size + 3 * MIB; at += PAGE)
			block[at] = mark(at, which);
		size += 3 * MIB;
		for (size_t at = 0; at < size; at += PAGE)
			CHECK(block[at] == mark(at, which));
	}
	free(block);
	return NULL;
}

static void moves_beside_others(void)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, one_of_many, (void *)i) == 0);
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		int status;

		CHECK(child >= 0);
		if (!child) {
			use_and_free();
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Where address space is limited pages do not move, and blocks grow all the same. */
static void grows_where_space_is_limited(void)
{
	struct rlimit limit = { address_space() + 256 * MIB, RLIM_INFINITY };
	unsigned char *block, *neighbour;

	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	CHECK(block = malloc(LARGE));
	paint(block, LARGE, 5);
	CHECK(neighbour = malloc(LARGE));
	CHECK(block = realloc(block, LARGE + 8 * MIB));
	CHECK(painted(block, LARGE, 5));
	free(block);
	free(neighbour);
}

int main(void)
{
	moves();
	grows_long();
	moves_what_was_changed();
	leaves_others_locked();
	moves_beside_others();
	leaves_no_file_behind();
	grows_where_space_is_limited();
	puts("good");
	return 0;
}
