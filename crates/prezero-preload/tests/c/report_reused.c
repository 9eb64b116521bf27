/*
 * A program whose descriptor 2 becomes its data file (argv[2]), by argv[1], which has one line at the end of the program.
 * Then the library has something to say: the account, or that an address is wrong.
 */
#include "check.h"
#include <fcntl.h>
#include <signal.h>

static void soil(void)
{
	unsigned char *block = calloc(1, MIB);

	CHECK(block);
	memset(block, 1, MIB);
	free(block);
}

static void reuse(const char *how, const char *path)
{
	int flags = O_CREAT | O_TRUNC | O_RDWR;

	if (!strcmp(how, "late"))
		soil();
	if (!strcmp(how, "dup2")) {
		int file = open(path, flags, 0644);

		CHECK(file == 2 || (file > 2 && dup2(file, 2) == 2 && close(file) == 0));
	} else {
		close(2);
		CHECK(open(path, flags, 0644) == 2);
	}
	CHECK(write(2, "record 1\n", 9) == 9);
}

int main(int argc, char **argv)
{
	const char *how = argv[1];

	if (!strcmp(how, "fork")) {
		int status;

		soil();
		if (fork() == 0) {
			reuse(how, argv[2]);
			char *block = malloc(MIB);
			free(block + 4096);
		}
		CHECK(wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
		return 0;
	}
	if (strcmp(how, "after exec"))
		reuse(how, argv[2]);
	if (!strcmp(how, "exec")) {
		soil();
		execl(argv[0], argv[0], "after exec", argv[2], NULL);
	}
	soil();
	if (!strcmp(how, "_exit"))
		_exit(0);
	return 0;
}
