/*
 * With "traps", floats raise signals, as with gfortran's -ffpe-trap. No call of the library raises one or sets a flag, the
 * thread that clears starts without the traps, and the report at the end is still written.
 */
#include "check.h"
#include <fenv.h>
#include <stddef.h>

#define ALL FE_ALL_EXCEPT

static size_t numbers = 1;

static size_t any(size_t most)
{
	numbers = numbers * 6364136223846793005u + 1442695040888963407u;
	return 1 + (numbers >> 33) % most;
}

/* Every way in, with sizes and alignments of every kind. */
static void work(int rounds)
{
	char *kept[16] = {0};

	for (int i = 0; i < rounds; i++) {
		char **block = &kept[any(16) - 1];
		size_t size = any(i % 8 ? 512 * KIB : 40 * MIB);

		switch (any(6)) {
		case 1:
			*block = realloc(*block, size);
			break;
		case 2:
			free(*block);
			*block = malloc(size);
			break;
		case 3:
			free(*block);
			*block = aligned_alloc(PAGE << any(9), (size + PAGE) & ~(PAGE - 1));
			break;
		case 4:
			free(*block);
			*block = NULL;
			malloc_trim(0);
			continue;
		default:
			free(*block);
			*block = calloc(1, size);
		}
		CHECK(*block);
		**block = 1;
		if (i % 16 == 0)
			usleep(2000);
	}
	for (int i = 0; i < 16; i++)
		free(kept[i]);
	CHECK(fetestexcept(ALL) == 0);
}

static void *of_a_thread(void *unused)
{
	work(300);
	return unused;
}

int main(int argc, char **argv)
{
	int (*figures)(char *, size_t) = (int (*)(char *, size_t))dlsym(RTLD_DEFAULT, "prezero_stats_json");
	static char text[1 << 16];
	pthread_t thread;
	int status;

	if (argc > 1 && !strcmp(argv[1], "traps"))
		CHECK(feenableexcept(ALL) != -1);
	CHECK(fesetround(FE_UPWARD) == 0);
	work(600);
	CHECK(pthread_create(&thread, NULL, of_a_thread, NULL) == 0);
	work(300);
	CHECK(pthread_join(thread, NULL) == 0);
	pid_t child = fork();
	if (child == 0) {
		work(300);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(figures && figures(text, sizeof text) > 0);
	CHECK(fetestexcept(ALL) == 0 && fegetround() == FE_UPWARD);
	puts("good");
	return 0;
}
