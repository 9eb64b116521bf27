/*
 * Changes its user back and forth, its namespaces and its root. The thread that clears is of
 * another user in no moment that the program sees, has no rights of its own, and is there again
 * afterwards.
 */
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/syscall.h>

#define NOBODY 65534

/* The fields of a thread's status: of the user, the group, or what it is capable of. */
static void field(int thread, const char *name, char *value, size_t size)
{
	char path[64], line[256];

	snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
	FILE *file = fopen(path, "r");
	CHECK(file);
	*value = 0;
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)))
			snprintf(value, size, "%s", line + strlen(name));
	fclose(file);
	CHECK(*value);
}

/* Works until there is a thread that clears, and at its work; its number. */
static int reborn(void)
{
	int scrubd;

	UNTIL((use_and_free(), scrubd = thread_named("scrubd"),
	       scrubd && syscall(SYS_sched_getscheduler, scrubd) == SCHED_IDLE));
	return scrubd;
}

/* Whether the thread that clears is another than before, or none. */
static int is_new(int before)
{
	return !before || thread_named("scrubd") != before;
}

static void check_rights(int scrubd)
{
	char own[256], its[256];

	for (int i = 0; i < 2; i++) {
		const char *name = i ? "Gid:" : "Uid:";

		field(getpid(), name, own, sizeof own);
		field(scrubd, name, its, sizeof its);
		CHECK(!strcmp(own, its));
	}
	field(scrubd, "CapPrm:", its, sizeof its);
	CHECK(strtoull(its, NULL, 16) == 0);
}

int main(void)
{
	int root = getuid() == 0;

	for (int i = 0; i < 20; i++) {
		uid_t user = root && i % 2 == 0 ? NOBODY : getuid();
		gid_t group = root && i % 2 == 0 ? NOBODY : getgid();

		int before = 0;

		if (i < 4)
			check_rights(before = reborn());
		if (i % 2)
			CHECK(seteuid(user) == 0 && setegid(group) == 0);
		else
			CHECK(setegid(group) == 0 && seteuid(user) == 0);
		CHECK(is_new(before));
		CHECK(geteuid() == user && getegid() == group);
		use_and_free();
	}
	/* By their numbers, past libc. */
	for (int i = 0; i < 4; i++) {
		int before = reborn();
		int user = root && i % 2 == 0 ? NOBODY : (int)getuid();

		check_rights(before);
		if (i % 2)
			CHECK(syscall(SYS_setresuid, -1, user, -1) == 0);
		else
			CHECK(syscall(SYS_setreuid, -1, user) == 0);
		CHECK(is_new(before) && (int)geteuid() == user);
		check_rights(reborn());
	}
	/* A child of vfork changes itself, not its parent. */
	int before = reborn();
	if (vfork() == 0) {
		if (root && setuid(NOBODY) != 0)
			_exit(1);
		_exit(0);
	}
	wait(NULL);
	CHECK(thread_named("scrubd") == before);
	if (root) {
		int space = open("/proc/self/ns/mnt", O_RDONLY);

		CHECK(unshare(CLONE_NEWNS) == 0 && is_new(before));
		before = reborn();
		CHECK(setns(space, CLONE_NEWNS) == 0 && is_new(before));
		before = reborn();
		CHECK(chroot("/") == 0 && is_new(before));
		before = reborn();
		CHECK(syscall(SYS_unshare, CLONE_NEWNS) == 0 && is_new(before));
		before = reborn();
		CHECK(syscall(SYS_setns, space, CLONE_NEWNS) == 0 && is_new(before));
		before = reborn();
		CHECK(syscall(SYS_chroot, "/") == 0 && is_new(before));
		before = reborn();
		CHECK(initgroups("nobody", NOBODY) == 0 && is_new(before));
		CHECK(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
		      setresuid(NOBODY, NOBODY, NOBODY) == 0 && setuid(0) == -1);
		check_rights(reborn());
	}
	/* For this the kernel wants one thread; who forbids it to users says so by another error. */
	reborn();
	CHECK(unshare(CLONE_NEWUSER) == 0 || errno != EINVAL);
	use_and_free();
	puts("good");
	return 0;
}
