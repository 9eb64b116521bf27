/*
 * A mremap that the kernel refuses for its words leaves a block as it was, and has the error that it has on other memory.
 * A pointer that the kernel refuses is an error and no signal.
 */
#include "check.h"
#include <sys/resource.h>
#include <sys/syscall.h>

#define BAD ((void *)8)

struct words {
	size_t at, old, new;
	int flags;
	long to; /* from the block; 0: what is given is not looked at */
};

static const struct words refused[] = {
	{ 0, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, MIB / 2 },
	{ MIB / 2, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, 0 },
	{ 0, MIB, MIB / 2, MREMAP_MAYMOVE | MREMAP_FIXED, MIB / 4 },
	{ 0, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, MIB + 100 },
	{ 0, MIB, MIB, MREMAP_FIXED, MIB },
	{ 0, MIB, 0, MREMAP_MAYMOVE, 0 },
	{ 0, MIB, 0, 0, 0 },
	{ 0, MIB, 2 * MIB, 64, 0 },
	{ 0, MIB, MIB / 2, 64 | MREMAP_MAYMOVE, 0 },
	{ 100, MIB, 2 * MIB, MREMAP_MAYMOVE, 0 },
	{ 0, MIB, 2 * MIB, MREMAP_MAYMOVE | 4 /* DONTUNMAP */, 0 },
	{ 0, MIB, -PAGE, MREMAP_MAYMOVE, 0 },
};

static int error_of(unsigned char *block, const struct words *words)
{
	errno = 0;
	void *moved = mremap(block + words->at, words->old, words->new, words->flags, block + words->to);

	return moved == MAP_FAILED ? errno : 0;
}

static void words_are_refused(void)
{
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		unsigned char *plain = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		unsigned char *block = aligned_alloc(PAGE, 4 * MIB);

		CHECK(plain != MAP_FAILED && block && in_zone(block));
		paint(plain, 4 * MIB, i);
		paint(block, 4 * MIB, i);
		int wanted = error_of(plain, &refused[i]), got = error_of(block, &refused[i]);

		if (!wanted || wanted != got)
			printf("row %zu: %d on other memory, %d on a block\n", i, wanted, got);
		CHECK(wanted && wanted == got);
		CHECK(painted(plain, 4 * MIB, i) && painted(block, 4 * MIB, i));
		free(block);
		munmap(plain, 4 * MIB);
		CHECK(block = calloc(1, 4 * MIB));
		CHECK(is_zero(block, 4 * MIB));
		free(block);
	}
}

static void pointers_are_refused(void)
{
	struct rlimit limit;

	CHECK(setrlimit(RLIMIT_AS, BAD) == -1 && errno == EFAULT);
	CHECK(prlimit(0, RLIMIT_DATA, BAD, NULL) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_prlimit64, 0, RLIMIT_AS, BAD, NULL) == -1 && errno == EFAULT);
	CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY);
#ifdef SYS_clone3
	CHECK(syscall(SYS_clone3, BAD, 64) == -1 && (errno == EFAULT || errno == ENOSYS));
#endif
}

int main(void)
{
	words_are_refused();
	pointers_are_refused();
	puts("good");
	return 0;
}
