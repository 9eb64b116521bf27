/* What every C test here needs. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define PAGE ((size_t)4096)
#define THRESHOLD (64 * KIB)

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__,   \
				__LINE__, #condition, errno);                         \
			_exit(1);                                                     \
		}                                                                     \
	} while (0)

/* A block of the zone is whole pages long; one of glibc's never is. */
static inline int in_zone(void *block)
{
	return block && malloc_usable_size(block) % PAGE == 0;
}

/* Bytes that this process has mapped, and of these resident. */
static inline void statm(size_t *mapped, size_t *resident)
{
	FILE *file = fopen("/proc/self/statm", "r");

	CHECK(file && fscanf(file, "%zu %zu", mapped, resident) == 2);
	fclose(file);
	*mapped *= PAGE;
	*resident *= PAGE;
}

static inline size_t address_space(void)
{
	size_t mapped, resident;

	statm(&mapped, &resident);
	return mapped;
}

static inline size_t resident(void)
{
	size_t mapped, resident;

	statm(&mapped, &resident);
	return resident;
}

/* For a thread that need only be made. */
static inline void *nothing(void *unused)
{
	return unused;
}

/* A pattern that tells every position and every seed apart. */
static inline unsigned char mark(size_t at, unsigned seed)
{
	return (unsigned char)(at * 31 + (at >> 12) * 7 + seed);
}

static inline void paint(unsigned char *block, size_t size, unsigned seed)
{
	for (size_t at = 0; at < size; at++)
		block[at] = mark(at, seed);
}

static inline int painted(const unsigned char *block, size_t size, unsigned seed)
{
	for (size_t at = 0; at < size; at++)
		if (block[at] != mark(at, seed))
			return 0;
	return 1;
}

static inline int is_zero(const unsigned char *block, size_t size)
{
	for (size_t at = 0; at < size; at++)
		if (block[at])
			return 0;
	return 1;
}
