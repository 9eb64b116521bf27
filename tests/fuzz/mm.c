/* mmap, munmap, mremap, mprotect, madvise, mlock: on pages of blocks and of mappings. */
#include "calls.h"

static void *fresh(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void held(struct hands *h, void *at, size_t bytes, struct area *a)
{
	area_make(a, at, bytes, false, 0);
	h->held += bytes;
}

void call_map(struct hands *h)
{
	struct area *a = hands_any(h, true);
	size_t bytes = (1 + below(once_in(4) ? 2048 : 64)) * PAGE;
	void *at;

	who.doing = "mmap";
	if (!a || h->held + bytes > MOST || !(at = fresh(bytes)))
		return;
	say("%zu bytes: %p", bytes, at);
	held(h, at, bytes, a);
	area_write(a, 0, below(pages(bytes)) + 1);
}

static void protect(struct area *a, size_t from, size_t n)
{
	static const struct { int prot; int mark; } ways[] = {
		{ PROT_NONE, CLOSED }, { PROT_READ, READONLY }, { PROT_READ | PROT_WRITE, 0 } };
	size_t way = below(3);

	/* A block that is not the zone's gets its pages back before anybody else sees it. */
	if (!a->movable)
		way = 2;
	who.doing = "mprotect";
	say("%p, pages %zu + %zu: %d", (void *)a->at, from, n, ways[way].prot);
	if (mprotect(a->at + from * PAGE, n * PAGE, ways[way].prot) != 0)
		wrong("errno %d", errno);
	area_mark(a, from, n, ways[way].mark, CLOSED | READONLY);
}

/* Pages that are zero or as they were, as the kernel likes: from the first write on it is settled. */
static void settle(struct area *a, size_t from, size_t n)
{
	for (size_t i = from; i < from + n; i++) {
		unsigned char *at = a->at + i * PAGE, *shadow = a->shadow + i * PAGE;
		static const unsigned char zero[PAGE];

		if (a->marks[i] & (CLOSED | READONLY))
			wrong("the fuzzer freed a closed page lazily");
		at[0] = 1;
		if (memcmp(at + 1, zero + 1, PAGE - 1) == 0)
			memset(shadow, 0, PAGE);
		else if (!(a->marks[i] & UNKNOWN) && memcmp(at + 1, shadow + 1, PAGE - 1) != 0)
			wrong("page %zu of %p is neither zero nor as it was", i, (void *)a->at);
		shadow[0] = 1;
	}
}

static void advise(struct area *a, size_t from, size_t n)
{
	static const int harmless[] = { MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED,
		MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_DONTDUMP,
		MADV_DODUMP, 20 /* COLD */, 21 /* PAGEOUT */, 22, 23 /* POPULATE_* */, 25 /* COLLAPSE */ };
	unsigned char *at = a->at + from * PAGE;
	size_t bytes = n * PAGE;
	bool zeroes = area_clear_of(a, from, n, FILED | LOCKED);

	who.doing = "madvise";
	switch (below(8)) {
	case 0 ... 1:
		if (!zeroes)
			return;
		say("%p, pages %zu + %zu: DONTNEED", (void *)a->at, from, n);
		if (madvise(at, bytes, MADV_DONTNEED) != 0)
			wrong("DONTNEED: errno %d", errno);
		memset(a->shadow + from * PAGE, 0, bytes);
		area_mark(a, from, n, 0, UNKNOWN);
		return;
	case 2:
		if (!zeroes || !area_clear_of(a, from, n, CLOSED | READONLY))
			return;
		say("%p, pages %zu + %zu: FREE", (void *)a->at, from, n);
		if (madvise(at, bytes, MADV_FREE) != 0)
			wrong("FREE: errno %d", errno);
		/* Or it stays undecided, for the next owner. */
		if (once_in(2))
			settle(a, from, n);
		else
			area_mark(a, from, n, UNKNOWN, 0);
		return;
	case 3:
		/* Refused for shared memory, but what comes before it is marked by then. */
		if (!a->movable || !area_clear_of(a, from, n, FILED))
			return;
		say("%p, pages %zu + %zu: WIPEONFORK", (void *)a->at, from, n);
		if (madvise(at, bytes, MADV_WIPEONFORK) == 0)
			area_mark(a, from, n, WIPED, 0);
		return;
	case 4:
		if (!a->movable)
			return;
		say("%p, pages %zu + %zu: DONTFORK", (void *)a->at, from, n);
		if (madvise(at, bytes, MADV_DONTFORK) == 0)
			area_mark(a, from, n, UNFORKED, 0);
		return;
	case 5:
		say("%p, pages %zu + %zu: DOFORK, KEEPONFORK", (void *)a->at, from, n);
		if (madvise(at, bytes, MADV_DOFORK) == 0)
			area_mark(a, from, n, 0, UNFORKED);
		if (madvise(at, bytes, MADV_KEEPONFORK) == 0)
			area_mark(a, from, n, 0, WIPED);
		return;
	default: {
		int which = harmless[below(sizeof harmless / sizeof *harmless)];

		say("%p, pages %zu + %zu: %d", (void *)a->at, from, n, which);
		/* Whether the kernel likes it or not, the content stays. */
		madvise(at, bytes, which);
	}
	}
}

static void unmap(struct area *a, size_t from, size_t n)
{
	who.doing = "munmap part";
	say("%p, pages %zu + %zu", (void *)a->at, from, n);
	if (munmap(a->at + from * PAGE, n * PAGE) != 0)
		wrong("errno %d", errno);
	area_mark(a, from, n, GONE, 0);
}

/* Moves pages out of an area: into a mapping of their own, or over pages of another one. */
static void move(struct hands *h, struct area *a, size_t from, size_t n)
{
	struct area *to = hands_any(h, true);
	size_t more = once_in(3) ? n + below(64) : once_in(3) ? 1 + below(n) : n;
	unsigned char *at = a->at + from * PAGE;
	bool keep = once_in(4);
	void *moved;

	/* One mapping of the kernel's at a time, so no marks that split it. */
	if (!to || h->held + more * PAGE > MOST || !area_clear_of(a, from, n, ~(UNKNOWN)))
		return;
	if (keep)
		more = n;
	who.doing = keep ? "mremap, old pages stay" : "mremap";
	moved = mremap(at, n * PAGE, more * PAGE, MREMAP_MAYMOVE | (keep ? 4 /* DONTUNMAP */ : 0));
	say("%p, pages %zu + %zu to %zu: %p", (void *)a->at, from, n, more, moved);
	/* Neighbours with other attributes are other mappings to the kernel, which refuses both. */
	if (moved == MAP_FAILED)
		return;
	if (moved == at) {
		/* Cut where it was. */
		area_mark(a, from + more, n - more, GONE, 0);
		return;
	}
	held(h, moved, more * PAGE, to);
	memcpy(to->shadow, a->shadow + from * PAGE, (n < more ? n : more) * PAGE);
	memcpy(to->marks, a->marks + from, n < more ? n : more);
	if (keep) {
		memset(a->shadow + from * PAGE, 0, n * PAGE);
		area_mark(a, from, n, 0, UNKNOWN);
	} else {
		area_mark(a, from, n, GONE, 0);
	}
	area_check_all(to);
	area_check_all(a);
}

/* Puts other memory over pages: anonymous, or a file's, shared or private. */
static void replace(struct area *a, size_t from, size_t n)
{
	int kind = below(3), file = -1, flags = MAP_FIXED | (kind == 1 ? MAP_SHARED : MAP_PRIVATE);

	who.doing = "mmap over";
	if (kind == 0) {
		flags |= MAP_ANONYMOUS;
	} else {
		file = syscall(SYS_memfd_create, "fuzz", MFD_CLOEXEC);
		if (file < 0 || ftruncate(file, n * PAGE) != 0)
			wrong("no file of the fuzzer's own: errno %d", errno);
	}
	say("%p, pages %zu + %zu: kind %d", (void *)a->at, from, n, kind);
	if (mmap(a->at + from * PAGE, n * PAGE, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED)
		wrong("errno %d", errno);
	if (file >= 0)
		close(file);
	memset(a->shadow + from * PAGE, 0, n * PAGE);
	area_mark(a, from, n, kind ? FILED : 0, ~0);
	area_write(a, from, n);
}

void call_pages(struct hands *h, struct area *a)
{
	size_t all = a->len / PAGE, from, n;

	/* Whole pages that are not glibc's as well. */
	if (all < 4 || (uintptr_t)a->at % PAGE)
		return;
	from = below(all);
	n = 1 + below(all - from);
	if (once_in(2) && n > 16)
		n = 1 + below(16);
	if (!area_clear_of(a, from, n, GONE))
		return;
	area_check(a, from, n);
	switch (below(a->movable ? 10 : 6)) {
	case 0 ... 1:
		protect(a, from, n);
		break;
	case 2 ... 4:
		advise(a, from, n);
		break;
	case 5:
		who.doing = "mlock";
		say("%p, pages %zu + %zu", (void *)a->at, from, n);
		if (area_clear_of(a, from, n, CLOSED) && n <= 256 &&
		    mlock(a->at + from * PAGE, n * PAGE) == 0) {
			area_mark(a, from, n, LOCKED, 0);
			/* glibc's next block there would be locked. */
			if ((once_in(2) || !a->movable) && munlock(a->at + from * PAGE, n * PAGE) == 0)
				area_mark(a, from, n, 0, LOCKED);
		}
		break;
	case 6:
		unmap(a, from, n);
		break;
	case 7 ... 8:
		move(h, a, from, n);
		break;
	default:
		replace(a, from, n);
	}
	area_check_all(a);
}
