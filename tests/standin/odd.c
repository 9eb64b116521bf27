/*
 * Odd sizes and many calls, each alone: `odd CASE`, with a lease of 256 MiB (`many`: 512) and a threshold of 2 MiB.
 */
#include "server.h"

static const size_t PAGE = 4096;

static int file_of(size_t len, char **at) {
    char name[64];
    snprintf(name, sizeof name, "/prezero-odd-%d", (int)getpid());
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && ftruncate(file, (off_t)len) == 0);
    *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(*at != MAP_FAILED && shm_unlink(name) == 0);
    return file;
}

/* A file that is no multiple of 2 MiB: what lies behind its mapping stays as it was. */
static void beyond(void) {
    const size_t around = 8 * MIB, gap = 3 * MIB + 64 * 1024, len = 64 * MIB + PAGE;
    char *own = mmap(NULL, around, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at;
    CHECK(own != MAP_FAILED && munmap(own, gap) == 0);
    memset(own + gap, 'o', around - gap);
    int file = file_of(len, &at);
    memset(at, 'f', len);
    CHECK(is_full_of(own + gap, around - gap, 'o') && close(file) == 0);
}

/* A file in more windows than one list of them once had: all see its bytes. */
static void windows(void) {
    enum { COUNT = 4000 };
    char *at;
    const size_t len = 64 * MIB, size = 64 * 1024;
    int file = file_of(len, &at);
    memset(at, 'w', len);
    for (size_t i = 0; i < COUNT; i++) {
        char *window = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)(i * size % len));
        CHECK(window != MAP_FAILED && window[i % size] == 'w');
    }
}

/* Every second page goes back, and then the rest. */
static void holes(void) {
    enum { COUNT = 4000 };
    const size_t len = 64 * MIB;
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    memset(at, 'h', len);
    for (size_t i = 0; i < COUNT; i++) CHECK(munmap(at + 2 * i * PAGE, PAGE) == 0);
    for (size_t i = 0; i < COUNT; i++) CHECK(at[(2 * i + 1) * PAGE] == 'h');
    CHECK(munmap(at, len) == 0);
    char *again = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(again != MAP_FAILED && is_zero(again, len));
}

/* Allocations until the lease is used up, and one again: each is zero, whichever goes. */
static void many(void) {
    enum { COUNT = 240 };
    void *all[COUNT];
    for (int i = 0; i < COUNT; i++) {
        CHECK(cudaHostAlloc(&all[i], 2 * MIB, 0) == 0 && is_zero(all[i], 2 * MIB));
        memset(all[i], 'm', 2 * MIB);
    }
    for (int i = 0; i < COUNT; i += 3) CHECK(cudaHostUnregister(all[i]) == 713 && cudaFreeHost(all[i]) == 0);
    CHECK(cudaGetLastError() == 713 && cudaGetLastError() == 0);
    for (int i = 0; i < COUNT; i += 3) CHECK(cudaHostAlloc(&all[i], 2 * MIB, 0) == 0 && is_zero(all[i], 2 * MIB));
    for (int i = 0; i < COUNT; i++) CHECK(cudaFreeHost(all[i]) == 0 && cudaFreeHost(all[i]) != 0);
}

static void registers(void) {
    static char own[64 * MIB];
    memset(own, 1, sizeof own);
    CHECK(cudaHostRegister(own, sizeof own, 0) == 0 && cudaHostUnregister(own) == 0);
    char *at = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(cudaHostRegister(at, 4 * MIB, 0) == 0);
}

int main(int count, char **words) {
    CHECK(count == 2);
    const char *what = words[1];
    if (strcmp(what, "beyond") == 0) beyond();
    else if (strcmp(what, "windows") == 0) windows();
    else if (strcmp(what, "holes") == 0) holes();
    else if (strcmp(what, "many") == 0) many();
    else if (strcmp(what, "registers") == 0) registers();
    else CHECK(!"a case of that name");
    return 0;
}
