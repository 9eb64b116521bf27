/*
 * restore: a guest's memory is restored from its image, and touched as a guest touches it.
 *
 * A program of `prezero bench restore`. It stands in for a virtual machine's monitor: no guest runs.
 *
 *   restore FILE BYTES ZERO warm|cold FIRST DENSE WAY
 *
 * FILE is made unless it is the image of a guest of BYTES, ZERO percent of which are holes. FIRST percent of the pages are
 * touched in random order, DENSE in each 2 MiB that are touched: the guest's first answer. When nothing is copied any more
 * the rest is touched.
 *
 * Of five first pages four have data, and one in four of these is written. The fifth is of a hole, and is written. Each page
 * is compared with the image. Cold: the image is not in the page cache. Ways:
 *
 *   map        the image, mapped privately                            (Firecracker's file backend)
 *   populate   the same with MAP_POPULATE
 *   read       all of it read into transparent huge pages             (Cloud Hypervisor, once)
 *   sparse     the same without its holes                             (Cloud Hypervisor, memory_restore_mode=copy)
 *   huge       the same into pages of the hugetlb pool
 *   daemon     the same into a memfd, which then is the guest's       (Cloud Hypervisor's offload_daemon)
 *   lazy       userfaultfd: a page when it is touched                 (Firecracker's example of a handler)
 *   uffd       the same, and a second thread copies ahead             (Cloud Hypervisor, ondemand)
 *   uffd-huge  the same with pages of the hugetlb pool
 *   uffd-memfd the same of one's own shared huge pages, filled through a second mapping
 *   lease      a lease of prezerod, into which all but the holes is read
 *   lease-uffd the same while the guest runs: what is touched comes first
 *
 * Prints ms to the first answer, until all is copied, and for the rest; us of a page's first touch, median and 99th
 * percentile, of those until the first answer; CPU ms until all is copied, and in all; MiB that are the guest's own then.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../crates/prezerod/include/prezero_lease.h"
#include "worker.h"

#define PAGE ((size_t)4096)
#define HUGE_BYTES ((size_t)2 << 20)
/* What is copied for one touch and ahead, of memory with small pages: what the kernel maps around a touch of a file. */
#define AROUND ((size_t)64 << 10)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#define MAGIC 0x9e3779b97f4a7c15u
/* Bytes that are copied ahead before their range is unregistered. */
#define PIECE ((size_t)32 << 20)
#define STEP ((size_t)1 << 20)
enum { WAITS, BUSY, DONE };
enum { DATA = 1, TAKEN = 2 };

/* What handler and guest share. */
struct shared {
	_Atomic int done;
	_Atomic unsigned char state[];
};

struct stretch {
	size_t from, to;
};

static struct {
	const char *path;
	size_t bytes, stretches;
	int file;
	struct stretch *data;
} image;

/* A guest's memory, in a memfd or not; `unit` is what is copied at once. */
static struct {
	char *at;
	int memfd, uffd, huge;
	size_t unit;
} guest = { .memfd = -1, .uffd = -1 };

static struct shared *shared;
static uint64_t made_ns;
/* Each thread that reads the image opens it: the kernel reads ahead of each. */
static _Thread_local int file = -1;
static _Thread_local char *source;
static pid_t handler;
static unsigned char *page_kind;
static uint64_t random_state = MAGIC;

static void fail(const char *what)
{
	if (errno)
		perror("restore");
	fail_as("restore", what);
}

static uint64_t drawn(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % below;
}

/* Of the guest's process and the handler's. */
static uint64_t cpu_ns(void)
{
	clockid_t clock;

	return clock_ns(CLOCK_PROCESS_CPUTIME_ID) + (handler && !clock_getcpuclockid(handler, &clock) ? clock_ns(clock) : 0);
}

static void shuffle(uint32_t *all, size_t many)
{
	for (size_t i = many; i > 1; i--) {
		size_t j = drawn(i);
		uint32_t kept = all[i - 1];

		all[i - 1] = all[j];
		all[j] = kept;
	}
}

/* ---- the image ---- */

/* Stretches of at most 32 MiB: pages with data, then a hole. The first page says which image it is. */
static void make(size_t bytes, size_t zero)
{
	uint64_t page[512] = { 0 };

	if (pread(image.file, page, PAGE, 0) == (ssize_t)PAGE && page[2] == bytes && page[3] == zero)
		return;
	if (ftruncate(image.file, 0) || ftruncate(image.file, bytes))
		fail(image.path);
	for (size_t at = 0, stretch; at < bytes; at += stretch) {
		size_t end;

		stretch = (1 + drawn(8192)) * PAGE;
		if (stretch > bytes - at)
			stretch = bytes - at;
		end = at + stretch - stretch * zero / 100 / PAGE * PAGE;
		for (size_t from = at; from < end; from += PAGE) {
			for (size_t word = 0; word < 512; word++)
				page[word] = (from / PAGE + 1) * MAGIC + word;
			if (!from)
				page[2] = bytes, page[3] = zero;
			if (pwrite(image.file, page, PAGE, from) != (ssize_t)PAGE)
				fail(image.path);
		}
	}
	if (fsync(image.file))
		fail(image.path);
}

static void open_image(size_t bytes, size_t zero, int cold)
{
	static char piece[STEP];
	off_t at = 0, end = bytes;
	size_t room = 0;

	image.bytes = bytes;
	image.file = open(image.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (image.file < 0)
		fail(image.path);
	make(bytes, zero);
	while ((at = lseek(image.file, at, SEEK_DATA)) >= 0 && at < end) {
		if (image.stretches == room)
			image.data = realloc(image.data, (room = room * 2 + 64) * sizeof(*image.data));
		image.data[image.stretches].from = at;
		at = lseek(image.file, at, SEEK_HOLE);
		image.data[image.stretches++].to = at;
	}
	errno = 0;
	if (cold)
		posix_fadvise(image.file, 0, 0, POSIX_FADV_DONTNEED);
	for (at = 0; !cold && at < end; at += sizeof(piece))
		if (pread(image.file, piece, sizeof(piece), at) <= 0)
			fail(image.path);
}

/* A hypervisor backs memory only when it is touched, which must not fall into what is measured. */
static void warm(size_t bytes, int flags)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

	if (at == MAP_FAILED)
		fail("no memory");
	madvise(at, bytes, MADV_HUGEPAGE);
	if (madvise(at, bytes, MADV_POPULATE_WRITE))
		fail("the memory cannot be populated");
	munmap(at, bytes);
}

/* The stretches with data, in whole units. */
static void widen(size_t unit)
{
	size_t kept = 0;

	for (size_t i = 0; i < image.stretches; i++) {
		size_t from = image.data[i].from / unit * unit, to = (image.data[i].to + unit - 1) / unit * unit;

		to = to < image.bytes ? to : image.bytes;
		if (kept && image.data[kept - 1].to >= from)
			image.data[kept - 1].to = to;
		else
			image.data[kept++] = (struct stretch){ from, to };
	}
	image.stretches = kept;
}

static void open_source(void)
{
	file = open(image.path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		fail(image.path);
	source = mmap(NULL, image.bytes, PROT_READ, MAP_SHARED, file, 0);
	if (source == MAP_FAILED)
		fail("the image cannot be mapped");
}

static void read_into(char *to, size_t from, size_t bytes)
{
	while (bytes) {
		/* In steps, which the kernel reads ahead of. */
		ssize_t got = pread(file, to, bytes < STEP ? bytes : STEP, from);

		if (got <= 0)
			fail(image.path);
		to += got, from += got, bytes -= got;
	}
}

/* Only what has data: the rest of a lease is zero. */
static void read_data(char *to, size_t from, size_t bytes)
{
	size_t end = from + bytes;
	off_t at = from, hole;

	while ((at = lseek(file, at, SEEK_DATA)) >= 0 && (size_t)at < end) {
		hole = lseek(file, at, SEEK_HOLE);
		if ((size_t)hole > end)
			hole = end;
		read_into(to + (at - from), at, hole - at);
		at = hole;
	}
	errno = 0;
}

/* ---- the handler: a process with a thread for what is touched, and one that copies ahead ---- */

static int is_memfd(void)
{
	return guest.memfd >= 0;
}

/* Maps what is there, or copies it; again, until it is done or was done by another. */
static void place(size_t at, size_t bytes)
{
	size_t end = at + bytes, least = guest.huge ? HUGE_BYTES : PAGE;

	while (at < end) {
		struct uffdio_copy copy = { (uintptr_t)guest.at + at, (uintptr_t)source + at, end - at, 0, 0 };
		struct uffdio_continue map = { { (uintptr_t)guest.at + at, end - at }, 0, 0 };
		int failed = is_memfd() ? ioctl(guest.uffd, UFFDIO_CONTINUE, &map) : ioctl(guest.uffd, UFFDIO_COPY, &copy);
		int64_t placed = is_memfd() ? map.mapped : copy.copy;

		if (failed && placed == -EEXIST)
			placed = least;
		else if (failed && placed <= 0 && placed != -EAGAIN)
			break; /* The range is the kernel's again. */
		if (placed > 0)
			at += placed;
	}
	errno = 0;
}

static void copy_unit(size_t nth)
{
	unsigned char waits = WAITS;
	size_t at = nth * guest.unit;

	if (!atomic_compare_exchange_strong(&shared->state[nth], &waits, BUSY))
		return;
	if (is_memfd()) {
		read_data(guest.at + at, at, guest.unit);
	} else {
		/* Else it is read while the guest's address space is locked. */
		madvise(source + at, guest.unit, MADV_POPULATE_READ);
		place(at, guest.unit);
	}
	shared->state[nth] = DONE;
}

static void await(size_t nth)
{
	while (shared->state[nth] != DONE)
		sched_yield();
}

static void *copy_ahead(void *unused)
{
	open_source();
	for (size_t i = 0; i < image.stretches; i++) {
		for (size_t from = image.data[i].from, to; from < image.data[i].to; from = to) {
			struct uffdio_range range = { (uintptr_t)guest.at + from, 0 };

			to = image.data[i].to - from < PIECE ? image.data[i].to : from + PIECE;
			for (size_t at = from; at < to; at += guest.unit)
				copy_unit(at / guest.unit);
			/* The other thread may be at one of them. */
			for (size_t at = from; at < to; at += guest.unit)
				await(at / guest.unit);
			/* The kernel maps what is there from now on, 2 MiB at once where it can. */
			range.len = to - from;
			ioctl(guest.uffd, UFFDIO_UNREGISTER, &range);
		}
	}
	shared->done = 1;
	return unused;
}

static void handle(int ahead)
{
	struct pollfd touched = { .fd = guest.uffd, .events = POLLIN };
	struct uffd_msg message;
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_source();
	if (!ahead)
		shared->done = 1;
	else if (pthread_create(&thread, NULL, copy_ahead, NULL))
		fail("no thread");
	for (;;) {
		struct uffdio_range range = { 0, guest.unit };
		size_t nth;

		if (poll(&touched, 1, -1) < 1 || read(guest.uffd, &message, sizeof(message)) != sizeof(message))
			continue;
		nth = (message.arg.pagefault.address - (uintptr_t)guest.at) / guest.unit;
		copy_unit(nth);
		await(nth);
		if (is_memfd())
			place(nth * guest.unit, guest.unit);
		/* It may have been there before the guest waited. */
		range.start = (uintptr_t)guest.at + nth * guest.unit;
		ioctl(guest.uffd, UFFDIO_WAKE, &range);
	}
}

static void serve(int ahead)
{
	size_t units = image.bytes / guest.unit;
	struct uffdio_api api = { .api = UFFD_API };

	widen(guest.huge || is_memfd() ? HUGE_BYTES : guest.unit);
	guest.uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (guest.uffd < 0 || ioctl(guest.uffd, UFFDIO_API, &api))
		fail("userfaultfd");
	for (size_t i = 0; i < image.stretches; i++) {
		struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };

		if (is_memfd())
			range.mode |= UFFDIO_REGISTER_MODE_MINOR;
		range.range.start = (uintptr_t)guest.at + image.data[i].from;
		range.range.len = image.data[i].to - image.data[i].from;
		if (ioctl(guest.uffd, UFFDIO_REGISTER, &range))
			fail("UFFDIO_REGISTER");
	}
	shared = mmap(NULL, sizeof(*shared) + units, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("no memory");
	handler = fork();
	if (!handler)
		handle(ahead);
	/* The handler has the last descriptor: if it dies, the kernel closes that, and no touch waits for ever. */
	close(guest.uffd);
}

/* ---- ways ---- */

static char *mapped(size_t bytes, int flags, int file)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, file, 0);

	if (at == MAP_FAILED)
		fail("the memory cannot be mapped");
	return at;
}

static void own(int huge)
{
	size_t room = huge ? 0 : HUGE_BYTES;
	char *at = mapped(image.bytes + room, MAP_PRIVATE | MAP_ANONYMOUS | (huge ? MAP_HUGETLB : 0), -1);

	guest.at = (char *)(((uintptr_t)at + room) / HUGE_BYTES * HUGE_BYTES);
	guest.huge = huge;
	guest.unit = huge ? HUGE_BYTES : AROUND;
}

static void own_memfd(unsigned flags)
{
	guest.memfd = memfd_create("guest", MFD_CLOEXEC | flags);
	if (guest.memfd < 0 || ftruncate(guest.memfd, image.bytes))
		fail("no memfd");
	guest.huge = flags & MFD_HUGETLB;
	guest.unit = guest.huge ? HUGE_BYTES : AROUND;
	guest.at = mapped(image.bytes, MAP_SHARED, guest.memfd);
}

static void leased(void)
{
	struct prezero_lease lease;
	int broker = prezero_connect(NULL);

	if (broker < 0)
		fail("no broker");
	if (prezero_lease(broker, image.bytes, PREZERO_2M, -1, 0, &lease))
		fail(lease.text);
	guest.memfd = lease.fd;
	made_ns = lease.cost_ns;
	guest.huge = lease.backing == 1;
	guest.unit = guest.huge ? HUGE_BYTES : AROUND;
	guest.at = prezero_map(&lease);
	if (!guest.at)
		fail("the lease cannot be mapped");
}

/* A file of memory, as Cloud Hypervisor's offload_daemon makes it, in steps through a buffer. */
static void made_by_daemon(void)
{
	static char piece[STEP];

	own_memfd(0);
	for (size_t i = 0; i < image.stretches; i++)
		for (size_t at = image.data[i].from, bytes; at < image.data[i].to; at += bytes) {
			bytes = image.data[i].to - at < STEP ? image.data[i].to - at : STEP;
			read_into(piece, at, bytes);
			if (pwrite(guest.memfd, piece, bytes, at) != (ssize_t)bytes)
				fail("the memfd cannot be written");
		}
}

static void restore(const char *way)
{
	int uffd = !strncmp(way, "uffd", 4) || !strcmp(way, "lazy"), of_lease = !strncmp(way, "lease", 5);

	open_source();
	if (!strcmp(way, "map") || !strcmp(way, "populate"))
		guest.at = mapped(image.bytes, MAP_PRIVATE | (way[0] == 'p' ? MAP_POPULATE : 0), image.file);
	else if (of_lease)
		leased();
	else if (!strcmp(way, "daemon"))
		made_by_daemon();
	else if (!strcmp(way, "uffd-memfd"))
		own_memfd(MFD_HUGETLB);
	else
		own(strstr(way, "huge") != NULL);
	if (!strcmp(way, "read") || !strcmp(way, "sparse"))
		madvise(guest.at, image.bytes, MADV_HUGEPAGE);
	if (!strcmp(way, "read"))
		read_into(guest.at, 0, image.bytes);
	else if (!strcmp(way, "sparse") || !strcmp(way, "huge") || !strcmp(way, "lease"))
		read_data(guest.at, 0, image.bytes);
	else if (uffd || !strcmp(way, "lease-uffd"))
		serve(strcmp(way, "lazy"));
	else if (strcmp(way, "map") && strcmp(way, "populate") && strcmp(way, "daemon"))
		fail("no such way");
}

/* ---- the guest ---- */

/* Pages of one kind, `dense` of each 2 MiB; none twice. */
static size_t choose(uint32_t *chosen, size_t many, size_t dense, int data)
{
	size_t huge_pages = image.bytes / HUGE_BYTES, found = 0, before;
	uint32_t *order = malloc(huge_pages * sizeof(*order)), within[512];

	for (size_t i = 0; i < huge_pages; i++)
		order[i] = i;
	shuffle(order, huge_pages);
	do {
		before = found;
		for (size_t i = 0; i < huge_pages && found < many; i++) {
			for (size_t j = 0; j < 512; j++)
				within[j] = order[i] * 512 + j;
			shuffle(within, 512);
			for (size_t j = 0, taken = 0; j < 512 && taken < dense && found < many; j++)
				if (page_kind[within[j]] == data) {
					page_kind[within[j]] |= TAKEN;
					chosen[found++] = within[j];
					taken++;
				}
		}
	} while (found < many && found > before);
	free(order);
	return found;
}

static uint64_t touch(uint32_t page)
{
	volatile uint64_t *at = (uint64_t *)(guest.at + page * PAGE);
	int data = page_kind[page] & DATA;
	uint64_t began = now(), took;

	if (!data || page % 4 == 0)
		at[1] = page;
	else
		(void)at[1];
	took = now() - began;
	if (at[0] != (data ? (page + 1) * MAGIC : 0))
		fail("a page has not what the image has");
	return took;
}

static double own_mib(void)
{
	char line[256];
	FILE *kernel = fopen("/proc/self/smaps_rollup", "r");
	unsigned long kib, sum = 0;
	struct stat info;

	while (kernel && fgets(line, sizeof(line), kernel))
		if (sscanf(line, "Anonymous: %lu", &kib) == 1 || (!is_memfd() && sscanf(line, "Private_Hugetlb: %lu", &kib) == 1))
			sum += kib;
	if (kernel)
		fclose(kernel);
	if (is_memfd() && !fstat(guest.memfd, &info))
		sum += info.st_blocks / 2;
	return (double)sum / 1024;
}

static int ascending(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
}

static void run(const char *way, size_t percent, size_t dense)
{
	size_t pages = image.bytes / PAGE, many = pages * percent / 100, holes, found;
	uint32_t *first = malloc((many + 1) * sizeof(*first)), *rest = malloc(image.bytes / HUGE_BYTES * sizeof(*rest));
	uint64_t *took = malloc((many + 1) * sizeof(*took)), began, answered, settled, after, ended, cpu, cpu_settled;
	double mib;

	random_state = MAGIC;
	page_kind = calloc(pages, 1);
	for (size_t i = 0; i < image.stretches; i++)
		memset(page_kind + image.data[i].from / PAGE, DATA, (image.data[i].to - image.data[i].from) / PAGE);
	found = choose(first, many * 4 / 5, dense, DATA);
	holes = choose(first + found, many - found, dense, 0);
	found += holes + choose(first + found + holes, many - found - holes, dense, DATA);
	shuffle(first, found);
	for (size_t i = 0; i < image.bytes / HUGE_BYTES; i++)
		rest[i] = i;
	shuffle(rest, image.bytes / HUGE_BYTES);
	memset(took, 0, (many + 1) * sizeof(*took));

	cpu = cpu_ns();
	began = now();
	restore(way);
	for (size_t i = 0; i < found; i++)
		took[i] = touch(first[i]);
	answered = now();
	while (shared && !shared->done) {
		if (waitpid(handler, NULL, WNOHANG))
			fail("the handler ended");
		usleep(200);
	}
	settled = now();
	cpu_settled = cpu_ns() - cpu;
	mib = own_mib();
	after = now();
	for (size_t i = 0; i < image.bytes / HUGE_BYTES; i++)
		for (size_t j = 0; j < 512; j++)
			if (!(page_kind[rest[i] * 512 + j] & TAKEN))
				touch(rest[i] * 512 + j);
	ended = now();
	cpu = cpu_ns() - cpu;
	if (handler) {
		kill(handler, SIGKILL);
		waitpid(handler, NULL, 0);
	}
	qsort(took, found, sizeof(*took), ascending);
	printf("%.3f %.3f %.3f ", (answered - began) / 1e6, (settled - began) / 1e6, (ended - after) / 1e6);
	printf("%.2f %.2f ", took[found / 2] / 1e3, took[found * 99 / 100] / 1e3);
	printf("%.3f %.3f %.3f %.1f\n", cpu_settled / 1e6, cpu / 1e6, made_ns / 1e6, mib);
}

int main(int argc, char **argv)
{
	size_t bytes = argc == 8 ? strtoull(argv[2], NULL, 10) : 0;

	if (bytes < HUGE_BYTES || bytes % HUGE_BYTES)
		fail("usage: restore FILE BYTES ZERO warm|cold FIRST DENSE WAY");
	image.path = argv[1];
	open_image(bytes, strtoull(argv[3], NULL, 10), !strcmp(argv[4], "cold"));
	warm(2 * bytes, 0);
	if (strstr(argv[7], "huge") || !strcmp(argv[7], "uffd-memfd"))
		warm(bytes, MAP_HUGETLB);
	run(argv[7], strtoull(argv[5], NULL, 10), strtoull(argv[6], NULL, 10));
	return 0;
}
