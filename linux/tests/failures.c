/*
 * failures COUNT: memory is used while its allocations fail, until COUNT of them did, and every byte
 * of it is what it has to be.
 *
 * The kernel's fault injection, which the caller sets up, fails allocations of this process and
 * its children, and counts down in its file "times". What may fail does, or falls back to smaller
 * pages: faults on huge and small pages, the first write to the huge zero page, shared memory, fork,
 * mremap. Nothing is killed for it, and nothing is handed out that is not zero.
 */
#include "check.h"

#define TIMES "/sys/kernel/debug/fail_page_alloc/times"
/* A round in which nothing is allocated afresh is rare; this number of them is a mistake. */
#define ROUNDS_PER_FAILURE 50

static unsigned long refused;

/* Did a call that may fail for memory do so? For nothing else. */
static bool short_of_memory(bool failed)
{
	if (!failed)
		return false;
	CHECK(errno == ENOMEM || errno == EAGAIN || errno == ENOSPC);
	refused++;
	return true;
}

/* Fresh huge memory, written at one byte of each huge page, or read first. */
static void huge_pages(bool read_first)
{
	char *at;

	at = mmap(NULL, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (short_of_memory(at == MAP_FAILED))
		return;
	if (!short_of_memory(madvise(at, 3 * HUGE, MADV_HUGEPAGE))) {
		char *first = (char *)(((uintptr_t)at + HUGE - 1) & ~(HUGE - 1));

		if (read_first)
			CHECK_ZERO(first, 2 * HUGE);
		for (char *huge = first; huge < first + 2 * HUGE; huge += HUGE) {
			huge[5 * PAGE + 7] = 1;
			CHECK_ZERO(huge, 5 * PAGE);
			CHECK_ZERO(huge + 6 * PAGE, HUGE - 6 * PAGE);
		}
	}
	/* Splits mappings, and may fail for that. */
	if (short_of_memory(munmap(at + HUGE, PAGE)) || short_of_memory(munmap(at, HUGE)))
		CHECK(!munmap(at, 3 * HUGE));
	else
		CHECK(!munmap(at + HUGE + PAGE, 2 * HUGE - PAGE));
}

/* Small pages: written, given back, and zero again; moved; copied by a child. */
static void small_pages(void)
{
	const size_t size = 64 * PAGE;
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *moved;
	pid_t child;
	int status;

	if (short_of_memory(at == MAP_FAILED))
		return;
	CHECK_ZERO(at, size);
	memset(at, 0x5a, size);
	CHECK(!madvise(at + 8 * PAGE, 16 * PAGE, MADV_DONTNEED));
	CHECK_ZERO(at + 8 * PAGE, 16 * PAGE);
	memset(at, 0xa5, size);

	child = fork();
	if (!child) {
		CHECK_BYTES(at, size, 0xa5);
		memset(at, 0xee, size);
		_exit(0);
	}
	if (!short_of_memory(child < 0)) {
		/* Ours again before the kernel writes there: its own fault could fail. */
		*(volatile int *)&status = 0;
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "child: 0x%x", status);
	}
	CHECK_BYTES(at, size, 0xa5);

	moved = mremap(at, size, 2 * size, MREMAP_MAYMOVE);
	if (short_of_memory(moved == MAP_FAILED)) {
		CHECK_BYTES(at, size, 0xa5);
		CHECK(!munmap(at, size));
		return;
	}
	CHECK_BYTES(moved, size, 0xa5);
	CHECK_ZERO(moved + size, size);
	CHECK(!munmap(moved, 2 * size));
}

/* Shared memory: by faults, and by fallocate(), which says when there is none. */
static void shared_pages(void)
{
	const size_t size = 64 * PAGE;
	int fd = memfd_create("failures", 0);
	char *at;

	if (short_of_memory(fd < 0))
		return;
	if (short_of_memory(ftruncate(fd, size))) {
		close(fd);
		return;
	}
	short_of_memory(fallocate(fd, 0, 0, size / 2));
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!short_of_memory(at == MAP_FAILED)) {
		CHECK_ZERO(at, size);
		memset(at, 0x77, size);
		if (!short_of_memory(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size / 2)))
			CHECK_ZERO(at, size / 2);
		CHECK_BYTES(at + size / 2, size / 2, 0x77);
		CHECK(!munmap(at, size));
	}
	close(fd);
}

/* How many failures are to come, or -1: to ask may be one of them. */
static long to_come(void)
{
	char text[32] = "";
	int fd = open(TIMES, O_RDONLY);
	ssize_t got;

	if (short_of_memory(fd < 0))
		return -1;
	got = read(fd, text, sizeof(text) - 1);
	if (short_of_memory(got < 0))
		got = 0;
	close(fd);
	return got ? strtol(text, NULL, 10) : -1;
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 0, left = 0, rounds, lowest = -1;

	CHECK(count > 0, "usage: failures COUNT");
	CHECK(to_come() >= count, "the caller has to set up fault injection");
	printf("failures: %ld to come\n", count);
	fflush(stdout);
	/* From here on nothing but what has to bear it. */
	CHECK(!write_file("/proc/self/make-it-fail", "1"));
	for (rounds = 0; rounds < count * ROUNDS_PER_FAILURE; rounds++) {
		huge_pages(rounds % 2);
		small_pages();
		shared_pages();
		left = to_come();
		if (left >= 0 && (lowest < 0 || left < lowest))
			lowest = left;
		if (left == 0)
			break;
	}
	CHECK(left == 0, "after %ld rounds %ld failures are still to come", rounds, lowest);
	printf("failures: %ld allocations failed in %ld rounds, %lu calls said so\n", count, rounds + 1, refused);
	return 0;
}
