/*
 * barrier SECONDS: is a page zero for another CPU when clear_pages_cold() has returned?
 *
 * The function is the kernel's own. The writer clears a page and says so; the reader, on another
 * CPU, looks at each word from the last to the first and makes the page dirty again. Without the
 * barrier after its cache-bypassing stores the writer's message overtakes them, and the reader
 * finds some that have not arrived. Exit status 1 if ever it did.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define WORDS 512
#define DIRTY 0xa5a5a5a5a5a5a5a5ULL
/* Between two looks at the clock. */
#define BATCH 1000

void __clear_pages_cold(void *addr, unsigned int nr_pages);
void clear_pages_cold_done(void);
#include "clear_pages_cold.h"

static volatile uint64_t *page;
/* Odd: cleared, the reader's; even: dirty, the writer's. */
static atomic_ulong turn;
static atomic_bool over;
static unsigned long bad;

static void pin(unsigned int number)
{
	cpu_set_t all, one;
	int cpu;

	sched_getaffinity(0, sizeof(all), &all);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && number-- == 0)
			break;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (cpu == CPU_SETSIZE || sched_setaffinity(0, sizeof(one), &one)) {
		fprintf(stderr, "barrier: needs two CPUs\n");
		exit(77);
	}
}

static void *reader(void *unused)
{
	(void)unused;
	pin(1);
	for (;;) {
		unsigned long now;

		while (!((now = atomic_load_explicit(&turn, memory_order_acquire)) & 1))
			if (atomic_load(&over))
				return NULL;
		for (int i = WORDS - 1; i >= 0; i--)
			if (page[i]) {
				bad++;
				break;
			}
		for (int i = 0; i < WORDS; i++)
			page[i] = DIRTY;
		atomic_store_explicit(&turn, now + 1, memory_order_release);
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double end = seconds() + (argc > 1 ? atof(argv[1]) : 5);
	unsigned long now = 0;
	pthread_t thread;

	page = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || pthread_create(&thread, NULL, reader, NULL))
		return 70;
	pin(0);
	do {
		for (int i = 0; i < BATCH; i++) {
			clear_pages_cold((void *)page, 1);
			atomic_store_explicit(&turn, ++now, memory_order_release);
			while (atomic_load_explicit(&turn, memory_order_acquire) == now)
				;
			now++;
		}
	} while (seconds() < end);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	printf("%lu rounds, %lu times not zero\n", now / 2, bad);
	return bad != 0;
}
