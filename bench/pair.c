/*
 * pair: malloc, one byte written, free; from several threads, and from one thread to another.
 *
 * A program of `prezero bench pair`:
 *
 *   pair local BYTES THREADS    THREADS threads, each with a loop of its own.
 *   pair remote BYTES SLOTS     two threads: one allocates and writes, the other frees what
 *       it is handed through a ring that holds SLOTS blocks. One on the first CPU of the process,
 *       one on the last: left alone, they spend some runs on one CPU, in turns.
 *
 * It prints two numbers: ns of a pair by the clock and in CPU time. By the clock: on each thread that has a CPU;
 * threads beyond the CPUs wait for each other, which is not in it. Every thread first runs some pairs that are not
 * timed: its allocator's caches are warm, as they are in a program that has run for a while.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "worker.h"

enum {
	MAX_THREADS = 256,
	MAX_RING = 1024,
	/* Untimed pairs of each thread. */
	WARM_UP = 2000,
	/* Pairs of the first race, which says how many the counted one needs. */
	TRIED = 20000,
	/* The counted one's time on each thread: many turns of the scheduler's where threads share a CPU, and much
	 * against their start, 0.05 ms. */
	COUNTED_NS = 20000000,
	/* Looks at the ring before the thread lets others run. */
	SPINS = 1000,
};

struct task {
	pthread_t thread;
	size_t bytes;
	long pairs;
	/* Where it has to run; NULL: anywhere. */
	const cpu_set_t *cpu_set;
	void (*loop)(struct task *task, long pairs);
	uint64_t start, end, cpu;
} __attribute__((aligned(128)));

static struct task tasks[MAX_THREADS];
static pthread_barrier_t barrier;

/* Each end writes its own index only, and each has a cache line for itself. */
static struct {
	_Alignas(128) _Atomic long put;
	_Alignas(128) _Atomic long taken;
	_Alignas(128) long slots;
	_Alignas(128) char *slot[MAX_RING];
} ring;

static void fail(const char *what)
{
	fail_as("pair", what);
}

static char *allocate(size_t bytes)
{
	char *p = malloc(bytes);

	if (!p)
		fail("malloc: out of memory");
	escape(p);
	*(volatile char *)p = 1;
	return p;
}

static void local(struct task *task, long pairs)
{
	for (long i = 0; i < pairs; i++)
		free(allocate(task->bytes));
}

static inline void relax(long *spins)
{
	if (++*spins % SPINS == 0)
		sched_yield();
#if defined(__x86_64__)
	else
		__builtin_ia32_pause();
#endif
}

static void give(struct task *task, long pairs)
{
	long put = atomic_load(&ring.put), spins = 0;

	for (long end = put + pairs; put < end; put++) {
		char *p = allocate(task->bytes);

		while (put - atomic_load_explicit(&ring.taken, memory_order_acquire) >= ring.slots)
			relax(&spins);
		ring.slot[put % ring.slots] = p;
		atomic_store_explicit(&ring.put, put + 1, memory_order_release);
	}
}

static void take(struct task *task, long pairs)
{
	long taken = atomic_load(&ring.taken), spins = 0;

	(void)task;
	for (long end = taken + pairs; taken < end; taken++) {
		char *p;

		while (atomic_load_explicit(&ring.put, memory_order_acquire) == taken)
			relax(&spins);
		p = ring.slot[taken % ring.slots];
		atomic_store_explicit(&ring.taken, taken + 1, memory_order_release);
		free(p);
	}
}

static void *run(void *argument)
{
	struct task *task = argument;
	uint64_t cpu;

	if (task->cpu_set &&
	    pthread_setaffinity_np(pthread_self(), sizeof(*task->cpu_set), task->cpu_set))
		fail("a CPU of this process is gone");
	task->loop(task, WARM_UP);
	pthread_barrier_wait(&barrier);
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	task->start = now();
	task->loop(task, task->pairs);
	task->end = now();
	task->cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	/* A thread that ends gives its caches back: not while another is still timed. */
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* Runs the first `threads` tasks at once: ns from the first one's start to the last one's end, and of CPU time. */
static void race(int threads, long pairs, double *wall, double *cpu)
{
	uint64_t start = UINT64_MAX, end = 0;

	*cpu = 0;
	pthread_barrier_init(&barrier, NULL, threads);
	for (int i = 0; i < threads; i++) {
		tasks[i].pairs = pairs;
		if (pthread_create(&tasks[i].thread, NULL, run, &tasks[i]))
			fail("pthread_create: no more threads");
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(tasks[i].thread, NULL);
		start = tasks[i].start < start ? tasks[i].start : start;
		end = tasks[i].end > end ? tasks[i].end : end;
		*cpu += tasks[i].cpu;
	}
	pthread_barrier_destroy(&barrier);
	*wall = end - start;
}

/* The first CPU of the process and the last. */
static const cpu_set_t *ends(void)
{
	static cpu_set_t end[2];
	cpu_set_t all;
	int first = 0, last = CPU_SETSIZE - 1;

	if (sched_getaffinity(0, sizeof(all), &all))
		fail("sched_getaffinity: more CPUs than a cpu_set_t has");
	while (!CPU_ISSET(first, &all))
		first++;
	while (!CPU_ISSET(last, &all))
		last--;
	CPU_SET(first, &end[0]);
	CPU_SET(last, &end[1]);
	return end;
}

static void prepare(int thread, size_t bytes, const cpu_set_t *cpu_set,
		    void (*loop)(struct task *, long))
{
	tasks[thread].bytes = bytes;
	tasks[thread].cpu_set = cpu_set;
	tasks[thread].loop = loop;
}

int main(int argc, char **argv)
{
	const cpu_set_t *end = ends();
	/* Loops that run at once, and those that make pairs. */
	int threads = 2, at_once = 1, loops = 1;
	double wall, cpu, pairs;
	cpu_set_t all;
	size_t bytes;
	long count;

	if (argc != 4)
		fail("usage: pair local BYTES THREADS | remote BYTES SLOTS");
	bytes = strtoull(argv[2], NULL, 10);
	count = atol(argv[3]);
	if (!strcmp(argv[1], "local")) {
		if (count < 1 || count > MAX_THREADS || sched_getaffinity(0, sizeof(all), &all))
			fail("local: out of range");
		threads = loops = count;
		at_once = loops < CPU_COUNT(&all) ? loops : CPU_COUNT(&all);
		for (int i = 0; i < threads; i++)
			prepare(i, bytes, NULL, local);
	} else {
		if (count < 1 || count > MAX_RING)
			fail("remote: out of range");
		ring.slots = count;
		prepare(0, bytes, &end[0], give);
		prepare(1, bytes, &end[1], take);
	}
	race(threads, TRIED, &wall, &cpu);
	pairs = COUNTED_NS / (wall * at_once / ((double)loops * TRIED));
	pairs = pairs < 1 ? 1 : pairs > 1e9 ? 1e9 : (long)pairs;
	race(threads, pairs, &wall, &cpu);
	printf("%f %f\n", wall * at_once / (loops * pairs), cpu / (loops * pairs));
	return 0;
}
