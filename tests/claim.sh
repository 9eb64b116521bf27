#!/bin/sh
# Programs as they are installed, started with their memory leased: prezero claim, end to end.
#   tests/claim.sh DIR      where prezero and prezerod are
set -eu
bin=$(cd "$1" && pwd)
dir=$(mktemp -d)
export PREZERO_SOCKET="$dir/prezerod.sock"
broker=
client=
finish() {
    for process in $client $broker; do kill "$process" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap finish EXIT INT TERM
fail() {
    echo "claim: $1" >&2
    cat "$dir/log" >&2
    exit 1
}
if grep -q '\[deny\]' /sys/kernel/mm/transparent_hugepage/shmem_enabled 2>/dev/null ||
    [ ! -e /sys/kernel/mm/transparent_hugepage/shmem_enabled ]; then
    echo "claim: left out: this kernel makes no transparent huge pages of shared memory"
    exit 0
fi

mkfifo "$dir/said"
"$bin/prezerod" 2>"$dir/said" --socket "$PREZERO_SOCKET" &
broker=$!
exec 3<"$dir/said"
read -r line <&3
echo "$line" >"$dir/log"
case $line in *"serving on"*) ;; *) fail "prezerod does not serve" ;; esac
cat <&3 >>"$dir/log" &

"$bin/prezero" claim 64M -- cmp -n 67108864 '{lease}' /dev/zero || fail "a lease that is not zero"
"$bin/prezero" claim 64M -- sh -c 'test "$(stat -Lc %s "$1")" = 67108864' sh '{lease}' || fail "its size"
"$bin/prezero" claim 64M -- sh -c 'exit 7' && fail "the status is not the program's"
[ $? -eq 7 ] || fail "the status is not the program's"
if "$bin/prezero" claim 63M 2>"$dir/no"; then fail "63M is no multiple of 2M"; fi
grep -q 'round up to 2M' "$dir/no" || fail "no mend for 63M: $(cat "$dir/no")"
"$bin/prezero" stock | grep -q 'by processes that live: nothing' || fail "leases of programs that ended"
echo "claim: cmp, sh: good"

if command -v memcached >/dev/null; then
    "$bin/prezero" claim 64M -- memcached -u root -m 64 -s "$dir/memcached" -e '{lease}' >>"$dir/log" 2>&1 &
    client=$!
    python3 - "$dir/memcached" <<'PYTHON' || fail "memcached does not answer"
import socket, sys, time
for _ in range(1000):
    try:
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(sys.argv[1])
        break
    except OSError:
        time.sleep(0.01)
peer.settimeout(10)
peer.sendall(b"set key 0 0 5\r\nvalue\r\nget key\r\nquit\r\n")
answer = b""
while part := peer.recv(4096):
    answer += part
assert b"VALUE key 0 5\r\nvalue\r\nEND" in answer, answer
PYTHON
    "$bin/prezero" stock | grep -q ' 64M ' || fail "memcached's lease is not shown"
    kill "$client"
    wait "$client" 2>/dev/null || true
    client=
    echo "claim: memcached: good"
fi

if command -v qemu-system-x86_64 >/dev/null; then
    qmp='{"execute":"qmp_capabilities"}{"execute":"query-memdev"}{"execute":"quit"}'
    echo "$qmp" | timeout 60 "$bin/prezero" claim 256M -- qemu-system-x86_64 -accel tcg -m 256M \
        -object 'memory-backend-file,id=m,size=256M,mem-path={lease},share=on' \
        -machine memory-backend=m -S -display none -nodefaults -qmp stdio >"$dir/qmp" 2>>"$dir/log" ||
        fail "QEMU does not start"
    grep -q '"size": 268435456' "$dir/qmp" || fail "QEMU has another memory: $(cat "$dir/qmp")"
    if "$bin/prezero" claim 256M -- qemu-system-x86_64 \
        -object 'memory-backend-file,id=m,size=256M,mem-path={lease}' 2>"$dir/no"; then
        fail "a private guest was not refused"
    fi
    grep -q 'add share=on' "$dir/no" || fail "no mend for a private guest"
    echo "claim: QEMU: good"
fi
