/*
 * TensorRT-LLM's HostMem: private anonymous memory without huge pages, populated by threads, registered with the driver that
 * cuGetProcAddress finds, resized by mremap.
 *   tensorrt MIB MIB     the size, and the size afterwards
 */
#include "server.h"

#include <pthread.h>

enum { THREADS = 4 };
struct part {
    char *at;
    size_t len;
};

static void *populate(void *given) {
    struct part *part = given;
    CHECK(madvise(part->at, part->len, MADV_POPULATE_WRITE) == 0);
    return NULL;
}

int main(int count, char **words) {
    seen = faults();
    CHECK(count == 3);
    size_t len = size(words[1]), then = size(words[2]);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    int (*find)(const char *, void **, int, uint64_t, int *) =
        (int (*)(const char *, void **, int, uint64_t, int *))dlsym(library, "cuGetProcAddress_v2");
    int (*reg)(void *, size_t, unsigned) = NULL, (*unreg)(void *) = NULL;
    CHECK(find && find("cuMemHostRegister", (void **)&reg, 12000, 0, NULL) == 0);
    CHECK(find("cuMemHostUnregister", (void **)&unreg, 12000, 0, NULL) == 0);

    char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && madvise(memory, len, MADV_NOHUGEPAGE) == 0);
    pthread_t threads[THREADS];
    struct part parts[THREADS];
    for (int i = 0; i < THREADS; i++) {
        parts[i] = (struct part){memory + len / THREADS * (size_t)i, len / THREADS};
        CHECK(pthread_create(&threads[i], NULL, populate, &parts[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(is_zero(memory, len));
    CHECK(reg(memory, len, 0) == 0);
    use("tensorrt", memory, len, 'x');
    CHECK(unreg(memory) == 0);

    size_t kept = len < then ? len : then;
    memory = mremap(memory, len, then, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED);
    CHECK(is_full_of(memory, kept, 'x'));
    if (then > len) CHECK(is_zero(memory + len, then - len));
    CHECK(reg(memory, then, 0) == 0);
    use("tensorrt, resized", memory, then, 'y');
    CHECK(unreg(memory) == 0);

    /* What private memory promises. */
    CHECK(madvise(memory, then, MADV_DONTNEED) == 0);
    CHECK(is_zero(memory, then));
    memset(memory, 'z', then);
    CHECK(madvise(memory + MIB, MIB, MADV_DONTNEED) == 0);
    CHECK(is_full_of(memory, MIB, 'z') && is_zero(memory + MIB, MIB) && is_full_of(memory + 2 * MIB, then - 2 * MIB, 'z'));
    CHECK(munmap(memory, then) == 0);
    return 0;
}
