/*
 * How much stack each function takes that the library has, in bytes: in a process without a zone ("first"), and in one
 * that has used it ("later"). Prints a line for each: when, which, bytes. Link with -z now, as the linker takes stack too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK ((size_t)1 << 20)
#define BIG ((size_t)3 << 20)
#define PAINT 0x5aa55aa55aa55aa5ull

static ucontext_t caller, callee;
static uint64_t *stack;
static void *block, *volatile result;
static size_t *share;

static void do_malloc(void) { result = malloc(BIG); }
static void do_calloc(void) { result = calloc(1, BIG); }
static void do_small(void) { result = malloc(100); }
static void do_free(void) { free(block); }
static void do_realloc(void) { result = realloc(block, 3 * BIG); }
static void do_shrink(void) { result = realloc(block, BIG / 3); }
static void do_aligned_alloc(void) { result = aligned_alloc(1 << 16, BIG); }
static void do_posix_memalign(void) { void *p; posix_memalign(&p, 64, BIG); }
static void do_usable(void) { malloc_usable_size(block); }
static void do_trim(void) { malloc_trim(0); }
static void do_mallinfo(void) { mallinfo2(); }
static void do_mprotect(void) { mprotect(block, 4096, PROT_READ | PROT_WRITE); }
static void do_madvise(void) { madvise((void *)((uintptr_t)block + 4096 & -4096), 4096, MADV_DONTNEED); }
static void do_munmap(void) { munmap((void *)((uintptr_t)block + 4096 & -4096), 4096); }
static void do_mremap(void) { result = mremap((void *)((uintptr_t)block + 4096 & -4096), 4096, 8192, MREMAP_MAYMOVE); }
static void do_mlockall(void) { mlockall(MCL_FUTURE); }
static void do_setrlimit(void) { struct rlimit l = { (rlim_t)8 << 30, (rlim_t)8 << 30 }; setrlimit(RLIMIT_AS, &l); }
static void do_setuid(void) { setuid(getuid()); }
static void do_unshare(void) { unshare(CLONE_FS); }
static void do_dlopen(void) { dlopen("libm.so.6", RTLD_NOW); }
static void do_dlmopen(void) { dlmopen(LM_ID_BASE, "libm.so.6", RTLD_NOW); }
static void do_fork(void) { if (fork() == 0) { *share = 0; syscall(SYS_exit_group, 0); } }
static void do_prctl(void) { prctl(PR_SET_NAME, "x"); }
static void do_syscall(void) { syscall(SYS_getpid); }

/* Requests and frees until scrubd is there, and after: of the sum the deepest counts. */
static void do_much(void)
{
	for (int i = 0; i < 40; i++) {
		void *volatile p = calloc(1, BIG);
		memset(p, 1, BIG);
		free(p);
	}
}

static const struct { const char *name; void (*call)(void); int of_block; } calls[] = {
#define EACH(name) { #name, do_##name, 0 }
#define WITH(name) { #name, do_##name, 1 }
	EACH(malloc), EACH(calloc), EACH(small), EACH(aligned_alloc), EACH(posix_memalign), EACH(trim), EACH(mallinfo),
	EACH(mlockall), EACH(setrlimit), EACH(setuid), EACH(unshare), EACH(fork), EACH(prctl), EACH(syscall), EACH(dlopen), EACH(dlmopen),
	EACH(much), WITH(free), WITH(realloc), WITH(shrink), WITH(usable), WITH(mprotect), WITH(madvise), WITH(munmap),
	WITH(mremap),
};

static void (*current)(void);
static void run(void)
{
	current();
	swapcontext(&callee, &caller);
}

static size_t measured(void (*call)(void))
{
	size_t words = STACK / 8;

	for (size_t i = 0; i < words; i++)
		stack[i] = PAINT;
	current = call;
	getcontext(&callee);
	callee.uc_stack.ss_sp = stack;
	callee.uc_stack.ss_size = STACK;
	makecontext(&callee, run, 0);
	swapcontext(&caller, &callee);
	size_t at = 0;
	while (stack[at] == PAINT)
		at++;
	return STACK - at * 8;
}

static void in_child(const char *when, int later, size_t i)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		if (later)
			do_much();
		if (calls[i].of_block)
			block = malloc(BIG);
		if (block && later)
			memset(block, 1, BIG);
		*share = measured(calls[i].call);
		syscall(SYS_exit_group, 0);
	}
	waitpid(child, &status, 0);
	printf("%s %s %zu\n", when, calls[i].name, WIFEXITED(status) && !WEXITSTATUS(status) ? *share : 999999);
}

/* An end writes the account, to argv[1] as PREZERO_STATS has it, and never returns: the parent looks at the stack. */
#define STACK_FD 100

static void do_end(void) { _exit(0); }

static void ends_on_shared_stack(void)
{
	stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_SHARED, STACK_FD, 0);
	do_much();
	measured(do_end);
}

static void of_end(const char *stats, char *self)
{
	char number[20];
	int status, fd = memfd_create("stack", 0);
	size_t at = 0;

	ftruncate(fd, STACK);
	stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(fd, STACK_FD);
		dup2(open("/dev/null", O_WRONLY), 2);
		sprintf(number, "%d", getpid());
		setenv("PREZERO_PID", number, 1);
		if (stats)
			setenv("PREZERO_STATS", stats, 1);
		execl(self, self, "end", NULL);
	}
	waitpid(child, &status, 0);
	while (at < STACK / 8 && (stack[at] == PAINT || stack[at] == 0))
		at++;
	printf("%s _exit %zu\n", stats ? stats : "summary", status ? 999999 : STACK - at * 8);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		ends_on_shared_stack();
	stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	share = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	setvbuf(stdout, NULL, _IONBF, 0);
	for (int later = 0; later < 2; later++)
		for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
			in_child(later ? "later" : "first", later, i);
	of_end(NULL, argv[0]);
	of_end("-", argv[0]);
	of_end("/dev/null", argv[0]);
	return 0;
}
