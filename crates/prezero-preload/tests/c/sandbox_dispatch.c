/*
 * Has the kernel send a signal for each system call that is made anywhere but in the return from a handler, as emulators
 * do, whose handler makes the call. Says how many came while blocks were asked for and given back, of argv[1]: those of
 * before, or new ones. Exits with 77 where the kernel has no such thing.
 */
#include "check.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define DISPATCH 59

static volatile char selector;
static volatile int traps;

static long raw(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long answer;

	__asm__ volatile("syscall" : "=a"(answer)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return answer;
}

static void trapped(int signal, siginfo_t *info, void *context)
{
	greg_t *word = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)signal;
	(void)info;
	selector = 0;
	traps++;
	word[REG_RAX] = raw(word[REG_RAX], word[REG_RDI], word[REG_RSI], word[REG_RDX], word[REG_R10], word[REG_R8],
			    word[REG_R9]);
	selector = 1;
}

static void use(unsigned char **blocks, int count)
{
	for (int i = 0; i < count; i++) {
		CHECK(blocks[i] = i % 2 ? calloc(1, MIB) : malloc(MIB));
		CHECK(i % 2 == 0 || is_zero(blocks[i], MIB));
		memset(blocks[i], 1, MIB);
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO };
	struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		unsigned long mask;
	} kernels;
	unsigned char *blocks[100];
	int before = argc > 1 && !strcmp(argv[1], "before");

	CHECK(sigaction(SIGSYS, &action, NULL) == 0);
	CHECK(syscall(SYS_rt_sigaction, SIGSYS, NULL, &kernels, 8) == 0);
	if (before) {
		use_and_free();
		use(blocks, 20);
	}
	/* By its number here, and by libc's function there. */
	if (before ? syscall(SYS_prctl, DISPATCH, 1L, kernels.restorer, 16L, &selector)
		   : prctl(DISPATCH, 1L, kernels.restorer, 16L, &selector))
		return 77;
	selector = 1;
	if (before)
		for (int i = 0; i < 20; i++)
			free(blocks[i]);
	for (int round = 0; round < 10; round++) {
		use(blocks, 10);
		for (int i = 0; i < 10; i++)
			free(blocks[i]);
	}
	selector = 0;
	printf("%d\n", traps);
	return 0;
}
