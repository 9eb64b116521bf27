/*
 * Random calls, each made twice: by libc's names, which the library serves, and by system calls, which the kernel serves.
 * Both return the same, see the same bytes, and leave the program's other memory as it is: `model SEED STEPS`, with a
 * threshold of 2 MiB.
 *
 * Each mapping has a page of a pattern on both sides. What is unmapped becomes PROT_NONE, so that nothing else comes there.
 * Bytes are read by process_vm_readv, for which a page that is not there is an error and no signal.
 */
#include "server.h"

#include <linux/falloc.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { WORLDS = 2, MAPS = 10, FILES = 2, PAGE = 4096, LARGE = 1600, FENCE = 0x5a };
enum kind { PRIVATE, SHARED, WINDOW, COPY };
static const char *const KIND[] = {"private", "shared", "window", "copied window"};

struct map {
    char *at[WORLDS];
    size_t pages;
    enum kind kind;
    int file;
    size_t from;  /* pages into the file */
    int is_mixed; /* the kernel may have made several mappings of it, and says EFAULT where it has */
};
static struct map maps[MAPS];
static int count, files[WORLDS][FILES];
static char paths[WORLDS][FILES][64];
static uint64_t state;
static int step, served[4];
static char told[256];

static uint64_t pick(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 11) % below;
}

#define TELL(...) snprintf(told, sizeof told, __VA_ARGS__)
__attribute__((noreturn)) static void differs(const char *what) {
    fprintf(stderr, "model: step %d: %s: %s\n", step, told, what);
    for (int i = 0; getenv("MODEL_MAPS") && i < count; i++)
        fprintf(stderr, "%s of %zu pages at %p and %p\n", KIND[maps[i].kind], maps[i].pages, (void *)maps[i].at[0], (void *)maps[i].at[1]);
    if (getenv("MODEL_MAPS")) CHECK(system("cat /proc/$PPID/maps >&2") == 0);
    exit(1);
}

/* By libc, or by the kernel. */
static char *map(int world, void *at, size_t len, int rights, int flags, int file, off_t from) {
    if (world == 0) return mmap(at, len, rights, flags, file, from);
    return (char *)syscall(SYS_mmap, at, len, rights, flags, file, from);
}
static int unmap(int world, void *at, size_t len) {
    return world == 0 ? munmap(at, len) : (int)syscall(SYS_munmap, at, len);
}
static int advise(int world, void *at, size_t len, int advice) {
    return world == 0 ? madvise(at, len, advice) : (int)syscall(SYS_madvise, at, len, advice);
}
static char *remap(int world, void *at, size_t len, size_t new, int flags, void *to) {
    if (world == 0) return mremap(at, len, new, flags, to);
    return (char *)syscall(SYS_mremap, at, len, new, flags, to);
}
static int resize(int world, int file, off_t len) {
    return world == 0 ? ftruncate(file, len) : (int)syscall(SYS_ftruncate, file, len);
}
static int resize_path(int world, const char *path, off_t len) {
    return world == 0 ? truncate(path, len) : (int)syscall(SYS_truncate, path, len);
}
static int reserve(int world, int file, int mode, off_t from, off_t len) {
    return world == 0 ? fallocate(file, mode, from, len) : (int)syscall(SYS_fallocate, file, mode, from, len);
}
static int forget(int world, const char *path) {
    return world == 0 ? unlink(path) : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

/* Whether both calls have come to the same. */
static void same(long one, int why_one, long other, int why_other) {
    char text[128];
    if (one == other && (one >= 0 || why_one == why_other)) return;
    snprintf(text, sizeof text, "%ld (%s) by libc, %ld (%s) by the kernel", one, one < 0 ? strerror(why_one) : "", other,
             other < 0 ? strerror(why_other) : "");
    differs(text);
}
#define BOTH(call)                                  \
    ({                                              \
        long code[WORLDS];                          \
        int why[WORLDS];                            \
        for (int w = 0; w < WORLDS; w++) {          \
            errno = 0;                              \
            code[w] = (long)(call);                 \
            why[w] = errno;                         \
        }                                           \
        same(code[0], why[0], code[1], why[1]);     \
        code[0];                                    \
    })

/* What is there: the bytes of each page, and which pages are not. */
static void look(const char *at, size_t pages, char *bytes, char *there) {
    for (size_t page = 0; page < pages;) {
        struct iovec here = {bytes + page * PAGE, (pages - page) * PAGE};
        struct iovec other = {(char *)at + page * PAGE, (pages - page) * PAGE};
        ssize_t got = process_vm_readv(getpid(), &here, 1, &other, 1, 0);
        size_t good = got > 0 ? (size_t)got / PAGE : 0;
        memset(there + page, 1, good);
        page += good;
        if (page < pages) there[page] = 0, memset(bytes + page * PAGE, 0, PAGE), page++;
    }
}

static void compare(const struct map *each) {
    static char bytes[WORLDS][2 * LARGE * PAGE], there[WORLDS][2 * LARGE];
    for (int w = 0; w < WORLDS; w++) look(each->at[w], each->pages, bytes[w], there[w]);
    for (size_t page = 0; page < each->pages; page++) {
        char text[128];
        const char *one = bytes[0] + page * PAGE, *other = bytes[1] + page * PAGE;
        if (there[0][page] == there[1][page] && memcmp(one, other, PAGE) == 0) continue;
        snprintf(text, sizeof text, "page %zu of %zu of a %s: %s%d by libc, %s%d by the kernel", page, each->pages,
                 KIND[each->kind], there[0][page] ? "" : "not there ", one[0], there[1][page] ? "" : "not there ", other[0]);
        differs(text);
    }
    for (int w = 0; w < WORLDS; w++)
        if (!is_full_of(each->at[w] - PAGE, PAGE, FENCE) || !is_full_of(each->at[w] + each->pages * PAGE, PAGE, FENCE))
            differs("other memory has changed");
}

static void fence(char *at) {
    /* The place may be a fence already: of a neighbour. */
    char *map = (char *)syscall(SYS_mmap, at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(map == at);
    memset(at, FENCE, PAGE);
    CHECK(mprotect(at, PAGE, PROT_READ) == 0);
}

/* Addresses of the program's with a fence on both sides, for what is put somewhere. */
static char *room(size_t pages) {
    char *at = (char *)syscall(SYS_mmap, NULL, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED && syscall(SYS_munmap, at, PAGE) == 0 && syscall(SYS_munmap, at + (pages + 1) * PAGE, PAGE) == 0);
    fence(at), fence(at + (pages + 1) * PAGE);
    return at + PAGE;
}

static int is_lease(const char *at) {
    FILE *text = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;
    CHECK(text);
    while (fgets(line, sizeof line, text)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (unsigned long)at && (unsigned long)at < to)
            found = strstr(line, "memfd:") != NULL;
    }
    fclose(text);
    return found;
}

static void make(void) {
    if (count == MAPS) return;
    struct map new = {.kind = (enum kind)pick(4), .pages = 1 + pick(LARGE), .file = (int)pick(FILES), .from = pick(LARGE)};
    if (new.kind < WINDOW && pick(4)) new.pages = 512 + pick(LARGE - 512);
    if (new.kind >= WINDOW && pick(2)) new.from = 0;
    size_t len = new.pages * PAGE - pick(2) * pick(PAGE);
    int is_fixed = pick(3) == 0;
    TELL("map %zu bytes, %s, file %d from page %zu%s", len, KIND[new.kind], new.file, new.from, is_fixed ? ", at an address" : "");
    int flags = (new.kind == SHARED || new.kind == WINDOW ? MAP_SHARED : MAP_PRIVATE) | (new.kind < WINDOW ? MAP_ANONYMOUS : 0);
    char *place[WORLDS] = {NULL, NULL};
    if (is_fixed)
        for (int w = 0; w < WORLDS; w++) place[w] = room(new.pages);
    BOTH((new.at[w] = map(w, place[w], len, PROT_READ | PROT_WRITE, flags | (is_fixed ? MAP_FIXED : 0),
                          new.kind < WINDOW ? -1 : files[w][new.file], (off_t)(new.from * PAGE))) == MAP_FAILED ? -1 : 0);
    served[new.kind] += is_lease(new.at[0]);
    if (!is_fixed) {
        /* Beside others: it moves to where it has fences. */
        for (int w = 0; w < WORLDS; w++) {
            char *at = new.at[w];
            char *before = (char *)syscall(SYS_mmap, at - PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            char *end = at + new.pages * PAGE;
            char *behind = (char *)syscall(SYS_mmap, end, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            if (before == at - PAGE) syscall(SYS_munmap, before, PAGE);
            if (behind == end) syscall(SYS_munmap, behind, PAGE);
            if (before == at - PAGE && behind == end) fence(before), fence(behind);
            else {
                place[w] = room(new.pages);
                new.at[w] = remap(w, at, new.pages * PAGE, new.pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place[w]);
                if (new.at[w] != place[w]) differs(strerror(errno));
            }
        }
    }
    maps[count++] = new;
}

static void hole(struct map *each, size_t from, size_t pages) {
    for (int w = 0; w < WORLDS; w++) {
        char *at = each->at[w] + from * PAGE;
        CHECK((char *)syscall(SYS_mmap, at, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
    }
}

static void drop(struct map *each) {
    compare(each);
    for (int w = 0; w < WORLDS; w++) {
        CHECK(syscall(SYS_munmap, each->at[w] - PAGE, PAGE) == 0);
        CHECK(syscall(SYS_munmap, each->at[w] + each->pages * PAGE, PAGE) == 0);
    }
    BOTH(unmap(w, each->at[w], each->pages * PAGE));
    *each = maps[--count];
}

static void fill(struct map *each, size_t from, size_t pages) {
    static char bytes[LARGE * PAGE];
    size_t len = pages * PAGE - pick(2) * pick(PAGE);
    memset(bytes, 1 + (int)pick(250), len);
    TELL("write %zu bytes from page %zu of %zu of a %s", len, from, each->pages, KIND[each->kind]);
    struct iovec here = {bytes, len};
    BOTH(({
        struct iovec other = {each->at[w] + from * PAGE, len};
        process_vm_writev(getpid(), &here, 1, &other, 1, 0);
    }));
}

static void move(struct map *each) {
    static const int HOW[] = {MREMAP_MAYMOVE, MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED, 0};
    int flags = HOW[pick(4)];
    size_t new = 1 + pick(each->kind < WINDOW ? LARGE : each->pages);
    if (each->kind != PRIVATE && new > each->pages) new = each->pages;
    /* A window that its file's part ends in is two mappings, which the kernel moves as they are. */
    if (each->kind >= WINDOW && flags & MREMAP_FIXED) new = each->pages;
    if (each->is_mixed && flags & MREMAP_FIXED) return;
    if (each->is_mixed && new > each->pages) new = each->pages;
    TELL("remap %zu pages of a %s to %zu, flags %d", each->pages, KIND[each->kind], new, flags);
    char *to[WORLDS] = {NULL, NULL}, *at[WORLDS];
    if (flags & MREMAP_FIXED)
        for (int w = 0; w < WORLDS; w++) to[w] = room(new);
    long code = BOTH((at[w] = remap(w, each->at[w], each->pages * PAGE, new * PAGE, flags, to[w])) == MAP_FAILED ? -1 : 0);
    for (int w = 0; w < WORLDS; w++) {
        char *old = each->at[w];
        if (code < 0) {
            /* The room goes, and what a kernel had unmapped before it refused. */
            if (to[w]) syscall(SYS_munmap, to[w] - PAGE, (new + 2) * PAGE);
            continue;
        }
        if (at[w] == old && new == each->pages) continue;
        syscall(SYS_munmap, old + each->pages * PAGE, PAGE);
        if (at[w] != old) syscall(SYS_munmap, old - PAGE, PAGE);
        if (at[w] == old) fence(old + new * PAGE);
        else if (!to[w]) {
            char *place = room(new);
            if (remap(w, at[w], new * PAGE, new * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) differs("it cannot be put between fences");
            at[w] = place;
        }
        each->at[w] = at[w];
    }
    if (code == 0) each->pages = new;
}

static void part(struct map *each) {
    static const int ADVICE[] = {MADV_DONTNEED, MADV_DONTNEED, MADV_REMOVE, MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
                                 MADV_DONTDUMP, MADV_NORMAL, MADV_SEQUENTIAL, MADV_WILLNEED, 12345};
    static const int RIGHTS[] = {PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
    size_t from = pick(each->pages), pages = 1 + pick(each->pages - from);
    if (pick(2)) pages = 1 + pick(pages < 4 ? pages : 4);
    size_t at = from * PAGE, len = pages * PAGE - pick(2) * pick(PAGE);
    uint64_t what = pick(8);
    each->is_mixed |= what < 7;
    switch (what) {
    case 0:
        TELL("unmap %zu bytes from page %zu of %zu of a %s", len, from, each->pages, KIND[each->kind]);
        if (BOTH(unmap(w, each->at[w] + at, len)) == 0) {
            /* Advice over a gap. */
            int advice = ADVICE[pick(2)];
            if (from > 0) BOTH(advise(w, each->at[w] + at - PAGE, (pages + 1) * PAGE, advice));
            hole(each, from, pages);
        }
        break;
    case 1:
        TELL("unmap at no page");
        at += 1 + pick(PAGE - 1);
        BOTH(unmap(w, each->at[w] + at, len));
        break;
    case 2: {
        int flags = MAP_FIXED | MAP_ANONYMOUS | (pick(2) ? MAP_PRIVATE : MAP_SHARED);
        TELL("map over %zu pages from %zu of %zu of a %s, flags %x", pages, from, each->pages, KIND[each->kind], flags);
        BOTH(map(w, each->at[w] + at, len, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED ? -1 : 0);
        break;
    }
    case 3: {
        int file = (int)pick(FILES), flags = MAP_FIXED | (pick(4) ? MAP_SHARED : MAP_PRIVATE);
        off_t begin = (off_t)(pick(LARGE) * PAGE);
        TELL("map file %d from %ld over %zu pages from %zu of a %s", file, (long)begin, pages, from, KIND[each->kind]);
        BOTH(map(w, each->at[w] + at, len, PROT_READ | PROT_WRITE, flags, files[w][file], begin) == MAP_FAILED ? -1 : 0);
        break;
    }
    case 4: {
        int rights = RIGHTS[pick(4)];
        TELL("protect %zu pages from %zu of %zu of a %s, %d", pages, from, each->pages, KIND[each->kind], rights);
        BOTH(mprotect(each->at[w] + at, len, rights));
        break;
    }
    case 5: case 6: {
        int advice = ADVICE[pick(sizeof ADVICE / sizeof *ADVICE)];
        TELL("advise %zu bytes from page %zu of %zu of a %s, %d", len, from, each->pages, KIND[each->kind], advice);
        BOTH(advise(w, each->at[w] + at, len, advice));
        break;
    }
    default: fill(each, from, pages);
    }
}

static void open_file(int number, int flags) {
    for (int w = 0; w < WORLDS; w++) {
        if (files[w][number] > 0) close(files[w][number]);
        CHECK((files[w][number] = open(paths[w][number], O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600)) > 0);
    }
}

static void change_file(void) {
    static char bytes[WORLDS][64 * PAGE];
    int number = (int)pick(FILES);
    off_t from = (off_t)pick(LARGE * PAGE), len = (off_t)(1 + pick(64 * PAGE - 1));
    off_t size = pick(3) ? (off_t)(512 * PAGE + pick((LARGE - 512) * PAGE)) : (off_t)pick(LARGE * PAGE);
    int mode;
    switch (pick(9)) {
    case 0: case 1:
        TELL("ftruncate file %d to %ld", number, (long)size);
        BOTH(resize(w, files[w][number], size));
        break;
    case 2:
        TELL("truncate file %d to %ld", number, (long)size);
        BOTH(resize_path(w, paths[w][number], size));
        break;
    case 3:
        TELL("O_TRUNC of file %d", number);
        open_file(number, O_TRUNC);
        if (pick(2)) BOTH(resize(w, files[w][number], size));
        break;
    case 4:
        TELL("punch file %d at %ld, %ld", number, (long)from, (long)len * 16);
        BOTH(reserve(w, files[w][number], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, len * 16));
        break;
    case 5:
        TELL("reserve file %d at %ld, %ld", number, (long)from, (long)len);
        from *= (off_t)pick(2);
        mode = (int)pick(2) * FALLOC_FL_KEEP_SIZE;
        BOTH(reserve(w, files[w][number], mode, from, len));
        break;
    case 6:
        memset(bytes[0], 1 + (int)pick(250), (size_t)len);
        TELL("write file %d at %ld, %ld", number, (long)from, (long)len);
        BOTH(w == 0 ? pwrite(files[w][number], bytes[0], (size_t)len, from) : syscall(SYS_pwrite64, files[w][number], bytes[0], len, from));
        break;
    case 7:
        TELL("read file %d at %ld, %ld", number, (long)from, (long)len);
        memset(bytes, 0, sizeof bytes);
        BOTH(w == 0 ? pread(files[w][number], bytes[w], (size_t)len, from) : syscall(SYS_pread64, files[w][number], bytes[w], len, from));
        if (memcmp(bytes[0], bytes[1], (size_t)len)) differs("other bytes");
        break;
    default:
        TELL("a new file %d, its name %s", number, pick(2) ? "gone" : "kept");
        BOTH(forget(w, paths[w][number]));
        open_file(number, 0);
        BOTH(resize(w, files[w][number], size));
    }
    struct stat stat[WORLDS];
    BOTH(fstat(files[w][number], &stat[w]));
    if (stat[0].st_size != stat[1].st_size) differs("files have other sizes");
}

/* A child writes to what is shared, and this process to everything meanwhile. A lease's private memory is not the child's. */
static void forks(void) {
    TELL("fork");
    int go[2];
    CHECK(pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        CHECK(read(go[0], &byte, 1) == 1);
        for (int i = 0; i < count; i++)
            if (maps[i].kind == SHARED) {
                compare(&maps[i]);
                fill(&maps[i], 0, maps[i].pages);
                if (i % 2) BOTH(unmap(w, maps[i].at[w], PAGE));
            }
        _exit(0);
    }
    CHECK(child > 0);
    for (int i = 0; i < count; i++) {
        size_t from = pick(maps[i].pages);
        fill(&maps[i], from, 1 + pick(maps[i].pages - from));
    }
    int status;
    CHECK(write(go[1], "g", 1) == 1 && waitpid(child, &status, 0) == child);
    if (status != 0) exit(1);
    close(go[0]), close(go[1]);
    for (int i = 0; i < count; i++) compare(&maps[i]);
}

/* Pinned memory comes zero, is known as such, and what the program registers of its own is not what it has allocated. */
static void pins(void) {
    static void *held[4];
    void **each = &held[pick(4)];
    if (*each) {
        TELL("free pinned memory");
        if (cudaHostUnregister(*each) == 0) differs("an allocation is unregistered");
        cudaGetLastError();
        if (cudaFreeHost(*each) != 0) differs("it is not freed");
        *each = NULL;
        return;
    }
    size_t len = (512 + pick(LARGE)) * PAGE - pick(2) * pick(PAGE);
    TELL("allocate pinned memory of %zu bytes", len);
    if (cudaHostAlloc(each, len, 0) != 0 || !is_zero(*each, len)) differs("it is not zero");
    memset(*each, 0xee, len);
    if (count == 0) return;
    struct map *one = &maps[pick((uint64_t)count)];
    int code[WORLDS];
    for (int w = 0; w < WORLDS; w++) {
        code[w] = cudaHostRegister(one->at[w], PAGE, 0);
        if (code[w] == 0 && cudaHostUnregister(one->at[w]) != 0) differs("what was registered is not");
        cudaGetLastError();
    }
    if (code[0] != code[1]) differs("one is registered, and the other is not");
}

int main(int words, char **word) {
    CHECK(words == 3);
    uint64_t seed = strtoull(word[1], NULL, 10);
    int steps = atoi(word[2]);
    state = seed * 0x9e3779b97f4a7c15 + 1;
    for (int w = 0; w < WORLDS; w++)
        for (int i = 0; i < FILES; i++)
            snprintf(paths[w][i], sizeof paths[w][i], "/dev/shm/prezero-model-%d-%d-%d", (int)getpid(), w, i);
    for (int i = 0; i < FILES; i++) open_file(i, 0);
    for (step = 0; step < steps; step++) {
        struct map *each = count ? &maps[pick((uint64_t)count)] : NULL;
        switch (pick(16)) {
        case 0: case 1: make(); break;
        case 2: case 3: change_file(); break;
        case 4: if (each) drop(each); continue;
        case 5: case 6: if (each) move(each); break;
        case 7: if (pick(3) == 0) forks(); break;
        case 8: pins(); break;
        default: if (each) part(each);
        }
        for (int i = 0; i < count; i++)
            if (&maps[i] == each || maps[i].kind >= WINDOW || step % 16 == 0) compare(&maps[i]);
    }
    while (count) drop(&maps[0]);
    for (int i = 0; i < FILES; i++) BOTH(forget(w, paths[w][i]));
    printf("model: seed %llu: %d steps, of the lease: %d private, %d shared, %d windows, %d copied windows\n",
           (unsigned long long)seed, steps, served[PRIVATE], served[SHARED], served[WINDOW], served[COPY]);
    return 0;
}
