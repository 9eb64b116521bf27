/*
 * libcudart.so.12, the runtime, as far as host memory goes: finds the driver by dlopen and cuGetProcAddress, as NVIDIA's does,
 * and keeps the last error of a thread until cudaGetLastError() takes it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GOOD, BAD_VALUE = 1, NO_DRIVER = 35 };
typedef int cudaError_t;

static struct {
    int (*host_alloc)(void **, size_t, unsigned), (*free_host)(void *);
    int (*host_register)(void *, size_t, unsigned), (*host_unregister)(void *);
    int (*device_pointer)(uint64_t *, void *, unsigned), (*info)(size_t *, size_t *);
    int (*copy)(void *, const void *, size_t), (*pinned)(const void *);
    int (*get_device)(int *), (*set_device)(int), (*bus_address)(char *, int, int);
    int (*find)(const char *, void **, int, uint64_t, int *);
} driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread cudaError_t last;

static void look(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*find)(const char *, void **, int, uint64_t, int *) =
        library ? (int (*)(const char *, void **, int, uint64_t, int *))dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (!find) return;
    struct {
        const char *name;
        void **to;
    } all[] = {
        {"cuMemHostAlloc", (void **)&driver.host_alloc}, {"cuMemFreeHost", (void **)&driver.free_host},
        {"cuMemHostRegister", (void **)&driver.host_register}, {"cuMemHostUnregister", (void **)&driver.host_unregister},
        {"cuMemHostGetDevicePointer", (void **)&driver.device_pointer}, {"cuMemGetInfo", (void **)&driver.info},
        {"cuCtxGetDevice", (void **)&driver.get_device}, {"standin_set_device", (void **)&driver.set_device},
        {"cuDeviceGetPCIBusId", (void **)&driver.bus_address},
        {"standin_copy", (void **)&driver.copy}, {"standin_pinned", (void **)&driver.pinned},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (find(all[i].name, all[i].to, 12000, 0, NULL) != 0) abort();
    driver.find = find;
}

static cudaError_t keep(cudaError_t code) {
    if (code) last = code;
    return code;
}
/* Calls the driver's function, if there is a driver. */
#define CALL(what) (pthread_once(&once, look), keep(driver.find ? driver.what : NO_DRIVER))

cudaError_t cudaGetLastError(void) {
    cudaError_t code = last;
    last = GOOD;
    return code;
}
cudaError_t cudaPeekAtLastError(void) { return last; }

cudaError_t cudaHostAlloc(void **out, size_t len, unsigned flags) { return CALL(host_alloc(out, len, flags)); }
cudaError_t cudaMallocHost(void **out, size_t len) { return CALL(host_alloc(out, len, 0)); }
cudaError_t cudaFreeHost(void *at) { return CALL(free_host(at)); }
cudaError_t cudaHostRegister(void *at, size_t len, unsigned flags) { return CALL(host_register(at, len, flags)); }
cudaError_t cudaHostUnregister(void *at) { return CALL(host_unregister(at)); }
cudaError_t cudaGetDevice(int *out) { return CALL(get_device(out)); }
cudaError_t cudaSetDevice(int number) { return CALL(set_device(number)); }
cudaError_t cudaDeviceGetPCIBusId(char *out, int len, int number) { return CALL(bus_address(out, len, number)); }
cudaError_t cudaMemGetInfo(size_t *left, size_t *total) { return CALL(info(left, total)); }
cudaError_t cudaHostGetDevicePointer(void **out, void *at, unsigned flags) {
    return CALL(device_pointer((uint64_t *)out, at, flags));
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t len, int kind) {
    (void)kind;
    return CALL(copy(to, from, len));
}
cudaError_t cudaMalloc(void **out, size_t len) { return keep((*out = malloc(len)) ? GOOD : BAD_VALUE); }
/* What servers look up besides. */
cudaError_t cudaDeviceSynchronize(void) { return GOOD; }
cudaError_t cudaDeviceReset(void) { return GOOD; }
const char *cudaGetErrorString(cudaError_t code) { return code ? "an error" : "no error"; }
cudaError_t cudaMemset(void *at, int byte, size_t len) { return memset(at, byte, len), GOOD; }
cudaError_t cudaIpcGetMemHandle(void *handle, void *at) { return (void)handle, (void)at, keep(BAD_VALUE); }
cudaError_t cudaIpcOpenMemHandle(void **out, void *handle, unsigned flags) { return (void)out, (void)handle, (void)flags, keep(BAD_VALUE); }
cudaError_t cudaFree(void *at) {
    free(at);
    return GOOD;
}

struct cudaPointerAttributes {
    int type, device;
    void *on_device, *on_host;
};
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *at) {
    pthread_once(&once, look);
    *out = (struct cudaPointerAttributes){driver.pinned && driver.pinned(at), 0, (void *)at, (void *)at};
    return GOOD;
}
