/*
 * llama.cpp and ollama: weights and buffers by cudaMallocHost, and ordinary memory where that fails.
 *   llama MIB...     all of them at once
 */
#include "server.h"

int main(int count, char **words) {
    seen = faults();
    void *all[16];
    CHECK(count <= 16);
    for (int i = 1; i < count; i++) {
        size_t len = size(words[i]);
        if (cudaMallocHost(&all[i], len) != 0) {
            fprintf(stderr, "llama: failed to allocate %zu MiB of pinned memory\n", len / MIB);
            return 1;
        }
        CHECK(cudaPeekAtLastError() == 0);
        CHECK(is_zero(all[i], len));
        use("llama", all[i], len, (char)i);
    }
    for (int i = 1; i < count; i++) {
        CHECK(is_full_of(all[i], size(words[i]), (char)i));
        CHECK(cudaFreeHost(all[i]) == 0);
    }
    return 0;
}
