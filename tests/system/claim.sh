#!/bin/sh
# Programs as they are installed, started with their memory leased: prezero claim, end to end.
#   tests/system/claim.sh DIR      where prezero and prezerod are
set -eu
bin=$(cd "$1" && pwd)
common=$(cd "$(dirname "$0")/../common" && pwd)
dir=$(mktemp -d)
export PREZERO_SOCKET="$dir/prezerod.sock"
broker=
client=
pool=/proc/sys/vm/nr_hugepages
before=
finish() {
    umount "$dir/huge" 2>/dev/null || true
    [ -z "$before" ] || echo "$before" >"$pool"
    [ -z "$broker" ] || kill -CONT "$broker" 2>/dev/null || true
    for process in $client $broker; do kill "$process" 2>/dev/null || true; done
    # At its end it writes its state there.
    [ -z "$broker" ] || wait "$broker" 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT INT TERM
fail() {
    echo "claim: $1" >&2
    cat "$dir/log" >&2
    exit 1
}
. "$common/until.sh"
export PYTHONPATH="$common" PYTHONDONTWRITEBYTECODE=1
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
grep -q 'round up to 64M' "$dir/no" || fail "no mend for 63M: $(cat "$dir/no")"
# The broker hears of a lease's end a moment later.
nothing_leased() { "$bin/prezero" stock | grep -q 'by processes that live: nothing'; }
until_true "the end of the leases of programs that ended" nothing_leased
# Behind a second claim {lease} is that one's memory; --path names the first one's there.
"$bin/prezero" claim 64M --path "$dir/outer" -- "$bin/prezero" claim 32M -- sh -c 'test "$(stat -Lc %s "$1")" = 33554432 &&
    test "$(stat -Lc %s "$2")" = 67108864' sh '{lease}' "$dir/outer" || fail "a claim in a claim"
"$bin/prezero" claim 64M -- sh -c "test \"\$(stat -Lc %s {lease})\" = 67108864 && PATH='$bin:$PATH' &&
    prezero claim 32M -- sh -c 'test \"\$(stat -Lc %s {lease})\" = 33554432'" || fail "a claim in a shell's command"
echo "claim: cmp, sh: good"

# Without a lease: one line, and the program as it would be. A broker that is stopped costs the wait and a second.
one_line() { [ "$(wc -l <"$dir/no")" -eq 1 ] && grep -q "$1" "$dir/no" || fail "not one line with '$1': $(cat "$dir/no")"; }
plain() { "$bin/prezero" claim "$@" 2>"$dir/no"; }
plain 64M --socket "$dir/none" --or-plain -- cmp -n 67108864 '{lease}' /dev/zero || fail "no plain memory"
one_line 'does prezerod run?; cmp runs with ordinary memory'
"$bin/prezero" claim 64M --socket "$dir/none" --or-plain -- true 2>/dev/full || fail "a full disk stops programs"
plain 64M --socket "$dir/none" --or-plain --path "$dir/outer" -- test -s "$dir/outer" || fail "no plain memory by path"
plain 64M --node 999 --or-plain -- true || fail "a refusal is no end"
one_line 'no lease: .*; true runs with ordinary memory'
kill -STOP "$broker"
until_true "the broker stops" is_stopped "$broker"
# The longer limit is for a hang alone.
if timeout 300 "$bin/prezero" claim 64M --wait 0.1 -- true 2>"$dir/no"; then fail "a lease of a stopped broker"; fi
one_line 'the broker does not answer'
timeout 300 "$bin/prezero" claim 64M --wait 0.1 --or-plain -- cmp -n 1 '{lease}' /dev/zero 2>"$dir/no" || fail "a stopped broker stops programs"
one_line 'runs with ordinary memory'
kill -CONT "$broker"
echo "claim: without a lease: good"

if command -v memcached >/dev/null; then
    "$bin/prezero" claim 64M -- memcached -u root -m 64 -s "$dir/memcached" -e '{lease}' >>"$dir/log" 2>&1 &
    client=$!
    python3 - "$dir/memcached" <<'PYTHON' || fail "memcached does not answer"
import socket, sys
from until import until
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(300)
until("memcached", lambda: peer.connect_ex(sys.argv[1]) == 0)
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
    for words in '-m 32 -e {lease}' '-m 128 -e {lease}' '-m 65 -e {lease}' '-m 64'; do
        # shellcheck disable=SC2086 # words
        if "$bin/prezero" claim 64M -- memcached -u root -s "$dir/memcached" $words 2>"$dir/no"; then
            fail "memcached $words"
        fi
        [ "$(wc -l <"$dir/no")" -eq 1 ] && grep -q 'give -m 64\|add -e' "$dir/no" || fail "$words: $(cat "$dir/no")"
    done
    echo "claim: memcached: good"
fi

link="$dir/memory"
"$bin/prezero" claim 64M --path "$link" -- sh -c 'test "$1" = "$2" && cmp -n 67108864 "$1" /dev/zero &&
    test "$(readlink "$1")" = "/proc/$$/fd/$PREZERO_LEASE_FD"' sh '{lease}' "$link" || fail "a lease by path"
[ -L "$link" ] && [ ! -e "$link" ] || fail "the path leads somewhere after the program's end"
"$bin/prezero" claim 64M --path "$link" -- test -s "$link" || fail "a path that an earlier program left"
if "$bin/prezero" claim 64M --path "$dir/log" -- true 2>"$dir/no"; then fail "--path over a file"; fi
grep -q 'is there already' "$dir/no" || fail "no reason for --path over a file: $(cat "$dir/no")"
# What is somebody's stays, and is said before anything is leased: a link of his own, one to a program that
# runs.
ln -s "$dir/unmounted" "$dir/own"
if "$bin/prezero" claim 64M --path "$dir/own" -- true 2>"$dir/no"; then fail "--path over a user's own link"; fi
[ "$(readlink "$dir/own")" = "$dir/unmounted" ] || fail "a user's own link is gone"
if "$bin/prezero" claim 64M --path "$dir/none/memory" -- true 2>"$dir/no"; then fail "--path without a directory"; fi
grep -q 'make its directory' "$dir/no" || fail "no mend for a directory that is missing: $(cat "$dir/no")"
# Relative paths lead there wherever the program goes; and a killed program's link is the next one's.
(cd "$dir" && "$bin/prezero" claim 64M --path memory -- sh -c 'cd / && test -s "$1" && kill -KILL $$' sh '{lease}' || :) 2>/dev/null
[ -L "$link" ] && [ ! -e "$link" ] || fail "no link after SIGKILL"
mkfifo "$dir/pipe"
"$bin/prezero" claim 64M --path "$link" -- sh -c 'echo; read -r line' <"$dir/pipe" >"$dir/up" 2>>"$dir/log" &
client=$!
exec 4>"$dir/pipe"
until_true "the program of the path" [ -s "$dir/up" ]
if "$bin/prezero" claim 64M --path "$link" -- true 2>"$dir/no"; then fail "--path of a program that runs"; fi
grep -q "in use by process $client" "$dir/no" || fail "who uses it: $(cat "$dir/no")"
exec 4>&-
wait "$client" || true
client=
if "$bin/prezero" claim 4M --page-size 4K -- true 2>"$dir/no"; then fail "small pages"; fi
grep -q 'costs its client more' "$dir/no" || fail "no reason against small pages: $(cat "$dir/no")"
echo "claim: by path: good"

python=$(command -v python3)
# Two mappings as PostgreSQL makes them: one gets the lease, the other the kernel's memory, and a
# child started later nothing. What is known to go wrong is said.
"$bin/prezero" claim 64M --preload -- "$python" - "$python" <<'PYTHON' 2>"$dir/said2" || fail "--preload: $(cat "$dir/said2")"
import ctypes, mmap, os, subprocess, sys
def maps():
    return sum("memfd:prezero" in line for line in open("/proc/self/maps"))
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
size, shared = 60 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
def private():
    return libc.mmap(None, 2 << 20, 3, mmap.MAP_PRIVATE, int(os.environ["PREZERO_LEASE_FD"]), 0)
assert maps() == 0
libc.mmap(None, 2 << 20, 3, shared, -1, 0)
libc.mmap(None, size, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
libc.mmap(None, 128 << 20, 3, shared, -1, 0)
assert maps() == 0, "too small, private, or too large, and yet it was the lease"
first = libc.mmap(None, size + 12345, 3, shared, -1, 0)
assert maps() == 1 and first % (2 << 20) == 0
memory = (ctypes.c_char * size).from_address(first)
assert bytes(memory) == bytes(size)
memory[0] = b"x"
second = libc.mmap(None, size, 3, shared, -1, 0)
assert maps() == 1 and (ctypes.c_char * size).from_address(second)[0] == b"\0", "leased twice"
# A child of a fork shares it, a program that is started does not have it.
if os.fork() == 0:
    os._exit(0 if memory[0] == b"x" else 1)
assert os.wait()[1] == 0
held = subprocess.run([sys.argv[1], "-c", "import os; os.fstat(int(os.environ['PREZERO_LEASE_FD']))"],
                      close_fds=False, stderr=subprocess.DEVNULL)
assert held.returncode != 0, "a program that is started holds the lease"
copy = private()
assert libc.madvise(first, 2 << 20, 4) == 0 and memory[0] == b"x"
# A mapping of the program's own begins where huge pages do, and goes as a whole. What is reserved is
# there; what is not is refused, as is what would change the lease.
lease = int(os.environ["PREZERO_LEASE_FD"])
own = libc.mmap(None, (6 << 20) + 1, 3, mmap.MAP_SHARED, lease, 0)
assert own % (2 << 20) == 0 and maps() == 3, (own, maps())
# Of several mappings the first is looked after; pages of a pool are not cut.
assert libc.munmap(own, (6 << 20) + 1) == 0 or libc.munmap(own, 8 << 20) == 0
assert maps() == 2
os.posix_fallocate(lease, 0, 64 << 20)
for offset, length, mode in (0, 65 << 20, 0), (1, 64 << 20, 0), (0, 0, 0), (-1, 1, 0):
    assert libc.fallocate(lease, mode, ctypes.c_long(offset), ctypes.c_long(length)) == -1, (offset, length)
assert libc.munmap(copy, 2 << 20) == 0 and libc.munmap(first, size + 12345) == 0 and maps() == 0
PYTHON
grep -q 'mapped privately' "$dir/said2" || fail "no warning of a private mapping"
grep -q 'MADV_DONTNEED on the lease' "$dir/said2" || fail "no warning of MADV_DONTNEED"
grep -q 'lease more: prezero claim 128M' "$dir/said2" || fail "no word of a lease that is too small"
# Of two programs of a script the first has the lease; the second must not find it dirty.
"$bin/prezero" claim 64M --preload -- sh -c '
    for expected in 1 0; do
        "$1" -c "
import mmap, sys
memory = mmap.mmap(-1, 64 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
mine = sum(\"memfd:prezero\" in line for line in open(\"/proc/self/maps\"))
assert mine == int(sys.argv[1]), mine
assert memory[:] == bytes(64 << 20), \"dirty\"
memory[:5] = b\"dirty\"" $expected || exit 1
    done' sh "$python" || fail "one lease for two programs"
# Other programs' temporary files are their own.
"$bin/prezero" claim 64M --preload -- "$python" -c '
import tempfile
with tempfile.TemporaryFile(dir="'"$dir"'") as file:
    assert file.read() == b"", "it is the lease"' 2>"$dir/no" || fail "a temporary file: $(cat "$dir/no")"
# A lease that nobody used is told of at the end, and one that did not reach its process, which another
# process needs for zero memory.
one_line 'the lease of 64 MiB was never used'
map='import mmap; mmap.mmap(-1, 64 << 20)'
plain 64M --preload -- "$python" -c "$map" || fail "one mapping"
[ ! -s "$dir/no" ] || fail "a used lease: $(cat "$dir/no")"
plain 64M --preload -- "$python" -c "import subprocess, sys; subprocess.run([sys.executable, '-c', '$map'])" || fail "a child"
grep -q 'pass_fds=\[[0-9]*\]' "$dir/no" && grep -q 'never used' "$dir/no" || fail "a closed descriptor: $(cat "$dir/no")"
plain 64M --preload -- "$python" -c "
import os, subprocess, sys
subprocess.run([sys.executable, '-c', '$map'], pass_fds=[int(os.environ['PREZERO_LEASE_FD'])])" || fail "a child with the descriptor"
[ ! -s "$dir/no" ] || fail "a lease that a child used: $(cat "$dir/no")"
plain 64M --preload -- "$python" -c 'import ctypes; ctypes.CDLL(None).shmget(0, 64 << 20, 0)' || fail "shmget"
grep -q 'System V shared memory is never the lease' "$dir/no" || fail "no word of System V: $(cat "$dir/no")"
# Nothing of that is said into what a program puts in the place of descriptor 2, before an exec or after.
for how in stays goes; do
    plain 64M --preload -- "$python" -c '
import ctypes, os, sys
os.close(2)
assert os.open(sys.argv[1], os.O_CREAT | os.O_TRUNC | os.O_RDWR) == 2
os.write(2, b"record 1")
if sys.argv[2] == "goes":
    os.set_inheritable(2, True)
    os.execl(sys.executable, sys.executable, "-c", "import ctypes; ctypes.CDLL(None).shmget(0, 64 << 20, 0)")
ctypes.CDLL(None).shmget(0, 64 << 20, 0)' "$dir/data" "$how" || fail "descriptor 2 that $how"
    [ "$(cat "$dir/data")" = "record 1" ] && [ ! -s "$dir/no" ] || fail "a line in the data: $(cat "$dir/data" "$dir/no")"
done
# A program that maps its path has it, too: the next one of a script must not find it dirty.
plain 64M --preload -- sh -c '"$1" -c "
import mmap, os
mmap.mmap(os.open(\"$2\", os.O_RDWR), 64 << 20)[:1] = b\"x\"" &&
    "$1" -c "import mmap; assert mmap.mmap(-1, 64 << 20)[:1] == bytes(1), \"dirty\""' sh "$python" '{lease}' ||
    fail "a lease that was mapped by its path is leased again: $(cat "$dir/no")"
# Who loads it by hand and lets go of it keeps it: what it exports may still be called.
"$python" - "$bin/libprezero_lease_shim.so" <<'PYTHON' || fail "dlclose unmaps the library"
import _ctypes, ctypes, os, sys
path = os.path.realpath(sys.argv[1])
_ctypes.dlclose(ctypes.CDLL(path)._handle)
assert path in open("/proc/self/maps").read()
PYTHON
echo "claim: --preload: good"

if command -v java >/dev/null && command -v javac >/dev/null; then
    cat >"$dir/Heap.java" <<'JAVA'
import java.nio.file.*;
class Heap {
    public static void main(String[] a) throws Exception {
        byte[][] all = new byte[100][];
        for (int i = 0; i < all.length; i++) {
            all[i] = new byte[1 << 20];
            for (byte b : all[i]) if (b != 0) throw new Error("dirty");
        }
        long leased = Files.lines(Path.of("/proc/self/maps")).filter(l -> l.contains("memfd:prezero")).count();
        if (leased == 0) throw new Error("the heap is not the lease");
    }
}
JAVA
    javac -d "$dir" "$dir/Heap.java" || fail "javac"
    for collector in Parallel G1 Serial; do
        "$bin/prezero" claim 256M --preload -- java "-XX:+Use${collector}GC" -Xms256m -Xmx256m \
            -XX:+AlwaysPreTouch -XX:AllocateHeapAt=/tmp -cp "$dir" Heap >>"$dir/log" 2>&1 || fail "JVM, $collector"
    done
    if "$bin/prezero" claim 256M --preload -- java -Xmx300m -XX:AllocateHeapAt=/tmp -cp "$dir" Heap 2>"$dir/no"; then
        fail "a heap that is larger than its lease"
    fi
    grep -q 'lease 300M' "$dir/no" || fail "no mend for a large heap: $(cat "$dir/no")"
    # Options wherever they stand, and a script that starts the JVM.
    heap='-Xms256m -Xmx256m -XX:AllocateHeapAt=/tmp'
    echo "$heap" >"$dir/opts"
    printf '#!/bin/sh\njava %s -cp %s Heap\n' "$heap" "$dir" >"$dir/start"
    chmod +x "$dir/start"
    for variable in JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS; do
        env "$variable=$heap" "$bin/prezero" claim 256M --preload -- java -cp "$dir" Heap >>"$dir/log" 2>&1 || fail "JVM, $variable"
    done
    "$bin/prezero" claim 256M --preload -- java "@$dir/opts" -cp "$dir" Heap >>"$dir/log" 2>&1 || fail "JVM, a file of options"
    "$bin/prezero" claim 256M --preload -- "$dir/start" >>"$dir/log" 2>&1 || fail "JVM, a start script"
    # One that asks for the version first, and runs a small JVM: the lease is for the heap of its size.
    printf '#!/bin/sh\njava -version && java -Xms8m -Xmx16m -version &&\n! java -Xms8m -Xmx112m -cp %s Heap && exec java -cp %s Heap\n' \
        "$dir" "$dir" >"$dir/first"
    chmod +x "$dir/first"
    JAVA_TOOL_OPTIONS=$heap "$bin/prezero" claim 256M --preload -- "$dir/first" >>"$dir/log" 2>&1 || fail "JVM, the version first"
    # Without a lease the heap is no file of that directory.
    cat >"$dir/Own.java" <<'JAVA'
import java.nio.file.*;
class Own {
    public static void main(String[] a) throws Exception {
        for (String l : Files.readAllLines(Path.of("/proc/self/maps")))
            if (l.contains("/jvmheap") || l.contains(" /tmp/#")) throw new Error(l);
    }
}
JAVA
    javac -d "$dir" "$dir/Own.java" || fail "javac"
    # shellcheck disable=SC2086 # $heap is words
    for words in "java $heap" "java @$dir/opts"; do
        plain 256M --socket "$dir/none" --preload --or-plain -- $words -cp "$dir" Own >>"$dir/log" || fail "$words: $(cat "$dir/no")"
    done
    JAVA_TOOL_OPTIONS="$heap" plain 256M --socket "$dir/none" --preload --or-plain -- java -cp "$dir" Own >>"$dir/log" ||
        fail "JAVA_TOOL_OPTIONS: $(cat "$dir/no")"
    echo "claim: JVM: good"
fi

postgres=$(ls -d /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sort -V | tail -n 1)
as=
[ "$(id -u)" -ne 0 ] || as="setpriv --reuid=postgres --regid=postgres --clear-groups"
if [ -n "$postgres" ] && { [ -z "$as" ] || getent passwd postgres >/dev/null; }; then
    tools=$(dirname "$postgres")
    mkdir "$dir/pg"
    chmod 711 "$dir"
    [ -z "$as" ] || chown postgres "$dir/pg"
    $as "$tools/initdb" -D "$dir/pg/data" -A trust -U postgres >>"$dir/log" 2>&1 || fail "initdb"
    # shellcheck disable=SC2086 # $as is words
    "$bin/prezero" claim 256M --preload -- $as "$postgres" -D "$dir/pg/data" -k "$dir/pg" -h '' \
        -c shared_buffers=200MB -c huge_pages=try >>"$dir/log" 2>&1 &
    client=$!
    sql() { $as "$tools/psql" -h "$dir/pg" -U postgres -AtXc "$1" 2>>"$dir/log"; }
    # shellcheck disable=SC2086 # $as is words
    until_true "PostgreSQL" $as "$tools/pg_isready" -qh "$dir/pg"
    sum=$(sql 'CREATE TABLE t AS SELECT generate_series(1, 300000) n; SELECT sum(n) FROM t' | tail -n 1)
    [ "$sum" = 45000150000 ] || fail "PostgreSQL: $sum"
    grep -q memfd:prezero "/proc/$client/maps" || fail "PostgreSQL's shared memory is not the lease"
    # A backend that is killed: the server makes its shared memory anew, and not from the used lease.
    backend=$(sql 'SELECT pg_backend_pid()')
    child=$(sed 's/ .*//' "/proc/$client/task/$client/children")
    [ -n "$backend" ] && kill -KILL "$child"
    # Once the server has heard of its end; a query before that is served from the old memory.
    recovered() { ! kill -0 "$child" 2>/dev/null && [ "$(sql 'SELECT sum(n) FROM t')" = 45000150000 ]; }
    until_true "PostgreSQL recovers" recovered
    if grep -q memfd:prezero "/proc/$client/maps"; then fail "PostgreSQL took a used lease again"; fi
    # Nor does it hold it beside its new memory.
    # shellcheck disable=SC2012 # names of the kernel
    if ls -l "/proc/$client/fd" | grep -q memfd:prezero; then fail "PostgreSQL holds a used lease"; fi
    kill -INT "$client"
    wait "$client" 2>/dev/null || true
    client=
    echo "claim: PostgreSQL: good"
fi

if command -v dpdk-testpmd >/dev/null && [ "$(id -u)" -eq 0 ] && [ -w "$pool" ]; then
    before=$(cat "$pool")
    mkdir "$dir/huge"
    if echo $((before + 128)) >"$pool" && [ "$(cat "$pool")" -ge $((before + 128)) ] &&
        mount -t hugetlbfs -o pagesize=2M none "$dir/huge" 2>>"$dir/log"; then
        "$bin/prezero" place dpdk 200M --dir "$dir/huge" >>"$dir/log" || fail "place dpdk"
        # shellcheck disable=SC2012 # names of our own
        [ "$(ls "$dir/huge" | wc -l)" -eq 100 ] || fail "place dpdk: files"
        cat "$dir"/huge/rtemap_* | cmp -n 209715200 - /dev/zero || fail "place dpdk: not zero"
        inodes=$(ls -i "$dir/huge" | sort)
        if "$bin/prezero" place dpdk 2M --dir "$dir/huge" 2>"$dir/no"; then fail "place over used files"; fi
        grep -q 'rm ' "$dir/no" || fail "no mend for used files"
        (echo start; echo stop; echo quit) | timeout 300 dpdk-testpmd --no-pci --no-telemetry --lcores '0@0,1@0' \
            --huge-dir "$dir/huge" --huge-unlink=never --file-prefix rte -m 200 --vdev=net_null0 \
            -- -i --total-num-mbufs=4096 >"$dir/pmd" 2>&1 || true
        grep -q '^Bye' "$dir/pmd" || fail "testpmd: $(tail -n 3 "$dir/pmd")"
        [ "$(ls -i "$dir/huge" | sort)" = "$inodes" ] || fail "testpmd made pages of its own"
        [ "$(cat "$dir"/huge/rtemap_* | tr -d '\0' | head -c 1 | wc -c)" -eq 1 ] || fail "testpmd used none of them"
        rm "$dir"/huge/rtemap_*
        if "$bin/prezero" place dpdk 100G --dir "$dir/huge" 2>"$dir/no"; then fail "place more than there is"; fi
        [ -z "$(ls "$dir/huge")" ] || fail "place left a part"
        echo "claim: DPDK: good"
    else
        echo "claim: left out: DPDK, no 256M of hugetlb pages can be had here"
    fi
    umount "$dir/huge" 2>/dev/null || true
    echo "$before" >"$pool"
    before=
fi

if command -v qemu-system-x86_64 >/dev/null; then
    greets() { grep -q '"size"' "$dir/qmp" || { kill -0 "$client" 2>/dev/null || fail "QEMU: $(cat "$dir/no")" && false; }; }
    # Each mapping of a lease by a QEMU that this starts, at its end by QMP.
    qemu() {
        mkfifo "$dir/monitor"
        timeout 600 "$@" -accel tcg -S -display none -nodefaults -qmp stdio <"$dir/monitor" >"$dir/qmp" 2>"$dir/no" &
        client=$!
        exec 5>"$dir/monitor"
        echo '{"execute":"qmp_capabilities"}{"execute":"query-memdev"}' >&5
        until_true "QEMU" greets
        guest=$(sed 's/ .*//' "/proc/$client/task/$client/children")
        grep memfd:prezero "/proc/$guest/maps" >"$dir/maps" || true
        echo '{"execute":"quit"}' >&5
        exec 5>&-
        wait "$client" || fail "QEMU: $(cat "$dir/no")"
        client=
        rm "$dir/monitor"
    }
    # The kernel maps huge pages where they begin alone.
    aligned() {
        [ "$(wc -l <"$dir/maps")" -eq "$1" ] || fail "QEMU has not $1 leases: $(cat "$dir/maps")"
        ! cut -d- -f1 "$dir/maps" | grep -qv '[02468ace]00000$' || fail "QEMU's memory is not aligned: $(cat "$dir/maps")"
    }
    shared='memory-backend-file,id=m,size=256M,mem-path={lease},share=on'
    qemu "$bin/prezero" claim 256M -- qemu-system-x86_64 -m 256M -object "$shared" -machine memory-backend=m
    grep -q '"size": 268435456' "$dir/qmp" || fail "QEMU has another memory: $(cat "$dir/qmp")"
    aligned 1
    qemu "$bin/prezero" claim 256M --socket "$dir/none" --or-plain -- qemu-system-x86_64 -m 256M -object "$shared" \
        -machine memory-backend=m
    aligned 0
    one_line 'qemu-system-x86_64 runs with ordinary memory'
    for words in '-object memory-backend-file,id=m,size=256M,mem-path={lease}|add share=on' '-m 256M|add -machine' \
        "-object $shared|add -machine memory-backend=m" "-object $shared,align=4K|give align=2M" \
        "-object $shared -object $shared -machine memory-backend=m|are the same lease"; do
        # shellcheck disable=SC2086 # words
        if plain 256M -- qemu-system-x86_64 ${words%|*}; then fail "QEMU ${words%|*}"; fi
        one_line "${words#*|}"
    done
    # Memory as libvirt writes it, a lease for each node; without a broker all as it was.
    node() { echo '{"qom-type":"memory-backend-memfd","id":"n'"$1"'","share":true,"size":134217728,"host-nodes":[0],"policy":"bind"}'; }
    set -- -m 256M -smp 2 -object "$(node 0)" -object "$(node 1)" -numa node,cpus=0,memdev=n0 -numa node,cpus=1,memdev=n1
    PREZERO_QEMU_WAIT=30 qemu "$bin/prezero-qemu" "$@"
    aligned 2
    PREZERO_SOCKET="$dir/none" qemu "$bin/prezero-qemu" "$@"
    aligned 0
    one_line 'prezero-qemu: n0: .*does prezerod run?; its memory is not leased'
    "$bin/prezero-qemu" --version | grep -q QEMU || fail "prezero-qemu --version"
    echo "claim: QEMU: good"
fi
