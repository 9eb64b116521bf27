# about: pgbench, a killed backend, a crash under load and the recovery from it
# version: $(ls -d /usr/lib/postgresql/*/bin/postgres | sort -V | tail -n 1) --version
# needs: /usr/lib/postgresql/*/bin/postgres runuser
set -e
fail() { echo "$1" >&2; exit 1; }
. "$TOP/tests/common/until.sh"
transactions=1500 scale=3
[ "$SCALE" = short ] || transactions=100000 scale=30
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
export PATH=$bin:$PATH PGHOST=$PWD PGDATABASE=postgres PGUSER=postgres
as=()
if [ "$(id -u)" = 0 ]; then
    chown postgres .
    as=(runuser -u postgres --)
fi
running() { [ -f data/postmaster.pid ]; }
trap '! running || "${as[@]}" pg_ctl -s -D data -m immediate stop || true' EXIT
start() {
    "${as[@]}" pg_ctl -s -w -t 600 -D data -l "$PWD/log" -o "-k '$PWD' -h '' -c shared_buffers=64MB \
        -c work_mem=32MB -c max_wal_size=256MB -c restart_after_crash=on" start
}
# However often it is asked, a server that recovers says so until it has.
answers() {
    psql -XAtqc "$1" 2>said && return
    grep -qE 'recovery|starting up|terminat|closed|refused|No such file|connect' said || fail "$(cat said)"
    false
}
ask() { within 1800 answers "$1"; }
balanced() {
    ask 'select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)
        and (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history)
        and (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history)'
}
"${as[@]}" initdb -D data -A trust -U postgres >initdb
start
pgbench -q -i -s $scale 2>/dev/null
pgbench -n -c 4 -j 2 -t $transactions --random-seed=7 2>&1 | grep -E 'actually|failed'
ask 'select count(*), sum(delta) from pgbench_history'
echo "balanced: $(balanced)"
ask 'select md5(string_agg(t, chr(10) order by t)) from (select aid::bigint * 7919 % 100003 || repeat(chr(97 + aid % 26), 50) as t
    from pgbench_accounts order by 1) s'

# A backend dies in the middle of its work: the server ends all others and recovers.
pgbench -n -c 4 -j 2 -T 600 >/dev/null 2>&1 &
load=$!
backend=
# One that was seen may have ended since: the first connection of pgbench only looks around.
until [ -n "$backend" ] && "${as[@]}" kill -9 $backend 2>/dev/null; do
    backend=$(psql -XAtqc "select pid from pg_stat_activity where application_name = 'pgbench' and state <> 'idle' limit 1" || true)
done
wait $load || true
echo "balanced after a killed backend: $(balanced)"

# All of it dies.
pgbench -n -c 4 -j 2 -T 600 >/dev/null 2>&1 &
load=$!
much() { [ "$(psql -XAtqc 'select count(*) > 3000 * '$scale' from pgbench_history' || true)" = t ]; }
within 1800 much
"${as[@]}" pg_ctl -s -D data -m immediate stop
wait $load || true
start
echo "balanced after a crash: $(balanced)"
ask 'select count(*) from pgbench_accounts'
"${as[@]}" pg_ctl -s -D data -m fast stop
