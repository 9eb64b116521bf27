#include "area.h"

bool verbose;
_Thread_local struct who who;

static void line(const char *first, const char *format, va_list rest)
{
	char text[512];
	int n = snprintf(text, sizeof text, "%s seed %lu thread %d%s op %ld %s: ", first, who.seed,
			 who.thread, who.child ? " child" : "", who.op, who.doing ? who.doing : "-");

	n += vsnprintf(text + n, sizeof text - n - 1, format, rest);
	if (n > (int)sizeof text - 2)
		n = sizeof text - 2;
	text[n++] = '\n';
	if (write(2, text, n) < 0)
		_exit(3);
}

void say(const char *format, ...)
{
	va_list rest;

	if (!verbose)
		return;
	va_start(rest, format);
	line("fuzz:", format, rest);
	va_end(rest);
}

void wrong(const char *format, ...)
{
	va_list rest;

	va_start(rest, format);
	line("WRONG:", format, rest);
	va_end(rest);
	abort();
}

void *raw(size_t len)
{
	long at = syscall(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == -1)
		wrong("no memory of the fuzzer's own: %zu bytes, errno %d", len, errno);
	return (void *)at;
}

void raw_gone(void *at, size_t len)
{
	syscall(SYS_munmap, at, len);
}

/* Of a block with a mapping of its own glibc's two words before it say so. Before a block of the
 * zone lies another one, perhaps closed: so the kernel is asked to read them. */
static bool mapped_by_glibc(unsigned char *at)
{
	size_t words[2] = { 0 };
	struct iovec ours = { words, sizeof words }, theirs = { at - sizeof words, sizeof words };

	return process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0) == sizeof words &&
	       (words[1] & 7) == 2 && (words[1] & ~7UL) == malloc_usable_size(at) + sizeof words;
}

void area_make(struct area *a, void *at, size_t len, bool block, enum mark all)
{
	size_t n = pages(len);

	*a = (struct area){ .at = at, .len = len, .block = block };
	a->shadow = raw(n * PAGE);
	a->marks = raw(n);
	memset(a->marks, all, n);
	/* Of glibc's blocks only those begin at such an address with whole pages. */
	a->movable = !block || ((uintptr_t)at % (64 * KIB) == 0 && len >= 64 * KIB &&
				malloc_usable_size(at) % PAGE == 0 && !mapped_by_glibc(at));
}

void area_gone(struct area *a)
{
	raw_gone(a->shadow, pages(a->len) * PAGE);
	raw_gone(a->marks, pages(a->len));
	*a = (struct area){ 0 };
}

bool area_clear_of(const struct area *a, size_t from, size_t n, int marks)
{
	for (size_t i = from; i < from + n; i++)
		if (a->marks[i] & marks)
			return false;
	return true;
}

void area_mark(struct area *a, size_t from, size_t n, int set, int unset)
{
	for (size_t i = from; i < from + n; i++)
		a->marks[i] = (a->marks[i] & ~unset) | set;
}

size_t area_bytes(const struct area *a, size_t from, size_t n)
{
	size_t end = (from + n) * PAGE < a->len ? (from + n) * PAGE : a->len;

	return end - from * PAGE;
}

void area_write(struct area *a, size_t from, size_t n)
{
	for (size_t i = from; i < from + n; i++) {
		unsigned char *at = a->at + i * PAGE, *shadow = a->shadow + i * PAGE;
		size_t bytes = area_bytes(a, i, 1), start = 0;

		if (a->marks[i] & (GONE | CLOSED | READONLY))
			continue;
		if (!(a->marks[i] & UNKNOWN) && once_in(3)) {
			start = below(bytes);
			bytes = start + 1 + below(bytes - start);
		}
		if (once_in(8)) {
			memset(shadow + start, once_in(2) ? 0 : (int)any(), bytes - start);
		} else {
			uint64_t word = any();

			for (size_t b = start; b < bytes; b++) {
				shadow[b] = word >> (b % 8 * 8);
				if (b % 8 == 7)
					word = word * 6364136223846793005 + b;
			}
		}
		memcpy(at + start, shadow + start, bytes - start);
		a->marks[i] &= ~UNKNOWN;
	}
}

void area_check(const struct area *a, size_t from, size_t n)
{
	for (size_t i = from; i < from + n; i++) {
		size_t bytes = area_bytes(a, i, 1);
		const unsigned char *at = a->at + i * PAGE, *shadow = a->shadow + i * PAGE;

		if (a->marks[i] & (UNKNOWN | GONE | CLOSED))
			continue;
		if (memcmp(at, shadow, bytes) == 0)
			continue;
		for (size_t b = 0; b < bytes; b++)
			if (at[b] != shadow[b])
				wrong("%s %p of %zu bytes, page %zu (marks %#x), byte %zu is %#x and not %#x",
				      a->block ? "block" : "mapping", (void *)a->at, a->len, i, a->marks[i],
				      b, at[b], shadow[b]);
		/* It was different and is not any more: somebody is writing. */
		wrong("page %zu of %p changes while it is read", i, (void *)a->at);
	}
}

void area_check_all(const struct area *a)
{
	area_check(a, 0, pages(a->len));
}
