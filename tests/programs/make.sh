# about: make -j2 of lz4 (of zstd in the long run), which then compresses
# version: make --version
# needs: make gcc
# source: lz4 libzstd
set -e
name=lz4 program=lz4
[ "$SCALE" = short ] || name=libzstd program=zstd
cp -r "$SOURCE/$name" source && cd source
rm -rf debian/patches
make -j2 $program >log 2>&1 || { tail log >&2; exit 1; }
built=$(find . -type f -name $program -perm -u+x | head -n 1)
find lib -name '*.[ch]' | sort | xargs cat >text
"$built" -q -c text | tee text.packed | sha256sum
"$built" -q -d -c text.packed | cmp - text
