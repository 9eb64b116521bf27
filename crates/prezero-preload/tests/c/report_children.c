/*
 * Children that are made without libc's fork, argv[1] says how, each of which asks twice; and a parent that asked before,
 * and has blocks of that size on its lists. In all 4 + 3 x 2 requests of a MiB. Or argv[1] is "init": the first process of
 * a namespace, which has the number 1.
 */
#include "check.h"
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include "sandbox_filter.h"

static void ask(int times)
{
	while (times--) {
		unsigned char *block = calloc(1, MIB);

		CHECK(block && is_zero(block, MIB));
		memset(block, 1, MIB);
		free(block);
	}
}

static int child(void *nothing)
{
	(void)nothing;
	ask(2);
	return 0;
}

static pid_t make(const char *how)
{
	static pid_t (*own)(void);
	struct clone_args arguments = { .exit_signal = SIGCHLD };

	if (!own)
		own = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
	if (!strcmp(how, "fork"))
		return fork();
	if (!strcmp(how, "_Fork"))
		return own ? own() : fork();
	if (!strcmp(how, "clone"))
		return clone(child, (char *)malloc(MIB / 16 - PAGE) + MIB / 16 - PAGE, SIGCHLD, NULL);
	if (!strcmp(how, "syscall"))
		return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!strcmp(how, "clone3"))
		return syscall(SYS_clone3, &arguments, sizeof arguments);
	/* By the instruction, of which no library hears. */
	return unseen(SYS_clone, SIGCHLD, 0, 0);
}

int main(int argc, char **argv)
{
	const char *how = argv[1];

	ask(2);
	if (!strcmp(how, "init")) {
		/* Without exec, and with it. */
		CHECK(unshare(CLONE_NEWPID) == 0);
		if (fork() == 0) {
			ask(2);
			exit(getpid() == 1 ? 0 : 7);
		}
		int status;
		CHECK(wait(&status) > 0 && status == 0);
		ask(2);
		return 0;
	}
	for (int i = 0; i < 3; i++) {
		pid_t pid = make(how);
		int status;

		CHECK(pid >= 0);
		if (pid == 0) {
			child(NULL);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	ask(2);
	return 0;
}
