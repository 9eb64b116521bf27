#!/bin/sh
# `prezero try` with programs that gain, that do not, that fail and that serve.
#   tests/try.sh DIR      where prezero and libprezero.so are
set -eu
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
# A pipe that does not end is refused.
exec </dev/null
fail() {
    echo "try: $1" >&2
    exit 1
}
try() { "$bin/prezero" try "$@"; }
# verdict: that of the JSON in the file, and of it the text.
verdict() { sed -n 's/^ *"verdict": "\(.*\)".*/\1/p' "$dir/json"; }
told() { sed -n 's/^ *"text": "\(.*\)".*/\1/p' "$dir/json"; }

# Frames: arrays that are made, marked and dropped, with pauses between. Prints what a frame took.
cat >"$dir/frames.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(void)
{
	size_t bytes = 64 << 20;
	double took = 0;
	for (int frame = 0; frame < 12; frame++) {
		double began = now();
		volatile char *array = calloc(1, bytes);
		for (size_t at = 0; at < bytes; at += 4096)
			array[at] = 1;
		free((void *)array);
		took += now() - began;
		usleep(30000);
	}
	printf("a frame took %.3f ms\n", 1e3 * took / 12);
}
C
cc -O1 -o "$dir/frames" "$dir/frames.c"
try --pairs 6 --figure 'took ([0-9.]+)' --better less --json -- "$dir/frames" >"$dir/json" || fail "frames"
case $(verdict) in
use | use-without-scrubbing) told | grep -q 'x ± .* as fast.*: use it' || fail "$(told)" ;;
no-idle-cpu | unclear) echo "try: the machine is busy: $(told)" ;;
*) fail "a program that gains: $(told)" ;;
esac
grep -q '"hit_bytes"' "$dir/json" || fail "no counters"

try --pairs 3 -- sleep 0.3 >"$dir/said" || fail "sleep"
grep -q 'page faults' "$dir/said" || fail "no table: $(cat "$dir/said")"
grep -q 'it asks for nothing that prezero serves' "$dir/said" || fail "sleep: $(tail -n 1 "$dir/said")"

# What it reads is read anew each time, and its status is the same each time.
echo input | cat >"$dir/input"
script='read word && test "$word" = input && exit 3'
try --pairs 1 --status 3 --json -- sh -c "$script" <"$dir/input" >"$dir/json" || fail "status 3 is no failure"
{ echo no; cat "$dir/input"; } >"$dir/both"
{ read -r _; try --pairs 1 --status 3 --json -- sh -c "$script" >"$dir/json"; } <"$dir/both" || fail "a file is read from its beginning"
# shellcheck disable=SC2002 # a pipe is what is tried
cat "$dir/input" | try --pairs 1 --status 3 --json -- sh -c "$script" >"$dir/json" || fail "a pipe is read once"
try -- sh -c 'echo broken >&2; exit 3' 2>"$dir/said" && fail "a program that fails is measured"
grep -q 'exit status: 3; it said: broken; give --status 3' "$dir/said" || fail "$(cat "$dir/said")"

cc -static -x c -o "$dir/static" - <<'C'
int main(void) { return 0; }
C
try --json -- "$dir/static" >"$dir/json"
[ "$(verdict)" = out-of-reach ] || fail "a static program: $(cat "$dir/json")"

# Only under prezero it fails.
try --pairs 1 -- sh -c 'test -z "$LD_PRELOAD"' 2>"$dir/said" && fail "a program that fails under prezero"
grep -q 'prezero ends with exit status: 1, and without prezero with exit status: 0' "$dir/said" || fail "$(cat "$dir/said")"
try -- no-such-program 2>"$dir/said" && fail "no such program"
grep -q 'no such program' "$dir/said" || fail "$(cat "$dir/said")"

cat >"$dir/serve.py" <<'PYTHON'
import socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    while True:
        client, _ = server.accept()
        with client:
            array = bytearray(8 << 20)
            client.sendall(b"%d\n" % len(array))
PYTHON
cat >"$dir/load.py" <<'PYTHON'
import socket, sys, time
began = time.monotonic()
for _ in range(20):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(sys.argv[1])
        client.recv(100)
print(f"{20 / (time.monotonic() - began):.1f} requests a second")
PYTHON
try --pairs 2 --measure "python3 $dir/load.py $dir/socket && rm -f $dir/socket" \
    --figure '([0-9.]+) requests' -- python3 "$dir/serve.py" "$dir/socket" >"$dir/said" || fail "a service"
grep -q '^figure ' "$dir/said" && grep -q '^load ' "$dir/said" || fail "a service: $(cat "$dir/said")"
pgrep -f "$dir/serve.py" && fail "a service that goes on"
echo "try: programs that gain, do not, fail and serve: good"
