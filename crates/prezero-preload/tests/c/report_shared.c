/*
 * Children that share their parent's memory, made and ended as argv[1] says, each of which asks as its parent does. Prints how
 * often all of them asked.
 */
#include "check.h"
#include <sched.h>
#include <spawn.h>

extern char **environ;
static int asked;

static void ask(int times)
{
	for (int i = 0; i < times; i++, asked++) {
		unsigned char *block = calloc(1, MIB);

		CHECK(block && is_zero(block, MIB));
		memset(block, 1, MIB);
		free(block);
	}
}

static int entry(void *ignored)
{
	ask(3);
	_exit(7);
}

static void *end(void *ignored)
{
	ask(2);
	printf("%d\n", asked);
	fflush(stdout);
	_exit(0);
}

static pid_t child(const char *how)
{
	static char stack[1 << 18] __attribute__((aligned(16)));
	char *arguments[] = { "sh", "-c", "exit 7", NULL };
	pid_t pid;

	if (!strcmp(how, "spawn")) {
		CHECK(posix_spawnp(&pid, "sh", NULL, NULL, arguments, environ) == 0);
		return pid;
	}
	if (!strcmp(how, "vfork") || !strcmp(how, "exec")) {
		if ((pid = vfork()) == 0) {
			ask(3);
			if (!strcmp(how, "exec"))
				execvp("sh", arguments);
			_exit(7);
		}
		return pid;
	}
	return clone(entry, stack + sizeof stack,
		     CLONE_VM | SIGCHLD | (strcmp(how, "beside") ? CLONE_VFORK : 0), NULL);
}

int main(int argc, char **argv)
{
	pthread_t thread;

	CHECK(argc == 2);
	ask(20);
	for (int i = 0; i < 30 && strcmp(argv[1], "thread"); i++) {
		int status;
		pid_t pid = child(argv[1]);

		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		ask(1);
	}
	if (!strcmp(argv[1], "thread"))
		CHECK(pthread_create(&thread, NULL, end, NULL) == 0 && pthread_join(thread, NULL));
	printf("%d\n", asked);
	return 0;
}
