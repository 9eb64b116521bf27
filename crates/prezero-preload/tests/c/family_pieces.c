/*
 * Free memory in pieces: a large block that lies in no piece holds what it should, beside other threads and
 * forks.
 */
#include "check.h"

#define PIECES 32
#define PIECE (4 * MIB)
#define LARGE (48 * MIB)
#define THREADS 3
#define ROUNDS 30
#define FORKS 12

/* Every second one is free, and was written to. */
static void break_up(unsigned char *pieces[PIECES])
{
	for (int i = 0; i < PIECES; i++) {
		CHECK(pieces[i] = malloc(PIECE));
		CHECK(in_zone(pieces[i]));
		paint(pieces[i], PIECE, i);
	}
	for (int i = 0; i < PIECES; i += 2)
		free(pieces[i]);
}

static void check_and_free(unsigned char *pieces[PIECES])
{
	for (int i = 1; i < PIECES; i += 2) {
		CHECK(painted(pieces[i], PIECE, i));
		free(pieces[i]);
	}
}

static void large_among_pieces(int zero)
{
	unsigned char *pieces[PIECES], *block;

	break_up(pieces);
	CHECK(block = zero ? calloc(1, LARGE) : malloc(LARGE));
	CHECK(in_zone(block));
	CHECK(!zero || is_zero(block, LARGE));
	paint(block, LARGE, 77);
	CHECK(painted(block, LARGE, 77));
	check_and_free(pieces);
	CHECK(painted(block, LARGE, 77));
	free(block);
}

static unsigned next_random(unsigned *state)
{
	return (*state = *state * 1664525u + 1013904223u) >> 8;
}

/* Replaces its blocks by others of other sizes, zero or not. */
static void *replaces(void *seed)
{
	unsigned state = (unsigned)(uintptr_t)seed, marks[4] = { 0 };
	unsigned char *blocks[4] = { NULL };
	size_t sizes[4];

	for (int round = 0; round < ROUNDS; round++) {
		unsigned at = next_random(&state) % 4, zero = next_random(&state) % 3;
		size_t size = MIB + next_random(&state) % (20 * MIB);

		CHECK(!blocks[at] || painted(blocks[at], sizes[at], marks[at]));
		free(blocks[at]);
		CHECK(blocks[at] = zero ? calloc(1, size) : malloc(size));
		CHECK(!zero || is_zero(blocks[at], size));
		sizes[at] = size;
		marks[at] = state;
		paint(blocks[at], size, marks[at]);
	}
	for (int at = 0; at < 4; at++) {
		CHECK(!blocks[at] || painted(blocks[at], sizes[at], marks[at]));
		free(blocks[at]);
	}
	return NULL;
}

static size_t mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	size_t lines = 0;
	int c;

	CHECK(maps);
	while ((c = getc(maps)) != EOF)
		lines += c == '\n';
	fclose(maps);
	return lines;
}

static void beside_others_and_forks(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, replaces, (void *)(i + 1)) == 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();
		int status;

		CHECK(child >= 0);
		if (!child) {
			unsigned char *own = calloc(1, LARGE / 2);

			CHECK(own && is_zero(own, LARGE / 2));
			paint(own, LARGE / 2, i);
			CHECK(painted(own, LARGE / 2, i));
			free(own);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(mappings() < 1000);
}

int main(void)
{
	for (int round = 0; round < 3; round++) {
		large_among_pieces(0);
		large_among_pieces(1);
	}
	beside_others_and_forks();
	large_among_pieces(1);
	puts("good");
	return 0;
}
