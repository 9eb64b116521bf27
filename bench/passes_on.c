/*
 * passes_on: what a preloaded library costs a program that gets nothing from it.
 *
 * Those of malloc's family that programs call all the time, each passed on to glibc with one
 * jump. `prezero bench real` runs its programs with this too: a library that looks at a call
 * before it passes it on cannot be cheaper.
 */

#include <stddef.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);

void *malloc(size_t size)
{
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
	return __libc_realloc(block, size);
}

void free(void *block)
{
	__libc_free(block);
}
