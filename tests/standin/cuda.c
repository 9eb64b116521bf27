/* libcuda.so.1, the driver, as far as host memory goes. See pin.h. */
#include "pin.h"

#include <stdint.h>

enum { GOOD, BAD_VALUE = 1, NO_MEMORY = 2, NOT_FOUND = 500, REGISTERED = 712, NOT_REGISTERED = 713 };
typedef int CUresult;

CUresult cuInit(unsigned flags) { return flags ? BAD_VALUE : GOOD; }

CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    machine_unlock(machine_lock());
    *left = *total = (size_t)1 << 37;
    return GOOD;
}

/* GPUs: one at each bus, from the first on; a thread has the first until it says otherwise. */
static __thread int device;
CUresult standin_set_device(int number) {
    device = number;
    return GOOD;
}
CUresult cuCtxGetDevice(int *out) {
    *out = device;
    return GOOD;
}
CUresult cuDeviceGetPCIBusId(char *out, int len, int number) {
    snprintf(out, (size_t)len, "00000000:%02X:00.0", number + 0xc1);
    return GOOD;
}

CUresult cuMemHostRegister_v2(void *at, size_t len, unsigned flags) {
    static int calls;
    record("cuMemHostRegister %zu flags %u", len, flags);
    if (told_to_fail("cuMemHostRegister", &calls)) return NO_MEMORY;
    switch (pin(at, len, 0)) {
    case PINNED: return GOOD;
    case PINNED_ALREADY: return REGISTERED;
    default: return NO_MEMORY;
    }
}

CUresult cuMemHostUnregister(void *at) {
    record("cuMemHostUnregister");
    return unpin(at, 0) ? GOOD : NOT_REGISTERED;
}

/* One thread makes, clears and pins all of it. */
CUresult cuMemHostAlloc(void **out, size_t len, unsigned flags) {
    static int calls;
    record("cuMemHostAlloc %zu flags %u", len, flags);
    if (told_to_fail("cuMemHostAlloc", &calls)) return NO_MEMORY;
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NO_MEMORY;
    if (pin(at, len, 1) != PINNED) {
        munmap(at, len);
        return NO_MEMORY;
    }
    *out = at;
    return GOOD;
}

CUresult cuMemAllocHost_v2(void **out, size_t len) { return cuMemHostAlloc(out, len, 0); }

CUresult cuMemFreeHost(void *at) {
    size_t len = unpin(at, 1);
    record("cuMemFreeHost %zu", len);
    return len && munmap(at, len) == 0 ? GOOD : BAD_VALUE;
}

CUresult cuMemHostGetDevicePointer_v2(uint64_t *out, void *at, unsigned flags) {
    if (flags || pinned_at(at, 1) != 1) return BAD_VALUE;
    *out = (uint64_t)(uintptr_t)device_sees(at);
    return GOOD;
}

/* Between host memory and the device's, which is host memory here. */
CUresult standin_copy(void *to, const void *from, size_t len) {
    if (pinned_at(to, len) < 0 || pinned_at(from, len) < 0) return BAD_VALUE;
    memcpy(to, from, len);
    return GOOD;
}

int standin_pinned(const void *at) { return pinned_at(at, 1) == 1; }

CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found);
CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}

/* Names without the ending of their version, as the driver has it. */
CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found) {
    static const struct {
        const char *name;
        void *function;
    } all[] = {
        {"cuInit", cuInit}, {"cuMemGetInfo", cuMemGetInfo_v2}, {"cuMemHostRegister", cuMemHostRegister_v2},
        {"cuMemHostUnregister", cuMemHostUnregister}, {"cuMemHostAlloc", cuMemHostAlloc},
        {"cuMemAllocHost", cuMemAllocHost_v2}, {"cuMemFreeHost", cuMemFreeHost},
        {"cuMemHostGetDevicePointer", cuMemHostGetDevicePointer_v2}, {"cuGetProcAddress", cuGetProcAddress_v2},
        {"standin_copy", standin_copy}, {"standin_pinned", standin_pinned},
        {"standin_set_device", standin_set_device}, {"cuCtxGetDevice", cuCtxGetDevice},
        {"cuDeviceGetPCIBusId", cuDeviceGetPCIBusId},
    };
    (void)version, (void)flags;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i].name) == 0) {
            *out = all[i].function;
            if (found) *found = 0;
            return GOOD;
        }
    *out = NULL;
    if (found) *found = 1;
    return NOT_FOUND;
}
