/*
 * PyTorch's pinned allocator: cudaHostAlloc of a size that was rounded up to a power of two, and kept after it is freed;
 * is_pinned() asks cudaPointerGetAttributes. A tensor goes to the device in one copy.
 *   torch MIB...     one tensor after the other, freed in between
 */
#include "server.h"

int main(int count, char **words) {
    for (int i = 1; i < count; i++) {
        size_t len = MIB;
        while (len < size(words[i])) len *= 2;
        void *host = NULL, *device = NULL;
        seen = faults();
        CHECK(cudaHostAlloc(&host, len, 0) == 0 && host);
        struct cudaPointerAttributes attributes;
        CHECK(cudaPointerGetAttributes(&attributes, (char *)host + len - 1) == 0 && attributes.type == 1);
        CHECK(is_zero(host, len));
        use("torch", host, len, (char)('A' + i));
        CHECK(cudaMalloc(&device, len) == 0 && cudaMemcpy(device, host, len, 1) == 0);
        CHECK(is_full_of(device, len, (char)('A' + i)));
        CHECK(cudaFree(device) == 0 && cudaFreeHost(host) == 0);
        CHECK(cudaPeekAtLastError() == 0);
    }
    return 0;
}
