/*
 * Confines itself to what glibc's malloc calls, by argv[1]: prctl, seccomp, tsync (all threads). argv[2] says
 * when: first, or late, when blocks of before are live and scrubd is at work. A refused call ends the process.
 */
#include "check.h"
#include "sandbox_filter.h"

#define KEPT 12
#define THREADS 2

static const int mallocs[] = {
	SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex,
	SYS_getrandom, /* once, for the first block */
	SYS_openat, SYS_read, SYS_close, /* an arena that shrinks looks once whether memory is overcommitted */
	/* what these threads need besides */
	SYS_write, SYS_exit, SYS_exit_group, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_restart_syscall,
};
static unsigned char *kept[KEPT];
static size_t sizes[KEPT];
static volatile int go_on = 1, started;

static void confine(const char *how)
{
	struct sock_fprog filter = filter_of(mallocs, sizeof mallocs / sizeof *mallocs, SECCOMP_RET_ALLOW,
					     SECCOMP_RET_KILL_PROCESS);

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	/* Programs ask what the kernel knows: nothing is installed. */
	CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1 && errno == EFAULT);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1 && errno == EFAULT);
	/* Or fail. */
	struct sock_fprog none = { 0, code };
	CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &none) == -1 && errno == EINVAL);
	if (!strcmp(how, "prctl"))
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0);
	else if (!strcmp(how, "seccomp"))
		CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0);
	else
		CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0);
}

static void work(unsigned seed)
{
	unsigned char *blocks[8] = { 0 };

	for (unsigned round = 0; round < 40; round++) {
		unsigned at = (seed = seed * 1664525u + 1013904223u) >> 29;
		size_t size = THRESHOLD << (seed >> 20) % 7;

		free(blocks[at]);
		CHECK(blocks[at] = round % 2 ? calloc(1, size) : malloc(size));
		CHECK(round % 2 == 0 || is_zero(blocks[at], size));
		memset(blocks[at], 1, size);
		if (round % 5 == 0)
			CHECK(blocks[at] = realloc(blocks[at], 2 * size));
	}
	for (int i = 0; i < 8; i++)
		free(blocks[i]);
}

static void *beside(void *seed)
{
	do {
		work((unsigned)(uintptr_t)seed);
		__atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);
	} while (go_on);
	return NULL;
}

int main(int argc, char **argv)
{
	int all = !strcmp(argv[1], "tsync"), late = !strcmp(argv[2], "late");
	pthread_t threads[THREADS];

	if (late) {
		UNTIL((use_and_free(), counter("scrubbed_bytes") != 0));
		for (int i = 0; i < KEPT; i++) {
			sizes[i] = THRESHOLD << i % 7;
			CHECK(kept[i] = i % 2 ? malloc(sizes[i]) : calloc(1, sizes[i]));
			/* Not all is touched. */
			paint(kept[i], sizes[i] / (1 + i % 2), i);
		}
		/* What the zone would mend when it comes back. */
		CHECK(madvise(kept[6], PAGE, MADV_DONTFORK) == 0);
	}
	for (int i = 0; all && i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, beside, (void *)(uintptr_t)(i + 1)) == 0);
	/* What a thread calls when it begins is behind them, and libc knows how many CPUs there are. */
	UNTIL(!all || started > 3 * THREADS);
	confine(argv[1]);
	unsigned char *block = calloc(1, MIB);
	CHECK(block && is_zero(block, MIB) && !in_zone(block));
	free(block);
	for (int i = 0; late && i < KEPT; i++) {
		size_t painted_bytes = sizes[i] / (1 + i % 2);

		CHECK(painted(kept[i], painted_bytes, i));
		if (i % 3 == 1) {
			CHECK(kept[i] = realloc(kept[i], 3 * sizes[i]));
			CHECK(painted(kept[i], painted_bytes, i));
		} else if (i % 3 == 2) {
			CHECK(kept[i] = realloc(kept[i], sizes[i] / 4));
			CHECK(painted(kept[i], sizes[i] / 4, i));
		}
		free(kept[i]);
		work(i);
	}
	work(7);
	go_on = 0;
	for (int i = 0; all && i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(write(1, "good\n", 5) == 5);
	return 0;
}
