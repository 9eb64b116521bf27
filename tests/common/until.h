/* How a test in C waits for another thread or for the kernel. */
#ifndef UNTIL_H
#define UNTIL_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Longer than anything takes on a machine that starves: only a failure waits so long. */
#define PATIENCE_MS 300000

static inline long long until_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static inline void until_rest(void)
{
	struct timespec rest = { .tv_nsec = 1000000 };

	nanosleep(&rest, NULL);
}

/* Looks each millisecond until `condition` holds, for `ms` at most; whether it does. */
#define WITHIN(ms, condition)                                                         \
	({                                                                            \
		long long until_end = until_now_ms() + (ms);                          \
		int until_so;                                                         \
		while (!(until_so = !!(condition)) && until_now_ms() < until_end)     \
			until_rest();                                                 \
		until_so;                                                             \
	})

/* Looks until `condition` holds; ends the process where it does not. */
#define UNTIL(condition)                                                              \
	do {                                                                          \
		if (!WITHIN(PATIENCE_MS, condition)) {                                \
			fprintf(stderr, "%s:%d: in vain for %d s: %s\n", __FILE__,    \
				__LINE__, PATIENCE_MS / 1000, #condition);            \
			_Exit(1);                                                     \
		}                                                                     \
	} while (0)

#endif
