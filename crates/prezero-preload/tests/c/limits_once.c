/* A call that failed for another reason than a task is not made again, and costs no scrubd. */
#include "check.h"
#include <sys/time.h>

static int threads(void)
{
	int count = 0;

	UNTIL(({
		char line[200];
		FILE *status = fopen("/proc/self/status", "r");

		CHECK(status);
		while (fgets(line, sizeof line, status))
			sscanf(line, "Threads: %d", &count);
		fclose(status);
		count;
	}));
	return count;
}

static void says_again(int signal)
{
	errno = EAGAIN;
}

int main(int count, char **given)
{
	struct sigaction action = { .sa_handler = says_again, .sa_flags = SA_RESTART };
	char command[300];
	FILE *said;
	int before, lines = 0, c;

	for (int i = 0; i < 20; i++) {
		char *block = calloc(1, 4 * MIB);

		CHECK(block);
		memset(block, 1, 4 * MIB);
		free(block);
	}
	before = threads();
	CHECK(!popen("true", "x") && errno == EINVAL);
	CHECK(threads() == before);
	/* The shell itself sends the signal, so that it has run when errno says EAGAIN. */
	CHECK(count == 2 && sigaction(SIGUSR1, &action, NULL) == 0);
	snprintf(command, sizeof command, "echo once >>%s; kill -USR1 %d; exit 127", given[1], getpid());
	CHECK(system(command) == 127 << 8);
	CHECK(said = fopen(given[1], "r"));
	while ((c = getc(said)) != EOF)
		lines += c == '\n';
	CHECK(lines == 1);
	puts("good");
	return 0;
}
