/*
 * What a child gets of its parent's blocks where the program changed mappings.
 *
 * Pages that are kept from it (MADV_DONTFORK, as RDMA libraries do): the child has none there, and
 * must not find its own new memory at their addresses. A file that was mapped into a block unseen
 * and left there: the kernel keeps no file from children, and what lies before it must not be kept
 * from them either, once it is somebody's.
 */
#include "check.h"
#include <sys/syscall.h>

/* The kernel gives the highest gap first; where the zone begins, there is one above it. */
static void fill_what_is_above(unsigned char *block, size_t size)
{
	for (unsigned char *at = (void *)UINTPTR_MAX; at > block; ) {
		at = mmap(NULL, size / 4, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		CHECK(at != MAP_FAILED);
		CHECK(at + size / 4 <= block || at >= block + size);
	}
}

static void be_child(unsigned char *block, size_t size)
{
	unsigned char *beside[4], *own[4];

	fill_what_is_above(block, size);
	for (int i = 0; i < 4; i++) {
		beside[i] = mmap(NULL, size / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(beside[i] != MAP_FAILED);
		CHECK(beside[i] + size / 4 <= block || beside[i] >= block + size);
		paint(beside[i], size / 4, i);
	}
	CHECK(painted(block, size / 4, 77));
	/* Not of the zone: below its threshold, and more than glibc takes from its heap. */
	for (int i = 0; i < 4; i++) {
		CHECK(own[i] = malloc(size / 4));
		CHECK(!in_zone(own[i]));
		paint(own[i], size / 4, 10 + i);
	}
	free(block);
	CHECK(block = calloc(1, size));
	CHECK(in_zone(block) && is_zero(block, size));
	memset(block, 1, size);
	for (int i = 0; i < 4; i++) {
		CHECK(painted(beside[i], size / 4, i) && painted(own[i], size / 4, 10 + i));
		CHECK(munmap(beside[i], size / 4) == 0);
		free(own[i]);
	}
	_exit(0);
}

static void file_in_free_memory(void)
{
	const size_t size = 32 * MIB, at = 23 * MIB;
	unsigned char *block = malloc(size);
	int status, file = memfd_create("file", MFD_CLOEXEC);

	CHECK(in_zone(block) && file >= 0 && ftruncate(file, MIB) == 0);
	memset(block, 1, size);
	CHECK(syscall(SYS_mmap, block + at, MIB, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, file, 0L) ==
	      (long)(block + at));
	free(block);
	for (int i = 0; i < 2; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0)
			_exit(i && !painted(block, size, 8));
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		if (i == 0) {
			CHECK(block = malloc(size));
			paint(block, size, 8);
		}
	}
	free(block);
	close(file);
}

int main(void)
{
	const size_t size = 8 * MIB;
	unsigned char *block;
	int status;

	mallopt(M_MMAP_THRESHOLD, 128 * KIB);
	CHECK(block = malloc(size));
	CHECK(in_zone(block));
	paint(block, size, 77);
	CHECK(madvise(block + size / 4, size / 2, MADV_DONTFORK) == 0);
	/* Of the last quarter every other page, so that some of a range is there. */
	for (size_t at = size / 4 * 3; at < size; at += 2 * PAGE)
		CHECK(madvise(block + at, PAGE, MADV_DONTFORK) == 0);
	fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		be_child(block, size);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(painted(block, size, 77));
	free(block);
	file_in_free_memory();
	puts("good");
	return 0;
}
