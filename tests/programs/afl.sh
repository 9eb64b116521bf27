# about: AFL++ finds the input that ends a program, with its instrumentation alone and with AddressSanitizer
# version: dpkg-query -W -f 'AFL++ ${Version}' afl++
# needs: afl-fuzz afl-clang-fast
# How fast it is differs from run to run: what is compared is what it finds.
cat >work.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void)
{
	char *text = calloc(1, 1 << 20);
	size_t length = fread(text, 1, 1 << 20, stdin);
	char *copy = malloc(length + (1 << 18));
	memcpy(copy, text, length);
	if (length > 2 && copy[0] == 'F' && copy[1] > 'U')
		abort();
	free(copy);
	free(text);
	return 0;
}
C
mkdir in && echo AU >in/seed
export AFL_QUIET=1 AFL_SKIP_CPUFREQ=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_NO_AFFINITY=1 AFL_NO_UI=1 AFL_BENCH_UNTIL_CRASH=1
for asan in '' 1; do
    ${asan:+env AFL_USE_ASAN=1} afl-clang-fast -O1 -o work work.c 2>log || { cat log; continue; }
    for text in AU FA; do
        echo "$text" | afl-showmap -q -o map -- ./work >/dev/null
        echo "${asan:-0} $text: $(wc -l <map) edges"
    done
    timeout 120 afl-fuzz -i in -o "out$asan" -m none -s 7 -- ./work >log 2>&1
    echo "${asan:-0} fuzz: $?"
    ls "out$asan"/default/crashes | grep -c '^id:' | sed 's/[1-9][0-9]*/found/'
done
