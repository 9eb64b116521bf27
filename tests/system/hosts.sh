#!/bin/sh
# Hosts that lack something, and questions that cannot be answered with yes: each gets one line, and
# the line says what would help. Other hosts are played in mount and PID namespaces, which needs root.
#   tests/system/hosts.sh DIR      where prezero and prezerod are
set -eu
bin=$(cd "$1" && pwd)
common=$(cd "$(dirname "$0")/../common" && pwd)
dir=$(mktemp -d)
chmod 755 "$dir"
# Where another user may run them.
mkdir "$dir/bin"
cp "$bin/prezero" "$bin/prezerod" "$bin/libprezero.so" "$dir/bin"
bin=$dir/bin
export PREZERO_SOCKET="$dir/socket"
broker=
finish() {
    [ -z "$broker" ] || kill "$broker" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT INT TERM
fail() {
    echo "hosts: $1" >&2
    cat "$dir/log" "$dir/said" >&2 2>/dev/null || true
    exit 1
}
. "$common/until.sh"
# start CONFIG [PREFIX...]: a broker with this configuration, below the words before it.
start() {
    printf '%s' "$1" >"$dir/config"
    shift
    : >"$dir/log"
    "$@" "$bin/prezerod" --config "$dir/config" --socket "$dir/socket" >/dev/null 2>"$dir/log" &
    broker=$!
    until_true "prezerod comes up" serves
}
serves() {
    kill -0 "$broker" 2>/dev/null || fail "prezerod does not come up"
    grep -q 'serving on' "$dir/log"
}
stop() {
    kill "$broker" 2>/dev/null || true
    wait "$broker" 2>/dev/null || true
    broker=
    rm -f "$dir/socket"
}
# refused WHAT MEND COMMAND...: it fails, with one line that has this in it.
refused() {
    what=$1 mend=$2
    shift 2
    if "$@" >"$dir/said" 2>&1; then fail "$what: it was not refused"; fi
    [ "$(wc -l <"$dir/said")" -eq 1 ] || fail "$what: more than a line"
    grep -qF -- "$mend" "$dir/said" || fail "$what: no mend ($mend)"
    echo "hosts: $what: $(cat "$dir/said")"
}
claim="$bin/prezero claim"

# Anywhere, as anybody.
: >"$dir/log"
refused "no broker" "does prezerod run?" $claim 2M -- true
cat >"$dir/stopped.py" <<'PYTHON'
import os, signal, socket, subprocess, sys
from until import until
door, first = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
door.bind(sys.argv[1])
door.listen(0)
first.connect(sys.argv[1])
claim = subprocess.Popen([*sys.argv[2:], "--socket", sys.argv[1], "--", "true"])
def state():
    with open(f"/proc/{claim.pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]
while claim.poll() is None:
    # Until it waits again: one that is only about to run would be stopped again and get nowhere.
    for number, states in (signal.SIGSTOP, "TZ"), (signal.SIGCONT, "SDZ"):
        os.kill(claim.pid, number)
        until("the signal", lambda: state() in states)
sys.exit(claim.returncode)
PYTHON
refused "a broker that accepts nobody, and a claim that is stopped now and then" "does not answer" \
    env "PYTHONPATH=$common" PYTHONDONTWRITEBYTECODE=1 python3 "$dir/stopped.py" "$dir/full" $claim 2M --wait 1
printf 'limits = 1\n' >"$dir/bad"
refused "an unknown key" "bad:1: unknown field" "$bin/prezerod" --check "$dir/bad"
refused "an unknown key, at the start" "bad:1: unknown field" "$bin/prezerod" --config "$dir/bad" --socket "$dir/no"
refused "no such file" "nowhere" "$bin/prezerod" --check "$dir/nowhere"
refused "no place for the socket" "give --socket PATH" "$bin/prezerod" --socket /proc/prezero/socket
echo kept >"$dir/file"
refused "a file in the socket's place" "no socket" "$bin/prezerod" --socket "$dir/file"
[ "$(cat "$dir/file")" = kept ] || fail "a file in the socket's place is gone"
start ''
refused "no multiple of the page" "round up to 4M" $claim 3M -- true
refused "pages of 4 KiB" "give 2M or 1G" $claim 4M --page-size 4K -- true
refused "a node that does not exist" "or any" $claim 2M --node 999 -- true
refused "more than there is" "ask for less" $claim 8T -- true
refused "a second broker" "another prezerod serves" "$bin/prezerod" --socket "$dir/socket"
refused "a wait that is none" "30, 500ms, 2m" $claim 2M --wait soon -- true
stop
user=$(id -u)
start "$(printf '[[tenant]]\nname = "a"\nusers = [%s]\nquota = "4M"\n' "$user")"
refused "a full quota" "raise its quota" $claim 6M -- true
stop
start "$(printf '[[tenant]]\nname = "a"\nusers = [4294967]\n')"
refused "nobody's tenant" "name it in [[tenant]]" $claim 2M -- true
stop
start 'backing = "hugetlb"'
refused "too few pages in the pool" "hugepages-2048kB/nr_hugepages" $claim 1T -- true
stop
# Nobody asks for stock and hears: the report says the same.
start "$(printf 'backing = "hugetlb"\n[[stock]]\nsize = "1T"\nkeep = 1\n')"
says_why() {
    "$bin/prezero" stock >"$dir/said" && grep -q '^wanted: 1 of 1T in 2M pages, 0 ready: .*hugepages-2048kB/nr_hugepages' "$dir/said"
}
until_true "why nothing is ready" says_why
echo "hosts: stock that cannot be: $(grep '^wanted' "$dir/said")"
stop

[ "$user" -eq 0 ] && unshare --mount true 2>/dev/null || {
    echo "hosts: left out: other hosts need root to be played"
    exit 0
}

# Another user: not let in by the socket's permissions, nor by the configuration.
as="setpriv --reuid=65534 --regid=65534 --clear-groups"
start 'socket-mode = "0600"'
refused "a socket that is not for this user" "see socket-mode" $as $claim 2M -- true
stop
start ''
refused "another user than the broker's" "name it in [[tenant]]" $as $claim 2M -- true
stop
# By a group that is not the process's first.
thp=/sys/kernel/mm/transparent_hugepage
if [ -e "$thp/shmem_enabled" ] && ! grep -q '\[deny\]' "$thp/shmem_enabled"; then
    # A path that another user's program has, which nobody else sees leading anywhere.
    start "$(printf '[[tenant]]\nname = "a"\nusers = [0, 65534]\n')"
    mkdir -m 777 "$dir/shared"
    mkfifo "$dir/pipe"
    $claim 2M --path "$dir/shared/lease" -- sh -c 'echo; read -r line' <"$dir/pipe" >"$dir/up" &
    user_of_it=$!
    exec 4>"$dir/pipe"
    until_true "the path's user" [ -s "$dir/up" ]
    refused "a path in use by another user" "is another user's" $as $claim 2M --path "$dir/shared/lease" -- true
    [ "$(cat "/proc/$user_of_it/comm")" = sh ] && [ -s "$dir/shared/lease" ] || fail "the path is not its user's any more"
    exec 4>&-
    wait "$user_of_it" || true
    refused "a path that another user left" "is another user's" $as $claim 2M --path "$dir/shared/lease" -- true
    refused "a path in a directory of others" "where this user may make a link" $as $claim 2M --path "$dir/lease" -- true
    stop
    start "$(printf 'backing = "thp"\n[[tenant]]\nname = "a"\ngroups = [12345]\n')"
    setpriv --reuid=65534 --regid=65534 --groups=12345 $claim 2M -- cmp -n 2097152 '{lease}' /dev/zero ||
        fail "a member of a tenant's group gets no lease"
    stop
fi

# A host without any huge pages: neither a pool nor transparent ones.
echo 'always within_size advise never [deny] force' >"$dir/deny"
cat >"$dir/bare" <<'BARE'
#!/bin/sh
mount --bind "$1/deny" /sys/kernel/mm/transparent_hugepage/shmem_enabled || exit 1
for pools in /sys/kernel/mm/hugepages /sys/devices/system/node/node*/hugepages; do
    [ ! -d "$pools" ] || mount -t tmpfs none "$pools" || exit 1
done
shift
exec "$@"
BARE
chmod 755 "$dir/bare"
if [ -e "$thp/shmem_enabled" ]; then
    start '' unshare --mount "$dir/bare" "$dir"
    grep -q 'no huge pages at all; reserve some' "$dir/log" || fail "no advice for a host without huge pages"
    refused "no huge pages at all" "/nr_hugepages" $claim 2M -- true
    refused "no pages of 1 GiB" "/nr_hugepages" $claim 1G --page-size 1G -- true
    stop
fi

# THP "never" is not in the way: what is asked for by name is made all the same.
if [ -e "$thp/shmem_enabled" ] && ! grep -q '\[deny\]' "$thp/shmem_enabled"; then
    start 'backing = "thp"'
    $claim 4M -- true || fail "no lease with THP $(cat "$thp/enabled"), shmem $(cat "$thp/shmem_enabled")"
    stop
    # Memory that may not be executed, whoever makes it; sysctl of a PID namespace.
    cat >"$dir/panel.py" <<'PYTHON'
import os, subprocess, sys
from until import until
def panel():
    # What is freed lets scrubd start, and that makes the panel, when it has a CPU.
    del [bytearray(8 << 20) for _ in range(4)][:]
    return subprocess.run([sys.argv[1], "ctl", str(os.getpid()), "get"], capture_output=True).returncode == 0
until("a panel", panel)
PYTHON
    if unshare --pid --fork --mount-proc sh -c 'echo 2 >/proc/sys/vm/memfd_noexec' 2>/dev/null; then
        # The last broker's log says that it serves.
        rm -f "$dir/log"
        unshare --pid --fork --mount-proc sh -c 'echo 2 >/proc/sys/vm/memfd_noexec
            . "$3/until.sh"
            "$1/prezerod" --socket "$PREZERO_SOCKET" 2>"$2/log" &
            within 300 grep -qs "serving on" "$2/log" && "$1/prezero" claim 4M -- cmp -n 4194304 "{lease}" /dev/zero && "$1/prezero" stock >/dev/null &&
            "$1/prezero" run --stats off -- env "PYTHONPATH=$3" PYTHONDONTWRITEBYTECODE=1 \
            python3 "$2/panel.py" "$1/prezero"' sh "$bin" "$dir" "$common" || fail "no lease or no panel with vm.memfd_noexec=2"
        echo "hosts: vm.memfd_noexec=2: good"
        rm -f "$dir/socket"
        # A broker that cannot name its client, of a PID namespace above its own.
        start '' unshare --pid --fork --kill-child --mount-proc
        refused "a PID namespace above the broker's" "run prezerod in that one" $claim 2M -- true
        kill -KILL "$broker" # unshare(1) keeps SIGTERM to itself; it takes its child along
        wait "$broker" 2>/dev/null || true
        broker=
    fi
fi
echo "hosts: good"
