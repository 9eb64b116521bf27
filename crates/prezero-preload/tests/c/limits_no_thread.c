/* No thread can be made: nothing is cleared ahead, and all else is as it should be. */
#include "check.h"
#include <sys/resource.h>

int main(void)
{
	struct rlimit none = { 0, 0 };
	unsigned char *blocks[32];
	pthread_t thread;

	/* Root has no such limit. */
	if (getuid() == 0)
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
	CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
	CHECK(pthread_create(&thread, NULL, nothing, NULL) == EAGAIN);
	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 32; i++) {
			size_t size = (i + 1) * THRESHOLD;

			CHECK(blocks[i] = round % 3 ? calloc(1, size) : malloc(size));
			CHECK(round % 3 == 0 || is_zero(blocks[i], size));
			memset(blocks[i], round + 1, size);
		}
		for (int i = 0; i < 32; i++) {
			CHECK(blocks[i][0] == round + 1 && blocks[i][i * THRESHOLD] == round + 1);
			free(blocks[i]);
		}
	}
	/* Nobody gives memory back later, so it is given back as it is freed. */
	unsigned char *large = memset(malloc(200 * MIB), 1, 200 * MIB);
	CHECK(resident() > 200 * MIB);
	free(large);
	CHECK(resident() < 64 * MIB);
	puts("good");
	return 0;
}
