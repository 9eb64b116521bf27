/* What the workers of `prezero bench` have in common. */
#ifndef WORKER_H
#define WORKER_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

/* Tells the compiler that the memory behind `p` is seen by others: nothing is elided. */
static inline void escape(void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* Ends the worker with one line: what the program is, and what is wrong. */
static inline void fail_as(const char *worker, const char *what)
{
	fprintf(stderr, "%s: %s\n", worker, what);
	exit(1);
}

/* Answers with user ns, system ns, minor faults, major faults of the whole process. */
static inline void usage(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	printf("%lld %lld %ld %ld\n",
	       u.ru_utime.tv_sec * 1000000000ll + u.ru_utime.tv_usec * 1000ll,
	       u.ru_stime.tv_sec * 1000000000ll + u.ru_stime.tv_usec * 1000ll,
	       u.ru_minflt, u.ru_majflt);
}

#endif
