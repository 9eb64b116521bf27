/*
 * What the library writes raises no signal: argv[1] says where the write goes, argv[2] what the program does about the
 * signal. It ends with 9 where its handler runs.
 */
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>

static void heard(int signal)
{
	(void)signal;
	_exit(9);
}

static void ask(void)
{
	unsigned char *block = calloc(1, MIB);

	CHECK(block && is_zero(block, MIB));
	memset(block, 1, MIB);
	free(block);
}

static void limit(rlim_t bytes)
{
	struct rlimit limit = { bytes, bytes };

	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* Becomes this program again, as the process that reports. */
static void again(char **argv, const char *how)
{
	char number[20];

	snprintf(number, sizeof number, "%d", getpid());
	setenv("PREZERO_PID", number, 1);
	execl("/proc/self/exe", argv[0], how, argv[2], NULL);
	_exit(8);
}

/* A terminal on which background jobs may not write, and a background job with it as its standard error. */
static void on_a_terminal(char **argv)
{
	int pty = posix_openpt(O_RDWR | O_NOCTTY);
	struct termios modes;

	CHECK(pty >= 0 && grantpt(pty) == 0 && unlockpt(pty) == 0 && setsid() > 0);
	int terminal = open(ptsname(pty), O_RDWR);
	CHECK(terminal >= 0 && tcgetattr(terminal, &modes) == 0);
	modes.c_lflag |= TOSTOP;
	CHECK(tcsetattr(terminal, TCSANOW, &modes) == 0);
	pid_t child = fork();
	if (child == 0) {
		setpgid(0, 0);
		dup2(terminal, 2);
		again(argv, "nothing");
	}
	int status;
	CHECK(waitpid(child, &status, WUNTRACED) == child);
	if (WIFSTOPPED(status))
		kill(child, SIGKILL);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	puts("good");
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *how = argv[1];
	int ends[2];

	if (!strcmp(how, "terminal")) {
		pid_t child = fork();
		int status;

		if (child == 0)
			on_a_terminal(argv);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		return 0;
	}
	if (!strcmp(how, "pipe")) {
		CHECK(pipe(ends) == 0 && dup2(ends[1], 2) == 2);
		close(ends[1]);
		/* Only the program that comes has no reader. */
		fcntl(ends[0], F_SETFD, FD_CLOEXEC);
		signal(SIGPIPE, SIG_DFL);
		again(argv, "nothing");
	}
	if (!strcmp(how, "file")) {
		int file = open("/proc/self/fd/2", O_WRONLY | O_APPEND);

		CHECK(file >= 0 && ftruncate(file, 4096) == 0);
		limit(4096);
		again(argv, "nothing");
	}
	for (int signal_ = SIGPIPE; !strcmp(argv[2], "handles") && signal_; signal_ = signal_ == SIGPIPE ? SIGXFSZ : 0)
		signal(signal_, heard);
	if (!strcmp(argv[2], "ignores"))
		signal(SIGPIPE, SIG_IGN), signal(SIGXFSZ, SIG_IGN);
	if (!strcmp(how, "child")) {
		pid_t child = fork();
		int status;

		if (child == 0) {
			limit(4096);
			ask();
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	ask();
	puts("good");
	fflush(stdout);
	/* What was unblocked before is so, and nothing waits. */
	if (!strcmp(argv[2], "blocks")) {
		sigset_t set;

		sigemptyset(&set);
		sigaddset(&set, SIGPIPE);
		sigprocmask(SIG_BLOCK, &set, NULL);
	}
	_exit(0);
}
