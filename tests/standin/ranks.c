/*
 * Ranks of a server, each a process with a GPU: pinned memory of its own, and private memory.
 *   ranks MIB RANKS      starts a process for each rank, by LOCAL_RANK, as torchrun does
 * Says for both of them which file it is: its inode.
 */
#include "server.h"

static unsigned long inode(const void *at) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long found = 0;
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to, number;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &number) == 3 && from <= (unsigned long)at && (unsigned long)at < to)
            found = number;
    }
    fclose(maps);
    return found;
}

static void rank(size_t len, int me) {
    void *pinned;
    CHECK(cudaSetDevice(me) == 0 && cudaHostAlloc(&pinned, len, 0) == 0 && is_zero(pinned, len));
    char *own = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED && is_zero(own, len));
    memset(pinned, me + 1, len), memset(own, me + 1, len);
    printf("rank %d: pinned %lu own %lu\n", me, inode(pinned), inode(own));
    fflush(stdout);
    CHECK(is_full_of(pinned, len, (char)(me + 1)) && cudaFreeHost(pinned) == 0 && munmap(own, len) == 0);
}

int main(int count, char **words) {
    CHECK(count == 3);
    const char *me = getenv("LOCAL_RANK");
    if (me) {
        rank(size(words[1]), atoi(me));
        return 0;
    }
    /* One after the other: what a rank gave back is the next one's only where that has no lease of its own. */
    int good = 1, status;
    for (int i = 0; i < atoi(words[2]); i++) {
        pid_t process = fork();
        if (process == 0) {
            char number[16];
            snprintf(number, sizeof number, "%d", i);
            setenv("LOCAL_RANK", number, 1);
            for (int file = 3; file < 64; file++) close(file);
            execv("/proc/self/exe", words);
            _exit(127);
        }
        good &= waitpid(process, &status, 0) == process && status == 0;
    }
    return !good;
}
