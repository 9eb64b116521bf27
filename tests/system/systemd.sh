#!/bin/sh
# The units as they are shipped, under a real systemd: it is process 1 of namespaces of its own, knows
# our units only, and its cgroups are removed at the end. Needs root.
#   tests/system/systemd.sh DIR      where prezero and prezerod are
set -eu
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/../.." && pwd)
systemd=/lib/systemd/systemd
skip() {
    echo "systemd: left out: $1"
    exit 0
}
[ "$(id -u)" -eq 0 ] || skip "namespaces and cgroups need root"
[ -x "$systemd" ] && command -v nsenter unshare systemctl >/dev/null || skip "no systemd, unshare or nsenter here"
grep -q '^[^ ]* /sys/fs/cgroup' /proc/mounts || skip "no cgroups are mounted"
[ ! -d /run/systemd/system ] || skip "a systemd runs here already; its cgroups are not for tests"

dir=$(mktemp -d)
name="prezero-test-$$"
inside=
fail() {
    echo "systemd: $1" >&2
    cat "$dir/log" >&2
    exit 1
}
. "$here/tests/common/until.sh"
# Ends the systemd and what it started, all of which live in its namespace of processes.
finish() {
    [ -z "$inside" ] || kill -KILL "$inside" 2>/dev/null || true
    wait 2>/dev/null || true
    for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup/*/; do
        [ ! -d "$hierarchy/$name" ] || find "$hierarchy/$name" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    rm -rf "$dir"
}
trap finish EXIT INT TERM

mkdir "$dir/units" "$dir/bin"
cp "$bin/prezero" "$bin/prezerod" "$dir/bin"
for unit in "$here"/crates/prezerod/systemd/*; do
    sed "s|/usr/local/bin/prezerod|$dir/bin/prezerod|; s|/etc/prezero/prezerod.toml|$dir/prezerod.toml|" \
        "$unit" >"$dir/units/${unit##*/}"
done
printf 'backing = "thp"\nmetrics = "/run/prezero/metrics.sock"\n[[tenant]]\nname = "all"\nusers = [0, 65534]\n[[stock]]\nsize = "8M"\nkeep = 2\n' \
    >"$dir/prezerod.toml"
chmod 755 "$dir" "$dir/bin"
mkdir "$dir/units/prezerod.service.d"
# /tmp is private to the service, so the files lie elsewhere for it; and the test starts it more often than a host does.
printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nBindReadOnlyPaths=%s\nStandardError=append:%s\n' "$dir" "$dir/log" >"$dir/units/prezerod.service.d/test.conf"
printf '[Unit]\nDescription=Ours alone\nWants=prezerod.socket prezerod-metrics.socket\nDefaultDependencies=no\n' \
    >"$dir/units/default.target"
for unit in basic sockets sysinit shutdown paths timers slices local-fs; do
    printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' "$unit" >"$dir/units/$unit.target"
done
cat >"$dir/begin" <<'BEGIN'
#!/bin/sh
# A group of its own in each hierarchy that systemd uses, the root of all it sees.
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup/*/; do
    [ -e "$hierarchy/cgroup.procs" ] || continue
    mkdir -p "$hierarchy/$1" 2>/dev/null && echo 0 >"$hierarchy/$1/cgroup.procs" 2>/dev/null
done
exec unshare --cgroup --pid --mount --uts --ipc --fork "$2/inside" "$2"
BEGIN
cat >"$dir/inside" <<'INSIDE'
#!/bin/sh
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
export SYSTEMD_UNIT_PATH="$1/units" container=prezero-test
exec /lib/systemd/systemd --system --log-target=console --log-level=info --show-status=no
INSIDE
chmod 755 "$dir/begin" "$dir/inside"
"$dir/begin" "$name" "$dir" </dev/null >"$dir/log" 2>&1 &
begun=$!
listens() {
    child=$(cat "/proc/$begun/task/$begun/children" 2>/dev/null || true)
    inside=${child%% *}
    kill -0 "$begun" 2>/dev/null || { inside=; skip "systemd does not come up here: $(tail -n 1 "$dir/log")"; }
    [ -n "$inside" ] && nsenter -t "$inside" -p -m test -S /run/prezero/prezerod.sock 2>/dev/null
}
until_true "a socket" listens
in_it() { nsenter -t "$inside" -p -m -C env PREZERO_SOCKET=/run/prezero/prezerod.sock "$@"; }
in_it test -S /run/prezero/metrics.sock || fail "no socket for metrics"
[ "$(in_it systemctl is-active prezerod.service || true)" = inactive ] || fail "it runs before anybody asked"

# The socket starts the service, with everything that is hardened.
in_it "$dir/bin/prezero" claim 4M -- cmp -n 4194304 '{lease}' /dev/zero || fail "no lease"
show() { in_it systemctl show -P "$1" prezerod.service; }
[ "$(show ActiveState)" = active ] || fail "not active"
[ "$(show StatusText)" = serving ] || fail "the service has not said that it serves"
in_it python3 - <<'PYTHON' || fail "no metrics"
import socket
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(300)
peer.connect("/run/prezero/metrics.sock")
peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
answer = b""
while part := peer.recv(65536):
    answer += part
assert answer.startswith(b"HTTP/1.1 200") and b"prezerod_lease_misses_total 1\n" in answer, answer
PYTHON
user=$(in_it sh -c "stat -c %u /proc/$(show MainPID)")
[ "$user" -ne 0 ] || fail "the service is root"

ready() { in_it "$dir/bin/prezero" stock --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["ready"]))'; }
two_ready() { [ "$(ready)" -ge 2 ]; }
# Two are kept, and the claim's size is learnt.
settled() { in_it "$dir/bin/prezero" stock --json | python3 -c 'import json, sys; s = json.load(sys.stdin); sys.exit(s["making_bytes"] or len(s["ready"]) < 3)'; }
made() { in_it "$dir/bin/prezero" stock --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["made_bytes"])'; }
until_true "stock" settled
# The stock survives a restart in the descriptor store: it is there, and none of it was made again.
in_it systemctl restart prezerod.service || fail "no restart"
until_true "the stock to be read" grep -q 'stored inodes are zero and kept' "$dir/log"
two_ready || fail "the stock did not survive: $(ready)"
[ "$(made)" -eq 0 ] || fail "the stock was made again"

# It reads its configuration again, also a bad one.
in_it systemctl reload prezerod.service || fail "no reload"
until_true "the configuration, read again" grep -q 'configuration read again' "$dir/log"

# Killed: another serves within a second, and a lease that was handed out lives on.
in_it "$dir/bin/prezero" claim 8M -- sh -c '. "$3"; kill -KILL "$1"; within 300 [ -e "$4" ] && cmp -n 8388608 "$2" /dev/zero' \
    sh "$(show MainPID)" '{lease}' "$here/tests/common/until.sh" "$dir/next" &
holder=$!
began=$(date +%s%N)
# restarted N: so often, and it serves.
restarted() { [ "$(show NRestarts)" -ge "$1" ] && [ "$(show ActiveState)" = active ]; }
until_true "the next broker" restarted 1
in_it "$dir/bin/prezero" claim 2M --wait 300 >/dev/null || fail "no lease after kill -9"
took=$((($(date +%s%N) - began) / 1000000))
: >"$dir/next"
wait "$holder" || fail "a lease did not outlive its broker"
kept() { [ "$(grep -c ' of [0-9]* stored inodes are zero and kept' "$dir/log")" -ge 2 ]; }
until_true "the stock of a broker that was killed" kept
echo "systemd: a lease from the next broker $took ms after kill -9"

# Stopped in its tracks: the watchdog ends it, and another serves. A short one, which would end a broker that had no CPU for
# as long on a busy machine, is here alone.
printf '[Service]\nWatchdogSec=2\n' >"$dir/units/prezerod.service.d/watchdog.conf"
in_it systemctl daemon-reload && in_it systemctl restart prezerod.service || fail "no restart with a short watchdog"
so_far=$(show NRestarts)
# One that the watchdog has ended already has no number: 0 would be this script.
stops() {
    main=$(show MainPID)
    [ "$main" -gt 0 ] && in_it kill -STOP "$main"
}
until_true "a broker that is stopped" stops
until_true "the watchdog" restarted $((so_far + 1))
leases() { in_it "$dir/bin/prezero" claim 2M --wait 300 2>"$dir/no" >/dev/null; }
until_true "a lease after the watchdog" leases
rm "$dir/units/prezerod.service.d/watchdog.conf"
echo "systemd: $("$systemd" --version | head -n 1): socket, notify, descriptor store, reload, restart, watchdog: good"

# With the drop-in for tenants that pay by themselves.
cgroup=$(for file in memory/memory.usage_in_bytes memory.current unified/memory.current; do
    [ ! -e "/sys/fs/cgroup/${file%/*}/$name/${file##*/}" ] || echo "/sys/fs/cgroup/${file%/*}/$name pay/${file##*/}"
done | head -n 1)
if [ -n "$cgroup" ]; then
    cp "$here/crates/prezerod/examples/charge.conf" "$dir/units/prezerod.service.d"
    sed -i "s|^users = .*|&\ncharge = \"/$name/pay\"|" "$dir/prezerod.toml"
    in_it systemctl daemon-reload && in_it systemctl restart prezerod.service || fail "no restart with charge.conf"
    in_it "$dir/bin/prezero" claim 32M --wait 300 -- sh -c 'test "$(cat "$1")" -ge 33554432' sh "${cgroup% *}/${cgroup#* }" ||
        fail "the lease is not charged to the tenant: $(cat "${cgroup% *}/${cgroup#* }")"
    echo "systemd: charged to the tenant's cgroup: good"
fi

if command -v systemd-analyze >/dev/null; then
    exposure=$(systemd-analyze security --offline=true "$here/crates/prezerod/systemd/prezerod.service" |
        sed -n 's/.*exposure level for [^:]*: \([0-9.]*\).*/\1/p')
    awk "BEGIN { exit !(\"$exposure\" != \"\" && $exposure <= 2.0) }" || fail "exposure $exposure, 2.0 is the most"
    echo "systemd: exposure $exposure"
fi
