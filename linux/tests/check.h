/* What the guest programs share: a check that says where it failed, and readers of /proc. */
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (2UL << 20)

#define CHECK(condition, ...)                                                                      \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail(__FILE__, __LINE__, #condition, "" __VA_ARGS__);                      \
	} while (0)

__attribute__((noreturn, format(printf, 4, 5), unused))
static void fail(const char *file, int line, const char *what, const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "FAIL %s:%d: %s ", file, line, what);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (errno %d)\n", errno);
	exit(1);
}

/* The offset of the first byte that is not VALUE, or SIZE. */
__attribute__((unused)) static size_t first_other(const volatile void *from, size_t size, uint8_t value)
{
	const volatile uint64_t *words = from;
	const volatile uint8_t *bytes = from;
	uint64_t word = value * 0x0101010101010101ULL;
	size_t i;

	for (i = 0; i < size / 8; i++)
		if (words[i] != word)
			break;
	for (i *= 8; i < size; i++)
		if (bytes[i] != value)
			return i;
	return size;
}

__attribute__((unused)) static void check_all(const char *file, int line, const volatile void *at, size_t size,
					      uint8_t value)
{
	size_t other = first_other(at, size, value);

	if (other != size)
		fail(file, line, "every byte", "is 0x%02x: not so at %zu of %zu: 0x%02x", value, other, size,
		     ((const volatile uint8_t *)at)[other]);
}

#define CHECK_ZERO(at, size) check_all(__FILE__, __LINE__, at, size, 0)
#define CHECK_BYTES(at, size, value) check_all(__FILE__, __LINE__, at, size, value)

/* A line "NAME VALUE" or "NAME: VALUE" of a file of /proc; -1 where there is none. */
__attribute__((unused)) static long proc_value(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[256];
	long value = -1;
	size_t length = strlen(name);

	CHECK(file, "%s", path);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, length) && strchr(": \t", line[length])) {
			value = strtol(line + length + strspn(line + length, ": \t"), NULL, 10);
			break;
		}
	fclose(file);
	return value;
}

/* Returns 0 or the errno with which the write was refused. */
__attribute__((unused)) static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), err = 0;

	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) < 0)
		err = errno;
	close(fd);
	return err;
}

/* Runs BODY in a child that has to succeed. */
#define IN_CHILD(...)                                                                              \
	do {                                                                                       \
		int status_;                                                                       \
		pid_t child_ = fork();                                                             \
		CHECK(child_ >= 0);                                                                \
		if (!child_) {                                                                     \
			__VA_ARGS__;                                                               \
			_exit(0);                                                                  \
		}                                                                                  \
		CHECK(waitpid(child_, &status_, 0) == child_);                                     \
		CHECK(WIFEXITED(status_) && !WEXITSTATUS(status_), "child: 0x%x", status_);        \
	} while (0)

/* SIZE bytes of anonymous memory, aligned to a huge page, with huge pages allowed: PREEMPT_RT has none. */
__attribute__((unused)) static char *map_huge(size_t size)
{
	char *raw = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = (char *)(((uintptr_t)raw + HUGE - 1) & ~(HUGE - 1));

	CHECK(raw != MAP_FAILED);
	if (at > raw)
		munmap(raw, at - raw);
	if (at < raw + HUGE)
		munmap(at + size, raw + HUGE - at);
	CHECK(!madvise(at, size, MADV_HUGEPAGE) || errno == EINVAL);
	return at;
}
#endif
