/*
 * A registration cache: pages that the kernel holds for a device are remembered by address, and forgotten when a
 * call is heard that takes them away. What the device would send is what lies at the address.
 *   hooks    libc's functions are overwritten, as UCX and Open MPI do it
 *   mallopt  glibc is told to keep its memory, and no call is heard
 *   neither  no call is heard
 */
#include "check.h"
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define SIZE (64 * MIB)
#define PAGES 64

/* What is registered: a page in each MiB, which the pipe holds. */
static unsigned char *registered;
static int device[2] = {-1, -1}, valid;

static void heard(void *at, size_t len)
{
	if ((unsigned char *)at < registered + SIZE && registered < (unsigned char *)at + len)
		valid = 0;
}

static int hooked_munmap(void *at, size_t len)
{
	heard(at, len);
	return syscall(SYS_munmap, at, len);
}

static int hooked_madvise(void *at, size_t len, int advice)
{
	if (advice == MADV_DONTNEED || advice == MADV_REMOVE)
		heard(at, len);
	return syscall(SYS_madvise, at, len, advice);
}

static void *hooked_mremap(void *at, size_t old, size_t new, int flags, void *to)
{
	heard(at, old);
	return (void *)syscall(SYS_mremap, at, old, new, flags, to);
}

/* Overwrites the function that libc has by this name with a jump. */
static void hook(const char *name, void *with)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), *function = dlsym(libc, name);
	void *page = (void *)((uintptr_t)function / PAGE * PAGE);

	CHECK(function && mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
#if defined(__x86_64__)
	unsigned char code[] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};

	memcpy(code + 2, &with, sizeof with);
#elif defined(__aarch64__)
	uint64_t to = (uint64_t)with;
	uint32_t code[5] = {0xd2e0000f | (to >> 48) << 5, 0xf2c0000f | (to >> 32 & 0xffff) << 5,
			    0xf2a0000f | (to >> 16 & 0xffff) << 5, 0xf280000f | (to & 0xffff) << 5, 0xd61f01e0};
#else
#error "how does a function jump here?"
#endif
	memcpy(function, code, sizeof code);
	__builtin___clear_cache(function, (char *)function + sizeof code);
	CHECK(mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC) == 0);
}

static void enter(unsigned char *block)
{
	struct iovec pages[PAGES];

	if (device[0] >= 0)
		close(device[0]), close(device[1]);
	CHECK(pipe(device) == 0 && fcntl(device[0], F_SETPIPE_SZ, MIB) >= 0);
	for (int i = 0; i < PAGES; i++)
		pages[i] = (struct iovec){block + i * MIB, PAGE};
	CHECK(vmsplice(device[1], pages, PAGES, 0) == PAGES * (ssize_t)PAGE);
	registered = block;
	valid = 1;
}

/* Whether a device that was told of these pages sees what is in them; as long as it counts on that. */
static void check(const char *after)
{
	static unsigned char sent[PAGES * PAGE];
	int copy[2];

	if (!valid)
		return;
	CHECK(pipe(copy) == 0 && fcntl(copy[0], F_SETPIPE_SZ, MIB) >= 0);
	CHECK(tee(device[0], copy[1], sizeof sent, 0) == sizeof sent);
	for (size_t done = 0; done < sizeof sent;)
		done += read(copy[0], sent + done, sizeof sent - done);
	for (int i = 0; i < PAGES; i++) {
		if (sent[i * PAGE] != registered[i * MIB])
			fprintf(stderr, "after %s page %d has %d, and %d is sent\n", after, i,
				registered[i * MIB], sent[i * PAGE]);
		CHECK(sent[i * PAGE] == registered[i * MIB]);
	}
	close(copy[0]), close(copy[1]);
}

/* Takes memory until what was registered is in use again, writes to all of it, and sends it. */
static void use_again(const char *after)
{
	unsigned char *blocks[8];
	int n = 0, found = 0;

	while (valid && !found && n < 8) {
		CHECK(blocks[n] = n % 2 ? malloc(SIZE) : calloc(1, SIZE));
		memset(blocks[n], 100 + n, SIZE);
		found = blocks[n++] == registered;
	}
	if (found)
		check(after);
	while (n > 0)
		free(blocks[--n]);
}

static unsigned char *filled(int with)
{
	unsigned char *block = malloc(SIZE);

	CHECK(block);
	memset(block, with, SIZE);
	return block;
}

int main(int count, char **arguments)
{
	const char *how = count > 1 ? arguments[1] : "";
	unsigned char *block, *other;

	/* A stock of zeroes, so that there is something to give back. */
	for (int i = 0; i < 10; i++)
		use_and_free();
	if (!strcmp(how, "hooks")) {
		hook("munmap", hooked_munmap);
		hook("madvise", hooked_madvise);
		hook("mremap", hooked_mremap);
	} else if (!strcmp(how, "mallopt")) {
		CHECK(mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, -1) == 1);
	}

	/* It idles, for longer than idle memory stays. */
	enter(block = filled(1));
	free(block);
	(void)WITHIN(3000, left_out(block) > 0);
	/* The kernel takes what was offered, as when memory is short. */
	syscall(SYS_madvise, block, SIZE, MADV_PAGEOUT);
	use_again("a pause");

	/* The program asks for what is free to go back. */
	enter(block = filled(2));
	free(block);
	if (!strcmp(how, "hooks"))
		malloc_trim(0);
	use_again("malloc_trim");

	/* It grows, and moves. */
	enter(block = filled(3));
	other = filled(4);
	CHECK(block = realloc(block, 3 * SIZE));
	CHECK(block[0] == 3 && block[SIZE - 1] == 3);
	use_again("realloc");
	free(block);
	free(other);

	/* Its mapping was changed, as by one that keeps registered memory from children. */
	if (!strcmp(how, "hooks")) {
		enter(block = filled(5));
		void *inside = (void *)(((uintptr_t)block + PAGE) / PAGE * PAGE);

		CHECK(madvise(inside, SIZE - 2 * PAGE, MADV_DONTFORK) == 0);
		CHECK(madvise(inside, SIZE - 2 * PAGE, MADV_DOFORK) == 0);
		free(block);
		use_again("MADV_DONTFORK");
	}

	/* Larger blocks than there are in a row. */
	unsigned char *blocks[8];

	for (int i = 0; i < 8; i++)
		blocks[i] = filled(10 + i);
	enter(blocks[2]);
	for (int i = 0; i < 8; i += 2)
		free(blocks[i]);
	CHECK(other = calloc(3, SIZE));
	memset(other, 20, 3 * SIZE);
	use_again("a large request");
	free(other);
	for (int i = 1; i < 8; i += 2)
		free(blocks[i]);
	puts("good");
	return 0;
}
