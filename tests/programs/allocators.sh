# about: test programs of mimalloc (test-stress) and gperftools (realloc, memalign)
# version: sed -n 's/.*MI_MALLOC_VERSION *\([0-9]*\).*/mimalloc \1/p' "$SOURCE/mimalloc/include/mimalloc.h"
# needs: gcc g++
# source: mimalloc google-perftools
# Those that ask for nothing but malloc and its family; the others call into their allocator.
# A test that is killed, as in the soak, is no test with another result.
set -eo pipefail
scale=10 turns=5
[ "$SCALE" = short ] || scale=50 turns=50
# Its calloc is a malloc there.
sed "s/malloc(n\*s)/calloc(n,s)/" "$SOURCE/mimalloc/test/test-stress.c" >stress.c
gcc -O2 -DUSE_STD_MALLOC -o stress stress.c -pthread
./stress 2 $scale $turns | tail -n 1
./stress 8 $scale $turns | tail -n 1

source=$SOURCE/google-perftools/src
mkdir gperftools
sed 's/@[A-Z_]*@/0/g' "$source/gperftools/tcmalloc.h.in" >gperftools/tcmalloc.h
for feature in STDINT_H INTTYPES_H UNISTD_H FCNTL_H MALLOC_H FEATURES_H MEMALIGN POSIX_MEMALIGN PTHREAD __ATTRIBUTE__; do
    echo "#define HAVE_$feature 1"
done >config.h
echo '#define PERFTOOLS_DLL_DECL' >>config.h
echo 'int RunningOnValgrind(void) { return 0; }' | gcc -x c -c -o valgrind.o -
for test in realloc memalign; do
    g++ -O1 -w -fno-builtin -I. -I"$source" -I"$source/tests" -o $test -pthread "$source/tests/${test}_unittest.cc" \
        "$source/tests/testutil.cc" "$source/base/logging.cc" valgrind.o
    last=$(./$test | tail -n 1)
    echo "$test: $last"
done
