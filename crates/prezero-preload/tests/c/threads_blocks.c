/* Blocks made in one thread and freed in another, painted meanwhile; then forks. */
#include "check.h"

#define THREADS 6
#define SLOTS 64
#define ROUNDS 4000

static struct {
	unsigned char *block;
	size_t size;
	unsigned seed;
} shared[SLOTS];
static pthread_mutex_t locks[SLOTS];

static unsigned next_random(unsigned *state)
{
	return *state = *state * 1664525u + 1013904223u;
}

/* Checks only the ends of large blocks: time goes to allocation. */
static int holds(const unsigned char *block, size_t size, unsigned seed)
{
	size_t part = size < 4 * PAGE ? size : 4 * PAGE;

	return painted(block, part, seed) && block[size - 1] == mark(size - 1, seed);
}

static void fill(unsigned char *block, size_t size, unsigned seed)
{
	paint(block, size < 4 * PAGE ? size : 4 * PAGE, seed);
	block[size - 1] = mark(size - 1, seed);
}

static void step(unsigned *state)
{
	unsigned slot = (next_random(state) >> 8) % SLOTS;
	unsigned kind = (next_random(state) >> 8) % 4;
	size_t size = (size_t)1 << (10 + (next_random(state) >> 8) % 12);

	size += (next_random(state) >> 8) % size;
	pthread_mutex_lock(&locks[slot]);
	if (shared[slot].block) {
		CHECK(holds(shared[slot].block, shared[slot].size, shared[slot].seed));
		if (kind == 0) {
			size_t old = shared[slot].size;
			unsigned char *block = realloc(shared[slot].block, size);

			CHECK(block);
			CHECK(painted(block, (old < size ? old : size) < 4 * PAGE ? (old < size ? old : size) : 4 * PAGE,
				      shared[slot].seed));
			fill(shared[slot].block = block, shared[slot].size = size, shared[slot].seed);
			pthread_mutex_unlock(&locks[slot]);
			return;
		}
		free(shared[slot].block);
		shared[slot].block = NULL;
	} else {
		unsigned char *block = kind == 1 ? calloc(1, size) : kind == 2 ? memalign(PAGE, size) : malloc(size);

		CHECK(block);
		if (kind == 1)
			CHECK(is_zero(block, size));
		shared[slot].seed = next_random(state);
		shared[slot].block = block;
		shared[slot].size = size;
		fill(block, size, shared[slot].seed);
	}
	pthread_mutex_unlock(&locks[slot]);
}

static void *work(void *seed)
{
	unsigned state = (unsigned)(uintptr_t)seed;

	for (int round = 0; round < ROUNDS; round++)
		step(&state);
	return NULL;
}

static void child(unsigned seed)
{
	pthread_t thread;
	unsigned char *blocks[32];

	/* Fresh blocks, some freed in a thread of the child's own. */
	for (int i = 0; i < 32; i++) {
		size_t size = THRESHOLD << (i % 6);

		CHECK(blocks[i] = calloc(1, size));
		CHECK(is_zero(blocks[i], size));
		memset(blocks[i], 0xff, size);
	}
	for (int i = 0; i < 32; i++)
		free(blocks[i]);
	/* The parent's threads are gone and may have held slots: use none of them. */
	for (int i = 0; i < SLOTS; i++) {
		pthread_mutex_init(&locks[i], NULL);
		shared[i].block = NULL;
	}
	CHECK(pthread_create(&thread, NULL, work, (void *)(uintptr_t)seed) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	_exit(0);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int forks = argc > 1 ? atoi(argv[1]) : 0;

	for (int i = 0; i < SLOTS; i++)
		pthread_mutex_init(&locks[i], NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
	unsigned char *mine = malloc(3 * MIB);

	paint(mine, 3 * MIB, 9);
	for (int i = 0; i < forks; i++) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (pid == 0) {
			CHECK(painted(mine, 3 * MIB, 9));
			/* A block of before the fork. */
			free(mine);
			child(100 + i);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	CHECK(painted(mine, 3 * MIB, 9));
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	puts("good");
	return 0;
}
