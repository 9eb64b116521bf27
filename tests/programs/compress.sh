# about: gzip -9, xz -3 with two threads, and back
# version: xz --version
# needs: gzip xz awk
set -e
awk 'BEGIN { srand(5); for (n = 0; n < 600000; n++) printf "%d %08x\n", n, rand() * 65536 }' >lines
gzip -n -9 <lines | tee lines.gz | sha256sum
gzip -d <lines.gz | cmp - lines
xz -T2 -3 --block-size=2MiB <lines | tee lines.xz | sha256sum
xz -T2 -d <lines.xz | cmp - lines
