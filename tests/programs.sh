#!/usr/bin/env bash
# Real programs, without prezero and under `prezero run --verify full`: the same output,
# the same exit status. Usage: tests/programs.sh PATH/TO/prezero
set -u
prezero=$(realpath "${1:?usage: tests/programs.sh PATH/TO/prezero}")
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0

# same NAME COMMAND...: runs COMMAND in two fresh directories and compares what it printed,
# how it ended, and the files it left.
same() {
    local name=$1 arm
    shift
    for arm in without with; do
        rm -rf run && mkdir run
        local under=()
        [ "$arm" = with ] && under=("$prezero" run --verify full --stats "$work/stats.json" --)
        (cd run && "${under[@]}" "$@" >out 2>err; echo $? >status)
        rm -rf "$arm" && mv run "$arm"
    done
    if ! diff -r without with >difference; then
        printf 'FAILED  %s: differs under prezero\n' "$name"
        head -n 20 difference
        failed=$((failed + 1))
    elif grep -q '"verify_failures": *[1-9]' stats.json 2>/dev/null; then
        printf 'FAILED  %s: a page that should be zero was not\n' "$name"
        failed=$((failed + 1))
    else
        printf 'ok      %s (exit %s)\n' "$name" "$(cat with/status)"
        passed=$((passed + 1))
    fi
    rm -f stats.json
}

# python_with MODULE: the first python3 that can import MODULE.
python_with() {
    local python
    for python in "${PYTHON:-}" python3 /usr/bin/python3; do
        [ -n "$python" ] && "$python" -c "import $1" 2>/dev/null && command -v "$python" && return
    done
    echo "tests/programs.sh: no python3 has the module $1: make setup installs one" >&2
    exit 1
}

# CPython's own tests. Its report carries times and process numbers, so the verdict of each
# test module is what is compared.
regression=$(python_with test.test_mmap) || exit 1
for module in test_mmap test_threading test_subprocess test_memoryview test_bytes; do
    same "CPython $module" sh -c \
        "\"$regression\" -m test -q $module >log 2>&1; s=\$?; grep -E '^Result|Tests result' log; rm -f log; exit \$s"
done

numpy=$(python_with numpy) || exit 1
cat >arrays.py <<'P'
import hashlib
import numpy as np

digest = hashlib.sha256()
rng = np.random.default_rng(7)
for round in range(60):
    size = int(rng.integers(1 << 13, 1 << 22))
    zeros = np.zeros(size)
    assert not zeros.any(), f"round {round}: np.zeros({size}) is not zero"
    zeros[:: int(rng.integers(1, 600))] = round
    noise = rng.standard_normal(size)
    digest.update((zeros + noise).tobytes())
    if round % 4 == 0:
        digest.update(np.sort(noise).tobytes())
    mask = np.zeros(size * 2, dtype=bool)
    assert mask.sum() == 0
    mask[rng.integers(0, size, 50)] = True
    digest.update(np.flatnonzero(mask).tobytes())
    digest.update(np.fft.rfft(noise[: 1 << 13]).tobytes())
print(digest.hexdigest())
P
same "NumPy arrays" "$numpy" "$work/arrays.py"

"$regression" - >lines <<'P'
import random
random.seed(11)
for n in range(1_000_000):
    print("%08x %s" % (random.getrandbits(32), "abcdefghij"[: n % 11] * (n % 5)))
P
same "sort" sort -S 64M ../lines
same "sort, two threads, into a file" sort --parallel=2 -o sorted ../lines
same "gzip" sh -c 'gzip -n -9 <../lines >lines.gz'
same "xz, two threads" sh -c 'xz -T2 -3 <../lines >lines.xz'

"$regression" - >many.c <<'P'
print("#include <stdio.h>\n#include <string.h>")
for n in range(3000):
    print(f"static int f{n}(int x) {{ int a[{n % 50 + 2}]; memset(a, x, sizeof a);"
          f" for (int i = 1; i < {n % 50 + 2}; i++) a[i] += a[i - 1] * {n}; return a[{n % 50 + 1}] ^ {n}; }}")
print("int main(void) { unsigned s = 0;")
print("".join(f"s += f{n}({n % 7});\n" for n in range(3000)))
print('printf("%u\\n", s); return 0; }')
P
same "gcc -O2" gcc -O2 -g -c -o many.o ../many.c

export GIT_AUTHOR_DATE='2000-04-24T10:27:54Z' GIT_COMMITTER_DATE='2000-04-24T10:27:54Z'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a
cat >history.sh <<'S'
set -e
git -c init.defaultBranch=main -c core.logAllRefUpdates=false init -q repository && cd repository
for n in 1 2 3 4 5 6; do
    head -c $((n * 3000000)) ../../lines >"file$((n % 3))" && git add -A && git commit -qm "state $n"
done
git -c pack.threads=1 gc -q && git fsck --full && git log --stat -p | sha256sum
cd .. && git clone -q repository copy 2>/dev/null && git -C copy rev-parse HEAD
rm -rf repository copy
S
same "git: commit, gc, fsck, log, clone" sh "$work/history.sh"

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
