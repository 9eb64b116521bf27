/*
 * vLLM's shared offload region: a file in /dev/shm that each rank maps, populates by its own rows and registers in pieces.
 *   vllm NAME MIB RANKS      starts a process for each rank; the first one to come makes the file
 */
#include "server.h"

static void rank(const char *name, size_t len, int ranks, int me) {
    char path[256];
    snprintf(path, sizeof path, "/dev/shm/%s", name);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) {
        CHECK(ftruncate(file, (off_t)len) == 0);
    } else {
        CHECK(errno == EEXIST && (file = open(path, O_RDWR | O_CLOEXEC)) >= 0);
        struct stat stat;
        do {
            CHECK(fstat(file, &stat) == 0);
        } while (stat.st_size < (off_t)len && usleep(1000) == 0);
    }
    /* The stand-ins' own memory, and this program's, are touched before faults are counted. */
    static char own[2 * 4096] __attribute__((aligned(4096)));
    CHECK(cudaHostRegister(own, sizeof own, 0) == 0 && cudaHostUnregister(own) == 0 && is_zero(own, sizeof own));
    seen = faults();
    char *region = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(region != MAP_FAILED);
    long mapped = faults();
    size_t rows = 8, row = len / rows;
    for (size_t i = 0; i < rows; i++)
        if (i % (size_t)ranks == (size_t)me) {
            CHECK(madvise(region + i * row, row, MADV_POPULATE_WRITE) == 0);
            CHECK(is_zero(region + i * row, row));
        }
    size_t half = rows / 2 * row;
    CHECK(cudaHostRegister(region, half, 0) == 0);
    CHECK(cudaHostRegister(region + half, len - half, 0) == 0);
    for (size_t i = 0; i < rows; i++)
        if (i % (size_t)ranks == (size_t)me) memset(region + i * row, 'a' + me, row);
    long now = faults();
    printf("vllm: rank %d: %zu MiB, %ld faults, %ld after mmap\n", me, len / MIB, now - seen, now - mapped);
    fflush(stdout);
    /* What the others write is seen here. */
    for (size_t i = 0; i < rows; i++) {
        char all = (char)('a' + i % (size_t)ranks);
        for (int tries = 0; !is_full_of(region + i * row, row, all); tries++) CHECK(tries < 30000 && usleep(1000) == 0);
    }
    CHECK(cudaHostUnregister(region) == 0 && cudaHostUnregister(region + half) == 0);
    CHECK(cudaPeekAtLastError() == 0);
}

int main(int count, char **words) {
    CHECK(count == 4 || count == 5);
    int ranks = atoi(words[3]);
    if (count == 5) {
        rank(words[1], size(words[2]), ranks, atoi(words[4]));
        return 0;
    }
    /* Started anew, as multiprocessing's `spawn` does it: without the descriptors that it does not know. */
    for (int i = 0; i < ranks; i++)
        if (fork() == 0) {
            for (int file = 3; file < 64; file++) close(file);
            char me[16];
            snprintf(me, sizeof me, "%d", i);
            execl("/proc/self/exe", words[0], words[1], words[2], words[3], me, (char *)NULL);
            _exit(127);
        }
    int status, good = 1;
    while (wait(&status) > 0) good &= status == 0;
    char path[256];
    snprintf(path, sizeof path, "/%s", words[1]);
    CHECK(shm_unlink(path) == 0);
    return !good;
}
