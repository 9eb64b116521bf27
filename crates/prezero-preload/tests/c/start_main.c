/* A program that hardly does anything: one large block, one line. */
#include "check.h"

int main(int argc, char **argv)
{
	unsigned char *block = calloc(1, MIB);

	CHECK(block && is_zero(block, MIB));
	memset(block, 1, MIB);
	printf("%s\n", in_zone(block) ? "zone" : "next");
	free(block);
	if (argc > 1 && !strcmp(argv[1], "_exit"))
		fflush(stdout), _exit(7);
	if (argc > 1 && !strcmp(argv[1], "quick_exit"))
		fflush(stdout), quick_exit(8);
	if (argc > 1 && !strcmp(argv[1], "fork")) {
		fflush(stdout);
		if (fork() == 0)
			exit(0);
		wait(NULL);
		if (vfork() == 0)
			_exit(0);
		wait(NULL);
	}
	return 0;
}
