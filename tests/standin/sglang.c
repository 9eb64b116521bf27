/*
 * SGLang's HiCache: shared anonymous memory, registered in pieces by cudaHostRegister of a library that ctypes opened.
 *   sglang MIB MIB     the size, and that of a piece
 */
#include "server.h"

int main(int count, char **words) {
    seen = faults();
    CHECK(count == 3);
    size_t len = size(words[1]), piece = size(words[2]);
    void *library = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    int (*reg)(void *, size_t, unsigned) = (int (*)(void *, size_t, unsigned))dlsym(library, "cudaHostRegister");
    int (*unreg)(void *) = (int (*)(void *))dlsym(library, "cudaHostUnregister");
    CHECK(reg && unreg);
    char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && is_zero(memory, len));
    for (size_t at = 0; at < len; at += piece) CHECK(reg(memory + at, len - at < piece ? len - at : piece, 0) == 0);
    use("sglang", memory, len, 's');
    /* A child sees what is shared, and its exit gives nothing back. */
    pid_t child = fork();
    if (child == 0) {
        memory[len - 1] = 'c';
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && memory[len - 1] == 'c');
    for (size_t at = 0; at < len; at += piece) CHECK(unreg(memory + at) == 0);
    CHECK(cudaPeekAtLastError() == 0);
    CHECK(munmap(memory, len) == 0);
    return 0;
}
