/*
 * write: Arcangeli's microbenchmark ("PG_zero", 2004).
 *
 * Obtains 4 MiB and writes one long to each 32 KiB of it; the cycles that the writing took,
 * as in his program. Once, as he did, or N times in a loop with the memory given back each
 * time and a pause before the next. With --json also ns, and the time that obtaining and
 * giving back took, which his program did not look at and where an allocator may hide it.
 */
#include "seed.h"

static const char help[] =
	"Arcangeli's microbenchmark: 4 MiB, one write each 32 KiB, in cycles.\n"
	"\n"
	"  write [OPTIONS]\n"
	"\n"
	"  --loop N      rounds in one process [1]\n"
	"  --pause-us N  before each [0]\n"
	"  --from HOW    malloc, calloc, mmap, or a FILE: a lease [malloc]\n"
	"  --json        one object, for programs\n"
	"\n"
	"Example: write --loop 200 --pause-us 3000\n";

enum { SIZE = 4 << 20, STEP = 4096 * sizeof(long), WRITES = SIZE / STEP };
enum { MOST = 100000 };

/* The CPU's own clock; a processor without one that programs may read counts ns. */
static uint64_t cycles(void)
{
#if defined(__x86_64__)
	uint32_t low, high;

	__asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
	uint64_t count;

	__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(count) : : "memory");
	return count;
#else
	return now_ns();
#endif
}

static uint64_t count[MOST], write_ns[MOST], round_ns[MOST];

static void list(const char *name, const uint64_t *values, uint64_t many, const char *end)
{
	printf("\"%s\":[", name);
	for (uint64_t i = 0; i < many; i++)
		printf("%s%" PRIu64, i ? "," : "", values[i]);
	printf("]%s", end);
}

int main(int argc, char **argv)
{
	static char answers[1 << 16];
	struct source from = { "malloc", 0 };
	uint64_t many = 1, pause_us = 0;
	struct rusage usage;
	int json = 0;

	program_name = "write";
	setvbuf(stdout, answers, _IOFBF, sizeof(answers));
	for (int i = 1; i < argc; i++) {
		const char *option = argv[i];

		if (!strcmp(option, "--json")) {
			json = 1;
			continue;
		}
		i++;
		if (!strcmp(option, "--loop"))
			many = at_least_one(option, argv[i]);
		else if (!strcmp(option, "--pause-us"))
			pause_us = number(option, argv[i]);
		else if (!strcmp(option, "--from") && argv[i])
			from.name = argv[i];
		else
			no_such(option, help);
	}
	if (many > MOST)
		stop(MISTAKE, "--loop: give %d or less", MOST);
	for (uint64_t i = 0; i < many; i++) {
		uint64_t began = now_ns(), then, start;
		char *p = obtain(from, SIZE);

		escape(p);
		then = now_ns();
		start = cycles();
		for (size_t at = 0; at < SIZE; at += STEP)
			*(volatile long *)(p + at) = (long)at + 1;
		count[i] = cycles() - start;
		write_ns[i] = now_ns() - then;
		for (size_t at = 0; at < SIZE; at += STEP)
			if (*(volatile long *)(p + at) != (long)at + 1)
				stop(BROKEN, "what was written at %zu is not there", at);
		give_back(from, p, SIZE);
		round_ns[i] = now_ns() - began;
		if (!count[i] || !write_ns[i])
			stop(BROKEN, "%d writes in no time: the clock stands", WRITES);
		rest(pause_us * 1000);
	}
	getrusage(RUSAGE_SELF, &usage);
	if (json) {
		printf("{\"experiment\":\"write\",\"from\":\"%s\",\"pause_us\":%" PRIu64
		       ",\"writes\":%d,\"minor_faults\":%ld,",
		       from.name, pause_us, WRITES, usage.ru_minflt);
		list("cycles", count, many, ",");
		list("write_ns", write_ns, many, ",");
		list("round_ns", round_ns, many, "}\n");
		return 0;
	}
	for (uint64_t i = 0; i < many; i++)
		printf("time %" PRIu64 "\n", count[i]);
	return 0;
}
