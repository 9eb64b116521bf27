/*
 * stress SECONDS [WORKERS]: memory is faulted, written, forked, moved, split, discarded, truncated
 * and reclaimed at random, and every byte of it is checked against what it has to be.
 *
 * Each worker keeps regions with one expected byte for each page: 0 where it never wrote. A page
 * that the kernel hands out as zero and that is not shows up in the region that got it. Beside the
 * workers one process makes memory scarce and asks for compaction and reclaim, and one turns the
 * knobs of the series, where the kernel has them.
 */
#include "check.h"
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#define REGIONS 8
#define PAGES_MAX 1024 /* of a region: 4 MiB */

struct region {
	char *at;
	size_t pages;
	int fd; /* of a shared one, or -1 */
	uint8_t expect[PAGES_MAX];
};

static struct region regions[REGIONS];
static uint64_t state, checked;

static uint64_t random_below(uint64_t bound)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % bound;
}

static void check_region(const struct region *r)
{
	for (size_t i = 0; i < r->pages; i++)
		CHECK_BYTES(r->at + i * PAGE, PAGE, r->expect[i]);
	checked += r->pages * PAGE;
}

static void drop(struct region *r)
{
	if (!r->at)
		return;
	CHECK(!munmap(r->at, r->pages * PAGE));
	if (r->fd >= 0)
		close(r->fd);
	r->at = NULL;
}

static void make(struct region *r)
{
	bool shared = random_below(4) == 0;

	r->pages = 1 + random_below(random_below(2) ? PAGES_MAX : 32);
	r->fd = shared ? memfd_create("stress", 0) : -1;
	if (shared)
		CHECK(r->fd >= 0 && !ftruncate(r->fd, r->pages * PAGE));
	r->at = mmap(NULL, r->pages * PAGE, PROT_READ | PROT_WRITE,
		     shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, r->fd, 0);
	CHECK(r->at != MAP_FAILED);
	memset(r->expect, 0, sizeof(r->expect));
	if (!shared && random_below(2))
		madvise(r->at, r->pages * PAGE, MADV_HUGEPAGE);
}

/* Some pages of the region: FROM and COUNT. */
static void span(const struct region *r, size_t *from, size_t *count)
{
	*from = random_below(r->pages);
	*count = 1 + random_below(r->pages - *from);
}

static void fill(struct region *r)
{
	size_t from, count;
	uint8_t value = 1 + random_below(255);

	span(r, &from, &count);
	memset(r->at + from * PAGE, value, count * PAGE);
	memset(r->expect + from, value, count);
}

/* One byte a page, put back: the page was written, and still has to be what it was. */
static void touch(struct region *r)
{
	for (size_t i = 0; i < r->pages; i++) {
		volatile char *byte = r->at + i * PAGE + random_below(PAGE);
		char was = *byte;

		*byte = was + 1;
		*byte = was;
	}
}

static void discard(struct region *r)
{
	size_t from, count;

	span(r, &from, &count);
	if (r->fd >= 0)
		CHECK(!fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from * PAGE, count * PAGE));
	else
		CHECK(!madvise(r->at + from * PAGE, count * PAGE, MADV_DONTNEED));
	memset(r->expect + from, 0, count);
}

/* A region that grows is zero in its new part; one that shrinks and grows again, too. */
static void resize(struct region *r)
{
	size_t pages = 1 + random_below(PAGES_MAX);
	char *at;

	if (r->fd >= 0)
		CHECK(!ftruncate(r->fd, pages * PAGE));
	at = mremap(r->at, r->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
	if (at == MAP_FAILED) { /* punched into several mappings */
		CHECK(errno == EFAULT);
		if (r->fd < 0)
			check_region(r);
		drop(r);
		return;
	}
	r->at = at;
	if (pages > r->pages)
		memset(r->expect + r->pages, 0, pages - r->pages);
	r->pages = pages;
}

/* A hole, and new memory in it: huge pages split. */
static void punch(struct region *r)
{
	size_t from, count;

	if (r->fd >= 0)
		return;
	span(r, &from, &count);
	CHECK(!munmap(r->at + from * PAGE, count * PAGE));
	CHECK(mmap(r->at + from * PAGE, count * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == r->at + from * PAGE);
	memset(r->expect + from, 0, count);
}

/* The child sees what we have, writes all of its private memory over, and we see nothing of that. */
static void fork_and_check(void)
{
	pid_t child = fork();
	int status;

	if (child < 0) {
		CHECK(errno == ENOMEM || errno == EAGAIN);
		return;
	}
	if (!child) {
		for (int i = 0; i < REGIONS; i++)
			if (regions[i].at)
				check_region(&regions[i]);
		for (int i = 0; i < REGIONS; i++)
			if (regions[i].at && regions[i].fd < 0)
				memset(regions[i].at, 0xee, regions[i].pages * PAGE);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	/* Killed for memory is no failure of what is tested here. */
	CHECK((WIFEXITED(status) && !WEXITSTATUS(status)) ||
	      (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL), "child: 0x%x", status);
}

static void work(double end, unsigned int seed)
{
	struct timespec now;
	unsigned long steps = 0;

	state = 0x9e3779b97f4a7c15ULL * (seed + 1);
	do {
		struct region *r = &regions[random_below(REGIONS)];

		if (!r->at)
			make(r);
		switch (random_below(9)) {
		case 0: drop(r); break;
		case 1: case 2: fill(r); break;
		case 3: touch(r); break;
		case 4: discard(r); break;
		case 5: resize(r); break;
		case 6: punch(r); break;
		case 7: check_region(r); break;
		case 8:
			if (random_below(8) == 0)
				fork_and_check();
			break;
		}
		if (r->at && random_below(4) == 0)
			check_region(r);
		steps++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec + now.tv_nsec / 1e9 < end);
	for (int i = 0; i < REGIONS; i++)
		if (regions[i].at)
			check_region(&regions[i]);
	printf("worker %u: %lu steps, %lu MiB checked\n", seed, steps, (unsigned long)(checked >> 20));
	exit(0);
}

/* Takes three quarters of what is available, writes it, and lets go; then cleans up all it can. */
static void make_scarce(void)
{
	for (;;) {
		size_t size = proc_value("/proc/meminfo", "MemAvailable") * 1024UL / 4 * 3;
		char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p != MAP_FAILED) {
			memset(p, 0x5a, size);
			munmap(p, size);
		}
		write_file("/proc/sys/vm/compact_memory", "1");
		write_file("/proc/sys/vm/drop_caches", "3");
		usleep(50000);
	}
}

static void turn_knobs(void)
{
	static const char *const starts[] = { "0", "4", "never", "9", "2" };
	static const char *const stops[] = { "0", "2", "0", "9" };

	for (unsigned int i = 0;; i++) {
		write_file("/proc/sys/vm/prezero_order", starts[i % 5]);
		write_file("/sys/kernel/debug/prezero/stop", stops[i % 4]);
		usleep(200000);
	}
}

/* The workers use all CPUs: as the idle thread that it is kprezerod would clear next to nothing. */
static void raise_kprezerod(void)
{
	const struct sched_param param = {};
	char path[64], name[16];
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	CHECK(proc);
	while ((entry = readdir(proc))) {
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%.16s/comm", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(name, sizeof(name), file) && !strncmp(name, "kprezerod", 9))
			CHECK(!sched_setscheduler(atoi(entry->d_name), SCHED_OTHER, &param));
		fclose(file);
	}
	closedir(proc);
}

static pid_t start(void (*body)(void))
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	write_file("/proc/self/oom_score_adj", "1000");
	body();
	_exit(0);
}

int main(int argc, char **argv)
{
	unsigned int seconds = argc > 1 ? atoi(argv[1]) : 0, workers = argc > 2 ? atoi(argv[2]) : 4;
	struct timespec now;
	pid_t scarce, knobs;
	int status, failed = 0;

	CHECK(seconds > 0 && workers > 0, "usage: stress SECONDS [WORKERS]");
	clock_gettime(CLOCK_MONOTONIC, &now);
	raise_kprezerod();
	scarce = start(make_scarce);
	knobs = start(turn_knobs);
	for (unsigned int i = 0; i < workers; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid)
			continue;
		/* Where the kernel injects faults: into the workers alone. */
		write_file("/proc/self/make-it-fail", "1");
		work(now.tv_sec + now.tv_nsec / 1e9 + seconds, i);
	}
	for (unsigned int done = 0; done < workers;) {
		pid_t pid = wait(&status);

		CHECK(pid > 0);
		/* Killed for memory, as both ask for. */
		if (pid == scarce) {
			scarce = start(make_scarce);
			continue;
		}
		if (pid == knobs) {
			knobs = start(turn_knobs);
			continue;
		}
		done++;
		if (status)
			fprintf(stderr, "FAIL a worker ended with status 0x%x\n", status);
		failed |= status;
	}
	kill(scarce, SIGKILL);
	kill(knobs, SIGKILL);
	return failed ? 1 : 0;
}
