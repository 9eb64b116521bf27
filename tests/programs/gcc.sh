# about: gcc -O2 -g of 800 functions
# version: gcc --version
# needs: gcc awk
set -e
awk 'BEGIN {
    print "#include <stdio.h>\n#include <string.h>"
    for (n = 0; n < 800; n++) {
        a = n % 50 + 2
        printf "static int f%d(int x) { int a[%d]; memset(a, x, sizeof a); for (int i = 1; i < %d; i++)", n, a, a
        printf " a[i] += a[i - 1] * %d; return a[%d] ^ %d; }\n", n, a - 1, n
    }
    print "int main(void) { unsigned s = 0;"
    for (n = 0; n < 800; n++) printf "s += f%d(%d);\n", n, n % 7
    print "printf(\"%u\\n\", s); return 0; }" }' >many.c
# The folder is in the debug information; the soak compiles in another one each time.
gcc -O2 -g -ffile-prefix-map="$PWD=." -c -o many.o many.c
sha256sum many.o
