/* What libc tells of its heap counts large blocks, whoever serves them. */
#include "check.h"

#define SIZE (100 * MIB)

struct figures {
	size_t blocks, mapped, heaps, idle, used;
};

static struct figures told(void)
{
	struct mallinfo2 (*all)(void) = (struct mallinfo2(*)(void))dlsym(RTLD_DEFAULT, "mallinfo2");
	struct mallinfo2 info = all();

	CHECK(info.arena == info.uordblks + info.fordblks);
	return (struct figures){info.hblks, info.hblkhd, info.arena, info.fordblks, info.uordblks};
}

static struct figures told_in_int(void)
{
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	struct mallinfo info = mallinfo();

	return (struct figures){info.hblks, info.hblkhd, info.arena, info.fordblks, info.uordblks};
}

/* The totals of malloc_info. */
static struct figures told_in_text(void)
{
	static char text[1 << 16];
	struct figures figures = {0};
	char *found = NULL;
	FILE *file = fmemopen(text, sizeof text, "w");

	CHECK(file && malloc_info(1, file) != 0 && malloc_info(0, file) == 0);
	fclose(file);
	CHECK(!strncmp(text, "<malloc version=\"1\">\n", 21));
	CHECK(!strcmp(text + strlen(text) - 10, "</malloc>\n"));
	for (char *at = text; (at = strstr(at, "<total type=\"rest\"")); at++)
		found = at;
	CHECK(found && sscanf(found, "<total type=\"rest\" count=\"%*u\" size=\"%zu\"/>", &figures.idle) == 1);
	CHECK(found = strstr(found, "<total type=\"mmap\""));
	CHECK(sscanf(found, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>", &figures.blocks,
		     &figures.mapped) == 2);
	CHECK(found = strstr(found, "<system type=\"current\""));
	CHECK(sscanf(found, "<system type=\"current\" size=\"%zu\"/>", &figures.heaps) == 1);
	return figures;
}

int main(void)
{
	struct figures (*ways[])(void) = {told, told_in_int, told_in_text};

	for (int way = 0; way < 3; way++) {
		/* One that is large already, so that the sizes to come are no news to the allocator. */
		char *first = malloc(SIZE), *blocks[3];
		struct figures before = ways[way](), during, after;

		for (int i = 0; i < 3; i++) {
			CHECK(blocks[i] = calloc(1, SIZE + i * MIB));
			memset(blocks[i], 1, SIZE + i * MIB);
		}
		during = ways[way]();
		CHECK(during.blocks == before.blocks + 3);
		CHECK(during.mapped >= before.mapped + 3 * SIZE + 3 * MIB);
		CHECK(during.mapped <= before.mapped + 3 * SIZE + 6 * MIB);
		for (int i = 0; i < 3; i++)
			free(blocks[i]);
		after = ways[way]();
		CHECK(after.blocks == before.blocks && after.mapped == before.mapped);
		CHECK(before.blocks >= 1 && before.mapped >= SIZE);
		/* What is kept is told of as free. */
		if (in_zone(first))
			CHECK(after.idle > during.idle + 3 * SIZE && after.heaps > during.heaps + 3 * SIZE);
		free(first);
	}
	puts("good");
	return 0;
}
