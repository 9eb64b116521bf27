/*
 * mlockall before and after the zone exists ("zone first") makes no more resident than the program has, and no page of
 * the program faults from then on. With MCL_ONFAULT, argv[2] "on fault", pages fault once, as they do without the shim.
 */
#include "check.h"
#include <sys/resource.h>

#define SIZE (48 * MIB)

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

static long faults_of(unsigned char *block)
{
	long before = faults();

	for (size_t at = 0; at < SIZE; at += PAGE)
		block[at]++;
	return faults() - before;
}

int main(int argc, char **argv)
{
	int on_fault = argc > 2 ? MCL_ONFAULT : 0;
	unsigned char *early = NULL;

	if (argc > 1) {
		use_and_free();
		CHECK(early = malloc(SIZE));
		CHECK(in_zone(early) == (counter("frees") >= 0));
		early[SIZE / 2] = 9;
	}
	CHECK(mlockall(MCL_CURRENT | MCL_FUTURE | on_fault) == 0);
	CHECK(resident() < 256 * MIB);
	faults();
	unsigned char *block = calloc(1, SIZE);

	CHECK(block && is_zero(block, SIZE));
	if (!on_fault) {
		CHECK(!early || faults_of(early) < 100);
		CHECK(faults_of(block) < 100);
	}
	CHECK(!early || early[SIZE / 2] == (on_fault ? 9 : 10));
	printf("%s\n", in_zone(block) ? "zone" : "next");
	/* A block of the zone that grows keeps what it holds, and faults no more. */
	if (early && !on_fault) {
		CHECK(early = realloc(early, 2 * SIZE));
		CHECK(early[SIZE / 2] == 10);
		CHECK(faults_of(early + SIZE) < 100);
	}
	free(early);
	free(block);
	CHECK(munlockall() == 0);
	CHECK(block = calloc(1, SIZE));
	CHECK(is_zero(block, SIZE));
	free(block);
	return 0;
}
