/*
 * record: what a program asks of its allocator, as the tests of the governor replay it.
 *
 *   cc -O2 -shared -fPIC -o record.so record.c
 *   RECORD=FILE LD_PRELOAD=./record.so PROGRAM ...
 *
 * One line for each block of 64 KiB or more, in the order in which things happened:
 *
 *   US z PAGES ID    zeroed memory was asked for (calloc)
 *   US p PAGES ID    memory as it is (malloc, aligned_alloc, or what realloc moved to)
 *   US f PAGES ID    it was given back
 *
 * US: microseconds since the start; PAGES of 4 KiB, rounded up; ID: a number of the block.
 * Blocks that the program's allocator grows in place keep the size they had. One process;
 * at most 64 Ki blocks live.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LEAST = 64 << 10, PAGE = 4096, SLOTS = 1 << 17 };

static struct block {
	void *p;
	unsigned id, pages;
} blocks[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned ids;
static int out = -1;
static uint64_t start;

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

__attribute__((constructor)) static void begin(void)
{
	const char *file = getenv("RECORD");

	start = now_us();
	if (file)
		out = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

static void say(char what, const struct block *block)
{
	char line[64];
	int n = snprintf(line, sizeof(line), "%llu %c %u %u\n",
			 (unsigned long long)(now_us() - start), what, block->pages, block->id);

	if (write(out, line, (size_t)n) != n)
		out = -1; /* nobody can be told */
}

static size_t slot_of(const void *p)
{
	return (size_t)(((uintptr_t)p >> 4) * 0x9E3779B97F4A7C15ull >> 47);
}

static void took(void *p, size_t bytes, char what)
{
	size_t at = slot_of(p);

	if (!p || bytes < LEAST || out < 0)
		return;
	pthread_mutex_lock(&lock);
	for (int tries = 0; tries < SLOTS; tries++, at = (at + 1) % SLOTS) {
		struct block *block = &blocks[at];

		if (block->p && block->pages)
			continue;
		*block = (struct block){ p, ids++, (unsigned)((bytes + PAGE - 1) / PAGE) };
		say(what, block);
		break;
	}
	pthread_mutex_unlock(&lock);
}

static void gave(void *p)
{
	size_t at = slot_of(p);

	if (!p || out < 0 || malloc_usable_size(p) < LEAST)
		return;
	pthread_mutex_lock(&lock);
	for (int tries = 0; tries < SLOTS && blocks[at].p; tries++, at = (at + 1) % SLOTS)
		if (blocks[at].p == p && blocks[at].pages) {
			say('f', &blocks[at]);
			blocks[at].pages = 0; /* the slot stays a link of its chain */
			break;
		}
	pthread_mutex_unlock(&lock);
}

void *malloc(size_t bytes)
{
	void *p = __libc_malloc(bytes);

	took(p, bytes, 'p');
	return p;
}

void *calloc(size_t n, size_t each)
{
	void *p = __libc_calloc(n, each);

	took(p, n * each, 'z');
	return p;
}

void *realloc(void *old, size_t bytes)
{
	void *p;

	gave(old);
	p = __libc_realloc(old, bytes);
	took(p, bytes, 'p');
	return p;
}

void *memalign(size_t align, size_t bytes)
{
	void *p = __libc_memalign(align, bytes);

	took(p, bytes, 'p');
	return p;
}

void *aligned_alloc(size_t align, size_t bytes)
{
	return memalign(align, bytes);
}

int posix_memalign(void **p, size_t align, size_t bytes)
{
	*p = memalign(align, bytes);
	return *p ? 0 : ENOMEM;
}

void free(void *p)
{
	gave(p);
	__libc_free(p);
}
