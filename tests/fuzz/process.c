/* fork, posix_spawn, vfork, and the kernel as reader and writer. */
#include "calls.h"

#include <spawn.h>

extern char **environ;

/* In the child of a fork: what the model says of it. */
static void in_child(struct hands *h)
{
	who.child = 1;
	for (size_t i = 0; i < AREAS; i++) {
		struct area *a = &h->areas[i];

		if (!a->at)
			continue;
		for (size_t page = 0; page < pages(a->len); page++) {
			if (a->marks[page] & UNFORKED) {
				a->marks[page] |= GONE;
			} else if (a->marks[page] & WIPED) {
				memset(a->shadow + page * PAGE, 0, PAGE);
				a->marks[page] &= ~UNKNOWN;
			}
			/* Written by nobody but the parent. */
			if (a->marks[page] & FILED)
				a->marks[page] |= UNKNOWN | READONLY;
		}
	}
	hands_check(h);
	for (int i = 0; i < 12; i++) {
		struct area *a = hands_any(h, false);

		switch (below(4)) {
		case 0:
			/* Pages that are not there stay so: not in the hands of the next owner. */
			if (a && a->block)
				call_free(h, a);
			break;
		case 1:
			if (a)
				call_realloc(h, a);
			break;
		default:
			call_allocate(h);
		}
	}
	hands_check(h);
	_exit(0);
}

static void wait_for(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) != child)
		if (errno != EINTR)
			wrong("waitpid: errno %d", errno);
	if (status != 0)
		wrong("the child ended with status %#x", status);
}

void call_fork(struct hands *h)
{
	pid_t child;

	who.doing = "fork";
	child = fork();
	if (child < 0)
		return;
	if (child == 0)
		in_child(h);
	say("%d", child);
	/* Meanwhile: what the parent writes the child must not see. */
	if (once_in(2))
		for (int i = 0; i < 8; i++) {
			struct area *a = hands_any(h, false);

			if (a && area_clear_of(a, 0, pages(a->len), FILED))
				area_write(a, below(pages(a->len)), 1);
			call_allocate(h);
		}
	who.doing = "fork";
	wait_for(child);
	hands_check(h);
}

void call_spawn(void)
{
	char *const arguments[] = { "true", NULL };
	pid_t child;

	if (once_in(2)) {
		who.doing = "posix_spawn";
		if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) != 0)
			return;
	} else {
		who.doing = "vfork";
		child = vfork();
		if (child < 0)
			return;
		if (child == 0) {
			execve("/bin/true", arguments, environ);
			_exit(1);
		}
	}
	say("%d", child);
	wait_for(child);
}

void call_kernel(struct area *a)
{
	size_t n = pages(a->len), from = below(n), bytes;
	struct iovec ours, theirs;
	unsigned char *copy;
	int file;

	n = 1 + below(n - from < 32 ? n - from : 32);
	if (!area_clear_of(a, from, n, ~(WIPED | UNFORKED | LOCKED | FILED)))
		return;
	bytes = area_bytes(a, from, n);
	copy = raw(n * PAGE);
	ours = (struct iovec){ copy, bytes };
	theirs = (struct iovec){ a->at + from * PAGE, bytes };
	who.doing = "process_vm_readv";
	say("%p, pages %zu + %zu", (void *)a->at, from, n);
	if (process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0) == (ssize_t)bytes &&
	    memcmp(copy, a->shadow + from * PAGE, bytes) != 0)
		wrong("the kernel reads other bytes, pages %zu + %zu of %p", from, n, (void *)a->at);
	who.doing = "write and read";
	file = syscall(SYS_memfd_create, "fuzz", MFD_CLOEXEC);
	for (size_t b = 0; b < bytes; b += 512)
		copy[b] = any();
	if (pwrite(file, copy, bytes, 0) != (ssize_t)bytes ||
	    pread(file, a->at + from * PAGE, bytes, 0) != (ssize_t)bytes)
		wrong("errno %d", errno);
	memcpy(a->shadow + from * PAGE, copy, bytes);
	close(file);
	raw_gone(copy, n * PAGE);
	area_check_all(a);
}
