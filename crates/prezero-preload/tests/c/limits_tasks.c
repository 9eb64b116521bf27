/*
 * The user may have two tasks, of which scrubd has one: the call named by argv[1] gets it, as it would without the shim.
 * argv[2] is a user that has no other.
 */
#include "check.h"
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <threads.h>

extern char **environ;
static char *arguments[] = { "sh", "-c", "exit 7", NULL };

static int entry(void *ignored)
{
	_exit(7);
}

static int thread_entry(void *ignored)
{
	return 7;
}

/* The child's number, which ends with 7. */
static pid_t child(const char *how)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	pid_t pid;

	if (!strcmp(how, "vfork")) {
		if ((pid = vfork()) == 0)
			_exit(7);
		return pid;
	}
	if (!strcmp(how, "posix_spawn"))
		return (errno = posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ)) ? -1 : pid;
	if (!strcmp(how, "posix_spawnp"))
		return (errno = posix_spawnp(&pid, "sh", NULL, NULL, arguments, environ)) ? -1 : pid;
	if (!strcmp(how, "clone"))
		return clone(entry, stack + sizeof stack, SIGCHLD, NULL);
	if (!strcmp(how, "shared"))
		return clone(entry, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	pid = !strcmp(how, "fork")    ? fork()
	      : !strcmp(how, "_Fork") ? _Fork()
	      : !strcmp(how, "number") ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
				      : syscall(SYS_clone3, &(unsigned long[8]){ 0, 0, 0, 0, SIGCHLD }, 64);
	if (pid == 0)
		_exit(7);
	return pid;
}

int main(int argc, char **argv)
{
	struct rlimit two = { 2, 2 };
	const char *how = argv[1];
	unsigned user = strtoul(argv[2], NULL, 10);

	CHECK(argc == 3 && setgid(user) == 0 && setuid(user) == 0);
	if (getenv("LD_PRELOAD"))
		UNTIL((use_and_free(), thread_named("scrubd")));
	CHECK(setrlimit(RLIMIT_NPROC, &two) == 0);
	errno = 5;
	if (!strcmp(how, "pthread_create")) {
		pthread_t thread;

		CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
	} else if (!strcmp(how, "thrd_create")) {
		thrd_t thread;
		int answer;

		CHECK(thrd_create(&thread, thread_entry, NULL) == thrd_success);
		CHECK(thrd_join(thread, &answer) == thrd_success && answer == 7);
	} else if (!strcmp(how, "system")) {
		CHECK(system("exit 127") == 127 << 8 && system("exit 7") == 7 << 8 && errno == 5);
	} else if (!strcmp(how, "popen")) {
		FILE *from = popen("echo 7", "r");

		CHECK(from && fgetc(from) == '7' && pclose(from) == 0);
	} else if (!strcmp(how, "daemon")) {
		CHECK(daemon(1, 1) == 0);
	} else {
		int status;
		pid_t pid = child(how);

		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	/* It is the program's from now on. */
	CHECK(!thread_named("scrubd"));
	use_and_free();
	puts("good");
	return 0;
}
