/*
 * Becomes argv[3...] under a filter that was there before it: the calls argv[2] (numbers, commas between) end the process
 * where argv[1] is kill, and answer EPERM where it is errno.
 */
#include "check.h"
#include "sandbox_filter.h"

int main(int argc, char **argv)
{
	unsigned refusal = strcmp(argv[1], "kill") ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS;
	int calls[60], n = 0;

	for (char *one = strtok(argv[2], ","); one; one = strtok(NULL, ","))
		calls[n++] = atoi(one);
	struct sock_fprog filter = filter_of(calls, n, refusal, SECCOMP_RET_ALLOW);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(unseen(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&filter) == 0);
	execvp(argv[3], argv + 3);
	return 1;
}
