#!/bin/sh
# What the documentation tells its readers to do, done.
#   tests/docs.sh DIR      where prezero, prezerod and libprezero.so are
set -eu
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
program='' broker=''
finish() {
    for each in $program $broker; do kill "$each" 2>/dev/null || true; done
    # At its end it writes its state there.
    [ -z "$broker" ] || wait "$broker" 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT INT TERM
fail() {
    echo "docs: $1" >&2
    exit 1
}
. tests/common/until.sh
. tests/common/blocks.sh

tests/prose.py --commands "$bin" >"$dir/said" || fail "commands in pages: $(cat "$dir/said")"

blocks c docs/library.md >"$dir/example.c"
cc -Wall -Wextra -Werror -Icrates/prezero-preload/include "$dir/example.c" -L"$bin" -lprezero -Wl,-rpath,"$bin" -o "$dir/example" ||
    fail "the example in C"
"$dir/example" >"$dir/said" || fail "the example in C fails"
grep -q 'bytes of statistics' "$dir/said" || fail "the example in C says $(cat "$dir/said")"

blocks cpp docs/library.md >"$dir/example.cc"
if command -v c++ >/dev/null; then
    c++ -std=c++17 -Wall -Wextra -Werror -Icrates/prezero-preload/include "$dir/example.cc" -L"$bin" -lprezero -Wl,-rpath,"$bin" \
        -o "$dir/example_cc" || fail "the example in C++"
    [ "$("$dir/example_cc")" = 0 ] || fail "the example in C++ fails"
fi
blocks python docs/library.md 1 >"$dir/arrays.py"
for python in .venv/bin/python3 python3; do
    "$python" -c 'import numpy' 2>/dev/null || continue
    PYTHONPATH=bindings/python "$python" "$dir/arrays.py" || fail "the example with NumPy"
    break
done

cat >"$dir/your_program" <<'PYTHON'
#!/usr/bin/env python3
import sys, time
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 50):
    blocks = [bytearray(4 << 20) for _ in range(4)]
    del blocks
    time.sleep(0.005)
PYTHON
chmod 755 "$dir/your_program"
# Where no CPU idles scrubd would wait for one.
PREZERO_ABLATE=backoff,cost-model "$bin/prezero" run --stats off -- "$dir/your_program" 1000000 &
program=$!
scrubs() { python3 examples/panel.py "$program" 2>&1 | tee "$dir/said" | grep -q '^scrubbed_bytes [1-9]'; }
within 300 scrubs || fail "examples/panel.py: $(tail -n 3 "$dir/said")"

# The operator's page, line by line, each as it stands there.
PATH="$bin:$PATH"
mkdir -m 700 "$dir/run"
export PATH XDG_RUNTIME_DIR="$dir/run"
unset PREZERO_SOCKET
shared=/sys/kernel/mm/transparent_hugepage/shmem_enabled
lines=0
blocks sh docs/operator.md | sed "s/ PID / $program /" >"$dir/lines"
cd "$dir"
# A knob is read when scrubd has a CPU.
works() { sh -c "$line" >"$dir/said" 2>&1 || { grep -q 'not yet' "$dir/said" || fail "$line: $(cat "$dir/said")"; false; }; }
while IFS= read -r line; do
    case $line in
    'prezerod &'*)
        [ -e "$shared" ] && ! grep -q '\[deny\]' "$shared" || break
        prezerod 2>"$dir/broker" &
        broker=$!
        within 300 grep -q 'serving on' "$dir/broker" || fail "prezerod: $(cat "$dir/broker")"
        ;;
    *)
        until_true "$line" works
        ;;
    esac
    lines=$((lines + 1))
done <"$dir/lines"
[ $lines -ge 18 ] || [ -z "$broker" ] || fail "only $lines lines of the operator's page"
echo "docs: examples in C, C++ and Python, $lines lines for operators: good"
