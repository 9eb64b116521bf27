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

#ifdef __cplusplus
}
#endif

#endif
