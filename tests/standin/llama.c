/*
 * llama.cpp and ollama: weights and buffers by cudaMallocHost, and ordinary memory where that fails.
 *   llama MIB...     all of them at once
 */
#include "server.h"

int main(int count, char **words) {
    seen = faults();
    void *all[16];
    int is_pinned[16];
    CHECK(count <= 16);
    for (int i = 1; i < count; i++) {
        size_t len = size(words[i]);
        is_pinned[i] = cudaMallocHost(&all[i], len) == 0;
        if (is_pinned[i]) {
            CHECK(cudaPeekAtLastError() == 0);
        } else {
            CHECK(cudaGetLastError() != 0);
            fprintf(stderr, "llama: failed to allocate %zu MiB of pinned memory\n", len / MIB);
            CHECK((all[i] = calloc(1, len)) != NULL);
        }
        CHECK(is_zero(all[i], len));
        use("llama", all[i], len, (char)i);
    }
    for (int i = 1; i < count; i++) {
        CHECK(is_full_of(all[i], size(words[i]), (char)i));
        if (is_pinned[i]) CHECK(cudaFreeHost(all[i]) == 0);
        else free(all[i]);
    }
    return 0;
}
