/*
 * Lowers its own limit of address space (argv[1] "as", "number": by the call's), of data ("data") or of locked memory
 * ("lock") with a zone in use: what is left must do for small blocks, large ones, mappings and
 * threads, as it would without the shim; and what was given up is as good as any other memory.
 */
#include "check.h"
#include <sys/resource.h>
#include <sys/syscall.h>

#define LIMIT (512 * MIB)
#define KEPT (3 * MIB)

static void lower(const char *what)
{
	struct rlimit limit = { LIMIT, LIMIT }, now;

	if (!strcmp(what, "as"))
		CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	else if (!strcmp(what, "number"))
		CHECK(syscall(SYS_prlimit64, 0L, (long)RLIMIT_AS, &limit, NULL) == 0);
	else if (!strcmp(what, "data"))
		CHECK(prlimit(getpid(), RLIMIT_DATA, &limit, &now) == 0);
	else {
		/* A limit that may not be raised counts the zone's records, too. */
		CHECK(getrlimit(RLIMIT_MEMLOCK, &now) == 0);
		if (now.rlim_max < LIMIT)
			return;
		CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
		/* Root may lock all that it wants. */
		if (getuid() == 0)
			CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		CHECK(mlockall(MCL_CURRENT) == 0 && munlockall() == 0);
	}
	CHECK(address_space() < LIMIT);
}

int main(int argc, char **argv)
{
	unsigned char *kept = malloc(KEPT), *blocks[40];
	pthread_t thread;

	CHECK(argc == 2);
	paint(kept, KEPT, 5);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 16; i++)
			CHECK(blocks[i] = memset(calloc(1, MIB), 1, MIB));
		for (int i = 0; i < 16; i++)
			free(blocks[i]);
	}
	lower(argv[1]);
	CHECK(painted(kept, KEPT, 5));
	for (int round = 0; round < 4; round++) {
		/* More than the zone would take under that limit: the rest lies elsewhere, and where
		 * the zone was. */
		for (int i = 0; i < 40; i++) {
			CHECK(blocks[i] = calloc(1, (i + 1) * 300000));
			CHECK(is_zero(blocks[i], (i + 1) * 300000));
			CHECK(malloc_usable_size(blocks[i]) >= (size_t)(i + 1) * 300000);
			paint(blocks[i], 300000, i);
		}
		for (int i = 0; i < 40; i += 2) {
			CHECK(blocks[i] = realloc(blocks[i], (i + 2) * 310000));
			CHECK(painted(blocks[i], 300000, i));
		}
		for (int i = 0; i < 40; i++) {
			CHECK(painted(blocks[i], 300000, i));
			free(blocks[i]);
		}
	}
	for (int i = 0; i < 20000; i++)
		CHECK(memset(malloc(10000), 1, 10000));
	unsigned char *mapped = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mapped != MAP_FAILED && is_zero(mapped, MIB));
	memset(mapped, 1, 64 * MIB);
	size_t before = address_space();
	CHECK(mprotect(mapped, MIB, PROT_READ) == 0 && munmap(mapped, 64 * MIB) == 0);
	CHECK(address_space() <= before - 64 * MIB); /* a hole again, whoever had it first */
	CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(painted(kept, KEPT, 5));
	free(kept);
	puts("good");
	return 0;
}
