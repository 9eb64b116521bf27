/*
 * A process for each request, made by a parent that never had a large block. Prints how many page faults a child takes
 * that asks for a few: the fewest of many children. One that asks on has a zone in the end, if argv[1] is "zone".
 */
#include "check.h"
#include <sys/resource.h>

static void ask(int times)
{
	while (times--) {
		unsigned char *block = calloc(1, MIB);

		CHECK(block && is_zero(block, MIB));
		memset(block, 1, MIB);
		free(block);
	}
}

int main(int argc, char **argv)
{
	long fewest = -1;

	for (int i = 0; i < 20; i++) {
		struct rusage before, after;
		int status;

		getrusage(RUSAGE_CHILDREN, &before);
		if (fork() == 0) {
			ask(3);
			_exit(0);
		}
		CHECK(wait(&status) > 0 && status == 0);
		getrusage(RUSAGE_CHILDREN, &after);
		if (fewest < 0 || after.ru_minflt - before.ru_minflt < fewest)
			fewest = after.ru_minflt - before.ru_minflt;
	}
	if (argc > 1 && fork() == 0) {
		ask(100);
		void *block = malloc(MIB);
		CHECK(in_zone(block));
		free(block);
		_exit(0);
	}
	int status = 0;
	CHECK((wait(&status) > 0) == (argc > 1) && status == 0);
	printf("%ld\n", fewest);
	return 0;
}
