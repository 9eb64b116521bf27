/*
 * What the seeds' experiments have in common: where memory comes from, the clock, how much
 * is resident, and how a program says what it found.
 *
 * Each program runs alone, needs nothing but a C library and /proc, and may be linked
 * statically, so that the same file runs in a guest. It prints a line for a person, or with
 * --json one JSON object a line for another program. It checks what it measures and ends with
 * status 3 and one line if a figure cannot be right: memory that was not zero, a wrong
 * reading of what is resident, a run in which nothing happened.
 */
#ifndef SEED_H
#define SEED_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, LINE = 64, LINES = PAGE / LINE };
enum { MISTAKE = 2, BROKEN = 3 };

static const char *program_name = "seed";

/* One line, and the end. */
__attribute__((format(printf, 2, 3), noreturn))
static inline void stop(int status, const char *format, ...)
{
	va_list list;

	fflush(stdout);
	fprintf(stderr, "%s: ", program_name);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	exit(status);
}

/* A word that is none of its options: a wish for help, or a mistake. */
__attribute__((noreturn))
static inline void no_such(const char *word, const char *help)
{
	if (strcmp(word, "--help") && strcmp(word, "-h"))
		stop(MISTAKE, "%s: no such option, or nothing behind it; see %s --help", word, program_name);
	fputs(help, stdout);
	exit(0);
}

/* Tells the compiler that the memory behind `p` is seen by others: nothing is elided. */
static inline void escape(void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void rest(uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	if (ns)
		nanosleep(&t, NULL);
}

/* A positive number, in full. */
static inline uint64_t number(const char *option, const char *text)
{
	char *end;
	unsigned long long value = text ? strtoull(text, &end, 10) : 0;

	if (!text || *text < '0' || *text > '9' || *end)
		stop(MISTAKE, "%s %s: not a number", option, text ? text : "");
	return value;
}

static inline uint64_t at_least_one(const char *option, const char *text)
{
	uint64_t value = number(option, text);

	if (!value)
		stop(BROKEN, "%s 0: nothing would be measured", option);
	return value;
}

/* Where memory comes from: calloc, malloc, mmap, or a file by its path, which is mapped
 * shared, from some byte on: a lease. */
struct source {
	const char *name;
	size_t at;
};

static inline int is(struct source from, const char *name)
{
	return !strcmp(from.name, name);
}

static inline char *obtain(struct source from, size_t bytes)
{
	void *p;

	if (is(from, "calloc")) {
		p = calloc(1, bytes);
	} else if (is(from, "malloc")) {
		p = malloc(bytes);
	} else if (is(from, "mmap")) {
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	} else {
		struct stat file;
		int fd = open(from.name, O_RDWR | O_CLOEXEC);

		if (fd < 0 || fstat(fd, &file))
			stop(MISTAKE, "--from %s: give calloc, malloc, mmap or a file's path", from.name);
		if ((uint64_t)file.st_size < from.at + bytes)
			stop(MISTAKE, "--from %s: smaller than %zu bytes", from.name, from.at + bytes);
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from.at);
		close(fd);
	}
	if (!p || p == MAP_FAILED)
		stop(1, "no memory for %zu bytes", bytes);
	return p;
}

static inline void give_back(struct source from, char *p, size_t bytes)
{
	if (is(from, "calloc") || is(from, "malloc"))
		free(p);
	else
		munmap(p, bytes);
}

/* The value in KiB after `name` in a file such as /proc/self/smaps_rollup; -1: not there. */
static inline long kib_in(const char *path, const char *name)
{
	char line[256];
	long kib = -1;
	FILE *file = fopen(path, "re");

	if (!file)
		return -1;
	while (kib < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			kib = atol(line + strlen(name));
	fclose(file);
	return kib;
}

#endif
