/*
 * pages [WAY...]: every way by which memory reaches a user, with all of the guest's memory dirty.
 *
 * A fresh guest's memory is zero and hides a page that was not cleared. So a child writes to all that
 * is free before each way is tried, and every byte is compared with what it has to be. Where the
 * kernel has the series, all ways are tried three times: with nothing tracked, tracked while all is
 * dirty, and with a stock that is zero in part; some once more while kprezerod works. A way whose
 * kernel feature is not there is skipped, and says so.
 */
#include "check.h"
#include <alloca.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <time.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define START "/proc/sys/vm/prezero_order"
#define THP "/sys/kernel/mm/transparent_hugepage/"
#define KSM "/sys/kernel/mm/ksm/"
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define SIZE (4UL << 20)
#define DIRT 0xa5
#define OURS 0x5a

static enum state { UNTRACKED, DIRTY, STOCK, LIVE } state;
static const char *skipped; /* why, of the way that runs */

static bool is_there(const char *path)
{
	return !access(path, F_OK);
}

static void must_write(const char *path, const char *text)
{
	int err = write_file(path, text);

	CHECK(!err, "%s: %s: %s", path, text, strerror(err));
}

static long number_in(const char *path)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY);

	CHECK(fd >= 0, "%s", path);
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtol(text, NULL, 10);
}

static char *map(size_t size, int flags, int fd)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static char *map_small(size_t size)
{
	char *at = map(size, MAP_PRIVATE, -1);

	madvise(at, size, MADV_NOHUGEPAGE);
	return at;
}

/* In huge pages where there are any; SIZE is a multiple of theirs. */
static char *map_large(size_t size)
{
	char *raw = map(size + HUGE, MAP_PRIVATE, -1);
	char *at = (char *)(((uintptr_t)raw + HUGE - 1) & ~(HUGE - 1));

	if (at > raw)
		CHECK(!munmap(raw, at - raw));
	if (at < raw + HUGE)
		CHECK(!munmap(at + size, raw + HUGE - at));
	madvise(at, size, MADV_HUGEPAGE);
	return at;
}

/* Writes to what is free, in huge pages and in small ones; some MiB less than all. */
static void dirty_some(bool huge)
{
	long kib = proc_value("/proc/meminfo", "MemFree");
	size_t size = kib > 24 << 10 ? (kib - (24 << 10)) * 1024UL & ~(HUGE - 1) : 0;

	if (!size)
		return;
	IN_CHILD({
		char *at = map(size + HUGE, MAP_PRIVATE, -1);

		madvise(at, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		memset(at, DIRT, size);
	});
}

/* With a stock kprezerod then has some milliseconds, too few for all. */
static void dirty_all(void)
{
	dirty_some(true);
	if (state == STOCK) {
		must_write(START, "0");
		usleep(5000);
		must_write(START, "never");
	}
}

/* One byte of every STRIDE is written, and every other one has to be zero. */
static void check_fresh(char *at, size_t size, size_t stride, size_t where)
{
	for (size_t from = 0; from < size; from += stride)
		at[from + where % stride] = OURS;
	for (size_t from = 0; from < size; from += stride) {
		CHECK(at[from + where % stride] == OURS);
		at[from + where % stride] = 0;
	}
	CHECK_ZERO(at, size);
	memset(at, DIRT, size);
}

static void small_pages(void)
{
	char *at = map_small(SIZE);

	check_fresh(at, SIZE, PAGE, 17);
	CHECK(!munmap(at, SIZE));
}

static void populated(void)
{
	char *at = map(SIZE, MAP_PRIVATE | MAP_POPULATE, -1);

	CHECK_ZERO(at, SIZE);
	memset(at, DIRT, SIZE);
	CHECK(!madvise(at, SIZE, MADV_DONTNEED));
	CHECK_ZERO(at, SIZE);
	CHECK(!munmap(at, SIZE));
}

/* A page that was read first is the zero page; the write takes a copy. */
static void zero_page_copied(void)
{
	char *small = map_small(SIZE), *huge = map_large(SIZE);

	CHECK_ZERO(small, SIZE);
	check_fresh(small, SIZE, PAGE, 4095);
	CHECK_ZERO(huge, SIZE);
	check_fresh(huge, SIZE, PAGE, 1);
	CHECK(!munmap(small, SIZE) && !munmap(huge, SIZE));
}

static void grown(void)
{
	char *at = map_small(PAGE), *from = sbrk(SIZE);
	volatile char *stack;

	CHECK(from != (void *)-1);
	check_fresh(from, SIZE, PAGE, 100);
	CHECK(sbrk(-(long)SIZE) != (void *)-1);
	at[0] = OURS;
	at = mremap(at, PAGE, SIZE, MREMAP_MAYMOVE);
	CHECK(at != MAP_FAILED && at[0] == OURS);
	at[0] = 0;
	CHECK_ZERO(at, SIZE);
	CHECK(!munmap(at, SIZE));
	stack = alloca(512 << 10);
	CHECK_ZERO(stack, 256 << 10);
	memset((char *)stack, 0, 512 << 10);
}

/* For each size of folio FILE ("enabled", "shmem_enabled") has its own switch. */
static bool each_size(const char *file, const char *stat, void (*body)(size_t size))
{
	char path[128], counter[128];
	bool any = false;

	for (size_t size = 2 * PAGE; size <= HUGE; size *= 2) {
		long before;

		snprintf(path, sizeof(path), THP "hugepages-%zukB/%s", size >> 10, file);
		snprintf(counter, sizeof(counter), THP "hugepages-%zukB/stats/%s", size >> 10, stat);
		if (!is_there(path))
			continue;
		any = true;
		must_write(path, "always");
		dirty_all();
		before = number_in(counter);
		body(size);
		CHECK(number_in(counter) > before, "no folio of %zu KiB was allocated", size >> 10);
		must_write(path, "never");
	}
	return any;
}

static void anonymous_of_size(size_t size)
{
	char *at = map_large(SIZE);

	CHECK(!madvise(at, SIZE, MADV_NORMAL));
	/* Touched where no other folio was touched before: in the middle, at an end */
	check_fresh(at, SIZE, size, size / 2 + 3);
	CHECK(!madvise(at, SIZE, MADV_DONTNEED));
	check_fresh(at, SIZE, size, size - 1);
	CHECK(!munmap(at, SIZE));
}

static void anonymous_folios(void)
{
	if (!is_there(THP "enabled")) {
		skipped = "no huge pages";
		return;
	}
	/* Else the largest that is allowed is taken, whatever the others are */
	must_write(THP "hugepages-2048kB/enabled", "never");
	each_size("enabled", "anon_fault_alloc", anonymous_of_size);
	must_write(THP "hugepages-2048kB/enabled", "inherit");
}

static void huge_pages(void)
{
	long before = proc_value("/proc/vmstat", "thp_fault_alloc");
	char *at;

	if (!is_there(THP "enabled")) {
		skipped = "no huge pages";
		return;
	}
	at = map_large(SIZE);
	check_fresh(at, SIZE, HUGE, HUGE - 1);
	CHECK(!munmap(at, SIZE));
	CHECK(proc_value("/proc/vmstat", "thp_fault_alloc") > before, "no huge page was allocated");
}

/* A file of SIZE: fallocated, read, mapped, written in part, punched, cut and grown again. */
static void use_file(int fd)
{
	static char buffer[64 << 10];
	char *at;

	CHECK(!fallocate(fd, 0, 0, SIZE));
	for (size_t from = 0; from < SIZE; from += sizeof(buffer)) {
		CHECK(pread(fd, buffer, sizeof(buffer), from) == sizeof(buffer));
		CHECK_ZERO(buffer, sizeof(buffer));
	}
	at = map(SIZE, MAP_SHARED, fd);
	CHECK_ZERO(at, SIZE);
	memset(at, DIRT, SIZE);
	CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE));

	/* Fallocated again, and mapped before it is read */
	dirty_all();
	CHECK(!fallocate(fd, 0, 0, SIZE));
	check_fresh(at, SIZE, PAGE, 2049);
	CHECK(!ftruncate(fd, 0) && !ftruncate(fd, SIZE));

	/* Written in part: the rest of the page, and of the folio */
	dirty_all();
	for (size_t from = 0; from < SIZE; from += 16 * PAGE)
		CHECK(pwrite(fd, "x", 1, from + 1000) == 1);
	for (size_t from = 0; from < SIZE; from += 16 * PAGE) {
		CHECK(pread(fd, buffer, 16 * PAGE, from) == (ssize_t)(16 * PAGE));
		CHECK(buffer[1000] == 'x');
		buffer[1000] = 0;
		CHECK_ZERO(buffer, 16 * PAGE);
	}
	CHECK(!ftruncate(fd, 1001) && !ftruncate(fd, SIZE));
	CHECK(at[1000] == 'x');
	CHECK_ZERO(at + 1001, SIZE - 1001);
	memset(at, DIRT, SIZE);
	CHECK(!ftruncate(fd, 0) && !ftruncate(fd, SIZE));

	/* Faulted, without fallocate */
	dirty_all();
	check_fresh(at, SIZE, PAGE, 5);
	CHECK(!munmap(at, SIZE) && !ftruncate(fd, 0));
}

static void shared_memory(void)
{
	int fd = memfd_create("pages", 0), id = shmget(IPC_PRIVATE, SIZE, 0600);
	char *at;

	CHECK(fd >= 0);
	use_file(fd);
	close(fd);
	at = map(SIZE, MAP_SHARED, -1);
	check_fresh(at, SIZE, PAGE, 77);
	CHECK(!munmap(at, SIZE));
	if (id < 0) /* no SysV */
		return;
	at = shmat(id, NULL, 0);
	CHECK(at != (void *)-1 && !shmctl(id, IPC_RMID, NULL));
	check_fresh(at, SIZE, PAGE, 78);
	CHECK(!shmdt(at));
}

static void shared_of_size(size_t size)
{
	int fd = memfd_create("pages", 0);
	char *at = map_large(SIZE);

	CHECK(fd >= 0);
	CHECK(!ftruncate(fd, SIZE));
	CHECK(mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at);
	check_fresh(at, SIZE, size, size - 1);
	CHECK(!ftruncate(fd, 0));
	use_file(fd);
	CHECK(!munmap(at, SIZE) && !close(fd));
}

static void shared_folios(void)
{
	if (!each_size("shmem_enabled", "shmem_alloc", shared_of_size))
		skipped = "no huge pages";
}

static void huge_tmpfs(void)
{
	int fd;

	mkdir("/tmp/pages", 0700);
	if (mount("tmpfs", "/tmp/pages", "tmpfs", 0, "huge=always,size=64m")) {
		skipped = "no huge pages";
		return;
	}
	fd = open("/tmp/pages/file", O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0);
	use_file(fd);
	CHECK(!close(fd) && !umount("/tmp/pages"));
}

/* A pool of one page: it is taken as it was left, or half cleared. */
static void hugetlb_of_one(void)
{
	unsigned int rounds = state == LIVE ? 120 : 4;

	if (!is_there(POOL "nr_hugepages")) {
		skipped = "no hugetlb";
		return;
	}
	must_write(POOL "nr_hugepages", "1");
	CHECK(number_in(POOL "free_hugepages") == 1);
	for (unsigned int round = 0; round < rounds; round++) {
		int kind = round % 2 ? MAP_SHARED : MAP_PRIVATE;
		char *at = map(HUGE, kind | MAP_HUGETLB, -1);

		CHECK_ZERO(at, HUGE);
		memset(at, DIRT, HUGE);
		CHECK(!munmap(at, HUGE));
		/* kprezerod, which any setting wakes up, comes some way, and each time another one */
		if (state == LIVE)
			must_write("/sys/kernel/debug/prezero/load", "1000000");
		usleep(rand() % 3000);
	}
	must_write(POOL "nr_hugepages", "0");
}

/* A zero folio, neither cleared nor read: a copy went into it. */
static void hugetlb_copied(void)
{
	if (!is_there(POOL "zeroed_hugepages")) {
		skipped = "no hugetlb, or no series";
		return;
	}
	must_write(POOL "nr_hugepages", "2");
	for (unsigned int round = 0; round < 4; round++) {
		char *at = map(HUGE, MAP_PRIVATE | MAP_HUGETLB, -1), *all;
		int pid;

		memset(at, DIRT, HUGE);
		for (int i = 0; state == LIVE && number_in(POOL "zeroed_hugepages") < 1; i++) {
			CHECK(i < 10000, "the other page was never cleared");
			must_write("/sys/kernel/debug/prezero/load", "1000000");
			usleep(1000);
		}
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			*(volatile char *)at = 1;
			_exit(0);
		}
		CHECK(waitpid(pid, NULL, 0) == pid);
		CHECK(!munmap(at, HUGE));

		all = map(2 * HUGE, MAP_PRIVATE | MAP_HUGETLB, -1);
		CHECK_ZERO(all, 2 * HUGE);
		memset(all, DIRT, 2 * HUGE);
		CHECK(!munmap(all, 2 * HUGE));
	}
	must_write(POOL "nr_hugepages", "0");
}

static void wait_for_kernel(const char *path, long wanted)
{
	for (int tries = 0; number_in(path) < wanted; tries++) {
		CHECK(tries < 6000, "%s is %ld, wanted %ld", path, number_in(path), wanted);
		usleep(10000);
	}
}

static void forked(void)
{
	char *small = map_small(SIZE), *huge = map_large(SIZE), *untouched = map_small(SIZE);

	memset(small, OURS, SIZE);
	memset(huge, OURS, SIZE);
	IN_CHILD({
		for (size_t from = 0; from < SIZE; from += PAGE)
			small[from + 9] = huge[from + 9] = OURS;
		CHECK_BYTES(small, SIZE, OURS);
		CHECK_BYTES(huge, SIZE, OURS);
		check_fresh(untouched, SIZE, PAGE, 33);
		memset(small, DIRT, SIZE);
		memset(huge, DIRT, SIZE);
	});
	CHECK_BYTES(small, SIZE, OURS);
	CHECK_BYTES(huge, SIZE, OURS);
	CHECK_ZERO(untouched, SIZE);
	CHECK(!munmap(small, SIZE) && !munmap(huge, SIZE) && !munmap(untouched, SIZE));
}

static void merged_and_broken(void)
{
	const size_t size = 1 << 20;
	char *at;

	if (!is_there(KSM "run")) {
		skipped = "no KSM";
		return;
	}
	must_write(KSM "pages_to_scan", "100000");
	must_write(KSM "sleep_millisecs", "1");
	if (is_there(KSM "use_zero_pages"))
		must_write(KSM "use_zero_pages", "1");
	for (int value = 0; value <= OURS; value += OURS) {
		at = map_small(size);
		memset(at, value, size);
		CHECK(!madvise(at, size, MADV_MERGEABLE));
		must_write(KSM "run", "1");
		if (value)
			wait_for_kernel(KSM "pages_sharing", size / PAGE / 2);
		else if (is_there(KSM "ksm_zero_pages"))
			wait_for_kernel(KSM "ksm_zero_pages", size / PAGE / 2);
		must_write(KSM "run", "0");
		dirty_all();
		for (size_t from = 0; from < size; from += PAGE)
			at[from + 11] = value;
		CHECK_BYTES(at, size, value);
		must_write(KSM "run", "2");
		CHECK_BYTES(at, size, value);
		memset(at, DIRT, size);
		CHECK(!munmap(at, size));
	}
}

/* Half of the pages are there; a huge page takes their place, and what was not is zero in it. */
static void collapsed(void)
{
	char *at = map_large(HUGE);

	if (!is_there(THP "enabled")) {
		skipped = "no huge pages";
		return;
	}
	CHECK(!madvise(at, HUGE, MADV_NOHUGEPAGE));
	for (size_t from = 0; from < HUGE; from += 2 * PAGE)
		memset(at + from, OURS, PAGE);
	dirty_all();
	CHECK(!madvise(at, HUGE, MADV_HUGEPAGE));
	if (madvise(at, HUGE, MADV_COLLAPSE) && errno == EINVAL)
		skipped = "no collapse";
	for (size_t from = 0; from < HUGE; from += 2 * PAGE) {
		CHECK_BYTES(at + from, PAGE, OURS);
		CHECK_ZERO(at + from + PAGE, PAGE);
	}
	memset(at, DIRT, HUGE);
	CHECK(!munmap(at, HUGE));
}

static void filled_by_user(int fd, char *at, size_t size, bool anonymous)
{
	struct uffdio_register range = { { (uintptr_t)at, size }, UFFDIO_REGISTER_MODE_MISSING, 0 };
	struct uffdio_copy copy = { (uintptr_t)at, 0, size / 2, 0, 0 };
	struct uffdio_zeropage zero = { { (uintptr_t)at + size / 2, size / 2 }, 0, 0 };
	char *from = map_small(size / 2);

	memset(from, OURS, size / 2);
	copy.src = (uintptr_t)from;
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &range));
	CHECK(!ioctl(fd, UFFDIO_COPY, &copy));
	CHECK(!ioctl(fd, UFFDIO_ZEROPAGE, &zero));
	CHECK(!ioctl(fd, UFFDIO_UNREGISTER, &range.range));
	CHECK_BYTES(at, size / 2, OURS);
	CHECK_ZERO(at + size / 2, size / 2);
	if (anonymous)
		dirty_all();
	check_fresh(at + size / 2, size / 2, PAGE, 4000);
	memset(at, DIRT, size);
	CHECK(!munmap(from, size / 2));
}

static void user_faults(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC), file;
	char *at;

	if (fd < 0) {
		skipped = "no userfaultfd";
		return;
	}
	CHECK(!ioctl(fd, UFFDIO_API, &api));
	at = map_small(SIZE);
	filled_by_user(fd, at, SIZE, true);
	CHECK(!munmap(at, SIZE));
	file = memfd_create("pages", 0);
	CHECK(file >= 0 && !ftruncate(file, SIZE));
	at = map(SIZE, MAP_SHARED, file);
	dirty_all();
	filled_by_user(fd, at, SIZE, false);
	CHECK(!munmap(at, SIZE) && !close(file) && !close(fd));
}

/* What was swapped out comes back as it was: what is all zero is not even written by the kernel. */
static void swapped(void)
{
	char *small = map_small(SIZE), *zero = map_small(SIZE), *shared = map(SIZE, MAP_SHARED, -1);
	long before;

	if (swapon("/dev/vda", 0)) {
		skipped = "no device to swap to";
		return;
	}
	memset(small, OURS, SIZE);
	memset(shared, OURS, SIZE);
	for (size_t from = 0; from < SIZE; from += PAGE) {
		zero[from] = OURS;
		zero[from] = 0;
	}
	before = proc_value("/proc/meminfo", "SwapFree");
	CHECK(!madvise(small, SIZE, MADV_PAGEOUT) && !madvise(zero, SIZE, MADV_PAGEOUT));
	CHECK(!madvise(shared, SIZE, MADV_PAGEOUT));
	CHECK(before - proc_value("/proc/meminfo", "SwapFree") > (long)(SIZE >> 10));
	dirty_all();
	CHECK_ZERO(zero, SIZE);
	CHECK_BYTES(small, SIZE, OURS);
	CHECK_BYTES(shared, SIZE, OURS);
	CHECK(!munmap(small, SIZE) && !munmap(zero, SIZE) && !munmap(shared, SIZE));
	CHECK(!swapoff("/dev/vda"));
}

static const struct {
	const char *name;
	void (*body)(void);
	bool live; /* also while kprezerod works */
} ways[] = {
	{ "small", small_pages, true },
	{ "populate", populated, false },
	{ "zeropage", zero_page_copied, false },
	{ "grow", grown, false },
	{ "folios", anonymous_folios, false },
	{ "huge", huge_pages, true },
	{ "shmem", shared_memory, true },
	{ "shmemfolios", shared_folios, false },
	{ "tmpfs", huge_tmpfs, false },
	{ "hugetlb", hugetlb_of_one, true },
	{ "hugetlbcopy", hugetlb_copied, true },
	{ "fork", forked, true },
	{ "ksm", merged_and_broken, false },
	{ "collapse", collapsed, false },
	{ "userfault", user_faults, false },
	{ "swap", swapped, false },
};

static bool wanted(const char *name, char **names)
{
	if (!*names)
		return true;
	for (; *names; names++)
		if (!strcmp(*names, name))
			return true;
	return false;
}

static void try_all(char **names)
{
	static const char *const titles[] = { "nothing tracked", "all dirty", "a part is zero", "kprezerod at work" };

	/* In small pages once: what merges to no huge page is dirty as well */
	if (state <= DIRTY)
		dirty_some(false);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (!wanted(ways[i].name, names) || (state == LIVE && !ways[i].live))
			continue;
		skipped = NULL;
		dirty_all();
		ways[i].body();
		printf("%s  %s, %s%s%s\n", skipped ? "skip" : "ok", titles[state], ways[i].name,
		       skipped ? ": " : "", skipped ?: "");
	}
}

int main(int argc, char **argv)
{
	bool series = is_there(START);

	(void)argc;
	setvbuf(stdout, NULL, _IONBF, 0);
	srand(1);
	/* Off by default where memory is as small as ours */
	if (is_there(THP "enabled"))
		must_write(THP "enabled", "madvise");
	try_all(argv + 1);
	if (!series)
		return 0;
	/* What is wrong is to reach us: the sample would mend it, and is on in the last state alone */
	must_write("/sys/module/kernel/parameters/prezero_verify", "0");
	must_write("/sys/kernel/debug/prezero/load", "1000000");
	must_write("/sys/kernel/debug/prezero/stop", "0");
	/* init_on_free and others decide about the content of what is free: no state is tracked */
	if (write_file(START, "0") == EOPNOTSUPP)
		return 0;
	must_write(START, "never");
	for (state = DIRTY; state < LIVE; state++)
		try_all(argv + 1);
	must_write("/sys/module/kernel/parameters/prezero_verify", "1");
	must_write(START, "0");
	try_all(argv + 1);
	CHECK(proc_value("/proc/vmstat", "prezero_bad") == 0);
	return 0;
}
