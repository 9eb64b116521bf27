# about: 1,000,000 lines, one and two threads
# version: sort --version
# needs: sort awk
set -e
awk 'BEGIN { srand(11); for (n = 0; n < 1000000; n++)
    printf "%08x %s\n", rand() * 4294967295, substr("abcdefghijklmnopqrstuvwxyz", 1, n % 27) }' >lines
sort -S 64M lines | sha256sum
sort --parallel=2 -o sorted lines
sha256sum <sorted
