/*
 * What the servers do rarely, each alone: `edges CASE`, with a lease of 256 MiB and a threshold of 16 MiB.
 */
#include "server.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>

extern char **environ;
static const size_t PART = 64 << 20;

static char *map(size_t len, int sharing) {
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* Whether this address is a mapping of the lease: of a file that is shared. */
static int is_lease(const char *at) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && from <= (unsigned long)at && (unsigned long)at < to)
            found = rights[3] == 's' && strstr(line, "memfd:") != NULL;
    }
    fclose(maps);
    return found;
}

/* A part that is given back and cut again is zero, four times the lease over. */
static void zero(void) {
    for (int i = 0; i < 16; i++) {
        char *at = map(PART, i % 2 ? MAP_PRIVATE : MAP_SHARED);
        CHECK(is_lease(at) && is_zero(at, PART));
        memset(at, i + 1, PART);
        CHECK(munmap(at, PART) == 0);
    }
    /* A half goes back and comes again; the other half keeps what it has. */
    char *all = map(4 * PART, MAP_PRIVATE);
    memset(all, 'k', 4 * PART);
    CHECK(is_lease(all) && munmap(all + PART, PART) == 0);
    char *again = map(PART, MAP_PRIVATE);
    CHECK(is_lease(again) && is_zero(again, PART));
    memset(again, 'n', PART);
    CHECK(is_full_of(all, PART, 'k') && is_full_of(all + 2 * PART, 2 * PART, 'k'));
    /* All of it is used: what comes now is the kernel's, and so is what is smaller than the threshold, or no request. */
    CHECK(!is_lease(map(PART, MAP_PRIVATE)));
    CHECK(munmap(again, PART) == 0);
    CHECK(!is_lease(map(8 * MIB, MAP_PRIVATE)));
    CHECK(!is_lease(mmap(NULL, PART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
    CHECK(!is_lease(mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)));
    CHECK(is_lease(map(PART, MAP_PRIVATE)));
}

/* Private memory is hidden from a child, shared memory is not, and stays the child's when the parent unmaps it. */
static void child(void) {
    char *private = map(PART, MAP_PRIVATE), *shared = map(PART, MAP_SHARED);
    CHECK(is_lease(private) && is_lease(shared));
    memset(private, 'p', PART), memset(shared, 's', PART);
    CHECK(madvise(private, PART, MADV_DOFORK) == -1 && errno == EINVAL);
    int go[2], done[2];
    CHECK(pipe(go) == 0 && pipe(done) == 0);
    pid_t holder = fork();
    if (holder == 0) {
        char byte;
        CHECK(read(go[0], &byte, 1) == 1);
        CHECK(is_full_of(shared, PART, 's'));
        memset(shared, 'c', PART);
        char *own = map(PART, MAP_PRIVATE);
        CHECK(is_lease(own) && is_zero(own, PART));
        CHECK(write(done[1], "d", 1) == 1 && read(go[0], &byte, 1) == 1);
        CHECK(is_full_of(shared, PART, 'c') && is_zero(own, PART));
        _exit(0);
    }
    CHECK(munmap(shared, PART) == 0);
    CHECK(write(go[1], "g", 1) == 1);
    char byte;
    CHECK(read(done[0], &byte, 1) == 1);
    /* One part is left: the child's two and the private one are held. */
    char *left = map(PART, MAP_PRIVATE), *none = map(PART, MAP_PRIVATE);
    CHECK(is_lease(left) && is_zero(left, PART) && !is_lease(none));
    memset(left, 'l', PART);
    CHECK(write(go[1], "g", 1) == 1);
    int status;
    CHECK(waitpid(holder, &status, 0) == holder && status == 0);
    CHECK(is_full_of(private, PART, 'p'));
    pid_t reader = fork();
    if (reader == 0) _exit(private[0]);
    CHECK(waitpid(reader, &status, 0) == reader && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    /* Programs that are started, and processes that are killed, keep nothing. */
    char *words[] = {"true", NULL};
    pid_t other;
    CHECK(posix_spawn(&other, "/bin/true", NULL, NULL, words, environ) == 0 && waitpid(other, &status, 0) == other);
    pid_t killed = fork();
    if (killed == 0) {
        char *own = map(PART, MAP_SHARED);
        CHECK(is_lease(own));
        memset(own, 'x', PART);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(killed, &status, 0) == killed && WIFSIGNALED(status));
    char *last = map(PART, MAP_PRIVATE);
    CHECK(is_lease(last) && is_zero(last, PART));
}

/* mremap: shrinks, grows in place, moves, and leaves a lease that is used up. */
static void remap(void) {
    char *at = map(PART, MAP_PRIVATE);
    memset(at, 'r', PART);
    CHECK(mremap(at, PART, PART / 2, 0) == at && is_full_of(at, PART / 2, 'r'));
    at = mremap(at, PART / 2, PART, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED && is_lease(at) && is_lease(at + PART - 1));
    CHECK(is_full_of(at, PART / 2, 'r') && is_zero(at + PART / 2, PART / 2));
    memset(at, 'r', PART);
    /* Something lies behind it: it has to move, in two pieces. */
    char *behind = mmap(at + PART, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(behind == at + PART || behind == MAP_FAILED);
    CHECK(mremap(at, PART, 2 * PART, 0) == MAP_FAILED && errno == ENOMEM);
    char *moved = mremap(at, PART, 2 * PART, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved != at && is_lease(moved) && is_lease(moved + 2 * PART - 1));
    CHECK(is_full_of(moved, PART, 'r') && is_zero(moved + PART, PART));
    memset(moved, 'm', 2 * PART);
    char *place = mmap(NULL, 2 * PART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(mremap(moved, 2 * PART, 2 * PART, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    CHECK(is_lease(place) && is_full_of(place, 2 * PART, 'm'));
    /* The lease has 256 MiB: what goes beyond them is the kernel's, behind the content or with it. */
    char *left = mremap(place, 2 * PART, 5 * PART, MREMAP_MAYMOVE);
    CHECK(left != MAP_FAILED && is_full_of(left, 2 * PART, 'm') && is_zero(left + 2 * PART, 3 * PART));
    CHECK(!is_lease(left + 2 * PART) && munmap(left, 5 * PART) == 0);
    char *all = map(4 * PART, MAP_SHARED);
    CHECK(is_lease(all) && is_zero(all, 4 * PART));
    CHECK(mremap(all, PART, 2 * PART, MREMAP_MAYMOVE) == MAP_FAILED);
    /* Another mapping in its place, and its part serves again. */
    memset(all, 'o', 4 * PART);
    CHECK(mmap(all, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == all);
    CHECK(!is_lease(all) && is_zero(all, PART) && is_full_of(all + PART, 3 * PART, 'o'));
    char *again = map(PART, MAP_PRIVATE);
    CHECK(is_lease(again) && is_zero(again, PART));
}

/* madvise on private memory, and on shared. */
static void advice(void) {
    char *at = map(PART, MAP_PRIVATE);
    memset(at, 'a', PART);
    CHECK(mprotect(at, MIB, PROT_READ) == 0);
    CHECK(madvise(at, 4096, MADV_DONTNEED) == 0 && madvise(at + 8192, 8192, MADV_DONTNEED) == 0);
    CHECK(is_zero(at, 4096) && is_full_of(at + 4096, 4096, 'a') && is_zero(at + 8192, 8192) && at[16384] == 'a');
    CHECK(madvise(at, PART, MADV_REMOVE) == -1 && errno == EINVAL);
    CHECK(madvise(at, PART, MADV_HUGEPAGE) == 0 && madvise(at, PART, MADV_NOHUGEPAGE) == 0);
    CHECK(madvise(at, PART, MADV_DONTDUMP) == 0);
    char *shared = map(PART, MAP_SHARED);
    memset(shared, 'b', PART);
    CHECK(madvise(shared, PART, MADV_DONTNEED) == 0 && is_full_of(shared, PART, 'b'));
    CHECK(madvise(shared, PART, MADV_REMOVE) == 0 && is_zero(shared, PART) && is_lease(shared));
}

/* Files in /dev/shm: parts, rests, sizes, names. */
static void file(void) {
    char name[64], path[96];
    snprintf(name, sizeof name, "/prezero-edges-%d", (int)getpid());
    snprintf(path, sizeof path, "/dev/shm%s", name);
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && ftruncate(file, (off_t)PART) == 0);
    char *one = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *part = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)(PART - MIB));
    CHECK(one != MAP_FAILED && part != MAP_FAILED && is_lease(one) && is_zero(one, PART));
    memset(one, 'f', PART);
    CHECK(is_full_of(part, MIB, 'f') && munmap(part, MIB) == 0);
    struct stat stat;
    CHECK(fstat(file, &stat) == 0 && stat.st_size == (off_t)PART && stat.st_blocks == 0);
    /* It grows beyond its part: the rest is the file's. */
    CHECK(ftruncate(file, (off_t)(PART + MIB)) == 0);
    char *more = mmap(NULL, PART + MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(more != MAP_FAILED && is_full_of(more, PART, 'f') && is_zero(more + PART, MIB));
    more[PART] = 'r';
    CHECK(munmap(more, PART + MIB) == 0);
    /* It reserves its space, which is there. */
    CHECK(posix_fallocate(file, 0, (off_t)PART) == 0 && fstat(file, &stat) == 0 && stat.st_size == (off_t)(PART + MIB));
    /* It shrinks: what is cut off is zero when it is back, and the file's own. */
    CHECK(ftruncate(file, (off_t)MIB) == 0 && ftruncate(file, (off_t)PART) == 0);
    CHECK(is_full_of(one, MIB, 'f') && is_zero(one + MIB, PART - MIB));
    CHECK(is_lease(one) && !is_lease(one + MIB));
    /* The name goes, and the memory stays until it is unmapped. */
    CHECK(shm_unlink(name) == 0 && access(path, F_OK) != 0);
    memset(one, 'g', PART);
    char *rest = map(3 * PART, MAP_PRIVATE), *none = map(PART, MAP_PRIVATE);
    CHECK(is_lease(rest) && !is_lease(none) && is_full_of(one, PART, 'g'));
    CHECK(munmap(one, PART) == 0);
    char *again = map(PART, MAP_PRIVATE);
    CHECK(is_lease(again) && is_zero(again, PART));
    memset(again, 'h', PART);
    /* The descriptor outlived all of it: the file is an ordinary one now. */
    char *late = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(late != MAP_FAILED && !is_lease(late) && late[0] == 0 && is_full_of(again, PART, 'h'));
    /* A file that was written is never replaced. */
    int written = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(munmap(again, PART) == 0 && write(written, "w", 1) == 1 && ftruncate(written, (off_t)PART) == 0);
    char *own = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, written, 0);
    CHECK(own != MAP_FAILED && own[0] == 'w' && !is_lease(own) && shm_unlink(name) == 0);
    CHECK(shm_unlink("/") == -1 && errno == EINVAL && shm_unlink("/none-of-that-name") == -1 && errno == ENOENT);
}

/* What is looked up is found as without the library: also that there is no such function. */
static void lookup(void) {
    CHECK(dlsym(RTLD_DEFAULT, "hipHostMalloc") == NULL && strstr(dlerror(), "undefined symbol: hipHostMalloc"));
    CHECK(dlsym(RTLD_DEFAULT, "cudaHostAlloc") != NULL && dlsym(RTLD_DEFAULT, "malloc") == (void *)malloc);
    CHECK(dlsym(RTLD_NEXT, "getrusage") == (void *)getrusage);
    CHECK(dlsym(RTLD_DEFAULT, "no such thing") == NULL && strstr(dlerror(), "no such thing"));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver && dlsym(driver, "cudaHostAlloc") == NULL && strstr(dlerror(), "cudaHostAlloc"));
    /* The driver's own, as a program with a static runtime finds them. */
    int (*alloc)(void **, size_t, unsigned) = (int (*)(void **, size_t, unsigned))dlsym(driver, "cuMemHostAlloc");
    int (*release)(void *) = (int (*)(void *))dlsym(driver, "cuMemFreeHost");
    void *at = NULL;
    CHECK(alloc(&at, PART, 3) == 0 && is_lease(at) && is_zero(at, PART) && release(at) == 0);
    CHECK(alloc(&at, MIB, 0) == 0 && !is_lease(at) && release(at) == 0);
    /* Write-combined memory is the driver's business. */
    CHECK(alloc(&at, PART, 4) == 0 && !is_lease(at) && release(at) == 0);
}

/* An allocation that is pinned by the lease, or by the driver where that fails: argument `lease` or `driver`. */
static void pinned(int of_lease) {
    void *at = NULL, *device = NULL;
    CHECK(cudaHostAlloc(&at, PART + 5, 0) == 0 && is_lease(at) == of_lease && cudaPeekAtLastError() == 0);
    struct cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, at) == 0 && attributes.type == 1);
    memset(at, 'd', PART);
    CHECK(cudaMalloc(&device, PART) == 0);
    printf("copy: %d\n", cudaMemcpy(device, at, PART, 1));
    CHECK(cudaFree(device) == 0);
    CHECK(cudaFreeHost(at) == 0);
    /* Memory of the program's, in one registration as far as it can tell. */
    char *own = map(PART, MAP_PRIVATE);
    CHECK(cudaHostRegister(own, PART, 0) == 0 && cudaHostUnregister(own) == 0 && cudaHostUnregister(own) != 0);
}

/* A fork while memory is registered: the parent's stays its own and pinned, the child's calls harm nothing. */
static void forks(void) {
    void *at = NULL;
    char *own = map(PART, MAP_PRIVATE), *shared = map(PART, MAP_SHARED);
    CHECK(cudaHostAlloc(&at, PART, 0) == 0 && is_lease(at) && is_lease(own) && is_lease(shared));
    CHECK(cudaHostRegister(own, PART, 0) == 0 && cudaHostRegister(shared, PART, 0) == 0);
    memset(at, 'a', PART), memset(own, 'o', PART), memset(shared, 's', PART);
    pid_t child = fork();
    if (child == 0) {
        CHECK(is_full_of(shared, PART, 's'));
        shared[0] = 'c';
        /* What is left of the lease: the parent's parts are not cut. */
        char *mine = map(PART, MAP_PRIVATE);
        CHECK(is_zero(mine, PART));
        memset(mine, 'x', PART);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && shared[0] == 'c');
    memset(shared, 's', PART);
    struct cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, at) == 0 && attributes.type == 1);
    CHECK(is_full_of(at, PART, 'a') && is_full_of(own, PART, 'o') && is_full_of(shared, PART, 's'));
    CHECK(cudaHostUnregister(own) == 0 && cudaHostUnregister(shared) == 0 && cudaFreeHost(at) == 0);
    CHECK(cudaPeekAtLastError() == 0);
}

/* Threads and processes take and give parts at once, and fork meanwhile: none finds another's bytes. */
static void *takes_turns(void *given) {
    char mark = (char)(intptr_t)given;
    enum { TURNS = 100 };
    const size_t len = PART / 4;
    for (int turn = 0; turn < TURNS; turn++) {
        char *at = map(len, turn % 2 ? MAP_PRIVATE : MAP_SHARED);
        for (size_t i = 0; i < len; i += 4096) CHECK(at[i] == 0);
        for (size_t i = 0; i < len; i += 4096) at[i] = mark;
        sched_yield();
        for (size_t i = 0; i < len; i += 4096) CHECK(at[i] == mark);
        if (turn % 3) CHECK(munmap(at, len) == 0);
        else CHECK(munmap(at + len / 2, len / 2) == 0 && munmap(at, len / 2) == 0);
    }
    return NULL;
}

static void together(void) {
    enum { PROCESSES = 2, THREADS = 3, FORKS = 20 };
    pid_t processes[PROCESSES];
    int status;
    for (int i = 0; i < PROCESSES; i++)
        if ((processes[i] = fork()) == 0) {
            pthread_t threads[THREADS];
            for (int j = 0; j < THREADS; j++)
                CHECK(pthread_create(&threads[j], NULL, takes_turns, (void *)(intptr_t)(1 + i * THREADS + j)) == 0);
            for (int j = 0; j < FORKS; j++) {
                pid_t child = fork();
                if (child == 0) _exit(0);
                CHECK(waitpid(child, &status, 0) == child && status == 0);
            }
            for (int j = 0; j < THREADS; j++) pthread_join(threads[j], NULL);
            exit(0);
        }
    for (int i = 0; i < PROCESSES; i++) CHECK(waitpid(processes[i], &status, 0) == processes[i] && status == 0);
    char *all = map(4 * PART, MAP_PRIVATE);
    CHECK(is_lease(all) && is_zero(all, 4 * PART));
}

int main(int count, char **words) {
    CHECK(count == 2);
    const char *what = words[1];
    if (strcmp(what, "zero") == 0) zero();
    else if (strcmp(what, "child") == 0) child();
    else if (strcmp(what, "remap") == 0) remap();
    else if (strcmp(what, "advice") == 0) advice();
    else if (strcmp(what, "file") == 0) file();
    else if (strcmp(what, "together") == 0) together();
    else if (strcmp(what, "lookup") == 0) lookup();
    else if (strcmp(what, "forks") == 0) forks();
    else if (strcmp(what, "lease") == 0) pinned(1);
    else if (strcmp(what, "driver") == 0) pinned(0);
    else CHECK(!"a case of that name");
    return 0;
}
