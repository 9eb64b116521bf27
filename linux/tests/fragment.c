/*
 * fragment DIRECTORY: writes to a quarter of what is free, in files of four pages, and removes every other one: memory
 * for compaction to move, without a zero page.
 */
#include "check.h"

int main(int argc, char **argv)
{
	static char noise[4 * PAGE];
	int count = proc_value("/proc/meminfo", "MemFree") / 16 / 4;
	char name[64];

	CHECK(argc == 2 && !chdir(argv[1]), "usage: fragment DIRECTORY");
	memset(noise, 0xa5, sizeof(noise));
	for (int i = 0; i < count; i++) {
		int fd;

		snprintf(name, sizeof(name), "%d", i);
		fd = open(name, O_CREAT | O_WRONLY, 0600);
		CHECK(fd >= 0 && write(fd, noise, sizeof(noise)) == sizeof(noise), "%s", name);
		close(fd);
	}
	for (int i = 0; i < count; i += 2) {
		snprintf(name, sizeof(name), "%d", i);
		CHECK(!unlink(name));
	}
	return 0;
}
