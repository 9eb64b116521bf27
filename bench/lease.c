/*
 * lease: memory from prezerod, and the same pages without it.
 *
 * A program of `prezero bench lease` and `fill`.
 *
 *   lease lease BYTES     ms from the request to a lease until it is mapped and written once in each 2 MiB
 *   lease hugetlb BYTES   the same of one's own pages of the pool, populated in one call, the second time
 *   lease thp BYTES       the same of one's own transparent huge pages
 *   lease small MANY CONNECTIONS   leases of 2 MiB, each over the next connection: a second, median ms, 99th percentile
 *
 *   lease take BYTES      takes each lease as soon as it lies ready, and gives it back, until it is ended
 *   lease report          the broker's number, and its counters
 *
 * One's own memory is taken twice: a guest's host may have taken memory that was free for long.
 */
#define _GNU_SOURCE
#include <linux/mman.h>
#include <string.h>

#include "../crates/prezerod/include/prezero_lease.h"
#include "worker.h"

enum { MOST = 1 << 16 };
#define HUGE_BYTES ((size_t)2 << 20)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void fail(const char *what)
{
	fail_as("lease", what);
}

static void touch(char *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += HUGE_BYTES)
		*(volatile char *)(p + at) = 1;
}

static int connection(void)
{
	int broker = prezero_connect(NULL);

	if (broker < 0)
		fail("no broker");
	return broker;
}

static double leased(size_t bytes)
{
	struct prezero_lease lease;
	int broker = connection();
	uint64_t began = now();
	char *p;

	if (prezero_lease(broker, bytes, PREZERO_2M, -1, 0, &lease))
		fail(lease.text);
	p = prezero_map(&lease);
	if (!p)
		fail("the lease cannot be mapped");
	/* Resident pages enter the page tables in one call, not fault by fault. */
	madvise(p, bytes, MADV_POPULATE_WRITE);
	touch(p, bytes);
	return (double)(now() - began) / 1e6;
}

static double own(size_t bytes, int flags)
{
	size_t room = flags & MAP_HUGETLB ? 0 : HUGE_BYTES;
	uint64_t began = now();
	char *p = mmap(NULL, bytes + room, PROT_READ | PROT_WRITE, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at;
	double took;

	if (p == MAP_FAILED)
		fail("no memory");
	at = (char *)(((uintptr_t)p + room) / HUGE_BYTES * HUGE_BYTES);
	if (room)
		madvise(at, bytes, MADV_HUGEPAGE);
	if (madvise(at, bytes, MADV_POPULATE_WRITE))
		fail("the memory cannot be populated");
	touch(at, bytes);
	took = (double)(now() - began) / 1e6;
	munmap(p, bytes + room);
	return took;
}

static int order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void small(long many, long connections)
{
	static int broker[MOST];
	static double ms[MOST];
	struct prezero_lease lease;
	uint64_t began;

	if (many < 1 || many > MOST || connections < 1 || connections > MOST)
		fail("too many");
	for (long i = 0; i < connections; i++)
		broker[i] = connection();
	began = now();
	for (long i = 0; i < many; i++) {
		uint64_t asked = now();

		if (prezero_lease(broker[i % connections], HUGE_BYTES, PREZERO_2M, -1, 0, &lease))
			fail(lease.text);
		close(lease.fd);
		ms[i] = (double)(now() - asked) / 1e6;
	}
	printf("%.1f ", (double)many * 1e9 / (double)(now() - began));
	qsort(ms, many, sizeof(*ms), order);
	printf("%.4f %.4f\n", ms[many / 2], ms[many * 99 / 100]);
}

static void take(size_t bytes)
{
	struct prezero_available there;
	struct prezero_lease lease;
	int broker = connection();

	for (;;) {
		if (prezero_available(broker, PREZERO_2M, -1, &there, &lease))
			fail(lease.text);
		if (there.largest < bytes)
			usleep(5000);
		else if (!prezero_lease(broker, bytes, PREZERO_2M, -1, 0, &lease))
			close(lease.fd);
	}
}

static void report(void)
{
	static char text[1 << 16];
	struct prezero_lease lease;
	int broker = connection();
	struct ucred peer;
	socklen_t size = sizeof(peer);
	ssize_t got;

	if (getsockopt(broker, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		fail("whose socket is it?");
	printf("%d\n", peer.pid);
	if (prezero_report(broker, PREZERO_METRICS, &lease))
		fail(lease.text);
	lseek(lease.fd, 0, SEEK_SET);
	while ((got = read(lease.fd, text, sizeof(text))) > 0)
		fwrite(text, 1, got, stdout);
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

	if (argc == 4 && !strcmp(argv[1], "small")) {
		small(atol(argv[2]), atol(argv[3]));
	} else if (argc == 2 && !strcmp(argv[1], "report")) {
		report();
	} else if (argc == 3 && bytes && !strcmp(argv[1], "take")) {
		take(bytes);
	} else if (argc == 3 && bytes && !strcmp(argv[1], "lease")) {
		printf("%.4f\n", leased(bytes));
	} else if (argc == 3 && bytes) {
		int flags = strcmp(argv[1], "hugetlb") ? 0 : MAP_HUGETLB | MAP_HUGE_2MB;

		own(bytes, flags);
		printf("%.4f\n", own(bytes, flags));
	} else {
		fail("usage: lease lease|hugetlb|thp|take BYTES, lease small MANY CONNECTIONS, lease report");
	}
	return 0;
}
