/*
 * What both stand-ins share: pages that are pinned for real, a lock that stops the other processes, and a list of calls.
 *
 * io_uring takes the same long-term pins as a driver. Where it is not to be had (a filter, a limit) mlock stands in for it,
 * and the list of calls says so: `pinned by mlock`.
 *
 * STANDIN_DIR      a folder for `lock` and `calls`; without it neither is written
 * STANDIN_FAIL     a name and a number: from its Nth call of a process on that function fails
 * STANDIN_OLD      a driver that pins no pages of a hugetlb pool
 * STANDIN_ELSEWHERE  a device sees registered memory at another address, as with ROCm
 */
#ifndef PIN_H
#define PIN_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RANGES = 4096, PIECES = 64 };
#define PIECE ((size_t)1 << 30) /* the most that one buffer of io_uring has */

struct range {
    char *at;
    size_t len;
    int ring;   /* closing it unpins; -1: mlock */
    int alloc;  /* made by the driver */
};
static struct range ranges[RANGES];
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

static int in_folder(const char *name, int flags) {
    const char *folder = getenv("STANDIN_DIR");
    if (!folder) return -1;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return open(path, flags | O_CREAT | O_CLOEXEC, 0666);
}

__attribute__((format(printf, 1, 2))) static void record(const char *format, ...) {
    int file = in_folder("calls", O_WRONLY | O_APPEND);
    if (file < 0) return;
    char line[256];
    int len = snprintf(line, sizeof line, "%d ", (int)getpid());
    va_list rest;
    va_start(rest, format);
    len += vsnprintf(line + len, sizeof line - (size_t)len - 1, format, rest);
    va_end(rest);
    line[len++] = '\n';
    if (write(file, line, (size_t)len) != len) abort();
    close(file);
}

/* The driver's: one for the machine. */
static int machine_lock(void) {
    int file = in_folder("lock", O_RDWR);
    if (file >= 0) flock(file, LOCK_EX);
    return file;
}
static void machine_unlock(int file) {
    if (file >= 0) close(file);
}

static int told_to_fail(const char *name, int *calls) {
    const char *told = getenv("STANDIN_FAIL");
    size_t len = strlen(name);
    int call = __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED);
    return told && strncmp(told, name, len) == 0 && told[len] == ' ' && call >= atoi(told + len + 1);
}

/* Whether this address has pages of a pool. */
static int is_of_a_pool(const char *at) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    int inside = 0, found = 0;
    if (!maps) abort();
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to, kb;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) inside = from <= (unsigned long)at && (unsigned long)at < to;
        else if (inside && sscanf(line, "KernelPageSize: %lu kB", &kb) == 1) found = kb > 4;
    }
    fclose(maps);
    return found;
}

static int ring_pin(char *at, size_t len) {
    struct io_uring_params params = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 1, &params);
    if (ring < 0) return -1;
    struct iovec pieces[PIECES * 16];
    unsigned count = 0;
    for (size_t done = 0; done < len && count < PIECES * 16; done += PIECE)
        pieces[count++] = (struct iovec){at + done, len - done < PIECE ? len - done : PIECE};
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, pieces, count) != 0) {
        int why = errno;
        close(ring);
        errno = why;
        return -1;
    }
    return ring;
}

/* Whether it could be; what is pinned twice is not. */
enum pinned { PINNED, PINNED_ALREADY, PINNED_NOT };
static enum pinned pin(void *where, size_t len, int alloc) {
    char *at = where;
    if (getenv("STANDIN_OLD") && is_of_a_pool(at)) return PINNED_NOT;
    pthread_mutex_lock(&ranges_lock);
    struct range *room = NULL;
    for (int i = 0; i < RANGES; i++) {
        if (!ranges[i].at) room = room ? room : &ranges[i];
        else if (at < ranges[i].at + ranges[i].len && ranges[i].at < at + len) {
            pthread_mutex_unlock(&ranges_lock);
            return PINNED_ALREADY;
        }
    }
    if (room) *room = (struct range){at, len, -1, alloc};
    pthread_mutex_unlock(&ranges_lock);
    if (!room) return PINNED_NOT;
    int lock = machine_lock();
    int ring = ring_pin(at, len);
    int good = ring >= 0;
    if (!good && mlock(at, len) == 0) {
        record("pinned by mlock");
        good = 1;
    }
    machine_unlock(lock);
    pthread_mutex_lock(&ranges_lock);
    if (good) room->ring = ring;
    else room->at = NULL;
    pthread_mutex_unlock(&ranges_lock);
    return good ? PINNED : PINNED_NOT;
}

/* The length of what was pinned there; 0: nothing was. */
static size_t unpin(void *at, int alloc) {
    size_t len = 0;
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < RANGES && !len; i++)
        if (ranges[i].at == at && ranges[i].alloc == alloc) {
            len = ranges[i].len;
            if (ranges[i].ring >= 0) close(ranges[i].ring);
            else munlock(at, len);
            ranges[i].at = NULL;
        }
    pthread_mutex_unlock(&ranges_lock);
    return len;
}

/* 1: all of it lies in one pinned range, 0: none of it is pinned, -1: it spans two or ends outside, which is an error. */
static int pinned_at(const void *where, size_t len) {
    const char *at = where;
    int found = 0;
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < RANGES; i++) {
        struct range *each = &ranges[i];
        if (!each->at || at >= each->at + each->len || each->at >= at + len) continue;
        found = found == 0 && at >= each->at && at + len <= each->at + each->len ? 1 : -1;
    }
    pthread_mutex_unlock(&ranges_lock);
    return found;
}

static void *device_sees(void *at) {
    return getenv("STANDIN_ELSEWHERE") ? (char *)at + ((size_t)1 << 40) : at;
}
#endif
