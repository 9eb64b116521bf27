/*
 * Becomes argv[3...] under a filter that was there before it: the calls argv[2] (numbers, commas between) end the process
 * where argv[1] is kill, answer EPERM where it is errno, and where it is pretend answer success without being made. A
 * call NUMBER:VALUE is meant only where its third argument has that value, as the advice of madvise.
 */
#include "check.h"
#include "sandbox_filter.h"

static unsigned refusal(const char *how)
{
	if (!strcmp(how, "kill"))
		return SECCOMP_RET_KILL_PROCESS;
	return SECCOMP_RET_ERRNO | (strcmp(how, "pretend") ? EPERM : 0);
}

int main(int argc, char **argv)
{
	unsigned refused = refusal(argv[1]);
	int calls[60], n = 0;
	char *only = NULL;

	for (char *one = strtok(argv[2], ","); one; one = strtok(NULL, ",")) {
		calls[n++] = atoi(one);
		only = strchr(one, ':');
	}
	CHECK(!only || n == 1);
	struct sock_fprog filter = only ? filter_of_third(calls[0], atoi(only + 1), refused)
					: filter_of(calls, n, refused, SECCOMP_RET_ALLOW);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(unseen(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&filter) == 0);
	execvp(argv[3], argv + 3);
	return 1;
}
