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

int main(int argc, char **argv)
{
	void *plugin = opened_by_caller(argv[1], RTLD_NOW | (argc > 3 ? RTLD_DEEPBIND : 0));

	if (!plugin)
		puts(dlerror());
	CHECK(plugin && !dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD | RTLD_DEEPBIND) == 0);
	int (*frees_libcs)(const char *, size_t) = function(plugin, "plugin_frees_libcs");
	void *(*mallocs)(size_t) = function(plugin, "plugin_mallocs");
	void *(*reallocs)(void *, size_t) = function(plugin, "plugin_reallocs");
	void (*frees)(void *) = function(plugin, "plugin_frees");
	const char *(*asks)(void) = function(plugin, "plugin_asks");
	unsigned char *block;

	puts(asks());
	for (size_t size = THRESHOLD / 2; size <= MIB; size *= 2) {
		FILE *file = fopen(argv[2], "w");
		CHECK(file && fprintf(file, "%*d\n", (int)size, 7) == (int)size + 1 && fclose(file) == 0);
		CHECK(frees_libcs(argv[2], size));
		CHECK(block = mallocs(size));
		memset(block, 1, size);
		free(block);
		CHECK(block = calloc(1, size));
		CHECK(is_zero(block, size));
		CHECK(block = reallocs(block, 3 * size));
		CHECK(is_zero(block, size));
		frees(block);
	}
	puts("good");
	return 0;
}
