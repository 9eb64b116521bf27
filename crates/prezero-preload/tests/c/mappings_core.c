/* A core has every byte of what is in use, and is little larger than that. */
#include <elf.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "check.h"

#define BLOCKS 40
#define MORE (8 * MIB)

/* What the crashing process tells its parent. */
struct told {
	size_t in_use, freed, dumped;
	struct {
		unsigned char *at;
		size_t size;
	} blocks[BLOCKS];
} *told;

/* Blocks of all kinds: small and large ones, some that grew, some whose neighbours were freed. */
static void use_memory(void)
{
	for (int i = 0; i < BLOCKS; i++) {
		size_t size = i % 4 ? 70 * KIB * i : (i + 1) * MIB / 4;
		unsigned char *block = i % 2 ? malloc(size) : calloc(1, size), *freed = malloc(size);

		if (i % 3 == 0)
			CHECK(block = realloc(block, size *= 2));
		CHECK(block && freed);
		free(freed);
		told->freed += size;
		paint(block, size, i);
		told->blocks[i].at = block;
		told->blocks[i].size = size;
		told->in_use += size;
		CHECK(flagged(" dd", "", block) == 0 && flagged(" dd", "", block + size - 1) == 0);
	}
	told->dumped = address_space() - flagged(" dd", "", NULL);
}

static void check_core(const char *path)
{
	Elf64_Phdr parts[1000];
	Elf64_Ehdr head;
	struct stat about;
	int core = open(path, O_RDONLY);

	CHECK(core >= 0 && fstat(core, &about) == 0);
	/* What was freed a moment ago may be in it. */
	CHECK((size_t)about.st_size <= told->in_use + told->freed + MORE);
	CHECK(pread(core, &head, sizeof head, 0) == sizeof head && head.e_phnum <= 1000);
	CHECK(pread(core, parts, head.e_phnum * sizeof *parts, head.e_phoff) > 0);
	for (int i = 0; i < BLOCKS; i++) {
		size_t at = (size_t)told->blocks[i].at, left = told->blocks[i].size, done = 0;
		unsigned char *found = malloc(left);

		/* A block may lie in several mappings. */
		for (int n = 0; n < head.e_phnum && done < left; n++) {
			size_t from = parts[n].p_vaddr, to = from + parts[n].p_filesz;

			if (parts[n].p_type == PT_LOAD && from <= at + done && at + done < to) {
				size_t here = to - at - done < left - done ? to - at - done : left - done;

				CHECK(pread(core, found + done, here, parts[n].p_offset + at + done - from) ==
				      (ssize_t)here);
				done += here;
				n = -1;
			}
		}
		CHECK(done == left && painted(found, left, i));
		free(found);
	}
	close(core);
}

int main(void)
{
	struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
	char folder[] = "/tmp/prezero-core-XXXXXX", pattern[128] = "", path[200];
	int status, said = open("/proc/sys/kernel/core_pattern", O_RDONLY);

	CHECK(read(said, pattern, sizeof pattern - 1) > 0);
	told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(told != MAP_FAILED && mkdtemp(folder) && chdir(folder) == 0);
	pid_t child = fork();
	if (child == 0) {
		use_memory();
		setrlimit(RLIMIT_CORE, &all);
		abort();
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	/* Beside the blocks lie libraries and stacks. */
	CHECK(told->dumped <= told->in_use + told->freed + 64 * MIB);
	if (WCOREDUMP(status) && !strchr(pattern, '|') && !strchr(pattern, '/') && !strchr(pattern, '%')) {
		snprintf(path, sizeof path, "core");
		if (access(path, R_OK) != 0)
			snprintf(path, sizeof path, "core.%d", child);
		check_core(path);
		unlink(path);
		puts("core");
	} else {
		puts("no core can be made here");
	}
	rmdir(folder);
	return 0;
}
