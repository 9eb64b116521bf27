/*
 * single: what libc makes a program with one thread pay, once it believes that there are more.
 *
 * `single [thread]` prints the ns of a putc, and of a malloc with its free. First it frees large blocks, until there is
 * a scrubd if there will ever be one. With `thread` it has a second thread of its own, which sleeps.
 */
#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "../worker.h"

#define ROUNDS 20000000
#define SIZE ((size_t)1 << 20)

static int threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	while (folder && (entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	if (folder)
		closedir(folder);
	return count;
}

static void *sleeps(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(int argc, char **argv)
{
	FILE *null = fopen("/dev/null", "w");
	pthread_t thread;
	uint64_t began;
	double put;

	for (int i = 0; i < 200 && threads() < 2; i++) {
		void *blocks[8];

		for (int j = 0; j < 8; j++)
			memset(blocks[j] = calloc(1, SIZE), 1, SIZE);
		for (int j = 0; j < 8; j++)
			free(blocks[j]);
		usleep(1000);
	}
	if (argc > 1 && !strcmp(argv[1], "thread"))
		pthread_create(&thread, NULL, sleeps, NULL);
	usleep(300000); /* scrubd parks */
	began = now();
	for (int i = 0; i < ROUNDS; i++)
		putc('x', null);
	put = (double)(now() - began) / ROUNDS;
	began = now();
	for (int i = 0; i < ROUNDS; i++) {
		void *volatile block = malloc(1000 + i % 8 * 100);
		free(block);
	}
	printf("%.2f %.2f\n", put, (double)(now() - began) / ROUNDS);
	return null == NULL;
}
