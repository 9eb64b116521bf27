/*
 * Under a limit of address space, of which free blocks have a part: how many MiB more the program gets, in the way that
 * argv[1] names, until there are no more.
 */
#include "check.h"
#include <sys/resource.h>

static void *waits(void *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	return NULL;
}

static long fill(const char *how)
{
	long times = 0;

	if (!strcmp(how, "small"))
		while (malloc(50000))
			times++;
	if (!strcmp(how, "small"))
		return times * 50000 / MIB;
	if (!strcmp(how, "zeroed"))
		while (calloc(1, MIB))
			times++;
	if (!strcmp(how, "mapped"))
		while (mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
			times++;
	if (!strcmp(how, "grown")) {
		char *all = mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		CHECK(all != MAP_FAILED);
		for (times = 1;; times++) {
			char *more = mremap(all, times * MIB, (times + 1) * MIB, MREMAP_MAYMOVE);

			if (more == MAP_FAILED)
				break;
			all = more;
		}
	}
	if (!strcmp(how, "threads")) {
		pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
		pthread_attr_t attributes;
		static pthread_t threads[1000];

		CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, MIB) == 0);
		pthread_mutex_lock(&lock);
		while (times < 1000 && pthread_create(&threads[times], &attributes, waits, &lock) == 0)
			times++;
		pthread_mutex_unlock(&lock);
		for (int i = 0; i < times; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
	}
	return times;
}

int main(int argc, char **argv)
{
	struct rlimit limit = { 600 * MIB, 600 * MIB };
	unsigned char *blocks[20], *kept;

	CHECK(argc == 2 && setrlimit(RLIMIT_AS, &limit) == 0);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 20; i++)
			CHECK(blocks[i] = malloc(3 * MIB));
		for (int i = 0; i < 20; i++)
			free(blocks[i]);
	}
	CHECK(kept = malloc(MIB));
	paint(kept, MIB, 3);
	printf("%ld\n", fill(argv[1]));
	CHECK(painted(kept, MIB, 3));
	fflush(stdout);
	_exit(0);
}
