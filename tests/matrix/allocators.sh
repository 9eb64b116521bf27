# about: the test programs of mimalloc that call malloc
# version: sed -n 's/.*MI_MALLOC_VERSION *\([0-9]*\).*/mimalloc \1/p' "$SOURCE/mimalloc/include/mimalloc.h"
# needs: gcc g++
# source: mimalloc
set -e
# Its calloc is a malloc there.
sed "s/malloc(n\*s)/calloc(n,s)/" "$SOURCE/mimalloc/test/test-stress.c" >stress.c
gcc -O2 -DUSE_STD_MALLOC -o stress stress.c -pthread
scale=10 turns=5
[ "$SCALE" = short ] || scale=50 turns=50
./stress 2 $scale $turns | tail -n 1
./stress 8 $scale $turns | tail -n 1
