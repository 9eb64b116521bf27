/* Filters of system calls, as programs install them. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* By the instruction: a preloaded library does not see it. */
static inline long unseen(long number, long a, long b, long c)
{
	long answer;
#if defined __x86_64__
	__asm__ volatile("syscall" : "=a"(answer) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#elif defined __aarch64__
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	answer = x0;
#endif
	return answer;
}

static struct sock_filter code[128];

/* A filter that has one answer for the calls listed, and another for all others. */
static inline struct sock_fprog filter_of(const int *calls, int n, unsigned listed, unsigned others)
{
	struct sock_fprog filter = { 0, code };

	code[filter.len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < n; i++) {
		code[filter.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
		code[filter.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
	}
	code[filter.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
	return filter;
}

/* A filter that has an answer for one call with this third argument, and allows all others. */
static inline struct sock_fprog filter_of_third(int call, int third, unsigned answer)
{
	struct sock_fprog filter = { 0, code };

	code[filter.len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	code[filter.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3);
	code[filter.len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]));
	code[filter.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third, 0, 1);
	code[filter.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer);
	code[filter.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	return filter;
}
