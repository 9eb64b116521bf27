/* What every C test here needs. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../../../../tests/common/until.h"

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

/* Whether pages move here at all: not before Linux 5.13, and 6.16 to 6.18.9 may lose them. */
static inline int may_move(void)
{
	struct utsname name;
	int major, minor = 0, patch = 0, version;

	CHECK(uname(&name) == 0 && sscanf(name.release, "%d.%d.%d", &major, &minor, &patch) > 0);
	version = major * 1000000 + minor * 1000 + patch;
	return version >= 5013000 && (version < 6016000 || version >= 6018010);
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

/* The number of the thread of that name, or 0. */
static inline int thread_named(const char *name)
{
	char path[300], found[64];
	struct dirent *entry;
	int thread = 0;
	DIR *folder = opendir("/proc/self/task");

	CHECK(folder);
	while (!thread && (entry = readdir(folder))) {
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
		FILE *file = fopen(path, "r");
		if (file && fgets(found, sizeof found, file) && !strncmp(found, name, strlen(name)) &&
		    found[strlen(name)] == '\n')
			thread = atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	closedir(folder);
	return thread;
}

/* A counter of the statistics; -1 where no shim is loaded. */
static inline long long counter(const char *name)
{
	static char text[16384];
	int (*stats)(char *, size_t) = (int (*)(char *, size_t))dlsym(RTLD_DEFAULT, "prezero_stats_json");
	char key[64];
	char *found;

	if (!stats)
		return -1;
	snprintf(key, sizeof key, "\"%s\":", name);
	CHECK(stats(text, sizeof text) > 0 && (found = strstr(text, key)));
	return atoll(found + strlen(key));
}

/* Takes 16 blocks of a MiB for zero, writes all of them and gives them back: then there is a scrubd. */
static inline void use_and_free(void)
{
	unsigned char *blocks[16];

	for (int i = 0; i < 16; i++) {
		CHECK(blocks[i] = calloc(1, MIB));
		CHECK(is_zero(blocks[i], MIB));
		memset(blocks[i], 1, MIB);
	}
	for (int i = 0; i < 16; i++)
		free(blocks[i]);
}

/* Bytes of the mappings with both of these flags, as smaps names them, of those that hold `at` if any. */
static inline size_t flagged(const char *one, const char *other, void *at)
{
	char line[512];
	size_t start = 0, end = 0, sum = 0;
	FILE *maps = fopen("/proc/self/smaps", "r");

	CHECK(maps);
	while (fgets(line, sizeof line, maps)) {
		size_t from, to;

		if (sscanf(line, "%zx-%zx ", &from, &to) == 2)
			start = from, end = to;
		if (!strncmp(line, "VmFlags:", 8) && strstr(line, one) && strstr(line, other) &&
		    (!at || ((size_t)at >= start && (size_t)at < end)))
			sum += end - start;
	}
	fclose(maps);
	return sum;
}

/* Of mappings that the kernel leaves out of a dump. */
static inline size_t left_out(void *at)
{
	return flagged(" dd", " wf", at);
}
