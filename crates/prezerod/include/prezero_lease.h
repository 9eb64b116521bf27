/* Leases of zeroed, populated huge pages from prezerod: a client in one header.
 *
 *     struct prezero_lease lease;
 *     int broker = prezero_connect(NULL);
 *     if (broker < 0 || prezero_lease(broker, 1 << 30, PREZERO_2M, -1, 5000, &lease) != 0)
 *         fprintf(stderr, "%s\n", lease.text);
 *     char *memory = prezero_map(&lease);
 *
 * Besides: prezero_lease_or_plain(), prezero_available() and prezero_report(). examples/lease.c uses them all.
 *
 * Sizes are bytes, times milliseconds or nanoseconds as their names say. One thread at a
 * time for each connection. The frames are those of PROTOCOL.md. Needs Linux and C99 with
 * _GNU_SOURCE (memfd seals), a little-endian machine.
 */
#ifndef PREZERO_LEASE_H
#define PREZERO_LEASE_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "prezero_lease.h writes frames as they lie in memory: little endian"
#endif

#define PREZERO_2M (2ull << 20)
#define PREZERO_1G (1ull << 30)
#define PREZERO_STOCK 1u
#define PREZERO_METRICS 2u
#define PREZERO_LOG 3u

/* What is known of a lease, or why there is none. */
struct prezero_lease {
    int fd;               /* the memory; closed on exec */
    uint64_t number;      /* the broker's number for it */
    uint64_t bytes;       /* all populated, all zero */
    uint64_t page;        /* PREZERO_2M or PREZERO_1G */
    int32_t node;         /* NUMA node */
    uint32_t backing;     /* 1 hugetlb, 2 transparent huge pages, 3 the same on a tmpfs */
    uint64_t age_ns;      /* how long it had been ready */
    uint64_t cost_ns;     /* CPU time that making it took */
    uint64_t waited_ns;   /* how long this request waited */
    uint32_t charged;     /* to the cgroup of 1 the broker, 2 the tenant */
    uint32_t reason;      /* of a refusal, as in PROTOCOL.md */
    uint64_t estimate_ns; /* when to ask again; UINT64_MAX: not known */
    char text[512];       /* of a refusal, for people; never empty then */
};

/* What there is, in bytes. */
struct prezero_available {
    uint64_t ready;      /* lies ready */
    uint64_t largest;    /* the largest lease that does */
    uint64_t making;     /* being made */
    uint64_t pace;       /* made in a second, recently; 0: not known */
    uint64_t quota_left; /* of this client's tenant; UINT64_MAX: no bound */
};

struct prezero__header {
    char magic[2];
    uint8_t version, kind;
    uint32_t tag;
};

static inline int prezero__failed(struct prezero_lease *lease, const char *what)
{
    snprintf(lease->text, sizeof lease->text, "%s: %s", what, strerror(errno));
    return -1;
}

#define PREZERO__SYSTEM "/run/prezero"

static inline int prezero__is_owned(const char *directory, uid_t user)
{
    struct stat info;

    return stat(directory, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == user;
}

/* A broker that says nothing for this time beyond a wait is stopped, ms. */
#ifndef PREZERO_PATIENCE_MS
#define PREZERO_PATIENCE_MS 10000
#endif

static inline void prezero__limit(int broker, int option, uint32_t wait_ms)
{
    uint64_t ms = (uint64_t)wait_ms + PREZERO_PATIENCE_MS;
    struct timeval time = {.tv_sec = (time_t)(ms / 1000),
                           .tv_usec = (suseconds_t)(ms % 1000 * 1000)};

    setsockopt(broker, SOL_SOCKET, option, &time, sizeof time);
}

/* Connects to the broker at `path`; NULL: to $PREZERO_SOCKET, the user's own, or the
 * system's. Returns a descriptor, or -1 with errno set: EACCES for the broker of another user
 * than root and the caller, where neither `path` nor the variable names it. `su` and `sudo -E`
 * keep the run-time directory of another user, which is ignored. */
static inline int prezero_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char own[sizeof address.sun_path];
    const char *dir = secure_getenv("XDG_RUNTIME_DIR");
    struct ucred peer;
    socklen_t size = sizeof peer;
    int fd, failed, named, saved;

    if (!path || !*path)
        path = secure_getenv("PREZERO_SOCKET");
    named = path && *path;
    if (!named) {
        path = PREZERO__SYSTEM "/prezerod.sock";
        if (dir && *dir == '/' && prezero__is_owned(dir, geteuid())
            && snprintf(own, sizeof own, "%s/prezero/prezerod.sock", dir) < (int)sizeof own
            && access(own, F_OK) == 0)
            path = own;
    }
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    prezero__limit(fd, SO_SNDTIMEO, 0);
    do
        failed = connect(fd, (struct sockaddr *)&address, sizeof address);
    while (failed && errno == EINTR);
    if (!failed && !named) {
        failed = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
        if (!failed && peer.uid != 0 && peer.uid != geteuid()
            && (path == own || !prezero__is_owned(PREZERO__SYSTEM, 0))) {
            errno = EACCES;
            failed = -1;
        }
    }
    if (!failed)
        return fd;
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* Sends a request, `body` after the header, and reads the answer of kind `expected`, of which
 * all after the header goes to `answer`, with room for `*length` bytes, and a descriptor to
 * lease->fd. Returns as prezero_lease() does. */
static inline int prezero__ask_any(int broker, uint8_t kind, const void *body, size_t size,
                                   uint32_t wait_ms, uint8_t expected, void *answer,
                                   size_t *length, struct prezero_lease *lease)
{
    struct prezero__header header = {{'P', 'Z'}, 1, kind, 1};
    char request[64], packet[16384];
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec vector = {packet, sizeof packet};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1,
                             .msg_control = &control, .msg_controllen = sizeof control};
    const char *rest = packet + sizeof header;
    struct cmsghdr *part;
    uint32_t text;
    ssize_t got;

    memset(lease, 0, sizeof *lease);
    lease->fd = -1;
    lease->estimate_ns = UINT64_MAX;
    memcpy(request, &header, sizeof header);
    memcpy(request + sizeof header, body, size);
    prezero__limit(broker, SO_RCVTIMEO, wait_ms);
    do
        got = send(broker, request, sizeof header + size, MSG_NOSIGNAL);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno != EPIPE)
        return prezero__failed(lease, "prezerod cannot be asked");
    do
        got = recvmsg(broker, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) {
        errno = ETIMEDOUT;
        return prezero__failed(lease, "prezerod does not answer; is it stopped?");
    }
    if (got < (ssize_t)sizeof header) {
        errno = got < 0 ? errno : ECONNRESET;
        return prezero__failed(lease, "prezerod is gone");
    }
    for (part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
            memcpy(&lease->fd, CMSG_DATA(part), sizeof lease->fd);
    memcpy(&header, packet, sizeof header);
    got -= sizeof header;
    if (header.kind == 130 || header.kind == 131) {
        if (header.kind == 131 && got >= 8) {
            memcpy(&lease->estimate_ns, rest, 8);
            rest += 8;
            got -= 8;
        }
        if (got >= 8) {
            memcpy(&lease->reason, rest, 4);
            memcpy(&text, rest + 4, 4);
            if (text <= (uint64_t)got - 8 && text < sizeof lease->text)
                memcpy(lease->text, rest + 8, text);
        }
        if (!lease->text[0])
            strcpy(lease->text, "no lease");
        return 1;
    }
    if (header.kind != expected || (size_t)got > *length) {
        if (lease->fd >= 0)
            close(lease->fd);
        lease->fd = -1;
        errno = EPROTO;
        return prezero__failed(lease, "prezerod answered out of turn");
    }
    memcpy(answer, rest, got);
    *length = got;
    return 0;
}

/* The same for an answer of `length` bytes after the header. */
static inline int prezero__ask(int broker, uint8_t kind, const void *body, size_t size,
                               uint32_t wait_ms, uint8_t expected, void *answer, size_t length,
                               struct prezero_lease *lease)
{
    size_t got = length;
    int status = prezero__ask_any(broker, kind, body, size, wait_ms, expected, answer, &got, lease);

    if (status != 0 || got == length)
        return status;
    if (lease->fd >= 0)
        close(lease->fd);
    lease->fd = -1;
    errno = EPROTO;
    return prezero__failed(lease, "prezerod answered out of turn");
}

/* What LEASE asks for. */
struct prezero__want {
    uint64_t bytes, page;
    int32_t node;
    uint32_t ms;
};

static inline int prezero__granted(int broker, uint8_t kind, const void *body, size_t size,
                                   uint32_t wait_ms, struct prezero_lease *lease)
{
    char answer[68];
    struct stat info;
    uint64_t inode;
    int status = prezero__ask(broker, kind, body, size, wait_ms, 129, answer, sizeof answer, lease);

    if (status != 0)
        return status;
    memcpy(&lease->number, answer, 8);
    memcpy(&lease->bytes, answer + 8, 8);
    memcpy(&lease->page, answer + 16, 8);
    memcpy(&lease->node, answer + 24, 4);
    memcpy(&lease->backing, answer + 28, 4);
    memcpy(&inode, answer + 32, 8);
    memcpy(&lease->age_ns, answer + 40, 8);
    memcpy(&lease->cost_ns, answer + 48, 8);
    memcpy(&lease->waited_ns, answer + 56, 8);
    memcpy(&lease->charged, answer + 64, 4);
    if (lease->fd < 0) {
        errno = EMFILE;
        return prezero__failed(lease, "no descriptor came with the lease");
    }
    if (fstat(lease->fd, &info) != 0 || (uint64_t)info.st_size != lease->bytes
        || (uint64_t)info.st_ino != inode
        || (lease->backing != 3 && (fcntl(lease->fd, F_GET_SEALS) & 7)
                                       != (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW))) {
        close(lease->fd);
        lease->fd = -1;
        errno = EPROTO;
        return prezero__failed(lease, "the lease is not as granted");
    }
    return 0;
}

/* Leases `bytes`, a multiple of `page`, on `node` (-1: any), waiting for at most `wait_ms`.
 * Returns 0; 1: no, or not now, see reason, estimate_ns and text; -1: an error, see text. */
static inline int prezero_lease(int broker, uint64_t bytes, uint64_t page, int32_t node,
                                uint32_t wait_ms, struct prezero_lease *lease)
{
    struct prezero__want want = {bytes, page, node, wait_ms};

    return prezero__granted(broker, 1, &want, sizeof want, wait_ms, lease);
}

/* The same for a program that starts with memory of its own after "not now": the broker makes
 * nothing to order, and waits only while that beats such memory. */
static inline int prezero_lease_or_plain(int broker, uint64_t bytes, uint64_t page, int32_t node,
                                         uint32_t wait_ms, struct prezero_lease *lease)
{
    struct prezero__want want = {bytes, page, node, wait_ms};

    return prezero__granted(broker, 11, &want, sizeof want, wait_ms, lease);
}

/* What there is of such pages, for this client. Returns as prezero_lease() does. */
static inline int prezero_available(int broker, uint64_t page, int32_t node,
                                    struct prezero_available *available,
                                    struct prezero_lease *lease)
{
    char body[12];

    memcpy(body, &page, 8);
    memcpy(body + 8, &node, 4);
    return prezero__ask(broker, 5, body, sizeof body, 0, 133, available, sizeof *available, lease);
}

/* A report as a file, lease->fd, of lease->bytes: PREZERO_STOCK is JSON, PREZERO_LOG JSON lines, PREZERO_METRICS text
 * for Prometheus. It comes in parts, which are put together here. Returns as prezero_lease()
 * does. */
static inline int prezero_report(int broker, uint32_t which, struct prezero_lease *lease)
{
    char body[12], part[16384];
    uint64_t next = 0, bytes = 0;
    int file = memfd_create("prezero-report", MFD_CLOEXEC), status;
    size_t length;

    memset(lease, 0, sizeof *lease);
    lease->fd = -1;
    if (file < 0)
        return prezero__failed(lease, "no room for the report");
    do {
        memcpy(body, &which, 4);
        memcpy(body + 4, &next, 8);
        length = sizeof part;
        status = prezero__ask_any(broker, 7, body, sizeof body, 0, 136, part, &length, lease);
        if (status == 0 && (length < 12 || write(file, part + 12, length - 12) != (ssize_t)length - 12))
            status = prezero__failed(lease, "no room for the report");
        if (status != 0) {
            close(file);
            return status;
        }
        bytes += length - 12;
        memcpy(&next, part, 8);
    } while (next);
    lseek(file, 0, SEEK_SET);
    lease->fd = file;
    lease->bytes = bytes;
    return 0;
}

/* Maps all of a lease at a multiple of its page, readable, writable, shared: a private
 * mapping would copy each page that is written. NULL with errno set if it cannot be. */
static inline void *prezero_map(const struct prezero_lease *lease)
{
    size_t bytes = lease->bytes, page = lease->page;
    char *room = mmap(NULL, bytes + page, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *first;

    if (room == MAP_FAILED)
        return NULL;
    first = (char *)(((uintptr_t)room + page - 1) & ~(uintptr_t)(page - 1));
    if (first > room)
        munmap(room, first - room);
    if (first + bytes < room + bytes + page)
        munmap(first + bytes, room + page - first);
    if (mmap(first, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, lease->fd, 0)
        == MAP_FAILED) {
        int saved = errno;
        munmap(first, bytes);
        errno = saved;
        return NULL;
    }
    return first;
}

#endif
