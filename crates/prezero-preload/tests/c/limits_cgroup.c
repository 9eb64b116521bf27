/*
 * Large blocks that were freed, then more small ones than a memory cgroup has room for beside them:
 * what idles must not be what ends the program. argv[1]: the cgroup's folder, to enter. argv[2]:
 * "idle" after a long pause, "at once" without any, "in parts" the same with smaller blocks.
 */
#include "check.h"

#define SIZE (16 * MIB)
#define MOST 64
#define LARGE (64 * MIB)
#define SMALL (44 * MIB)

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[2] : "";
	size_t size = !strcmp(how, "in parts") ? MIB : SIZE, count = LARGE / size;
	unsigned char *blocks[MOST];
	char procs[4096];

	snprintf(procs, sizeof procs, "%s/cgroup.procs", argc > 1 ? argv[1] : "");
	FILE *file = fopen(procs, "w");
	CHECK(file && fprintf(file, "%d", getpid()) > 0 && fclose(file) == 0);
	int idle = !strcmp(how, "idle");
	/* Until it idles for long enough, as in mappings_dumped.c; or a few bursts. */
	for (int round = 0, pause = 2; idle ? left_out(NULL) < LARGE / 2 : round < 8; round++) {
		for (size_t i = 0; i < count; i++)
			CHECK(blocks[i] = memset(calloc(1, size), 1, size));
		int large = in_zone(blocks[0]);
		for (size_t i = 0; i < count; i++)
			free(blocks[i]);
		if (!large)
			break; /* without the shim there is nothing to wait for */
		(void)WITHIN(idle ? 50 * pause : 0, left_out(NULL) >= LARGE / 2);
		pause += pause < 64 ? pause : 0;
	}
	for (size_t sum = 0; sum < SMALL; sum += KIB)
		CHECK(memset(malloc(KIB), 1, KIB));
	for (int i = 0; i < 2; i++) {
		CHECK(blocks[i] = calloc(1, SIZE));
		CHECK(is_zero(blocks[i], SIZE));
	}
	puts("good");
	return 0;
}
