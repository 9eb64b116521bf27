/*
 * A library that defines each function of libc that the tested one calls (NAMES: a file of X(name)), and ends the process
 * where a thread beside the first calls one: in a program with one thread of its own that is scrubd. Or, in a program that
 * has `requests_only`, where any thread calls one while that is not 0. Other calls go where they would have gone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include "sandbox_filter.h"

#define X(name)                                                                                                        \
	void *poison_real_##name __attribute__((visibility("hidden")));                                                \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"                                   \
		"push %rax\npush %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %r10\npush %r11\n"    \
		"lea poison_real_" #name "(%rip), %rdi\nlea 9f(%rip), %rsi\ncall poison_check\n"                       \
		"pop %r11\npop %r10\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\npop %rax\n"             \
		"jmp *poison_real_" #name "(%rip)\n.section .rodata\n9: .asciz \"" #name "\"\n.text\n");
#include NAMES

extern volatile int requests_only __attribute__((weak));

static void say(const char *text)
{
	unsigned length = 0;

	while (text[length])
		length++;
	unseen(SYS_write, 2, (long)text, length);
}

/* No function is called by its name here but dlvsym, which the library does not use. */
__attribute__((visibility("hidden"), used)) void poison_check(void **real, const char *name)
{
	typedef void *look_up(void *, const char *);

	if (&requests_only ? requests_only : unseen(SYS_gettid, 0, 0, 0) != unseen(SYS_getpid, 0, 0, 0)) {
		say("scrubd or a request calls ");
		say(name);
		say("\n");
		unseen(SYS_exit_group, 99, 0, 0);
	}
	if (!*real) {
		look_up *dlsym = (look_up *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");

		if (!dlsym)
			dlsym = (look_up *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
		*real = dlsym(RTLD_NEXT, name);
	}
}
