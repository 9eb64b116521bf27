/* To libc a program with one thread stays one, although scrubd runs: nothing locks for nobody. */
#include "check.h"
#include <dirent.h>
#include <sys/single_threaded.h>

static int tasks(void)
{
	struct dirent *entry;
	int count = 0;
	DIR *folder = opendir("/proc/self/task");

	CHECK(folder);
	while ((entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}

/* The last thread that libc knows ends: so does the process, as it does without scrubd. */
static void *last(void *first)
{
	CHECK(pthread_join(*(pthread_t *)first, NULL) == 0);
	puts("good");
	fflush(stdout);
	return NULL;
}

int main(int count, char **arguments)
{
	static pthread_t first, other;

	for (int round = 0; tasks() == 1 || round < 20; round++) {
		unsigned char *blocks[16];

		for (int i = 0; i < 16; i++) {
			CHECK(blocks[i] = calloc(1, MIB));
			CHECK(is_zero(blocks[i], MIB));
			memset(blocks[i], 1, MIB);
		}
		for (int i = 0; i < 16; i++)
			free(blocks[i]);
		usleep(2000);
	}
	CHECK(tasks() == 2);
	CHECK(__libc_single_threaded);
	if (count > 1) {
		first = pthread_self();
		CHECK(pthread_create(&other, NULL, last, &first) == 0);
		pthread_exit(NULL);
	}
	puts("good");
	return 0;
}
