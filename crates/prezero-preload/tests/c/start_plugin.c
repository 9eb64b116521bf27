/* Loaded and unloaded again and again: allocates at both ends. */
#include "check.h"

static unsigned char *block;

__attribute__((constructor)) static void load(void)
{
	block = calloc(1, 300000);
	CHECK(is_zero(block, 300000));
	memset(block, 0xaa, 300000);
}

__attribute__((destructor)) static void unload(void)
{
	free(block);
}

unsigned char *take(void)
{
	unsigned char *taken = block;

	block = NULL;
	return taken;
}
