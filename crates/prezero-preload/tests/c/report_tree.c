/* A tree of processes, each of which asks for another number of MiB, and ends in its own way. */
#include "check.h"

extern char **environ;

/* One request of so many MiB. */
static void ask(int mib)
{
	unsigned char *block = calloc(mib, MIB);

	CHECK(block && is_zero(block, mib * MIB));
	free(block);
}

static int leaf(const char *how)
{
	if (!strcmp(how, "ends"))
		return ask(1), 0;
	if (!strcmp(how, "killed"))
		return ask(2), raise(SIGKILL);
	if (!strcmp(how, "closes")) {
		ask(3);
		environ = NULL;
		for (int file = 3; file < 100; file++)
			close(file);
		_exit(0);
	}
	if (!strcmp(how, "nothing"))
		return 0;
	return 9;
}

int main(int argc, char **argv)
{
	static const char *const hows[] = { "ends", "killed", "closes", "nothing" };

	if (argc > 1)
		return leaf(argv[1]);
	for (unsigned each = 0; each < sizeof hows / sizeof *hows; each++)
		if (fork() == 0) {
			execl("/proc/self/exe", hows[each], hows[each], NULL);
			_exit(8);
		}
	ask(1);
	/* A pool of processes that are no programs of their own; the last asks for nothing. */
	for (int mib = 4; mib >= 0; mib -= 4)
		if (fork() == 0) {
			if (mib)
				ask(mib), ask(mib);
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	return 0;
}
