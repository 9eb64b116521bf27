/* What the programs that stand for inference servers share: each makes the calls of one server, from its sources. */
#ifndef SERVER_H
#define SERVER_H
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define MIB ((size_t)1 << 20)

/* libcudart's, as cuda_runtime_api.h has them. */
int cudaHostAlloc(void **, size_t, unsigned), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
int cudaHostRegister(void *, size_t, unsigned), cudaHostUnregister(void *), cudaPeekAtLastError(void), cudaGetLastError(void);
int cudaSetDevice(int);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemcpy(void *, const void *, size_t, int);
struct cudaPointerAttributes {
    int type, device;
    void *on_device, *on_host;
};
int cudaPointerGetAttributes(struct cudaPointerAttributes *, const void *);

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what, strerror(errno)); \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

static inline long faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

static inline int is_zero(const char *at, size_t len) {
    const uint64_t *words = (const uint64_t *)at;
    for (size_t i = 0; i < len / 8; i++)
        if (words[i]) return 0;
    return 1;
}

static inline int is_full_of(const char *at, size_t len, char byte) {
    return at[0] == byte && memcmp(at, at + 1, len - 1) == 0;
}

/* Fills it, and says how many faults it took to make, pin and fill it: those since the last time. */
static long seen;
static inline void use(const char *what, char *at, size_t len, char byte) {
    memset(at, byte, len);
    printf("%s: %zu MiB, %ld faults\n", what, len / MIB, faults() - seen);
    fflush(stdout);
    seen = faults();
}

/* MiB of an argument, in bytes. */
static inline size_t size(const char *word) { return (size_t)atol(word) * MIB; }
#endif
