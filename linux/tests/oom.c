/*
 * oom: a stock of zero memory is no reserve that the rest of the system starves for.
 *
 * A child takes memory, a byte a page and every byte checked, until the kernel kills it. By then it
 * must have had nearly all that was available: what was free and zero was to be had like the rest.
 */
#include "check.h"
#include <signal.h>

int main(void)
{
	unsigned long available = proc_value("/proc/meminfo", "MemAvailable") / 1024;
	int report[2], status;
	unsigned long got = 0;
	pid_t child;

	CHECK(!pipe(report));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(!write_file("/proc/self/oom_score_adj", "1000"));
		for (unsigned long megabytes = 1;; megabytes++) {
			char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			CHECK(p != MAP_FAILED);
			for (size_t i = 0; i < 1 << 20; i += PAGE) {
				volatile char *byte = p + i + 100;

				*byte = 1;
				*byte = 0;
			}
			CHECK_ZERO(p, 1 << 20);
			memset(p, 0xa5, 1 << 20);
			CHECK(write(report[1], &megabytes, sizeof(megabytes)) == sizeof(megabytes));
		}
	}
	close(report[1]);
	while (read(report[0], &got, sizeof(got)) == sizeof(got))
		;
	CHECK(waitpid(child, &status, 0) == child);
	printf("available before: %lu MiB; taken: %lu MiB\n", available, got);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "0x%x", status);
	CHECK(got * 10 >= available * 8);

	/* And the system goes on. */
	CHECK_ZERO(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1 << 20);
	return 0;
}
