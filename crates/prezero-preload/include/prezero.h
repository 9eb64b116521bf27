/*
 * prezero.h - memory that is already zero when a program asks for it.
 *
 * For programs that run with libprezero.so, preloaded or linked. malloc and free use
 * the same zone; these calls add what the malloc family cannot say. All of them may be
 * called from any thread. Blocks of both kinds mix freely: free() takes what these
 * give, and prezero_free() takes what malloc gave.
 */
#ifndef PREZERO_H
#define PREZERO_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * At least `size` bytes of unknown content, as malloc: NULL and ENOMEM if there is no
 * memory. Prefers memory that is in use lately and takes zeroed memory last.
 */
void *prezero_alloc(size_t size);

/*
 * At least `size` bytes of zeroed memory, as calloc(1, size). Cleared now only where
 * nobody has cleared it before.
 */
void *prezero_zalloc(size_t size);

/* What a caller will do first with zeroed memory. */
enum prezero_use {
	PREZERO_UNKNOWN = 0,
	PREZERO_SPARSE = 1 /* touch little of it */
};

/*
 * As prezero_zalloc, for a caller that knows what comes first. Up to half of a CPU's private
 * cache a block that was in use a moment ago, cleared now, is faster to write than one that
 * was cleared before. PREZERO_SPARSE gets the latter wherever there is one.
 * It is zero in every case.
 */
void *prezero_zalloc_for(size_t size, enum prezero_use first_use);

/*
 * At least `size` bytes that are zero already and resident, or NULL: never clears,
 * never waits, never asks the kernel. NULL is no error and leaves errno alone; it is
 * also the answer to a size below the threshold (128 KiB unless set otherwise). For
 * callers with a plan B, such as a cache that may stay smaller.
 */
void *prezero_try_zalloc(size_t size);

/*
 * Gives a block back, as free: NULL is ignored, errno is kept, and an address at which
 * no live block starts ends the process.
 */
void prezero_free(void *block);

/*
 * As prezero_free, for a block that came from prezero_zalloc, prezero_try_zalloc or
 * calloc and in which every byte, to the end of malloc_usable_size(block), is zero: it
 * was never written to, or has been cleared again. The zone hands it out as zero
 * without another look (apart from samples), so a wrong claim shows up in
 * another calloc.
 */
void prezero_free_zeroed(void *block);

/*
 * The statistics of the process as one JSON object: at most `size` bytes with the
 * final NUL. Returns the length of the whole text without the NUL, as snprintf does;
 * so prezero_stats_json(NULL, 0) says how much room it takes (it may take a little
 * more a moment later). Allocates nothing.
 */
int prezero_stats_json(char *buffer, size_t size);

/*
 * A pool: slots of one size, each at an address of its own that stays. A slot is zero when
 * it is taken; what was written to it is cleared while a CPU idles, or by the next
 * prezero_pool_take. The calls keep errno, prezero_pool_new only if it succeeds, and any
 * thread may make them.
 */
struct prezero_pool;

/*
 * A pool of slots of `bytes` each, of which `slots` may be out at the same time, and its
 * thread. An access to the `guard` bytes before or after a slot ends the program; both are
 * rounded up to pages, and `guard` may be 0. NULL and errno: EINVAL for no slot or no byte,
 * ENOMEM for more than the address space or a limit has, ENOSYS where the kernel's pages are
 * larger than 4 KiB, or are not zero after they went back to it.
 * In the child of a fork the pool stays as it is, without its thread.
 */
struct prezero_pool *prezero_pool_new(size_t slots, size_t bytes, size_t guard);

/* A slot that is zero. NULL is no error: all are out. */
void *prezero_pool_take(struct prezero_pool *pool);

/*
 * Gives a slot back, whatever was written to it: the pool asks the kernel which pages to
 * clear. NULL is ignored; an address at which no slot of this pool starts that is out ends
 * the process. What was mapped over the slot, protected or locked is as before.
 */
void prezero_pool_give(struct prezero_pool *pool, void *slot);

/* Bytes of a slot from `first` on, without the one at `end`. An end behind the slot's is the slot's. */
struct prezero_range {
	size_t first, end;
};

/*
 * As prezero_pool_give, for a slot in which the bytes of these `count` ranges alone may be
 * other than zero: the kernel is not asked. A wrong claim shows up in another slot that is
 * taken. {0, SIZE_MAX} is all of the slot.
 */
void prezero_pool_give_written(struct prezero_pool *pool, void *slot, const struct prezero_range *written,
			       size_t count);

/* Ends a pool, of which no slot is used any more, with its thread and its memory. NULL is ignored. */
void prezero_pool_destroy(struct prezero_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
