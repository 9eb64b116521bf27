/* A library that allocates, with threads, before main and before the shim is asked to. */
#include "check.h"

static unsigned char *early[8];
static pthread_t thread;

static void *run(void *unused)
{
	for (int i = 0; i < 200; i++) {
		unsigned char *block = calloc(1, 100000 + i * 1000);

		CHECK(block && is_zero(block, 100000));
		memset(block, 1, 100000);
		free(block);
	}
	return unused;
}

__attribute__((constructor)) static void load(void)
{
	for (int i = 0; i < 8; i++)
		paint(early[i] = malloc((size_t)1000 << i), (size_t)1000 << i, i);
	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
}

__attribute__((destructor)) static void unload(void)
{
	CHECK(pthread_join(thread, NULL) == 0);
	for (int i = 0; i < 8; i++) {
		CHECK(painted(early[i], (size_t)1000 << i, i));
		free(early[i]);
	}
	void *late = calloc(1, MIB);

	CHECK(late);
	free(late);
}
