/* Memory that the program holds, and what it must contain.
 *
 * An area is a block of the malloc family or a mapping. Its shadow is a copy in memory of its
 * own, mapped by bare system calls, so that nothing that goes wrong with the area goes wrong with
 * the copy too. Each page has marks: what is unknown is not compared, what is gone or closed is
 * not touched. Offsets are from the area's beginning, also where that is not aligned.
 */
#ifndef AREA_H
#define AREA_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define KIB 1024UL
#define MIB (1024 * KIB)

enum mark {
	UNKNOWN = 1,	/* nobody has written it since malloc */
	GONE = 2,	/* unmapped or moved away */
	CLOSED = 4,	/* PROT_NONE */
	READONLY = 8,
	WIPED = 16,	/* zero in a child */
	UNFORKED = 32,	/* not there in a child */
	FILED = 64,	/* of a file, private or shared: DONTNEED does not make it zero */
	LOCKED = 128,	/* DONTNEED is refused */
};

struct area {
	unsigned char *at, *shadow, *marks;
	size_t len;
	bool block;	/* of the malloc family */
	bool movable;	/* pages may be taken out of it: a mapping, or a block of the zone */
};

/* Who does what: for the message when it goes wrong. */
struct who {
	uint64_t state;	/* of the random numbers */
	unsigned long seed;
	int thread, child;
	long op;
	const char *doing;
};

extern bool verbose;
extern _Thread_local struct who who;

static inline uint64_t any(void)
{
	/* Steele, Lea, Flood: SplitMix (2014). */
	uint64_t x = (who.state += 0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* 0 to n - 1. */
static inline size_t below(size_t n)
{
	return any() % n;
}

static inline bool once_in(size_t n)
{
	return below(n) == 0;
}

static inline size_t pages(size_t len)
{
	return (len + PAGE - 1) / PAGE;
}

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Memory of the fuzzer's own, zero. */
void *raw(size_t len);
void raw_gone(void *at, size_t len);

/* Makes the model of an area whose content is zero, or unknown. */
void area_make(struct area *a, void *at, size_t len, bool block, enum mark all);
void area_gone(struct area *a);
/* Whether none of the pages has one of the marks. */
bool area_clear_of(const struct area *a, size_t from, size_t n, int marks);
void area_mark(struct area *a, size_t from, size_t n, int set, int unset);
/* Writes random bytes into pages that may be written; a page that is unknown is written whole. */
void area_write(struct area *a, size_t from, size_t n);
/* Compares pages; a difference ends the process. */
void area_check(const struct area *a, size_t from, size_t n);
void area_check_all(const struct area *a);
/* Bytes of the pages from `from` on, n of them: the last page may be short. */
size_t area_bytes(const struct area *a, size_t from, size_t n);

#endif
