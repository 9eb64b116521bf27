/*
 * ablate: a program in its steady state.
 *
 * `ablate WORKLOAD WARM COUNT` does one thing over and over. What it does in the time WARM does not count,
 * because an allocator learns then. Times are ms, or s with that behind them. At the end it prints one line:
 *
 *   MEDIAN_US P95_US CPU_US FAULTS PEAK_MIB
 *
 * The times are those of single requests. CPU time and faults are those of the whole process, all its threads
 * included, while it counts, for each request. The peak is that of its whole life. The first access to a block is always a write.
 *
 * A workload is a name from the table at the end, with -SIZE behind it where the table says so: steady-384K.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../worker.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum {
	PAGE = 4096,
	LINE = 64,
	FEW_LINES = 4,
	ALL_LINES = PAGE / LINE,
	MAX_SAMPLES = 1 << 17,
	THREADS = 2,
};
static const uint64_t MS = 1000000;

/* Times of one thread. When the array is full each second one goes, and from then on each second one is taken. */
struct samples {
	uint64_t requests, stride;
	size_t count;
	uint32_t ns[MAX_SAMPLES];
};

static struct samples samples[THREADS];
static uint64_t counts_from, ends;
static size_t size;

static void fail(const char *what)
{
	fail_as("ablate", what);
}

static void take(struct samples *to, uint64_t began, uint64_t ns)
{
	if (began < counts_from)
		return;
	if (to->count == MAX_SAMPLES) {
		to->count /= 2;
		to->stride *= 2;
		for (size_t i = 0; i < to->count; i++)
			to->ns[i] = to->ns[2 * i];
	}
	if (to->requests++ % to->stride == 0)
		to->ns[to->count++] = ns < UINT32_MAX ? ns : UINT32_MAX;
}

/* Marsaglia's xorshift. */
static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed >> 8;
}

static const uint64_t SEED = UINT64_C(88172645463325252);

/* From `least` to 2^`doublings` times as much, in whole pages; as many of each doubling. */
static size_t random_size(uint64_t *seed, size_t least, unsigned doublings)
{
	size_t from = least << next_random(seed) % doublings;

	return (from + next_random(seed) % from) & -(size_t)PAGE;
}

static void touch(char *p, size_t from, size_t to, size_t lines)
{
	if (!p)
		fail("out of memory");
	for (size_t at = from; at < to; at += PAGE / lines)
		((volatile char *)p)[at] = 1;
}

static char *zeroed(size_t bytes, size_t lines)
{
	char *p = calloc(1, bytes);

	touch(p, 0, bytes, lines);
	return p;
}

/* One block a request. */
static void one_block(struct samples *to, size_t lines, useconds_t pause_us)
{
	uint64_t began;

	while ((began = now()) < ends) {
		char *p = zeroed(size, lines);

		escape(p);
		free(p);
		take(to, began, now() - began);
		if (pause_us)
			usleep(pause_us);
	}
}

static void steady(struct samples *to)
{
	one_block(to, FEW_LINES, 3000);
}

static void fill(struct samples *to)
{
	one_block(to, ALL_LINES, 3000);
}

static void busy(struct samples *to)
{
	one_block(to, FEW_LINES, 0);
}

static void busy_fill(struct samples *to)
{
	one_block(to, ALL_LINES, 0);
}

/* As much again is free beside the block, where scrubd can clear it. */
static void spare(struct samples *to)
{
	free(zeroed(2 * size, FEW_LINES));
	one_block(to, FEW_LINES, 0);
}

/* Blocks of any size from 1 to 16 MiB. */
static void any(struct samples *to)
{
	uint64_t seed = SEED, began;

	while ((began = now()) < ends) {
		free(zeroed(random_size(&seed, MIB, 4), FEW_LINES));
		take(to, began, now() - began);
	}
}

/* Sixteen blocks come and go together. */
static void batch(struct samples *to)
{
	enum { BLOCKS = 16 };
	char *blocks[BLOCKS];
	uint64_t began;

	while ((began = now()) < ends) {
		for (int i = 0; i < BLOCKS; i++)
			blocks[i] = zeroed(size, FEW_LINES);
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		take(to, began, now() - began);
	}
}

/* One page of 64 is written, of zeroed blocks or of others. */
static void few_pages(struct samples *to, int is_zeroed)
{
	uint64_t began;

	while ((began = now()) < ends) {
		char *p = is_zeroed ? calloc(1, size) : malloc(size);

		if (!p)
			fail("out of memory");
		for (size_t at = 0; at < size; at += 64 * PAGE)
			((volatile char *)p)[at] = 1;
		free(p);
		take(to, began, now() - began);
		usleep(3000);
	}
}

static void sparse(struct samples *to)
{
	few_pages(to, 1);
}

static void sparse_plain(struct samples *to)
{
	few_pages(to, 0);
}

/* A request takes eight blocks, some of them zeroed, and frees them together. */
static void handler(struct samples *to)
{
	uint64_t seed = SEED + (uint64_t)(to - samples), began;

	while ((began = now()) < ends) {
		char *blocks[8];

		for (int i = 0; i < 8; i++) {
			size_t bytes = random_size(&seed, 64 * KIB, 6);

			blocks[i] = next_random(&seed) % 2 ? calloc(1, bytes) : malloc(bytes);
			touch(blocks[i], 0, bytes, FEW_LINES);
		}
		for (int i = 0; i < 8; i++)
			free(blocks[i]);
		take(to, began, now() - began);
		usleep(5000);
	}
}

static void *handler_thread(void *to)
{
	handler(to);
	return NULL;
}

static void handlers(struct samples *to)
{
	pthread_t other;

	if (pthread_create(&other, NULL, handler_thread, to + 1))
		fail("no thread");
	handler(to);
	pthread_join(other, NULL);
}

/* Some requests for small blocks, then as many for large ones. A sample is a small one and a large one. */
static void phases(struct samples *to)
{
	enum { IN_A_ROW = 40 };
	static const size_t sizes[] = { 128 * KIB, 1 * MIB };
	uint64_t took[IN_A_ROW], began = now();

	while (began < ends)
		for (int kind = 0; kind < 2; kind++)
			for (int i = 0; i < IN_A_ROW; i++) {
				usleep(3000);
				began = now();
				free(zeroed(sizes[kind], FEW_LINES));
				took[i] = (kind ? took[i] : 0) + now() - began;
				if (kind)
					take(to, began, took[i]);
			}
}

/* Four blocks grow by a half in turn, from 64 KiB to 8 MiB. */
static void growing(struct samples *to)
{
	uint64_t began;

	while ((began = now()) < ends) {
		char *blocks[4] = { NULL };
		size_t had = 0;

		for (size_t bytes = 64 * KIB; bytes <= 8 * MIB; bytes = (bytes + bytes / 2) & -(size_t)PAGE) {
			for (int i = 0; i < 4; i++) {
				blocks[i] = realloc(blocks[i], bytes);
				touch(blocks[i], had, bytes, FEW_LINES);
			}
			had = bytes;
		}
		for (int i = 0; i < 4; i++)
			free(blocks[i]);
		take(to, began, now() - began);
		usleep(20000);
	}
}

/* Blocks that one thread takes and another frees. */
enum { PASSED = 16 };
static char *passed[PASSED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static unsigned long put, got;

static void *consume(void *unused)
{
	char *p;

	do {
		pthread_mutex_lock(&lock);
		while (put == got)
			pthread_cond_wait(&moved, &lock);
		p = passed[got % PASSED];
		got++;
		pthread_cond_signal(&moved);
		pthread_mutex_unlock(&lock);
		free(p);
	} while (p);
	return unused;
}

static void produce(char *p)
{
	pthread_mutex_lock(&lock);
	while (put - got == PASSED)
		pthread_cond_wait(&moved, &lock);
	passed[put++ % PASSED] = p;
	pthread_cond_signal(&moved);
	pthread_mutex_unlock(&lock);
}

static void passing(struct samples *to)
{
	uint64_t seed = SEED, began;
	pthread_t other;

	if (pthread_create(&other, NULL, consume, NULL))
		fail("no thread");
	while ((began = now()) < ends) {
		for (int i = 0; i < 8; i++)
			produce(zeroed(random_size(&seed, 64 * KIB, 5), FEW_LINES));
		take(to, began, now() - began);
		usleep(2000);
	}
	produce(NULL);
	pthread_join(other, NULL);
}

/* A gibibyte is taken and freed, then the program forks a few times. A sample is a fork and its child's end. */
static void forks(struct samples *to)
{
	enum { BLOCKS = 16 };
	char *blocks[BLOCKS];
	uint64_t began;

	do {
		for (int i = 0; i < BLOCKS; i++)
			blocks[i] = zeroed(64 * MIB, 1);
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		for (int i = 0; i < 8; i++) {
			pid_t child;

			began = now();
			child = fork();
			if (child == 0)
				_exit(0);
			if (child < 0 || waitpid(child, NULL, 0) != child)
				fail("no child");
			take(to, began, now() - began);
		}
	} while (now() < ends);
}

/* Many blocks, and then as much memory of another kind: below a memory limit both do not fit. */
static void limit(struct samples *to)
{
	enum { BLOCKS = 100 };
	char *blocks[BLOCKS];
	uint64_t began;

	while ((began = now()) < ends) {
		char *other;

		for (int i = 0; i < BLOCKS; i++)
			blocks[i] = zeroed(MIB, 1);
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		other = mmap(NULL, BLOCKS * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (other == MAP_FAILED)
			fail("no mapping");
		touch(other, 0, BLOCKS * MIB, 1);
		munmap(other, BLOCKS * MIB);
		take(to, began, now() - began);
		usleep(3000);
	}
}

/* A burst of large blocks after a pause in which idle memory may go. */
static void bursts(struct samples *to)
{
	char *blocks[16];
	uint64_t began;

	while ((began = now()) < ends) {
		for (int i = 0; i < 16; i++)
			blocks[i] = zeroed(4 * MIB, FEW_LINES);
		for (int i = 0; i < 16; i++)
			free(blocks[i]);
		take(to, began, now() - began);
		usleep(150000);
	}
}

/* A frame of a game or a film: some blocks, some work, all freed, and a wait for the next. */
static void frames(struct samples *to)
{
	static const size_t sizes[] = { 64 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, 512 * KIB, 2 * MIB };
	char *blocks[6];
	uint64_t began;

	while ((began = now()) < ends) {
		uint64_t took;

		for (int i = 0; i < 6; i++)
			blocks[i] = zeroed(sizes[i], FEW_LINES);
		took = now() - began;
		while (now() < began + 4 * MS)
			;
		took -= now();
		for (int i = 0; i < 6; i++)
			free(blocks[i]);
		took += now();
		take(to, began, took);
		usleep(12000);
	}
}

/* A large block where small ones in use lie between free ones. */
static void mosaic(struct samples *to)
{
	enum { BLOCKS = 64, KEPT = 8 };
	char *blocks[BLOCKS];
	uint64_t began;

	while (now() < ends) {
		for (int i = 0; i < BLOCKS; i++)
			blocks[i] = zeroed(MIB, FEW_LINES);
		for (int i = 0; i < BLOCKS; i++)
			if (i % KEPT)
				free(blocks[i]);
		began = now();
		free(zeroed(24 * MIB, FEW_LINES));
		take(to, began, now() - began);
		for (int i = 0; i < BLOCKS; i += KEPT)
			free(blocks[i]);
		usleep(20000);
	}
}

/* A second program, without the allocator under test. It wakes up, then follows a chain of pointers in its cache. */
static int doze(void)
{
	enum { LINES = 256 * 1024 / LINE, HOPS = 2 * LINES, PERIOD_MS = 2 };
	static struct { size_t next; char rest[LINE - sizeof(size_t)]; } chain[LINES];
	uint64_t seed = SEED, due = now();
	size_t at = 0;

	for (size_t i = 0; i < LINES; i++)
		chain[i].next = i;
	for (size_t i = LINES - 1; i > 0; i--) {
		size_t other = next_random(&seed) % i, next = chain[i].next;

		chain[i].next = chain[other].next;
		chain[other].next = next;
	}
	for (;;) {
		struct timespec then;
		uint64_t ns;

		while (due < now())
			due += PERIOD_MS * MS;
		then = (struct timespec){ due / 1000000000, due % 1000000000 };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL);
		for (int i = 0; i < HOPS; i++)
			at = chain[at].next;
		escape((void *)at);
		ns = now() - due;
		if (write(1, &ns, sizeof(ns)) != sizeof(ns))
			return 0;
	}
}

/* A third one, which never sleeps, until its parent is gone. */
static int spin(void)
{
	pid_t parent = getppid();

	while (getppid() == parent)
		for (volatile int i = 0; i < 100000; i++)
			;
	return 0;
}

/* Starts this program again without the allocator under test; what it prints goes to `out`. */
static pid_t start(char *role, int out)
{
	char *argv[] = { "ablate", role, NULL }, *envp[] = { NULL };
	pid_t child = fork();

	if (child < 0)
		fail("no neighbour");
	if (child == 0) {
		dup2(out, 1);
		execve("/proc/self/exe", argv, envp);
		_exit(1);
	}
	return child;
}

static void *listen_to(void *fd)
{
	uint64_t ns;

	while (read((int)(intptr_t)fd, &ns, sizeof(ns)) == sizeof(ns) && now() < ends)
		take(&samples[1], now(), ns);
	return NULL;
}

/* The times are the neighbour's: from when it is to wake up until its work is done. */
static void beside(struct samples *to, size_t lines, useconds_t pause_us)
{
	int fds[2];
	pthread_t ear;
	pid_t child;

	if (pipe2(fds, O_CLOEXEC))
		fail("no pipe");
	child = start("doze", fds[1]);
	close(fds[1]);
	if (pthread_create(&ear, NULL, listen_to, (void *)(intptr_t)fds[0]))
		fail("no thread");
	one_block(to, lines, pause_us);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	pthread_join(ear, NULL);
	to->count = 0;
}

static void neighbour(struct samples *to)
{
	beside(to, ALL_LINES, 3000);
}

static void neighbour_busy(struct samples *to)
{
	beside(to, FEW_LINES, 0);
}

/* All CPUs are busy with others. */
static void crowd(struct samples *to)
{
	enum { MOST = 64 };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pid_t children[MOST];

	if (cpus > MOST)
		cpus = MOST;
	for (long i = 0; i < cpus; i++)
		children[i] = start("spin", 2);
	beside(to, ALL_LINES, 3000);
	for (long i = 0; i < cpus; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
}

static const struct workload {
	const char *name;
	void (*run)(struct samples *to);
	int has_size;
} workloads[] = {
	{ "steady", steady, 1 },
	{ "fill", fill, 1 },
	{ "busy", busy, 1 },
	{ "busy-fill", busy_fill, 1 },
	{ "spare", spare, 1 },
	{ "any", any, 0 },
	{ "batch", batch, 1 },
	{ "sparse", sparse, 1 },
	{ "sparse-plain", sparse_plain, 1 },
	{ "handler", handler, 0 },
	{ "handler-2", handlers, 0 },
	{ "phases", phases, 0 },
	{ "growing", growing, 0 },
	{ "passing", passing, 0 },
	{ "fork", forks, 0 },
	{ "limit", limit, 0 },
	{ "bursts", bursts, 0 },
	{ "frames", frames, 0 },
	{ "mosaic", mosaic, 0 },
	{ "neighbour", neighbour, 1 },
	{ "neighbour-busy", neighbour_busy, 1 },
	{ "crowd", crowd, 1 },
};

/* The workload that is called so; sets `size`. */
static const struct workload *find(const char *name)
{
	for (size_t i = 0; i < sizeof(workloads) / sizeof(*workloads); i++) {
		const struct workload *w = &workloads[i];
		size_t length = strlen(w->name);
		char *unit;

		if (strncmp(name, w->name, length))
			continue;
		if (!w->has_size && !name[length])
			return w;
		if (!w->has_size || name[length] != '-' || name[length + 1] > '9')
			continue;
		size = strtoul(name + length + 1, &unit, 10);
		if (size && (!strcmp(unit, "K") || !strcmp(unit, "M"))) {
			size *= *unit == 'K' ? KIB : MIB;
			return w;
		}
	}
	return NULL;
}

static int order(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static struct rusage opened;

/* Notes what was used up when the counting begins. */
static void *open_account(void *unused)
{
	uint64_t left;

	while ((left = counts_from - now()) <= counts_from)
		usleep(left / 1000 + 1);
	getrusage(RUSAGE_SELF, &opened);
	return unused;
}

static uint64_t cpu_ns(const struct rusage *u)
{
	return (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * UINT64_C(1000000000) +
	       (u->ru_utime.tv_usec + u->ru_stime.tv_usec) * UINT64_C(1000);
}

/* So many ms, or "2.5s". */
static int ms(const char *text)
{
	char *unit;
	double time = strtod(text, &unit);

	return (int)(strcmp(unit, "s") ? time : 1000 * time);
}

int main(int argc, char **argv)
{
	const struct workload *workload = argc == 4 ? find(argv[1]) : NULL;
	struct samples *all = &samples[0], *more = &samples[1];
	struct rusage closed;
	pthread_t account;
	double requests;

	if (argc == 2 && !strcmp(argv[1], "doze"))
		return doze();
	if (argc == 2 && !strcmp(argv[1], "spin"))
		return spin();
	if (!workload || ms(argv[3]) <= 0) {
		fputs("usage: ablate WORKLOAD[-SIZE] WARM_MS COUNT_MS; workloads:", stderr);
		for (size_t i = 0; i < sizeof(workloads) / sizeof(*workloads); i++)
			fprintf(stderr, " %s%s", workloads[i].name, workloads[i].has_size ? "-SIZE" : "");
		fputc('\n', stderr);
		return 2;
	}
	/* The program's own pages are there before it counts. */
	memset(samples, 1, sizeof(samples));
	for (int i = 0; i < THREADS; i++)
		samples[i].requests = samples[i].count = 0;
	all->stride = more->stride = 1;
	counts_from = now() + ms(argv[2]) * MS;
	ends = counts_from + ms(argv[3]) * MS;
	if (pthread_create(&account, NULL, open_account, NULL))
		fail("no thread");
	workload->run(all);
	getrusage(RUSAGE_SELF, &closed);
	pthread_join(account, NULL);
	if (more->count > MAX_SAMPLES - all->count)
		fail("too many samples");
	memcpy(all->ns + all->count, more->ns, more->count * sizeof(*more->ns));
	all->count += more->count;
	if (all->count < 2)
		fail("nothing was counted: it takes longer");
	qsort(all->ns, all->count, sizeof(*all->ns), order);
	/* The requests are the program's; the peak of the neighbour's child is not counted. */
	requests = (double)(all->requests ? all->requests + (more->requests && workload->run == handlers ? more->requests : 0) : more->requests);
	requests = requests < 1 ? 1 : requests;
	printf("%.3f %.3f %.3f %.5f %.3f\n", all->ns[all->count / 2] / 1e3, all->ns[all->count * 95 / 100] / 1e3,
	       (double)(cpu_ns(&closed) - cpu_ns(&opened)) / 1e3 / requests,
	       (double)(closed.ru_minflt - opened.ru_minflt) / requests, (double)closed.ru_maxrss / 1024);
	return 0;
}
