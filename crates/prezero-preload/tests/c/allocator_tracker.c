/*
 * A tracker of allocations that has a part of the malloc family (DEFINES, of the bits below) and knows its own blocks by what
 * stands in front of them (HEADER bytes, 0 or 16). Blocks of others it passes on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FREE 1
#define CALLOC 2
#define REALLOC 4
#define USABLE 8
#define ALIGNED 16

#define MAGIC 0x7fac4e5b10c4a110ul

typedef void *take(size_t), *grow(void *, size_t), *align(size_t, size_t);
typedef void give(void *);
typedef size_t ask(void *);

static _Alignas(16) char early[1 << 16];
static size_t used;

/* Behind this library, wherever it stands. dlsym may allocate. */
static void *real(const char *name)
{
	static __thread volatile int looks;
	void *found;

	if (looks)
		return NULL;
	looks = 1;
	found = dlsym(RTLD_NEXT, name);
	looks = 0;
	return found;
}
#define REAL(type, name)                                                                                               \
	({                                                                                                             \
		static type *known;                                                                                    \
		known ? known : (known = (type *)real(name));                                                          \
	})

static int is_early(void *block)
{
	return (uintptr_t)block - (uintptr_t)early < sizeof early;
}

static int is_own(void *block)
{
	return HEADER && *(size_t *)((char *)block - 16) == MAGIC;
}

static void *head(char *block, size_t size)
{
	if (!block || !HEADER)
		return block;
	((size_t *)block)[0] = MAGIC;
	((size_t *)block)[1] = size;
	return block + HEADER;
}

void *malloc(size_t size)
{
	take *next = REAL(take, "malloc");

	if (next)
		return head(next(size + HEADER), size);
	used += (size + 31) & ~15ul;
	return used > sizeof early ? NULL : early + used - ((size + 31) & ~15ul);
}

#if DEFINES & FREE
void free(void *block)
{
	if (!block || is_early(block))
		return;
	if (is_own(block)) {
		*(size_t *)((char *)block - 16) = 0;
		block = (char *)block - HEADER;
	}
	REAL(give, "free")(block);
}
#endif

#if DEFINES & CALLOC
void *calloc(size_t count, size_t size)
{
	size_t bytes;
	void *block = __builtin_mul_overflow(count, size, &bytes) ? NULL : malloc(bytes);

	return block ? memset(block, 0, bytes) : NULL;
}
#endif

#if DEFINES & REALLOC
void *realloc(void *block, size_t size)
{
	grow *next = REAL(grow, "realloc");
	void *to;

	if (block && next && !is_early(block)) {
		if (!is_own(block))
			return next(block, size);
		return head(next((char *)block - HEADER, size + HEADER), size);
	}
	to = malloc(size);
	if (block && to)
		memcpy(to, block, size);
	return to;
}
#endif

#if DEFINES & USABLE
size_t malloc_usable_size(void *block)
{
	if (block && is_own(block))
		return ((size_t *)block)[-1];
	return REAL(ask, "malloc_usable_size")(block);
}
#endif

#if DEFINES & ALIGNED
static void *at(size_t alignment, size_t size)
{
	return REAL(align, "memalign")(alignment, size);
}

void *memalign(size_t alignment, size_t size)
{
	return at(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return at(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
	*out = at(alignment, size);
	return *out ? 0 : ENOMEM;
}
#endif
