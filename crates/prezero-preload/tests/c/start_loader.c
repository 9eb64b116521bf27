/* dlopen and dlclose of argv[1] (and of the shim itself) while a thread allocates. */
#include "check.h"
#include <dlfcn.h>

static volatile int done;

static void *churn(void *unused)
{
	while (!done)
		free(memset(malloc(200000), 1, 200000));
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	CHECK(argc == 3 && pthread_create(&thread, NULL, churn, NULL) == 0);
	for (int i = 0; i < 200; i++) {
		void *plugin = dlopen(argv[1], RTLD_NOW), *shim = dlopen(argv[2], RTLD_NOW);
		unsigned char *(*take)(void) = dlsym(plugin, "take");
		unsigned char *block = i % 2 ? take() : NULL;

		CHECK(plugin && shim && dlclose(plugin) == 0 && dlclose(shim) == 0);
		CHECK(!block || block[299999] == 0xaa); /* outlives who made it */
		free(block);
		CHECK(dlopen("/nowhere/at-all.so", RTLD_NOW) == NULL && dlerror());
		CHECK(dlsym(RTLD_DEFAULT, "no_such_symbol") == NULL && dlerror());
	}
	done = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	puts("good");
	return 0;
}
