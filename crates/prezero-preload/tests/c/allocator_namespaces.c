/* A library in a namespace of its own (dlmopen) has a libc of its own, with its own malloc. */
#include "check.h"
#include <dlfcn.h>

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	for (int i = 0; i < 5; i++) {
		void *plugin = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW | RTLD_LOCAL);
		CHECK(plugin);
		unsigned char *(*take)(void) = (unsigned char *(*)(void))dlsym(plugin, "take");
		void (*give)(void *) = (void (*)(void *))dlsym(plugin, "free");
		unsigned char *theirs = take(), *ours = calloc(1, 300000);

		CHECK(theirs && ours && in_zone(ours) && theirs[299999] == 0xaa);
		CHECK(is_zero(ours, 300000));
		memset(ours, 1, 300000);
		CHECK(theirs[0] == 0xaa && theirs[299999] == 0xaa);
		give(theirs);
		free(ours);
		CHECK(dlclose(plugin) == 0);
	}
	puts("good");
	return 0;
}
