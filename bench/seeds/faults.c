/*
 * faults: Lameter's page-fault test ("Prezeroing V2: Why and When it works", 2004).
 *
 * N threads share so many MiB. Each repetition obtains the memory, writes to N cache lines
 * of each page, and gives the memory back; that is timed. What follows is not: a look whether
 * all else is still zero, and a pause, in which somebody may prepare memory. The first --warm
 * repetitions do not count. A FILE is a lease, which is new only once: --reps 1. The columns are his: user and system time of the threads that
 * touch, the time on the wall, pages by CPU second and by second on the wall. Whatever other
 * threads of the process used, pauses included, is told apart ("background").
 */
#include "seed.h"
#include <pthread.h>

static const char help[] =
	"Lameter's page-fault test: memory is obtained, some lines of each page are\n"
	"written, and the memory is given back.\n"
	"\n"
	"  faults [OPTIONS]\n"
	"\n"
	"  --mib N       memory that the threads share [1024]\n"
	"  --reps N      repetitions that count [3]\n"
	"  --warm N      and that do not, before [0]\n"
	"  --threads N   [1]\n"
	"  --lines N     written of each page: 1, 2, 4 ... 64 [1]\n"
	"  --pause-ms N  after each repetition [0]\n"
	"  --from HOW    calloc, malloc, mmap, or a FILE: a lease, with --reps 1 [calloc]\n"
	"  --json        one object, for programs\n"
	"\n"
	"Example: faults --mib 256 --threads 4 --pause-ms 300\n";

enum { MAX_THREADS = 256 };

struct account {
	/* User and system time come in ticks of the kernel's, their sum as it is. */
	uint64_t user_ns, system_ns, cpu_ns, faults;
};

struct task {
	pthread_t thread;
	uint64_t wrong;
	/* In what is timed; in all its life. */
	struct account used, all;
};

static const char *from = "calloc";
static uint64_t mib = 1024, reps = 3, threads = 1, lines = 1, pause_ms, warm;
static size_t share;
static pthread_barrier_t barrier;
static struct task tasks[MAX_THREADS];
static uint64_t wall_ns;

static uint64_t ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

static struct account so_far(int who)
{
	struct rusage u;
	struct timespec cpu;

	getrusage(who, &u);
	clock_gettime(who == RUSAGE_THREAD ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID, &cpu);
	return (struct account){ ns(u.ru_utime), ns(u.ru_stime),
				 (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec,
				 (uint64_t)u.ru_minflt };
}

static void add(struct account *sum, struct account then)
{
	struct account now = so_far(RUSAGE_THREAD);

	sum->user_ns += now.user_ns - then.user_ns;
	sum->system_ns += now.system_ns - then.system_ns;
	sum->cpu_ns += now.cpu_ns - then.cpu_ns;
	sum->faults += now.faults - then.faults;
}

/* A word that was zero becomes 1. In one instruction where there is one, so that the first
 * access to a page is a write, as the fault that he counted. */
static inline void mark(char *word)
{
#if defined(__x86_64__)
	__asm__ volatile("incq %0" : "+m"(*(uint64_t *)word));
#else
	*(volatile uint64_t *)word = 1;
#endif
}

static void touch(char *start)
{
	for (char *page = start; page < start + share; page += PAGE)
		for (uint64_t i = 0; i < lines; i++)
			mark(page + i * (LINES / lines) * LINE);
}

/* Words that are not what they must be: 1 where one was written, 0 elsewhere. */
static uint64_t wrong_words(const char *start)
{
	uint64_t wrong = 0;

	for (const char *page = start; page < start + share; page += PAGE) {
		const uint64_t *words = (const uint64_t *)page;
		uint64_t sum = 0, found = 0;

		for (size_t i = 0; i < PAGE / sizeof(*words); i++) {
			sum |= words[i];
			found += words[i];
		}
		wrong += sum > 1 || found != lines;
	}
	return wrong;
}

/* Thread 0 is the program's own, and looks at the clock. */
static void *work(void *argument)
{
	struct task *self = argument;
	struct source own = { from, (size_t)(self - tasks) * share };

	for (uint64_t rep = 0; rep < warm + reps; rep++) {
		struct account before, none = { 0 };
		uint64_t start;
		char *memory;

		if (rep == warm)
			self->used = none;
		pthread_barrier_wait(&barrier);
		start = now_ns();
		before = so_far(RUSAGE_THREAD);
		memory = obtain(own, share);
		escape(memory);
		touch(memory);
		add(&self->used, before);
		pthread_barrier_wait(&barrier);
		if (self == tasks && rep >= warm)
			wall_ns += now_ns() - start;

		self->wrong += wrong_words(memory);
		pthread_barrier_wait(&barrier);

		start = now_ns();
		before = so_far(RUSAGE_THREAD);
		give_back(own, memory, share);
		add(&self->used, before);
		pthread_barrier_wait(&barrier);
		if (self == tasks && rep >= warm)
			wall_ns += now_ns() - start;
		rest(pause_ms * 1000000);
	}
	self->all = so_far(RUSAGE_THREAD);
	return NULL;
}

static void say(int json)
{
	uint64_t pages = reps * threads * (share / PAGE), wrong = 0;
	struct account sum = { 0 }, process = so_far(RUSAGE_SELF);
	double cpu_s, wall_s = (double)wall_ns / 1e9;
	int64_t background_ns = 0;

	for (uint64_t i = 0; i < threads; i++) {
		wrong += tasks[i].wrong;
		sum.user_ns += tasks[i].used.user_ns;
		sum.system_ns += tasks[i].used.system_ns;
		sum.cpu_ns += tasks[i].used.cpu_ns;
		sum.faults += tasks[i].used.faults;
		background_ns -= (int64_t)tasks[i].all.cpu_ns;
	}
	background_ns += (int64_t)process.cpu_ns;
	if (wrong)
		stop(BROKEN, "%" PRIu64 " pages were not zero when they were handed out", wrong);
	cpu_s = (double)sum.cpu_ns / 1e9;
	if (!wall_ns || cpu_s <= 0)
		stop(BROKEN, "too short to be measured: give more --mib or --reps");
	if (json)
		printf("{\"experiment\":\"faults\",\"mib\":%" PRIu64 ",\"reps\":%" PRIu64
		       ",\"threads\":%" PRIu64 ",\"lines\":%" PRIu64 ",\"pause_ms\":%" PRIu64
		       ",\"pages\":%" PRIu64 ",\"user_s\":%.6f,\"system_s\":%.6f,\"wall_s\":%.6f"
		       ",\"flt_cpu_s\":%.1f,\"fault_wsec\":%.1f,\"minor_faults\":%" PRIu64
		       ",\"background_s\":%.6f}\n",
		       mib, reps, threads, lines, pause_ms, pages, (double)sum.user_ns / 1e9,
		       (double)sum.system_ns / 1e9, wall_s, (double)pages / cpu_s,
		       (double)pages / wall_s, sum.faults, background_ns > 0 ? (double)background_ns / 1e9 : 0);
	else
		printf(" Gb Rep Threads CLine   User    System     Wall    flt/cpu/s   fault/wsec\n"
		       "%3g %3" PRIu64 " %7" PRIu64 " %5" PRIu64 " %6.3fs  %7.3fs %7.3fs %12.1f %12.1f\n",
		       (double)mib / 1024, reps, threads, lines, (double)sum.user_ns / 1e9,
		       (double)sum.system_ns / 1e9, wall_s, (double)pages / cpu_s,
		       (double)pages / wall_s);
}

int main(int argc, char **argv)
{
	int json = 0;

	program_name = "faults";
	for (int i = 1; i < argc; i++) {
		const char *option = argv[i];

		if (!strcmp(option, "--json")) {
			json = 1;
			continue;
		}
		i++;
		if (!strcmp(option, "--mib"))
			mib = at_least_one(option, argv[i]);
		else if (!strcmp(option, "--reps"))
			reps = at_least_one(option, argv[i]);
		else if (!strcmp(option, "--threads"))
			threads = at_least_one(option, argv[i]);
		else if (!strcmp(option, "--lines"))
			lines = at_least_one(option, argv[i]);
		else if (!strcmp(option, "--pause-ms"))
			pause_ms = number(option, argv[i]);
		else if (!strcmp(option, "--warm"))
			warm = number(option, argv[i]);
		else if (!strcmp(option, "--from") && argv[i])
			from = argv[i];
		else
			no_such(option, help);
	}
	share = (size_t)(mib << 20) / threads / PAGE * PAGE;
	if (threads > MAX_THREADS || lines > LINES || LINES % lines || !share)
		stop(MISTAKE, "give up to %d threads, 1, 2, 4 .. %d lines, and a page a thread",
		     MAX_THREADS, LINES);
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	for (uint64_t i = 1; i < threads; i++)
		if (pthread_create(&tasks[i].thread, NULL, work, &tasks[i]))
			stop(1, "no thread");
	work(tasks);
	for (uint64_t i = 1; i < threads; i++)
		pthread_join(tasks[i].thread, NULL);
	say(json);
	return 0;
}
