/*
 * LMCache: pinned memory by cudaHostAlloc; by node, memory that mbind places before it is registered; in huge pages.
 *   lmcache MIB
 */
#include "server.h"

#include <sys/syscall.h>

static void one(const char *what, size_t len, int flags) {
    char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED && flags)
        memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    unsigned long nodes = 1;
    enum { PREFERRED = 1 };
    CHECK(syscall(SYS_mbind, memory, len, PREFERRED, &nodes, sizeof nodes * 8, 0) == 0 || errno == ENOSYS);
    CHECK(is_zero(memory, len));
    CHECK(cudaHostRegister(memory, len, 1) == 0);
    use(what, memory, len, 'n');
    CHECK(cudaHostUnregister(memory) == 0 && munmap(memory, len) == 0);
}

int main(int count, char **words) {
    seen = faults();
    CHECK(count == 2);
    size_t len = size(words[1]);
    void *memory;
    CHECK(cudaHostAlloc(&memory, len, 0) == 0);
    use("lmcache", memory, len, 'l');
    CHECK(cudaFreeHost(memory) == 0);
    one("lmcache, by node", len, 0);
    one("lmcache, huge pages", len, MAP_HUGETLB);
    CHECK(cudaPeekAtLastError() == 0);
    return 0;
}
