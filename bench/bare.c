/*
 * What a program takes whose large blocks cost nothing: they come one behind the other out of memory that
 * is resident and zero before `main` begins, and are never given back. The bound of what any allocator
 * can gain; blocks of less than 128 KiB are glibc's.
 *
 *   cc -O2 -shared -fPIC -o bare.so bench/bare.c
 *   BARE_GIB=6 LD_PRELOAD=$PWD/bare.so python3 bench/real/python.py toarray 5
 *
 * says on stderr how many ms passed from the beginning of `main` to its end, and how much was taken.
 * The program's children run without it.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LARGE ((size_t)128 << 10)
#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20)

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static char *base, *end;
static atomic_size_t taken;
static struct timespec began;

/* The word before a block says how long it is. */
static void *take(size_t size)
{
	size_t need = (size + PAGE - 1) / PAGE * PAGE + PAGE;
	char *block = base + atomic_fetch_add(&taken, need) + PAGE;

	if (block + need - PAGE > end) {
		static const char said[] = "bare: BARE_GIB is too little\n";

		(void)!write(STDERR_FILENO, said, sizeof said - 1);
		_exit(1);
	}
	memcpy(block - sizeof size, &size, sizeof size);
	return block;
}

static int is_mine(void *block)
{
	return (char *)block >= base && (char *)block < end;
}

void *malloc(size_t size)
{
	return base && size >= LARGE ? take(size) : __libc_malloc(size);
}

void *calloc(size_t n, size_t each)
{
	size_t size;

	if (base && !__builtin_mul_overflow(n, each, &size) && size >= LARGE)
		return take(size);
	return __libc_calloc(n, each);
}

void free(void *block)
{
	if (block && !is_mine(block))
		__libc_free(block);
}

/* A small block of glibc's that grows stays glibc's. */
void *realloc(void *block, size_t size)
{
	size_t old;
	void *grown;

	if (!block)
		return malloc(size);
	if (!is_mine(block))
		return __libc_realloc(block, size);
	memcpy(&old, (char *)block - sizeof old, sizeof old);
	if (size <= old)
		return block;
	grown = take(size);
	return memcpy(grown, block, old);
}

static void say(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	fprintf(stderr, "bare: %.0f ms, %zu MiB in large blocks\n",
		(now.tv_sec - began.tv_sec) * 1e3 + (now.tv_nsec - began.tv_nsec) / 1e6, taken >> 20);
}

__attribute__((constructor)) static void begin(void)
{
	const char *gib = getenv("BARE_GIB");
	size_t size = (size_t)(gib ? atoi(gib) : 4) << 30;
	char *all = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (all == MAP_FAILED) {
		perror("bare: mmap");
		_exit(1);
	}
	all = (char *)(((uintptr_t)all + HUGE - 1) / HUGE * HUGE);
	madvise(all, size, MADV_HUGEPAGE);
	if (madvise(all, size, MADV_POPULATE_WRITE)) {
		perror("bare: MADV_POPULATE_WRITE");
		_exit(1);
	}
	unsetenv("LD_PRELOAD");
	atexit(say);
	end = all + size;
	base = all;
	clock_gettime(CLOCK_MONOTONIC, &began);
}
