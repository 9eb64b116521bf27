/* Linked with another libc than the library. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *work(void *unused)
{
	for (size_t size = 1; size < 16 << 20; size *= 3) {
		char *block = calloc(1, size);

		if (!block || block[0] || block[size - 1])
			abort();
		memset(block, 1, size);
		if (!(block = realloc(block, 2 * size)) || block[size - 1] != 1)
			abort();
		free(block);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	int status;

	work(NULL);
	if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL))
		return 1;
	pid_t pid = fork();
	if (pid == 0) {
		work(NULL);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		return 1;
	puts("good");
	return 0;
}
