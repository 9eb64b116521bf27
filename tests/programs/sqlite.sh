# about: its speedtest1 with --verify, in memory and in a file
# version: sqlite3 --version | sed 's/^/SQLite /; s/ 20.*//'
# needs: gcc sqlite3
# source: sqlite3
set -e
gcc -O2 -o speedtest1 "$SOURCE/sqlite3/test/speedtest1.c" -lsqlite3 2>log || { cat log; exit 1; }
size=20
[ "$SCALE" = short ] || size=200
results() { sed 's/\.\.\..*//; /TOTAL/d'; }
./speedtest1 --size $size --verify :memory: | results
./speedtest1 --size $size --verify --cachesize 4000 --journal wal file.db | results
sqlite3 file.db 'pragma integrity_check'
