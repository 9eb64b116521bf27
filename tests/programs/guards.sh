# about: DUMA, Electric Fence and dmalloc, linked and preloaded on either side; blocks that grow, and one that is overrun
# version: dpkg-query -W -f '${Package} ${Version}\n' duma
# needs: gcc /usr/lib/libduma.so.0 /usr/lib/libefence.so.0
# What a guard finds it says in its own words, with addresses: only how the program ends is compared.
set -e
cat >work.c <<'C'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
	char *blocks[40], *grown = NULL;
	size_t size = 1000;
	for (int i = 0; i < 24; i++, size = size * 3 / 2) {
		grown = realloc(grown, size);
		memset(grown + (i ? size * 2 / 3 : 0), i, size - (i ? size * 2 / 3 : 0));
	}
	unsigned long sum = 0;
	for (size_t at = 0; at < size * 2 / 3; at += 97)
		sum = sum * 31 + grown[at];
	for (int i = 0; i < 40; i++) {
		blocks[i] = i % 3 == 0 ? calloc(1, 300000 + i) : i % 3 == 1 ? malloc(200000 + i) : memalign(4096, 400000 + i);
		for (int at = 0; i % 3 == 0 && at < 300000; at++)
			sum += blocks[i][at];
		memset(blocks[i], i, 200000);
	}
	for (int i = 0; i < 40; i++)
		free(blocks[i]);
	free(grown);
	printf("%lu\n", sum);
	fflush(stdout);
	if (argc > 1) {
		volatile char *block = malloc(1 << 20);
		block[1 << 20] = 1;
		puts("not caught");
	}
	return 0;
}
C
gcc -O1 -fno-builtin -w -o plain work.c
ours=${LD_PRELOAD-}
for library in /usr/lib/libduma.so.0 /usr/lib/libefence.so.0 /usr/lib/*/libdmalloc.so; do
    [ -e "$library" ] || continue
    guard=${library##*/lib} guard=${guard%%.*}
    gcc -O1 -fno-builtin -w -o linked work.c "$library"
    for way in "linked:$ours" "plain:$library:$ours" "plain:$ours:$library"; do
        for overrun in '' overrun; do
            [ "$guard" != dmalloc ] || [ -z "$overrun" ] || continue # it looks at the end, if it is told to
            status=0
            said=$(EF_DISABLE_BANNER=1 LD_PRELOAD=${way#*:} ./"${way%%:*}" $overrun 2>/dev/null) || status=$?
            echo "$guard ${way%%:*} $overrun: $(echo "$said" | grep -v -i -e duma -e '^$' | tr '\n' ' ') $status"
        done
    done
done
