/* The malloc family. */
#include "calls.h"

struct area *hands_any(struct hands *h, bool free_slot)
{
	size_t start = below(AREAS);

	for (size_t i = 0; i < AREAS; i++) {
		struct area *a = &h->areas[(start + i) % AREAS];

		if ((a->at == NULL) == free_slot)
			return a;
	}
	return NULL;
}

void hands_drop(struct hands *h, struct area *a)
{
	h->held -= a->len;
	area_gone(a);
}

void hands_check(struct hands *h)
{
	for (size_t i = 0; i < AREAS; i++)
		if (h->areas[i].at)
			area_check_all(&h->areas[i]);
}

static size_t some_size(void)
{
	switch (below(16)) {
	case 0 ... 1:
		return 1 + below(64 * KIB);
	case 2 ... 3:
		/* The border. */
		return 64 * KIB - 24 + below(48);
	case 4 ... 9:
		return 64 * KIB + below(MIB);
	case 10 ... 11:
		return (1 + below(64)) * 64 * KIB;
	case 12 ... 14:
		return MIB + below(8 * MIB);
	default:
		return 8 * MIB + below(40 * MIB);
	}
}

static void held(struct hands *h, struct area *a, void *at, size_t len, enum mark all)
{
	area_make(a, at, len, true, all);
	h->held += len;
}

void call_allocate(struct hands *h)
{
	struct area *a = hands_any(h, true);
	size_t size = some_size(), align = 0, usable;
	void *at = NULL;

	if (!a || h->held + size > MOST)
		return;
	switch (below(8)) {
	case 0 ... 3: {
		size_t count = once_in(2) ? 1 : 1 + below(16);

		who.doing = "calloc";
		size = (size + count - 1) / count * count;
		at = calloc(count, size / count);
		break;
	}
	case 4 ... 5:
		who.doing = "malloc";
		at = malloc(size);
		break;
	case 6:
		who.doing = "memalign";
		align = 16UL << below(once_in(8) ? 18 : 13);
		at = memalign(align, size);
		break;
	default:
		who.doing = "posix_memalign";
		align = 8UL << below(14);
		if (posix_memalign(&at, align, size) != 0)
			at = NULL;
		break;
	}
	say("%zu bytes, align %zu: %p", size, align, at);
	if (!at)
		return;
	if (align && (uintptr_t)at % align)
		wrong("%p is no multiple of %zu", at, align);
	usable = malloc_usable_size(at);
	if (usable < size)
		wrong("%zu bytes usable of %zu", usable, size);
	if (who.doing[0] == 'c') {
		held(h, a, at, size, 0);
		if (once_in(2))
			area_check_all(a);
	} else {
		held(h, a, at, once_in(4) ? usable : size, UNKNOWN);
	}
	if (once_in(2))
		area_write(a, 0, pages(a->len));
	else if (once_in(2))
		area_write(a, below(pages(a->len)), 1);
}

void call_free(struct hands *h, struct area *a)
{
	size_t n = pages(a->len);

	area_check_all(a);
	who.doing = a->block ? "free" : "munmap";
	say("%p, %zu bytes", (void *)a->at, a->len);
	/* Of glibc's blocks nothing was taken or closed for good. */
	if (!a->movable && !area_clear_of(a, 0, n, CLOSED | READONLY | GONE))
		wrong("the fuzzer closed a block that is not the zone's");
	errno = 12345;
	if (a->block)
		free(a->at);
	/* What is gone of a mapping may be anybody's by now; of a block it is not. */
	for (size_t from = 0, end; !a->block && from < n; from = end) {
		for (end = from + 1; end < n && (a->marks[end] & GONE) == (a->marks[from] & GONE);)
			end++;
		if (!(a->marks[from] & GONE) && munmap(a->at + from * PAGE, (end - from) * PAGE) != 0)
			wrong("munmap of a mapping: errno %d", errno);
	}
	if (errno != 12345)
		wrong("errno became %d", errno);
	hands_drop(h, a);
}

void call_realloc(struct hands *h, struct area *a)
{
	size_t size = some_size(), old = a->len, kept, n = pages(old);
	struct area was = *a;
	void *to;

	/* What it would copy it must be able to read, and it must be free to move. */
	if (!a->block || h->held - old + size > MOST ||
	    !area_clear_of(a, 0, n, GONE | CLOSED | READONLY | FILED | UNFORKED | WIPED | LOCKED))
		return;
	if (once_in(3))
		size = old + below(old) + 1;
	else if (once_in(3))
		size = 1 + below(old);
	if (h->held - old + size > MOST)
		return;
	area_check_all(a);
	who.doing = "realloc";
	to = once_in(4) ? reallocarray(a->at, 1, size) : realloc(a->at, size);
	say("%p, %zu to %zu bytes: %p", (void *)a->at, old, size, to);
	if (!to) {
		area_check_all(a);
		return;
	}
	if (malloc_usable_size(to) < size)
		wrong("%zu bytes usable of %zu", malloc_usable_size(to), size);
	h->held -= old;
	held(h, a, to, size, UNKNOWN);
	kept = old < size ? old : size;
	memcpy(a->shadow, was.shadow, kept);
	for (size_t i = 0; i < pages(kept); i++) {
		size_t end = (i + 1) * PAGE < size ? (i + 1) * PAGE : size;

		a->marks[i] = was.marks[i] & UNKNOWN;
		/* What follows the old end in its page is as it was found. */
		if (end > kept)
			memcpy(a->shadow + kept, a->at + kept, end - kept);
	}
	/* Of a short page that was unknown, the old part is. */
	area_gone(&was);
	area_check_all(a);
	if (once_in(2))
		area_write(a, 0, pages(a->len));
}
