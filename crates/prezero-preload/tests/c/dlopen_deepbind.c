/* Opens a plugin by way of a library between, with and without RTLD_DEEPBIND; says whose functions the plugin finds. */
#include "check.h"

void *opened_by_caller(int into, const char *name, int flags);

const char *whose(void)
{
	return "program";
}

/* By the place of the library between or, for "program", by this program's place. */
static void *opens(const char *function, const char *name, int flags)
{
	void *opened = !strcmp(function, "program") ? dlopen(name, flags)
						    : opened_by_caller(!strcmp(function, "dlmopen"), name, flags);

	if (!opened)
		puts(dlerror());
	return opened;
}

static void *function(void *plugin, const char *name)
{
	void *found = dlsym(plugin, name);

	CHECK(found);
	return found;
}

static void works(void *plugin, const char *path)
{
	int (*frees_libcs)(const char *, size_t) = function(plugin, "plugin_frees_libcs");
	void *(*mallocs)(size_t) = function(plugin, "plugin_mallocs");
	void *(*reallocs)(void *, size_t) = function(plugin, "plugin_reallocs");
	void (*frees)(void *) = function(plugin, "plugin_frees");
	const char *(*asks)(void) = function(plugin, "plugin_asks");
	unsigned char *block;

	puts(asks());
	for (size_t size = THRESHOLD / 2; size <= MIB; size *= 2) {
		FILE *file = fopen(path, "w");
		CHECK(file && fprintf(file, "%*d\n", (int)size, 7) == (int)size + 1 && fclose(file) == 0);
		CHECK(frees_libcs(path, size));
		CHECK(block = mallocs(size));
		memset(block, 1, size);
		free(block);
		CHECK(block = calloc(1, size));
		CHECK(is_zero(block, size));
		CHECK(block = reallocs(block, 3 * size));
		CHECK(is_zero(block, size));
		frees(block);
	}
}

/*
 * NAME FILE NEXT dlopen | dlmopen | program [now | lazy]: deeply with the last; NEXT is another plugin, which the first opens.
 * NAME is found by the RUNPATH of the library between, or by its place ($ORIGIN).
 */
int main(int argc, char **argv)
{
	int deep = argc > 5 ? RTLD_DEEPBIND : 0;
	int flags = deep | (deep && !strcmp(argv[5], "lazy") ? RTLD_LAZY : RTLD_NOW);

	for (int turn = 0; turn < 2; turn++) {
		void *plugin = opens(argv[4], argv[1], flags);

		CHECK(plugin && opens(argv[4], argv[1], flags | RTLD_NOLOAD) == plugin);
		void *(*plugin_opens)(const char *, int) = function(plugin, "plugin_opens");
		void *next = plugin_opens(argv[3], flags);

		if (!next)
			puts(dlerror());
		CHECK(next);
		works(plugin, argv[2]);
		works(next, argv[2]);
		/* By the program, by name, by the look if it is there. */
		dlclose(next);
		dlclose(plugin);
		dlclose(plugin);
	}
	puts("good");
	return 0;
}
