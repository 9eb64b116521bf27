/* A plugin with an allocator of its own: as a library (-DPLUGIN) and as the program that opens it deeply, twice. It keeps its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef PLUGIN
static char room[8 << 20] __attribute__((aligned(64)));
static size_t used;

void *malloc(size_t size)
{
	void *block = room + used;

	used += (size + 63) & ~(size_t)63;
	return used <= sizeof(room) ? block : NULL;
}

void free(void *block)
{
	if (block && ((char *)block < room || (char *)block >= room + sizeof(room)))
		puts("freed another's");
}

int plugin_works(void)
{
	char *volatile block = malloc(1 << 20);
	int own = block >= room && block < room + sizeof(room);

	free(block);
	return own;
}
#else
int main(int argc, char **argv)
{
	for (int turn = 0; turn < 2; turn++) {
		void *plugin = dlopen(argv[1], RTLD_DEEPBIND | (argc > 2 ? RTLD_LAZY : RTLD_NOW));

		if (!plugin)
			puts(dlerror());
		int (*works)(void) = dlsym(plugin, "plugin_works");
		void *volatile other = malloc(1 << 20);

		puts(works() ? "own" : "another's");
		free(other);
		dlclose(plugin);
	}
	return 0;
}
#endif
