/*
 * pinned: host memory for a GPU, until it is pinned, by the ways that servers have.
 *
 * A program of `prezero bench pinned`. `pinned WAY BYTES` says how many ms the memory took until it was pinned and to be
 * touched for the first time (in CPU time: a busy machine takes the CPU away, and pinned memory has nothing to wait for),
 * GB/s to the device and back, and the longest wait, in ms, of a second process that asks cudaMemGetInfo meanwhile, as the
 * servers beside it do: that is the driver's lock. Ways:
 *
 *   alloc     the driver makes and pins it
 *   pieces    the same, 16 MiB at a time, as a server with many buffers asks
 *   small     registered as 4 KiB pages that are absent
 *   thp       the same of huge pages
 *   threads   threads populate 4 KiB pages before: TensorRT-LLM's way
 *   hugetlb   pages of the pool
 *
 * `pinned which` says whether CUDA is that of tests/standin. CUDA is opened when the program runs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "worker.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define PIECE ((size_t)16 << 20)
/* The pace of a copy is known by then. */
#define COPIED ((size_t)1 << 30)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
enum { TO_DEVICE = 1, FROM_DEVICE = 2, MOST_THREADS = 64 };

/* What the second process shows: its longest question, and when the one began that it waits for. */
struct watched {
	_Atomic uint64_t longest, began;
	_Atomic int ready, ends;
};

static void *library;

static void fail(const char *what)
{
	fail_as("pinned", what);
}

static int (*function(const char *name))()
{
	int (*found)() = (int (*)())dlsym(library, name);

	if (!found)
		fail(name);
	return found;
}

static void called(int code, const char *what)
{
	if (code) {
		fprintf(stderr, "pinned: %s: error %d\n", what, code);
		exit(1);
	}
}

static int open_cuda(void)
{
	static const char *names[] = { "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0" };

	for (size_t i = 0; !library && i < sizeof(names) / sizeof(*names); i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
	return library != NULL;
}

static void watch(struct watched *w)
{
	size_t free_bytes, total;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	called(function("cudaFree")(NULL), "cudaFree");
	while (!w->ends) {
		uint64_t began = now(), took;

		w->began = began;
		called(function("cudaMemGetInfo")(&free_bytes, &total), "cudaMemGetInfo");
		took = now() - began;
		w->began = 0;
		if (took > w->longest)
			w->longest = took;
		w->ready = 1;
		usleep(500);
	}
	_exit(0);
}

struct part {
	char *at;
	size_t bytes;
};

static void *populate(void *what)
{
	struct part *part = what;

	return madvise(part->at, part->bytes, MADV_POPULATE_WRITE) ? what : NULL;
}

static void by_threads(char *at, size_t bytes)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t threads = cpus < 1 ? 1 : cpus > MOST_THREADS ? MOST_THREADS : (size_t)cpus;
	size_t share = (bytes / threads + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	struct part part[MOST_THREADS];
	pthread_t thread[MOST_THREADS];
	size_t many = 0;

	for (size_t from = 0; from < bytes; from += share, many++) {
		part[many] = (struct part){ at + from, from + share < bytes ? share : bytes - from };
		if (pthread_create(&thread[many], NULL, populate, &part[many]))
			fail("no thread");
	}
	for (size_t i = 0; i < many; i++) {
		void *failed;

		pthread_join(thread[i], &failed);
		if (failed)
			fail("MADV_POPULATE_WRITE: refused");
	}
}

static char *made(const char *way, size_t bytes)
{
	int pool = !strcmp(way, "hugetlb");
	size_t room = pool ? 0 : HUGE_BYTES;
	char *p = mmap(NULL, bytes + room, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (pool ? MAP_HUGETLB : 0), -1, 0);

	if (p == MAP_FAILED)
		fail("no memory");
	p = (char *)(((uintptr_t)p + room) / HUGE_BYTES * HUGE_BYTES);
	if (!pool)
		madvise(p, bytes, strcmp(way, "thp") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
	if (!strcmp(way, "threads"))
		by_threads(p, bytes);
	called(function("cudaHostRegister")(p, bytes, 0u), "cudaHostRegister");
	return p;
}

static double copied(void *to, const void *from, size_t bytes, int kind)
{
	uint64_t began = now();

	called(function("cudaMemcpy")(to, from, bytes, kind), "cudaMemcpy");
	return (double)bytes / (double)(now() - began);
}

int main(int argc, char **argv)
{
	size_t bytes = argc == 3 ? strtoull(argv[2], NULL, 10) : 0, many = 1, part;
	int by_driver, pieces;
	struct watched *w;
	void *driver, *device, **at;
	uint64_t began, waits, longest, touched;
	double pinned, to;

	if (argc == 2 && !strcmp(argv[1], "which")) {
		driver = open_cuda() ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
		if (driver && dlsym(driver, "standin_copy"))
			puts("a stand-in for CUDA (tests/standin): its pins are real, its device is the host");
		return 0;
	}
	if (!bytes)
		fail("usage: pinned alloc|pieces|small|thp|threads|hugetlb BYTES");
	if (!open_cuda())
		fail("no libcudart here: install CUDA, or name a folder that has it by LD_LIBRARY_PATH; tests/standin has one for machines without a GPU");
	w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (w == MAP_FAILED)
		fail("no memory");
	if (!fork())
		watch(w);
	/* The context, which takes its time once. */
	called(function("cudaFree")(NULL), "cudaFree");
	while (!w->ready)
		usleep(500);
	w->longest = 0;
	pieces = !strcmp(argv[1], "pieces");
	by_driver = pieces || !strcmp(argv[1], "alloc");
	if (pieces && !(many = bytes / PIECE))
		fail("a size below 16 MiB");
	at = calloc(many, sizeof(*at));
	part = pieces ? PIECE : bytes;
	began = now();
	for (size_t i = 0; by_driver && i < many; i++)
		called(function("cudaHostAlloc")(&at[i], part, 0u), "cudaHostAlloc");
	if (!by_driver)
		at[0] = made(argv[1], bytes);
	pinned = (double)(now() - began) / 1e6;
	waits = w->began;
	longest = w->longest;
	if (waits && now() - waits > longest)
		longest = now() - waits;
	w->ends = 1;
	touched = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	for (size_t i = 0; i < many; i++)
		for (size_t offset = 0; offset < part; offset += 4096)
			*((volatile char *)at[i] + offset) = 1;
	touched = clock_ns(CLOCK_THREAD_CPUTIME_ID) - touched;
	part = part < COPIED ? part : COPIED;
	called(function("cudaMalloc")(&device, part), "cudaMalloc");
	copied(device, at[0], part, TO_DEVICE);
	to = copied(device, at[0], part, TO_DEVICE);
	printf("%.3f %.3f %.3f ", pinned, (double)touched / 1e6, to);
	printf("%.3f %.3f\n", copied(at[0], device, part, FROM_DEVICE), (double)longest / 1e6);
	return 0;
}
