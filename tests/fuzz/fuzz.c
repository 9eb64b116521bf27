/* Random sequences of malloc-family and mm calls against a model that knows every byte.
 *
 *	fuzz SEED OPERATIONS THREADS [-v]
 *
 * Ends with 0, or says on stderr what went wrong, in which operation, and aborts. The same
 * arguments make the same sequence for each thread; with one thread all is the same but for what
 * scrubd does meanwhile. Blocks of the malloc family pass from thread to thread.
 */
#include "calls.h"

#include <spawn.h>

#define BOXES 8

extern char **environ;
static struct area *_Atomic boxes[BOXES];
static long operations;
static unsigned long seed;

/* Gives a block to whom it may concern, or takes one. */
static void exchange(struct hands *h)
{
	struct area *_Atomic *box = &boxes[below(BOXES)];
	struct area *given = raw(sizeof *given), *taken;
	struct area *mine = hands_any(h, false), *slot;

	who.doing = "exchange";
	if (mine && mine->block && once_in(2)) {
		area_check_all(mine);
		*given = *mine;
		h->held -= mine->len;
		*mine = (struct area){ 0 };
		taken = atomic_exchange(box, given);
	} else {
		raw_gone(given, sizeof *given);
		taken = atomic_exchange(box, NULL);
	}
	if (!taken)
		return;
	slot = hands_any(h, true);
	if (!slot) {
		struct hands one = { .areas = { *taken }, .held = taken->len };

		call_free(&one, &one.areas[0]);
	} else {
		*slot = *taken;
		h->held += slot->len;
		area_check_all(slot);
	}
	raw_gone(taken, sizeof *taken);
}

static void *short_life(void *count)
{
	struct hands h = { 0 };
	uintptr_t n = (uintptr_t)count;

	who = (struct who){ .state = seed ^ n << 32, .seed = seed, .thread = 1000, .op = n };
	for (int i = 0; i < 6; i++)
		call_allocate(&h);
	hands_check(&h);
	for (int i = 0; i < AREAS; i++)
		if (h.areas[i].at)
			call_free(&h, &h.areas[i]);
	return NULL;
}

static void step(struct hands *h)
{
	struct area *a = hands_any(h, false);

	switch (below(32)) {
	case 0 ... 8:
		return call_allocate(h);
	case 9 ... 14:
		return a ? call_free(h, a) : (void)0;
	case 15 ... 17:
		return a ? call_realloc(h, a) : (void)0;
	case 18 ... 21:
		return a ? call_pages(h, a) : (void)0;
	case 22 ... 23:
		who.doing = "write";
		return a ? area_write(a, below(pages(a->len)), 1) : (void)0;
	case 24:
		return call_map(h);
	case 25:
		who.doing = "check";
		return hands_check(h);
	case 26:
		return once_in(4) ? call_fork(h) : (void)0;
	case 27:
		return once_in(8) ? call_spawn() : (void)0;
	case 28:
		return a ? call_kernel(a) : (void)0;
	case 29:
		return exchange(h);
	case 30: {
		/* Time for scrubd. */
		struct timespec rest = { .tv_nsec = below(3000000) };

		who.doing = "rest";
		nanosleep(&rest, NULL);
		return;
	}
	default: {
		pthread_t thread;

		who.doing = "thread";
		if (once_in(8)) {
			malloc_trim(0);
		} else if (once_in(2) && pthread_create(&thread, NULL, short_life, (void *)who.op) == 0) {
			pthread_join(thread, NULL);
		}
	}
	}
}

static void *life(void *number)
{
	struct hands *h = raw(sizeof *h);

	who = (struct who){ .seed = seed, .thread = (int)(uintptr_t)number };
	who.state = seed * 0x2545f4914f6cdd1d + who.thread;
	for (who.op = 0; who.op < operations; who.op++)
		step(h);
	who.doing = "end";
	hands_check(h);
	for (size_t i = 0; i < AREAS; i++)
		if (h->areas[i].at)
			call_free(h, &h->areas[i]);
	raw_gone(h, sizeof *h);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[16];
	int n;

	if (argc < 4 || (n = atoi(argv[3])) < 1 || n > 16) {
		fprintf(stderr, "usage: fuzz SEED OPERATIONS THREADS(1-16) [-v]\n");
		return 2;
	}
	seed = strtoul(argv[1], NULL, 10);
	operations = atol(argv[2]);
	verbose = argc > 4;
	for (int i = 1; i < n; i++)
		if (pthread_create(&threads[i], NULL, life, (void *)(uintptr_t)i) != 0)
			return 2;
	life(NULL);
	for (int i = 1; i < n; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < BOXES; i++)
		if (boxes[i]) {
			struct hands one = { .areas = { *boxes[i] }, .held = boxes[i]->len };

			call_free(&one, &one.areas[0]);
		}
	/* Until scrubd has put down what it holds: asked for where memory seems to be missing. */
	if (getenv("FUZZ_REST"))
		sleep(atoi(getenv("FUZZ_REST")));
	return 0;
}
