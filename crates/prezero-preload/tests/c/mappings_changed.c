/*
 * Changes parts of blocks by system calls, frees them, and uses the memory again: what is not in mappings_table.c, as it is
 * more than one call, or others' memory is to stay as it is.
 */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define SIZE (4 * MIB)

/* Whatever was done to it, the memory must come back readable, writable and clear. */
static void reuse(const char *what)
{
	unsigned char *blocks[24];

	for (int i = 0; i < 24; i++) {
		blocks[i] = i % 2 ? calloc(1, SIZE) : malloc(SIZE);
		CHECK(in_zone(blocks[i]));
		if (i % 2)
			CHECK(is_zero(blocks[i], SIZE));
		memset(blocks[i], i + 1, SIZE);
	}
	for (int i = 0; i < 24; i++) {
		CHECK(blocks[i][0] == i + 1 && blocks[i][SIZE - 1] == i + 1);
		free(blocks[i]);
	}
	printf("%s\n", what);
}

static unsigned char *fresh(void)
{
	unsigned char *block = malloc(SIZE);

	CHECK(in_zone(block));
	paint(block, SIZE, 3);
	return block;
}

/* Whether the kernel has a mapping at every page, by its own words. */
static int mapped(void *at, size_t len)
{
	unsigned char seen[SIZE / PAGE];

	return mincore(at, len, seen) == 0;
}

int main(void)
{
	unsigned char *block;

	FILE *file = tmpfile();
	CHECK(file && ftruncate(fileno(file), 16 * PAGE) == 0);
	block = fresh();
	CHECK(mmap(block + 8 * PAGE, 16 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fileno(file), 0) ==
	      block + 8 * PAGE);
	CHECK(is_zero(block + 8 * PAGE, 16 * PAGE));
	free(block);
	fclose(file);
	reuse("mmap fixed");

	block = fresh();
	unsigned char *moved = mremap(block, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && moved != block);
	CHECK(painted(moved, SIZE, 3) && is_zero(moved + SIZE, SIZE));
	CHECK(mapped(block, SIZE));
	free(block);
	reuse("mremap away");
	CHECK(painted(moved, SIZE, 3));
	CHECK(munmap(moved, 2 * SIZE) == 0);

	block = fresh();
	moved = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	paint(moved, SIZE, 4);
	CHECK(mremap(moved, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, block) == block);
	CHECK(painted(block, SIZE, 4));
	free(block);
	reuse("mremap into");

	/* A segment that others share, put over a part: it is left alone from the free on. */
	int segment = shmget(IPC_PRIVATE, 16 * PAGE, IPC_CREAT | 0600);
	if (segment >= 0) {
		block = fresh();
		CHECK(shmat(segment, block + 8 * PAGE, SHM_REMAP) == block + 8 * PAGE);
		memset(block + 8 * PAGE, 0x5e, 16 * PAGE);
		free(block);
		reuse("shmat");
		unsigned char *shared = shmat(segment, NULL, 0);
		CHECK(shared != (void *)-1 && shared[0] == 0x5e && shared[16 * PAGE - 1] == 0x5e);
		/* Taken off again before the free, it leaves no hole that another mapping could get. */
		block = fresh();
		CHECK(shmat(segment, block + 8 * PAGE, SHM_REMAP) == block + 8 * PAGE);
		CHECK(shmdt(block + 8 * PAGE) == 0);
		CHECK(msync(block, SIZE, MS_ASYNC) == 0);
		free(block);
		reuse("shmdt");
		CHECK(shmdt(shared) == 0 && shmctl(segment, IPC_RMID, NULL) == 0);
	}

	/* A missing page of what is registered waits for its owner's answer, which never comes. */
	int watcher = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = { .api = UFFD_API };
	if (watcher >= 0 && ioctl(watcher, UFFDIO_API, &api) == 0) {
		block = fresh();
		struct uffdio_register watched = { .range = { (uintptr_t)block, SIZE },
						   .mode = UFFDIO_REGISTER_MODE_MISSING };

		CHECK(ioctl(watcher, UFFDIO_REGISTER, &watched) == 0);
		CHECK(syscall(SYS_madvise, block, SIZE, MADV_DONTNEED) == 0);
		free(block);
		reuse("userfaultfd");
	} else
		puts("no userfaultfd here");

	/* Elsewhere everything is as it was. */
	moved = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	paint(moved, SIZE, 6);
	CHECK(mprotect(moved, PAGE, PROT_READ) == 0 && madvise(moved + PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK(is_zero(moved + PAGE, PAGE) && painted(moved, PAGE, 6));
	CHECK(munmap(moved, SIZE) == 0 && !mapped(moved, SIZE));
	errno = 0;
	CHECK(munmap(moved + 1, SIZE) == -1 && errno == EINVAL);
	CHECK(madvise(moved, PAGE, 9999) == -1 && errno == EINVAL);
	return 0;
}
