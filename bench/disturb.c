/*
 * disturb: neighbours that notice, and the program that may disturb them.
 *
 * The workers of `prezero bench disturb`. It reads one command a line from stdin and answers
 * with one line. Times are in ns; LEAD is how long it runs before it is counted, so that
 * everybody is under way, SLICE for how long it is counted. All is done by one thread that is
 * not the first, so that pinning it leaves the process's other threads, a scrubber's say, where
 * they may run.
 *
 *   pin CPU                           0
 *
 * As a neighbour:
 *
 *   compute LEAD SLICE                work done, CPU time, time: arithmetic in registers.
 *   chase BYTES LEAD SLICE            the same; the work is loads, each of which needs the last
 *       one's result, in a random order over every cache line of BYTES.
 *   doze BYTES HOPS PERIOD LEAD SLICE the same, with a sleep until the next PERIOD after
 *       each HOPS loads; neither CPU time nor time of the sleeps is counted.
 *   tick PERIOD LEAD SLICE            how late each wake-up of a periodic task was; its phase
 *       drifts by one PERIOD in a SLICE.
 *
 * As the program beside them:
 *
 *   churn BYTES PAUSE LEAD SLICE      rounds, bytes asked for, CPU time of all threads: a round
 *       is zeroed blocks of 64 KiB to 4 MiB, BYTES together, a byte written to each page, all
 *       freed; then PAUSE of sleep.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "worker.h"

enum {
	PAGE = 4096,
	LINE = 64,
	/* Between two looks at the clock: some microseconds. */
	COMPUTED_AT_ONCE = 4096,
	CHASED_AT_ONCE = 256,
	MAX_TICKS = 1 << 18,
	MAX_BLOCKS = 1 << 12,
};

static void fail(const char *what)
{
	fail_as("disturb", what);
}

/* What was done and used up between two moments. */
struct account {
	uint64_t work, cpu, wall;
};

static struct account opened(void)
{
	return (struct account){ 0, clock_ns(CLOCK_THREAD_CPUTIME_ID), now() };
}

static void answer(struct account *from, uint64_t work)
{
	uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), wall = now();

	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", work, cpu - from->cpu, wall - from->wall);
}

static void sleep_until(uint64_t due)
{
	struct timespec t = { due / 1000000000u, due % 1000000000u };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("pin: no such CPU for this process");
	puts("0");
}

/* Four chains that do not wait for each other fill the core's arithmetic units. */
static uint64_t compute_some(uint64_t seed)
{
	uint64_t a = seed | 1, b = a + 2, c = a + 4, d = a + 6;
	double x = 1.0 + (double)(seed & 7), y = x + 1.0;

	for (int i = 0; i < COMPUTED_AT_ONCE; i++) {
		a = a * 6364136223846793005u + 1442695040888963407u;
		b ^= b << 13, b ^= b >> 7, b ^= b << 17;
		c = c * 2862933555777941757u + 3037000493u;
		d += (d << 5) ^ (d >> 3);
		x = x * 0.999999 + 0.5;
		y = y * 0.999998 + 0.25;
	}
	return a ^ b ^ c ^ d ^ (uint64_t)(x + y);
}

static uint64_t compute_until(uint64_t end, uint64_t *seed)
{
	uint64_t work = 0;

	for (; now() < end; work += COMPUTED_AT_ONCE)
		*seed = compute_some(*seed);
	return work;
}

static void compute(uint64_t lead, uint64_t slice)
{
	uint64_t seed = 1, work;
	struct account account;

	compute_until(now() + lead, &seed);
	account = opened();
	work = compute_until(account.wall + slice, &seed);
	escape(&seed);
	answer(&account, work);
}

/* A line of the chase: which one is next. */
struct hop {
	struct hop *next;
	char rest[LINE - sizeof(struct hop *)];
};

static uint64_t random_number(uint64_t *state)
{
	*state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
	return *state;
}

/* One cycle through every line of `bytes`, in random order (Sattolo), in huge pages where
 * the kernel has them: the caches are measured, not the walks of page tables. The last
 * one made is kept. */
static struct hop *chain(size_t bytes)
{
	static struct hop *hops;
	static size_t made;
	size_t count = bytes / sizeof(struct hop);
	uint64_t state = 88172645463325252u;

	if (made == bytes)
		return hops;
	if (hops)
		munmap(hops, made);
	hops = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (hops == MAP_FAILED)
		fail("chase: out of memory");
	/* Where it is refused small pages do, and are slower for everybody alike. */
	madvise(hops, bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < count; i++)
		hops[i].next = &hops[i];
	for (size_t i = count - 1; i > 0; i--) {
		size_t other = random_number(&state) % i;
		struct hop *next = hops[i].next;

		hops[i].next = hops[other].next;
		hops[other].next = next;
	}
	made = bytes;
	return hops;
}

static struct hop *follow(struct hop *hop, uint64_t hops)
{
	for (; hops >= 8; hops -= 8)
		hop = hop->next->next->next->next->next->next->next->next;
	for (; hops; hops--)
		hop = hop->next;
	escape(hop);
	return hop;
}

static uint64_t chase_until(uint64_t end, struct hop **at)
{
	uint64_t work = 0;

	for (; now() < end; work += CHASED_AT_ONCE)
		*at = follow(*at, CHASED_AT_ONCE);
	return work;
}

static void chase(size_t bytes, uint64_t lead, uint64_t slice)
{
	struct hop *at = chain(bytes);
	struct account account;
	uint64_t work;

	chase_until(now() + lead, &at);
	account = opened();
	work = chase_until(account.wall + slice, &at);
	answer(&account, work);
}

static void doze(size_t bytes, uint64_t hops, uint64_t period, uint64_t lead, uint64_t slice)
{
	struct hop *at = chain(bytes);
	struct account sum = { 0 };
	uint64_t due = now(), counted = due + lead, end = counted + slice;

	while ((due += period) < end) {
		struct account from;

		sleep_until(due);
		from = opened();
		at = follow(at, hops);
		if (due < counted)
			continue;
		sum.work += hops;
		sum.cpu += clock_ns(CLOCK_THREAD_CPUTIME_ID) - from.cpu;
		sum.wall += now() - from.wall;
	}
	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", sum.work, sum.cpu, sum.wall);
}

static void tick(uint64_t period, uint64_t lead, uint64_t slice)
{
	static uint32_t late[MAX_TICKS];
	uint64_t due = now(), counted = due + lead, end = counted + slice;
	size_t ticks = 0;

	/* The scheduler's own tick has a period of whole ms, too, and who shares a busy CPU waits
	 * for it: at one phase for a whole slice, at another for the next. So we drift by a
	 * period in a slice. */
	period += period * period / slice;
	while ((due += period) < end && ticks < MAX_TICKS) {
		uint64_t woken;

		sleep_until(due);
		woken = now();
		if (due >= counted)
			late[ticks++] = woken - due < UINT32_MAX ? woken - due : UINT32_MAX;
		/* A wake-up later than a period has swallowed the next ones. */
		while (due + period <= woken)
			due += period;
	}
	for (size_t i = 0; i < ticks; i++)
		printf("%s%" PRIu32, i ? " " : "", late[i]);
	putchar('\n');
}

/* One round; the bytes asked for. */
static size_t churn_once(size_t bytes)
{
	static char *blocks[MAX_BLOCKS];
	size_t count = 0, asked = 0;

	while (asked < bytes && count < MAX_BLOCKS) {
		/* 64 KiB, 256 KiB, 1 MiB, 4 MiB in turn. */
		size_t size = (size_t)65536 << 2 * (count % 4);
		char *p = calloc(1, size);

		if (!p)
			fail("churn: out of memory");
		for (size_t at = 0; at < size; at += PAGE)
			((volatile char *)p)[at] = 1;
		blocks[count++] = p;
		asked += size;
	}
	for (size_t i = 0; i < count; i++)
		free(blocks[i]);
	return asked;
}

static void churn(size_t bytes, uint64_t pause, uint64_t lead, uint64_t slice)
{
	uint64_t counted = now() + lead, end = counted + slice, at;
	uint64_t rounds = 0, asked = 0, cpu = 0;

	while ((at = now()) < end) {
		size_t round = churn_once(bytes);

		if (at >= counted) {
			if (!rounds++)
				cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
			asked += round;
		}
		if (pause)
			sleep_until(now() + pause);
	}
	cpu = rounds ? clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu : 0;
	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", rounds, asked, cpu);
}

static void *serve(void *unused)
{
	static char answers[1 << 16], line[256];

	/* Own buffers: stdio's would come from the allocator under test. */
	setvbuf(stdout, answers, _IOFBF, sizeof(answers));
	setvbuf(stdin, NULL, _IONBF, 0);
	prctl(PR_SET_TIMERSLACK, 1);
	while (fgets(line, sizeof(line), stdin)) {
		uint64_t lead, slice, period, hops;
		size_t bytes;
		int cpu;

		if (sscanf(line, "pin %d", &cpu) == 1)
			pin(cpu);
		else if (sscanf(line, "compute %" SCNu64 " %" SCNu64, &lead, &slice) == 2)
			compute(lead, slice);
		else if (sscanf(line, "chase %zu %" SCNu64 " %" SCNu64, &bytes, &lead, &slice) == 3 &&
			 bytes >= PAGE)
			chase(bytes, lead, slice);
		else if (sscanf(line, "doze %zu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &bytes,
				&hops, &period, &lead, &slice) == 5 && bytes >= PAGE && period)
			doze(bytes, hops, period, lead, slice);
		else if (sscanf(line, "tick %" SCNu64 " %" SCNu64 " %" SCNu64, &period, &lead,
				&slice) == 3 && period && slice >= period)
			tick(period, lead, slice);
		else if (sscanf(line, "churn %zu %" SCNu64 " %" SCNu64 " %" SCNu64, &bytes, &period,
				&lead, &slice) == 4)
			churn(bytes, period, lead, slice);
		else if (!strcmp(line, "usage\n"))
			usage();
		else
			fail("no such command");
		fflush(stdout);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, serve, NULL) || pthread_join(thread, NULL))
		fail("cannot start a thread");
	return 0;
}
