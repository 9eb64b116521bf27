/*
 * waste: patterns of demand, some of which a scrubber should leave alone.
 *
 * The worker of `prezero bench waste`, by bench/waste.py. `waste PATTERN MS` plays one of PATTERNS for MS
 * milliseconds, then prints one line for each burst:
 *
 *   PHASE START_NS BURST_NS FREED MADE HIT MISS ABSENT PLAIN UNUSED ZERO
 *
 * then one of what all came to, and last `end CPU_NS BACKGROUND_NS RSS_KIB`. A burst is what lies between two pauses. All but
 * its time are sums since the start, in bytes, read after the burst: what the program freed;
 * what the zone's thread made zero; what ZERO requests found zero, had cleared, or left
 * to the kernel; zero bytes given to plain requests, or to the kernel unused; zero bytes that
 * lie there. They come from prezero_stats_json() where the dynamic linker has it, and
 * are 0 under everybody else's malloc. BACKGROUND_NS is the CPU time of all threads but
 * this one, which is the only one that the program itself has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { PAGE = 4096, MAX_ROWS = 1 << 14, MOST_LIVE = 64 };
enum { FREED, MADE, HIT, MISS, ABSENT, PLAIN, UNUSED, ZERO, COLUMNS };
static const size_t KIB = 1 << 10, MIB = 1 << 20;
static const uint64_t MS = 1000000;

struct row {
	const char *phase;
	uint64_t start_ns, burst_ns, bytes[COLUMNS];
};

static struct row rows[MAX_ROWS + 1];
static size_t row_count;
static uint64_t freed, began, ends, burst_began;
static int (*stats_json)(char *, size_t);

static void fail(const char *what)
{
	fprintf(stderr, "waste: %s\n", what);
	exit(1);
}

/* Tells the compiler that the memory behind `p` is seen by others: nothing is elided. */
static inline void escape(void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

static uint64_t value(const char *json, const char *name)
{
	const char *at = strstr(json, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static void read_counters(uint64_t *bytes)
{
	static char json[1 << 14];

	if (!stats_json || stats_json(json, sizeof(json)) >= (int)sizeof(json))
		return;
	bytes[MADE] = value(json, "\"scrubbed_bytes\":") + value(json, "\"prefaulted_bytes\":");
	bytes[HIT] = value(json, "\"hit_bytes\":");
	bytes[MISS] = value(json, "\"miss_bytes\":");
	bytes[ABSENT] = value(json, "\"served_absent_bytes\":");
	bytes[PLAIN] = value(json, "\"waste_bytes\":");
	bytes[UNUSED] = value(json, "\"unused_zero_bytes\":");
	bytes[ZERO] = value(json, "\"resident_zero_bytes\":");
}

static void burst_begins(void)
{
	burst_began = now();
}

/* Notes the burst, then pauses until `period` after its begin, or for `pause` if that is later. */
static void burst_ends(const char *phase, uint64_t period, uint64_t pause)
{
	uint64_t done = now(), next = burst_began + period;

	if (row_count < MAX_ROWS || !strcmp(phase, "all")) {
		struct row *row = &rows[row_count++];

		row->phase = phase;
		row->start_ns = burst_began - began;
		row->burst_ns = done - burst_began;
		row->bytes[FREED] = freed;
		read_counters(row->bytes);
	}
	sleep_until(next > done + pause ? next : done + pause);
}

enum request { DIRTY, ZEROED };
enum use { SPARSE, FILLED };

static char *take(enum request request, size_t bytes, enum use use)
{
	char *p = request == ZEROED ? calloc(1, bytes) : malloc(bytes);

	if (!p)
		fail("out of memory");
	escape(p);
	if (use == FILLED)
		memset(p, 1, bytes);
	else
		for (size_t at = 0; at < bytes; at += PAGE)
			((volatile char *)p)[at] = 1;
	escape(p);
	return p;
}

static void give(void *p, size_t bytes)
{
	free(p);
	freed += bytes;
}

static void take_and_give(enum request request, size_t bytes, enum use use)
{
	give(take(request, bytes, use), bytes);
}

static uint64_t random_bits(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

/* Whole pages, between 2^low and 2^high bytes, each power of two as likely as the next. */
static size_t random_size(unsigned low, unsigned high)
{
	uint64_t bits = random_bits();
	size_t base = (size_t)1 << (low + bits % (high - low));

	return base + ((bits >> 16) % (base / PAGE)) * PAGE;
}

static int going_on(void)
{
	return now() < ends;
}

/* Plain requests only: what a scrubber does for it is in vain. */
static void never(void)
{
	enum { LIVE = 6 };

	while (going_on()) {
		void *p[LIVE];
		size_t bytes[LIVE];

		burst_begins();
		for (int i = 0; i < LIVE; i++)
			p[i] = take(DIRTY, bytes[i] = random_size(16, 25), FILLED);
		for (int i = 0; i < LIVE; i++)
			give(p[i], bytes[i]);
		burst_ends("plain", 0, 3 * MS);
	}
}

static void steady(void)
{
	while (going_on()) {
		burst_begins();
		take_and_give(ZEROED, 4 * MIB, SPARSE);
		burst_ends("zero", 0, 3 * MS);
	}
}

static void steady_mixed(void)
{
	static const size_t sizes[] = { 4, 1, 64, 2, 16, 4, 32, 1 };

	for (size_t i = 0; going_on(); i++) {
		burst_begins();
		take_and_give(ZEROED, sizes[i % 8] * 256 * KIB, SPARSE);
		burst_ends("zero", 0, 3 * MS);
	}
}

static void burst_of(size_t count, size_t bytes)
{
	while (going_on()) {
		void *p[MOST_LIVE];

		burst_begins();
		for (size_t i = 0; i < count; i++)
			p[i] = take(ZEROED, bytes, FILLED);
		for (size_t i = 0; i < count; i++)
			give(p[i], bytes);
		burst_ends("burst", 100 * MS, 0);
	}
}

static void bursty_1m(void)
{
	burst_of(64, 1 * MIB);
}

static void bursty_4m(void)
{
	burst_of(16, 4 * MIB);
}

static void bursty_64m(void)
{
	burst_of(1, 64 * MIB);
}

/* A large start, then a long life without: the demand does not come back. */
static void once(void)
{
	void *p[MOST_LIVE];

	burst_begins();
	for (int i = 0; i < MOST_LIVE; i++)
		p[i] = take(ZEROED, 8 * MIB, FILLED);
	for (int i = 0; i < MOST_LIVE; i++)
		give(p[i], 8 * MIB);
	burst_ends("start", 0, 10 * MS);
	/* The start takes some of them a second, which is not to shorten the rest. */
	ends += now() - began;
	while (going_on()) {
		burst_begins();
		take_and_give(DIRTY, MIB, FILLED);
		burst_ends("plain", 0, 10 * MS);
	}
}

/* Four ninths and five: zero of one size, of another, none, and the first again. */
static void phases(void)
{
	uint64_t unit = (ends - began) / 9, begin = began;

	for (int phase = 0; phase < 4; phase++) {
		static const uint64_t units[] = { 2, 2, 3, 2 };

		for (begin += units[phase] * unit; now() < begin;) {
			burst_begins();
			switch (phase) {
			case 1:
				for (int i = 0; i < 16; i++)
					take_and_give(ZEROED, 64 * KIB, FILLED);
				burst_ends("64K", 0, 3 * MS);
				break;
			case 2:
				take_and_give(DIRTY, 4 * MIB, FILLED);
				take_and_give(DIRTY, 64 * KIB, FILLED);
				burst_ends("plain", 0, 3 * MS);
				break;
			default:
				take_and_give(ZEROED, 4 * MIB, FILLED);
				burst_ends(phase ? "4M-again" : "4M", 0, 3 * MS);
			}
		}
	}
}

/* NumPy's a = zeros(n); b = a + a; c = b + a. */
static void mixed(void)
{
	while (going_on()) {
		void *a, *b, *c;

		burst_begins();
		a = take(ZEROED, 32 * MIB, SPARSE);
		b = take(DIRTY, 32 * MIB, FILLED);
		c = take(DIRTY, 32 * MIB, FILLED);
		give(c, 32 * MIB);
		give(b, 32 * MIB);
		give(a, 32 * MIB);
		burst_ends("round", 0, 3 * MS);
	}
}

/* No size twice; what is freed is wanted back at once as it is; some of it is kept, or grows. */
static void hostile(void)
{
	enum { KEPT = 12 };
	static struct { void *p; size_t bytes; } kept[KEPT];

	for (size_t i = 0; going_on(); i++) {
		size_t bytes = random_size(16, 23), at = i % KEPT;
		void *p;

		burst_begins();
		p = take(ZEROED, bytes, FILLED);
		if (i % 3 == 0) {
			give(kept[at].p, kept[at].bytes);
			kept[at].p = p;
			kept[at].bytes = bytes;
		} else if (i % 3 == 1) {
			size_t grown = bytes + bytes / 2;

			p = realloc(p, grown);
			if (!p)
				fail("out of memory");
			memset((char *)p + bytes, 1, grown - bytes);
			escape(p);
			give(p, grown);
		} else {
			give(p, bytes);
			take_and_give(DIRTY, bytes, FILLED);
		}
		burst_ends("round", 0, 1 * MS);
	}
}

/* Whatever was asked for as zero is next asked for as it is, and the other way round. */
static void adverse(void)
{
	static const size_t sizes[2] = { 8 << 20, 1 << 20 };

	for (size_t i = 0; going_on(); i++) {
		size_t zeroed = sizes[i % 2], plain = sizes[1 - i % 2];

		burst_begins();
		take_and_give(ZEROED, zeroed, FILLED);
		/* A median of both sizes together would be either, by chance. */
		burst_ends(i % 2 ? "zero-1M" : "zero-8M", 0, 3 * MS);
		burst_begins();
		take_and_give(DIRTY, zeroed, FILLED);
		take_and_give(DIRTY, plain, FILLED);
		burst_ends("plain", 0, 3 * MS);
	}
}

static const struct {
	const char *name;
	void (*play)(void);
} PATTERNS[] = {
	{ "never", never },	    { "steady", steady },	  { "steady-mixed", steady_mixed },
	{ "bursty-1m", bursty_1m }, { "bursty-4m", bursty_4m },	  { "bursty-64m", bursty_64m },
	{ "once", once },	    { "phases", phases },	  { "mixed", mixed },
	{ "hostile", hostile },	    { "adverse", adverse },
};

static uint64_t cpu_ns(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * UINT64_C(1000000000) +
	       (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * UINT64_C(1000);
}

static void print(void)
{
	uint64_t all = cpu_ns(RUSAGE_SELF), own = cpu_ns(RUSAGE_THREAD);
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	for (struct row *row = rows; row < rows + row_count; row++) {
		printf("%s %" PRIu64 " %" PRIu64, row->phase, row->start_ns, row->burst_ns);
		for (int i = 0; i < COLUMNS; i++)
			printf(" %" PRIu64, row->bytes[i]);
		putchar('\n');
	}
	printf("end %" PRIu64 " %" PRIu64 " %ld\n", all, all > own ? all - own : 0, u.ru_maxrss);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		fail("usage: waste PATTERN MS");
	*(void **)&stats_json = dlsym(RTLD_DEFAULT, "prezero_stats_json");
	began = now();
	ends = began + strtoull(argv[2], NULL, 10) * MS;
	for (size_t i = 0; i < sizeof(PATTERNS) / sizeof(*PATTERNS); i++) {
		if (!strcmp(argv[1], PATTERNS[i].name)) {
			PATTERNS[i].play();
			burst_begins();
			burst_ends("all", 0, 0);
			print();
			return 0;
		}
	}
	fail("no such pattern");
}
