/*
 * Each call of libc by which a mapping changes, by its name and by its number, on memory of the kernel's and on a block: the
 * same answer, the same pages, the same pages in a child. Then the block is freed and its memory used again.
 */
#include "check.h"
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define SIZE (4 * MIB)
#define PAGES (SIZE / PAGE)
/* What is changed lies in it. */
#define FROM (37 * PAGE)
#define LEN (600 * PAGE)

#define COLLAPSE 25
#define GUARD_INSTALL 102
#define GUARD_REMOVE 103

/* Newer than some libcs; without one the call by its number does. */
extern ssize_t process_madvise(int, const struct iovec *, size_t, int, unsigned) __attribute__((weak));
extern int mseal(void *, size_t, unsigned long) __attribute__((weak));
extern int pkey_mprotect(void *, size_t, int, int) __attribute__((weak));
extern int mlock2(const void *, size_t, unsigned) __attribute__((weak));

static int own, segment, file;
static unsigned char *else_where;

static long ranges(int how, unsigned char *at, int advice)
{
	struct iovec parts[2] = { { at, PAGE }, { at + 9 * PAGE, LEN - 9 * PAGE } };

	return how || !process_madvise ? syscall(SYS_process_madvise, own, parts, 2L, (long)advice, 0L)
				       : process_madvise(own, parts, 2, advice, 0);
}

static long advise(int how, unsigned char *at, int advice)
{
	return how ? syscall(SYS_madvise, at, LEN, (long)advice) : madvise(at, LEN, advice);
}

/* What the pages become is seen; addresses are not compared. */
static long placed(void *at)
{
	return at == MAP_FAILED ? -1 : 0;
}

static long map(int how, unsigned char *at, int prot, int flags, int fd)
{
	return how ? placed((void *)syscall(SYS_mmap, at, LEN, (long)prot, (long)flags, (long)fd, 0L))
		   : placed(mmap(at, LEN, prot, flags, fd, 0));
}

static long move(int how, unsigned char *at, size_t old, size_t new, int flags, void *to)
{
	return how ? placed((void *)syscall(SYS_mremap, at, old, new, (long)flags, to))
		   : placed(mremap(at, old, new, flags, to));
}

static long attach(int how, unsigned char *at)
{
	return how ? placed((void *)syscall(SYS_shmat, (long)segment, at, (long)SHM_REMAP))
		   : placed(shmat(segment, at, SHM_REMAP));
}

/* Each row: what it is, and the call on `at`. `how`: by its number. */
#define ROWS                                                                                                           \
	ROW(none, how ? syscall(SYS_mprotect, at, LEN, (long)PROT_NONE) : mprotect(at, LEN, PROT_NONE))                \
	ROW(read, how ? syscall(SYS_mprotect, at, LEN, (long)PROT_READ) : mprotect(at, LEN, PROT_READ))                \
	ROW(key, how || !pkey_mprotect ? syscall(SYS_pkey_mprotect, at, LEN, (long)PROT_READ, -1L)                     \
				       : pkey_mprotect(at, LEN, PROT_READ, -1))                                        \
	ROW(seal, how || !mseal ? syscall(462, at, LEN, 0L) : mseal(at, LEN, 0))                                       \
	ROW(seal_read, mprotect(at, LEN, PROT_READ) ?: syscall(462, at, LEN, 0L))                                      \
	ROW(lock, how ? syscall(SYS_mlock, at, LEN) : mlock(at, LEN))                                                  \
	ROW(lock2, how || !mlock2 ? syscall(SYS_mlock2, at, LEN, 1L) : mlock2(at, LEN, 1))                             \
	ROW(unlock, (how ? syscall(SYS_mlock, at, LEN) : mlock(at, LEN)) ?: munlock(at, PAGE))                         \
	ROW(bind, syscall(SYS_mbind, at, LEN, 1L, &(long){ 1 }, 8L, 0L))                                               \
	ROW(home, (syscall(SYS_mbind, at, LEN, 2L, &(long){ 1 }, 8L, 0L), syscall(450, at, LEN, 0L, 0L)))              \
	ROW(file_pages, how ? syscall(SYS_remap_file_pages, at, PAGE, 0L, 0L, 0L) : remap_file_pages(at, PAGE, 0, 0, 0)) \
	ROW(unmap, how ? syscall(SYS_munmap, at, LEN) : munmap(at, LEN))                                               \
	ROW(unmap_odd, how ? syscall(SYS_munmap, at + 1, LEN) : munmap(at + 1, LEN))                                   \
	ROW(fixed, map(how, at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1))                  \
	ROW(fixed_file, map(how, at, PROT_READ, MAP_SHARED | MAP_FIXED, file))                                         \
	ROW(fixed_shared, map(how, at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1))            \
	ROW(not_fixed, map(how, at, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1))                 \
	ROW(away, move(how, at, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, else_where))                                  \
	ROW(away_longer, move(how, at, LEN, 2 * LEN, MREMAP_MAYMOVE, NULL))                                            \
	ROW(away_kept, move(how, at, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, else_where))          \
	ROW(shorter, move(how, at, LEN, LEN / 2, 0, NULL))                                                             \
	ROW(longer, move(how, at, LEN, SIZE, 0, NULL))                                                                 \
	ROW(onto, move(how, else_where, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, at))                                  \
	ROW(attach, attach(how, at))                                                                                   \
	ROW(detach, attach(how, at) ?: how ? syscall(SYS_shmdt, at) : shmdt(at))                                       \
	ROW(name, how ? syscall(SYS_prctl, 0x53564d41L, 0L, at, LEN, "a name")                                         \
		      : prctl(0x53564d41, 0L, at, LEN, "a name"))                                                      \
	ROW(shadow, syscall(453, at, LEN, 0L))                                                                         \
	ROW(nodes, syscall(SYS_move_pages, 0L, 1L, &(void *){ at }, &(int){ 0 }, &(int){ 0 }, 2L))                     \
	ROW(sync, msync(at, LEN, MS_ASYNC))                                                                            \
	ROW(posix_random, posix_madvise(at, LEN, POSIX_MADV_RANDOM))                                                   \
	ROW(posix_dontneed, posix_madvise(at, LEN, POSIX_MADV_DONTNEED))                                               \
	ROW(posix_other, posix_madvise(at, LEN, 77))

#define ROW(name, call)                                                                                                \
	static long row_##name(int how, unsigned char *at)                                                             \
	{                                                                                                              \
		return call;                                                                                           \
	}
ROWS
#undef ROW

static const struct row {
	const char *what;
	long (*row)(int, unsigned char *);
	long (*advice)(int, unsigned char *, int);
	int kind;
} rows[] = {
#define ROW(name, call) { #name, row_##name, NULL, 0 },
	ROWS
#undef ROW
#define ADVICE(kind) { "advice " #kind, NULL, advise, kind }, { "advice of a process " #kind, NULL, ranges, kind }
	/* All but those that take memory from the machine (100, 101). */
	ADVICE(0), ADVICE(1), ADVICE(2), ADVICE(3), ADVICE(4), ADVICE(8), ADVICE(9), ADVICE(10), ADVICE(11),
	ADVICE(12), ADVICE(13), ADVICE(14), ADVICE(15), ADVICE(16), ADVICE(17), ADVICE(18), ADVICE(19), ADVICE(20),
	ADVICE(21), ADVICE(22), ADVICE(23), ADVICE(24), ADVICE(COLLAPSE), ADVICE(GUARD_INSTALL), ADVICE(GUARD_REMOVE),
	ADVICE(9999),
};

/* What each page is: not there, zero, written, or something else; asked of the kernel. */
static void look(unsigned char *block, char pages[PAGES], char written)
{
	int ends[2];

	CHECK(pipe(ends) == 0);
	for (size_t page = 0; page < PAGES; page++) {
		unsigned char byte = 0;

		pages[page] = '-';
		if (write(ends[1], block + page * PAGE + 5, 1) == 1) {
			CHECK(read(ends[0], &byte, 1) == 1);
			pages[page] = byte == 0 ? '0' : byte == mark(page * PAGE + 5, 3) ? written : '?';
		}
	}
	close(ends[0]);
	close(ends[1]);
}

struct seen {
	long answer;
	char here[PAGES], child[PAGES];
};

/* Plays a row on a block or what stands for it. */
static void play(const struct row *row, int how, unsigned char *block, struct seen *seen)
{
	/* When the kernel takes what is given to it is its own matter. */
	char written = row->kind == MADV_FREE ? '0' : 'x';
	pid_t child;
	int ends[2], status;

	paint(block, SIZE, 3);
	CHECK((else_where = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	paint(else_where, LEN, 9);
	errno = 0;
	seen->answer = row->row ? row->row(how, block + FROM) : row->advice(how, block + FROM, row->kind);
	if (seen->answer < 0)
		seen->answer = -errno;
	/* Whether a huge page can be had is the machine's matter. */
	if (row->kind == COLLAPSE)
		seen->answer = 0;
	look(block, seen->here, written);
	CHECK(pipe(ends) == 0 && (child = fork()) >= 0);
	if (child == 0) {
		look(block, seen->child, written);
		for (size_t at = 0; at < PAGES;)
			at += write(ends[1], seen->child + at, PAGES - at);
		_exit(0);
	}
	close(ends[1]);
	for (size_t at = 0; at < PAGES;) {
		ssize_t got = read(ends[0], seen->child + at, PAGES - at);

		CHECK(got > 0);
		at += got;
	}
	close(ends[0]);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	munmap(else_where, LEN);
}

static void use_again(void)
{
	unsigned char *blocks[6];

	for (int i = 0; i < 6; i++) {
		CHECK(blocks[i] = i % 2 ? calloc(1, SIZE) : malloc(SIZE));
		CHECK(i % 2 == 0 || is_zero(blocks[i], SIZE));
		memset(blocks[i], i + 1, SIZE);
	}
	for (int i = 0; i < 6; i++) {
		CHECK(blocks[i][0] == i + 1 && blocks[i][SIZE - 1] == i + 1);
		free(blocks[i]);
	}
}

int main(void)
{
	static struct seen plain, ours;

	own = syscall(SYS_pidfd_open, getpid(), 0);
	CHECK((segment = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600)) >= 0);
	CHECK((file = memfd_create("file", MFD_CLOEXEC)) >= 0 && ftruncate(file, LEN) == 0);
	for (int how = 0; how < 2; how++) {
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			unsigned char *block = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			CHECK(block != MAP_FAILED);
			play(&rows[i], how, block, &plain);
			munmap(block, SIZE);
			CHECK((block = malloc(SIZE)) && in_zone(block) && (uintptr_t)block % PAGE == 0);
			play(&rows[i], how, block, &ours);
			if (memcmp(&plain, &ours, sizeof plain)) {
				printf("%s, by %s: %ld, not %ld\n%.64s\n%.64s\nin a child\n%.64s\n%.64s\n", rows[i].what,
				       how ? "number" : "name", ours.answer, plain.answer, plain.here, ours.here,
				       plain.child, ours.child);
				shmctl(segment, IPC_RMID, NULL);
				return 1;
			}
			/* No hole that another mapping could get. */
			CHECK(msync(block, SIZE, MS_ASYNC) == 0);
			free(block);
			use_again();
		}
	}
	CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
	puts("good");
	return 0;
}
