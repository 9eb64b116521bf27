/* A library that opens another by its own RUNPATH, which the program does not have. */
#include <dlfcn.h>

void *opened_by_caller(const char *name, int flags)
{
	void *opened = dlopen(name, flags);

	__asm__ volatile(""); /* no jump: the return address is this library's */
	return opened;
}
