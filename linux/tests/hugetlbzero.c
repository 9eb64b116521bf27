/*
 * The free pool of hugetlb: kprezerod clears it, a fault finds it zero, and what was written to is
 * not zero any more, whichever way it was used: shared, private, copied on write, by fallocate(), or
 * given back to the rest of the machine. Every byte is looked at.
 */
#include "check.h"

#define PAGES 6
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static long pool(const char *name)
{
	char path[128], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), POOL "%s", name);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return -1;
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtol(text, NULL, 10);
}

static long hits(void)
{
	return proc_value("/proc/vmstat", "prezero_hit");
}

/* The machine may be starved: minutes, and no verdict before. */
static void wait_for_zeroed(long wanted)
{
	for (int tries = 0; pool("zeroed_hugepages") != wanted; tries++) {
		CHECK(tries < 12000, "%ld zero of %ld, wanted %ld", pool("zeroed_hugepages"),
		      pool("free_hugepages"), wanted);
		usleep(10000);
	}
}

static void never(void)
{
	CHECK(!write_file("/proc/sys/vm/prezero_order", "never"));
}

static void always(void)
{
	CHECK(!write_file("/proc/sys/vm/prezero_order", "0"));
}

static char *map_pool(int flags)
{
	char *at = mmap(NULL, PAGES * HUGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void dirty_pool(void)
{
	char *at = map_pool(MAP_SHARED);

	memset(at, 0xa5, PAGES * HUGE);
	CHECK(!munmap(at, PAGES * HUGE));
	CHECK(pool("free_hugepages") == PAGES);
}

/* All pages are zero, and are known to be. */
static void check_served(const char *at)
{
	CHECK_ZERO(at, PAGES * HUGE);
	CHECK(pool("zeroed_hugepages") == 0);
}

static void faults_find_zeros(int flags, const char *kind)
{
	long before;
	char *at;

	always();
	wait_for_zeroed(PAGES);
	never();
	before = hits();
	at = map_pool(flags);
	CHECK(pool("zeroed_hugepages") == PAGES, "reserved is not used");
	for (int i = 0; i < PAGES; i++)
		at[i * HUGE] = 0;
	CHECK(hits() - before >= (long)(PAGES * HUGE / PAGE));
	check_served(at);

	/* Written, given back, and taken again before it is cleared */
	memset(at, 0xa5, PAGES * HUGE);
	CHECK(!munmap(at, PAGES * HUGE));
	CHECK(pool("zeroed_hugepages") == 0 && pool("free_hugepages") == PAGES);
	at = map_pool(flags);
	CHECK_ZERO(at, PAGES * HUGE);
	memset(at, 0xa5, PAGES * HUGE);
	CHECK(!munmap(at, PAGES * HUGE));
	printf("ok  %s: faults find zeros; what was written to is forgotten\n", kind);
}

/* A copy takes a page that is zero, and gives it back dirty. */
static void copies_forget(void)
{
	char *at;

	always();
	wait_for_zeroed(PAGES);
	never();
	at = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	CHECK(at != MAP_FAILED);
	memset(at, 0x5a, HUGE);
	IN_CHILD({
		at[0] = 1;
		CHECK_BYTES(at + 1, HUGE - 1, 0x5a);
	});
	CHECK_BYTES(at, HUGE, 0x5a);
	CHECK(!munmap(at, HUGE));
	CHECK(pool("zeroed_hugepages") <= PAGES - 2);
	at = map_pool(MAP_SHARED);
	CHECK_ZERO(at, PAGES * HUGE);
	memset(at, 0xa5, PAGES * HUGE);
	CHECK(!munmap(at, PAGES * HUGE));
	printf("ok  copy on write: a copy is not zero when it comes back\n");
}

static void fallocate_finds_zeros(void)
{
	long before;
	char *at;
	int fd;

	always();
	wait_for_zeroed(PAGES);
	never();
	before = hits();
	fd = memfd_create("pool", MFD_HUGETLB);
	CHECK(fd >= 0);
	CHECK(!fallocate(fd, 0, 0, PAGES * HUGE));
	CHECK(hits() - before >= (long)(PAGES * HUGE / PAGE));
	at = mmap(NULL, PAGES * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	check_served(at);
	memset(at, 0xa5, PAGES * HUGE);
	/* A hole gives a page back, and the next write gets a clean one */
	CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HUGE, HUGE));
	CHECK_ZERO(at + HUGE, HUGE);
	CHECK_BYTES(at, HUGE, 0xa5);
	CHECK(!munmap(at, PAGES * HUGE) && !close(fd));
	printf("ok  fallocate: finds zeros; a hole is zero again\n");
}

/* Everything at once, while kprezerod works: the pool is always too small for all. */
static void storm(void)
{
	pid_t pids[4];

	always();
	for (int i = 0; i < 4; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i])
			continue;
		srand(i + 1);
		for (int round = 0; round < 60; round++) {
			size_t size = (1 + rand() % 2) * HUGE;
			int kind = rand() % 2 ? MAP_SHARED : MAP_PRIVATE;
			char *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
					kind | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

			if (at == MAP_FAILED) {
				CHECK(errno == ENOMEM);
				usleep(1000);
				continue;
			}
			CHECK_ZERO(at, size);
			memset(at, 0xff, size);
			CHECK_BYTES(at, size, 0xff);
			CHECK(!munmap(at, size));
			if (rand() % 4 == 0)
				usleep(3000);
		}
		_exit(0);
	}
	for (int i = 0; i < 4; i++) {
		int status;

		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "0x%x", status);
	}
	printf("ok  four processes and kprezerod at once\n");
}

/* The pool shrinks and grows while it is being cleared: what leaves it is memory like any other. */
static void resized(void)
{
	char *at;

	always();
	for (int round = 0; round < 20; round++) {
		dirty_pool();
		usleep(rand() % 2000);
		CHECK(!write_file(POOL "nr_hugepages", "1"));
		CHECK(pool("zeroed_hugepages") <= 1);
		at = map_huge(2 * HUGE);
		CHECK_ZERO(at, 2 * HUGE);
		memset(at, 0xff, 2 * HUGE);
		CHECK(!munmap(at, 2 * HUGE));
		CHECK(!write_file(POOL "nr_hugepages", "6"));
		CHECK(pool("nr_hugepages") == PAGES);
	}
	wait_for_zeroed(PAGES);
	printf("ok  the pool shrinks and grows under kprezerod\n");
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	CHECK(pool("zeroed_hugepages") >= 0, "not a kernel with the series");
	CHECK(!write_file("/sys/module/kernel/parameters/prezero_verify", "1"));
	CHECK(!write_file("/sys/kernel/debug/prezero/load", "1000000"));
	CHECK(!write_file(POOL "nr_hugepages", "6"));
	CHECK(pool("nr_hugepages") == PAGES);
	dirty_pool();
	faults_find_zeros(MAP_SHARED, "shared");
	faults_find_zeros(MAP_PRIVATE, "private");
	copies_forget();
	fallocate_finds_zeros();
	storm();
	resized();
	CHECK(proc_value("/proc/vmstat", "prezero_bad") == 0);
	CHECK(!write_file(POOL "nr_hugepages", "0"));
	return 0;
}
