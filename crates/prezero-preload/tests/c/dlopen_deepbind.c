/* Opens a plugin by the RUNPATH of a library between, with and without RTLD_DEEPBIND; says whose functions the plugin finds. */
#include "check.h"

void *opened_by_caller(const char *name, int flags);

const char *whose(void)
{
	return "program";
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

/* NAME FILE NEXT [now | lazy]: deeply with the last; NEXT is another plugin, which the first opens. */
int main(int argc, char **argv)
{
	int deep = argc > 4 ? RTLD_DEEPBIND : 0;
	int flags = deep | (deep && !strcmp(argv[4], "lazy") ? RTLD_LAZY : RTLD_NOW);

	for (int turn = 0; turn < 2; turn++) {
		void *plugin = opened_by_caller(argv[1], flags);

		if (!plugin)
			puts(dlerror());
		CHECK(plugin && opened_by_caller(argv[1], flags | RTLD_NOLOAD) == plugin);
		void *(*opens)(const char *, int) = function(plugin, "plugin_opens");
		void *next = opens(argv[3], flags);

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
