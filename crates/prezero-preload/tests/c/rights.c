/* Changes its user back and forth; the thread that clears is of the idle class afterwards. */
#include "check.h"
#include <dirent.h>
#include <grp.h>
#include <sched.h>
#include <sys/syscall.h>

#define NOBODY 65534

/* The number of the thread of that name, or 0. */
static int named(const char *name)
{
	char path[300], found[64];
	struct dirent *entry;
	int thread = 0;
	DIR *folder = opendir("/proc/self/task");

	CHECK(folder);
	while (!thread && (entry = readdir(folder))) {
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
		FILE *file = fopen(path, "r");
		if (file && fgets(found, sizeof found, file) && !strcmp(found, name))
			thread = atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	closedir(folder);
	return thread;
}

static void work(void)
{
	unsigned char *blocks[16];

	for (int i = 0; i < 16; i++) {
		CHECK(blocks[i] = calloc(1, MIB));
		CHECK(is_zero(blocks[i], MIB));
		memset(blocks[i], 1, MIB);
	}
	for (int i = 0; i < 16; i++)
		free(blocks[i]);
}

int main(void)
{
	int scrubd, root = getuid() == 0;

	work();
	while (!(scrubd = named("scrubd\n")) || syscall(SYS_sched_getscheduler, scrubd) != SCHED_IDLE)
		usleep(1000); /* as long as it takes: who waits in vain is ended from outside */
	for (int i = 0; i < 20; i++) {
		uid_t user = root && i % 2 == 0 ? NOBODY : getuid();
		gid_t group = root && i % 2 == 0 ? NOBODY : getgid();

		if (i % 2)
			CHECK(seteuid(user) == 0 && setegid(group) == 0);
		else
			CHECK(setegid(group) == 0 && seteuid(user) == 0);
		CHECK(geteuid() == user && getegid() == group);
		work();
	}
	if (root)
		CHECK(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
		      setresuid(NOBODY, NOBODY, NOBODY) == 0 && setuid(0) == -1);
	CHECK(syscall(SYS_sched_getscheduler, scrubd) == SCHED_IDLE);
	work();
	puts("good");
	return 0;
}
