/* Under a limit of address space, or of data: what fits without the shim fits with it. */
#include "check.h"
#include <sys/resource.h>

#ifndef LIMIT
#define LIMIT RLIMIT_AS
#endif

int main(int argc, char **argv)
{
	size_t limit = strtoul(argv[1], NULL, 10) * MIB;
	struct rlimit set = { limit, limit };

	CHECK(argc == 2 && setrlimit(LIMIT, &set) == 0);
	/* Half of the limit in one piece, then in many. */
	unsigned char *block = calloc(1, limit / 2);

	CHECK(block);
	block[limit / 2 - 1] = 1;
	free(block);
	void *pieces[64];
	for (int i = 0; i < 64; i++)
		CHECK(pieces[i] = memset(malloc(limit / 128), 1, limit / 128));
	for (int i = 0; i < 64; i++)
		free(pieces[i]);
	errno = 0;
	CHECK(malloc(limit) == NULL && errno == ENOMEM);
	void *again = calloc(1, limit / 4);
	CHECK(again);
	free(again);
	puts("good");
	return 0;
}
