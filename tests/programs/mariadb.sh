# about: inserts and updates while mysqldump runs, the dump restored, and a kill -9 with its recovery
# version: mariadbd --version | sed 's/.*Ver //; s/ .*//'
# needs: mariadbd mariadb mariadb-dump mariadb-install-db
# scale: long
set -e
fail() { echo "$1" >&2; tail error.log >&2; exit 1; }
. "$TOP/tests/common/until.sh"
rows=60000 turns=40
[ "$SCALE" = short ] || rows=1000000 turns=400
as=()
if [ "$(id -u)" = 0 ]; then
    chown nobody .
    as=(setpriv "--reuid=nobody" "--regid=nogroup" --clear-groups)
fi
"${as[@]}" mariadb-install-db --no-defaults --datadir="$PWD/data" --auth-root-authentication-method=normal \
    --skip-test-db --innodb-log-file-size=32M >install 2>&1 || { cat install; exit 1; }
start() {
    "${as[@]}" mariadbd --no-defaults --datadir="$PWD/data" --socket="$PWD/s" --pid-file="$PWD/pid" --skip-networking \
        --innodb-buffer-pool-size=96M --innodb-log-file-size=32M --sort-buffer-size=16M --tmp-table-size=64M \
        --max-heap-table-size=64M >>error.log 2>&1 &
    server=$!
    until_true "a server" answers
}
sql() { mariadb --no-defaults --socket="$PWD/s" -u root -BN "$@"; }
answers() { kill -0 $server || fail "the server ended"; sql -e 'select 1' >/dev/null 2>&1; }
trap 'kill -9 $server 2>/dev/null || true' EXIT
start
sql <<SQL
create database one; create database two; use one;
create table t (id int primary key, k int, text mediumtext, key (k)) engine=innodb;
insert into t select seq, seq * 7919 % 100003, repeat(sha1(seq), 10) from seq_1_to_$rows;
insert into t select -seq, seq, repeat(md5(seq), 20000) from seq_1_to_40;
SQL
# Sums, so that the order in which they come does not matter.
sums() { sql "$1" -e 'select count(*), sum(k), sum(crc32(text)), max(length(text)) from t'; }
sums one
for turn in $(seq "$turns"); do
    sql one -e "update t set k = k + 1, text = concat(reverse(text), '') where id % 40 = $turn % 40;
        select max(c) from (select k % 1000, count(*) c from t group by 1 order by sha1(k % 1000) desc) s" >/dev/null
done &
load=$!
mariadb-dump --no-defaults --socket="$PWD/s" -u root --single-transaction one >dump.sql
sql two <dump.sql
wait $load
sums one
sql two -e 'select count(*), max(length(text)) from t; check table t'
# Committed and killed: all of it is there again.
sql one -e 'delete from t where id % 3 = 0'
sums one >before
kill -9 $server
wait $server 2>/dev/null || true
start
sums one | cmp - before && echo "the same after a crash"
sql -e shutdown
wait $server
