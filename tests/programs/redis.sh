# about: redis-benchmark with BGSAVE and AOF rewrite meanwhile, then a restart from each
# version: redis-server --version | sed 's/ sha=.*//'
# needs: redis-server redis-benchmark redis-cli
set -e
fail() { echo "$1" >&2; exit 1; }
. "$TOP/tests/common/until.sh"
requests=10000 keys=10000
[ "$SCALE" = short ] || requests=1000000 keys=200000
socket=$PWD/socket bench=
server() {
    redis-server --port 0 --unixsocket "$socket" --daemonize no --save '' --enable-debug-command yes \
        --dir "$PWD" --proto-max-bulk-len 64mb "$@" >>log 2>&1 &
    server=$!
    until_true "redis-server" answers
}
# While it loads it answers with something else.
answers() {
    kill -0 $server || { cat log; exit 1; }
    [ "$(cli ping 2>&1)" = PONG ]
}
cli() { redis-cli -s "$socket" "$@"; }
stop() { cli shutdown "$@" >/dev/null 2>&1 || true; wait $server || true; }
trap 'kill -9 $bench $server 2>/dev/null || true' EXIT
# Whoever ended the server, its limit say, leaves nothing to wait for.
alive() { kill -0 $server || { tail log >&2; exit 1; }; }
info() { cli info persistence | tr -d '\r' | sed -n "s/^$1://p"; }
rests() {
    alive
    [ "$(info rdb_bgsave_in_progress)$(info aof_rewrite_in_progress)$(info aof_rewrite_scheduled)" = 000 ]
}
saved() { until_true "what is saved" rests; }

server --appendonly yes --appendfsync no
saved
cli debug populate $keys key 2000
cli debug populate 300 large 300000
# The load goes to a database of its own; its keys are random.
for bytes in 100 70000; do
    redis-benchmark -s "$socket" --dbnum 1 -q -n $((requests / (bytes / 10000 + 1))) -r 500 -d $bytes -c 20 -P 4 \
        -t set,get,lpush,lpop >bench 2>&1 &
    bench=$!
    cli bgsave >/dev/null
    saved
    cli bgrewriteaof >/dev/null
    saved
    # It may wait for ever for a server that was ended.
    ended() { alive && ! kill -0 $bench 2>/dev/null; }
    within 3600 ended
    wait $bench
    if grep -i error bench; then exit 1; fi
    for what in rdb_last_bgsave aof_last_bgrewrite aof_last_write; do
        [ "$(info ${what}_status)" = ok ] || { tail log >&2; exit 1; }
    done
    echo "$bytes bytes: saved and rewritten under load"
done
cli -n 1 flushdb
cli debug digest >before
cat before
cli save
cp dump.rdb kept.rdb
stop nosave
server --appendonly yes
cli debug digest | cmp - before
echo the same after a restart from the AOF
stop nosave
rm -rf appendonlydir
mv kept.rdb dump.rdb
server --appendonly no
cli debug digest | cmp - before
echo the same after a restart from the RDB
stop nosave
