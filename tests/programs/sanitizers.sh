# about: programs with Address-, Leak-, Thread- and UndefinedBehaviorSanitizer, options of their own among them
# version: gcc --version
# needs: gcc
# The script's processes are children of one that prezero started: what it does for that one must not disturb them.
cat >work.c <<'C'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int shared;
static void *add(void *unused) { shared++; return unused; }
int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	char *block = calloc(1, 300000);
	pthread_t threads[2];
	puts("starts");
	fflush(stdout);
	block = realloc(block, 900000);
	if (!strcmp(how, "overrun"))
		block[900000] = 1;
	if (!strcmp(how, "late"))
		free(block), block[5] = 1;
	if (!strcmp(how, "leak"))
		block = NULL;
	if (!strcmp(how, "overflow"))
		shared = 0x7fffffff, shared += argc;
	if (!strcmp(how, "race")) {
		for (int i = 0; i < 2; i++)
			pthread_create(&threads[i], NULL, add, NULL);
		for (int i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
	}
	free(block);
	return 0;
}
C
tell() {
    status=0
    said=$("$@" 2>&1) || status=$?
    echo "$* $status: $(echo "$said" | sed -n 's/.*\(starts\|[A-Z][a-z]*Sanitizer: [a-z-]*\|runtime error: [a-z ]*\).*/\1/p' | sort -u | tr '\n' ' ')"
}
for kind in address leak thread undefined; do
    gcc -g -O1 -w -fsanitize=$kind -pthread -o $kind work.c 2>log || { echo "no $kind" && continue; }
    for how in well overrun late leak overflow race; do
        case $kind.$how in
        *.well | address.overrun | address.late | address.leak | leak.leak | undefined.overflow | thread.race)
            # Where a process is traced, or has the addresses of another kernel, there is no looking for leaks.
            tell ./$kind $how
            ;;
        esac
    done
done
export ASAN_OPTIONS=exitcode=42 TSAN_OPTIONS=exitcode=43 UBSAN_OPTIONS=halt_on_error=1:exitcode=44 LSAN_OPTIONS=exitcode=45
tell ./address overrun
tell ./thread race
tell ./undefined overflow
env | grep -o '^[A-Z]*SAN_OPTIONS=.*' | sort
