/* glibc's own and older names of the malloc family, mixed with the usual ones. */
#include "check.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_memalign(size_t align, size_t size);
void *__libc_realloc(void *ptr, size_t size);
void __libc_free(void *ptr);
#ifdef __x86_64__
/* As in a program that was linked with glibc 2.25. */
void old_free(void *ptr);
__asm__(".symver old_free, cfree@GLIBC_2.2.5");
#else
#define old_free free
#endif

int main(void)
{
	size_t sizes[] = { 10, 100000, MIB, 40 * MIB };

	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
		size_t size = sizes[s];

		for (int i = 0; i < 20; i++) {
			free(__libc_malloc(size));
			free(realloc(__libc_calloc(1, size), 2 * size));
			free(__libc_memalign(PAGE, size));
			__libc_free(malloc(size));
			__libc_free(aligned_alloc(PAGE, size));
			old_free(malloc(size));
			char *block = malloc(size);
			memset(block, 7, size);
			block = __libc_realloc(block, 2 * size);
			CHECK(block && block[0] == 7 && block[size - 1] == 7);
			block = __libc_realloc(block, size / 2);
			CHECK(block && block[0] == 7 && block[size / 2 - 1] == 7);
			__libc_free(block);
		}
	}
	__libc_free(NULL);
	__libc_free(__libc_realloc(NULL, MIB));
	puts("good");
	return 0;
}
