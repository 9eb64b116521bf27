/*
 * What it takes to bring memory to other addresses: moved by the kernel in two ways, and copied.
 *
 *   cc -O1 -o moves bench/moves.c && ./moves [MIB]
 *
 * Microseconds for 64 MiB or as many as asked, seven times. UFFDIO_MOVE with its registration; -1 where the kernel or its headers lack it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker.h"

#ifndef UFFDIO_MOVE /* Linux 6.8; older headers */
struct uffdio_move {
	__u64 dst, src, len, mode;
	__s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#define UFFD_FEATURE_MOVE (1 << 16)
#endif

static char *place;
static size_t size = (size_t)64 << 20;

static double us_since(uint64_t began)
{
	return (now() - began) / 1e3;
}

static char *part(int n)
{
	return place + n * size;
}

/* A userfaultfd that moves, or -1. */
static int mover(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_MOVE };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	return fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 ? fd : -1;
}

static double by_uffd(int fd, char *from, char *to)
{
	struct uffdio_range range = { (uintptr_t)to, size };
	struct uffdio_register watch = { .range = range, .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_move move = { .dst = (uintptr_t)to, .src = (uintptr_t)from, .len = size };
	uint64_t began = now();

	if (fd < 0 || ioctl(fd, UFFDIO_REGISTER, &watch) || ioctl(fd, UFFDIO_MOVE, &move) ||
	    ioctl(fd, UFFDIO_UNREGISTER, &range))
		return -1;
	return us_since(began);
}

static double by_mremap(char *from, char *to)
{
	uint64_t began = now();

	if (mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) != to)
		return -1;
	return us_since(began);
}

static double by_copy(char *from, char *to)
{
	uint64_t began = now();

	memcpy(to, from, size);
	return us_since(began);
}

int main(int argc, char **argv)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	int fd = mover();

	if (argc > 1 && (size = strtoul(argv[1], NULL, 10) << 20) == 0)
		fail_as("moves", "usage: moves [MIB]");
	place = mmap(NULL, 7 * size, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (place == MAP_FAILED)
		fail_as("moves", "the kernel gives no memory");
	place = part(1) - (uintptr_t)place % size; /* tables move whole between like addresses */
	for (int n = 0; n < 7; n++) {
		for (int from = 0; from < 6; from += 2)
			memset(part(from), 1, size);
		printf("mremap %6.0f  UFFDIO_MOVE %6.0f", by_mremap(part(0), part(1)), by_uffd(fd, part(2), part(3)));
		printf("  copy to absent %6.0f", by_copy(part(4), part(5)));
		printf("  to resident %6.0f\n", by_copy(part(4), part(5)));
		/* Fresh, as all of it was. */
		if (mmap(place, 6 * size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) != place)
			fail_as("moves", "the kernel gives no memory");
	}
	return 0;
}
