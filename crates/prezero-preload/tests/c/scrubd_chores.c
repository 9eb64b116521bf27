/*
 * Bursts for zero and small blocks side by side, until standard input ends: scrubd has all its work
 * to do, and every list of libc's is in use meanwhile. argv[1]: a library with thread-locals, which
 * comes when scrubd is there and has none of them.
 */
#include "check.h"
#include <dlfcn.h>
#include <poll.h>

#define BLOCKS 24
#define SMALL 64

int main(int argc, char **argv)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};
	void *small[SMALL] = {NULL};
	unsigned rounds = 0;

	while (poll(&input, 1, 2) == 0) {
		unsigned char *blocks[BLOCKS];

		for (int i = 0; i < BLOCKS; i++) {
			size_t size = (i % 3 ? 1 : 4) * MIB / (1 + rounds % 4);

			CHECK(blocks[i] = calloc(1, size));
			CHECK(is_zero(blocks[i], size));
			memset(blocks[i], 1, size);
		}
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		for (int i = 0; i < 4000; i++) {
			free(small[i % SMALL]);
			CHECK(small[i % SMALL] = malloc(16 + i * 7 % 3000));
		}
		if (++rounds == 100 && argc > 1)
			CHECK(dlopen(argv[1], RTLD_NOW));
	}
	puts("good");
	return 0;
}
