/*
 * A thread's large requests while another is in dlopen, and waits for it there: in the constructor of argv[1], which is this
 * file with PLUGIN. libc's malloc takes no lock of the dynamic linker. With a second argument there is a zone before.
 */
#include "check.h"

#ifdef PLUGIN

extern void meet(void);

__attribute__((constructor)) static void begin(void)
{
	meet();
}

#else

static void *worker(void *unused)
{
	use_and_free();
	free(realloc(malloc(100), MIB));
	return unused;
}

void meet(void)
{
	pthread_t thread;
	pid_t child;
	int status;

	CHECK(pthread_create(&thread, NULL, worker, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		use_and_free();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	if (argc > 2)
		use_and_free();
	CHECK(dlopen(argv[1], RTLD_NOW));
	puts("good");
	return 0;
}

#endif
