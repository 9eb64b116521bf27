#!/bin/sh
# What is to be true of the library as it is released, apart from what it does.
# Usage: tests/library.sh target/release
set -eu
library=${1:?usage: tests/library.sh DIRECTORY}/libprezero.so

# Linux puts a mapping of 2 MiB or more at a multiple of that, and all libraries that are loaded later below it: the
# program's code then lies where it would not without us. SQLite was slower so (`prezero bench real --only sqlite`).
set -- $(readelf -lW "$library" | awk '$1 == "LOAD" { last = $3 " " $6 } END { print last }')
bytes=$(($1 + $2))
if [ "$bytes" -ge $((2 << 20)) ]; then
    echo "$library takes $bytes bytes of address space; with 2 MiB or more it moves the program's libraries" >&2
    exit 1
fi
echo "library: $((bytes >> 10)) KiB of address space, less than a huge page"

# A thread may have 16 KiB of stack, and a coroutine 8: what each function takes of it more than libc's does.
stack=$(mktemp -d)
cc -O1 -w -fno-builtin -Wl,-z,now tests/stack.c -o "$stack/stack" -ldl
(cd "$stack" && ./stack >without && LD_PRELOAD=$(realpath "$OLDPWD/$library") ./stack >with)
deepest=$(paste -d ' ' "$stack/without" "$stack/with" | awk '{ print $6 - $3, $2, "(" $1 ")" }' | sort -n | tail -1)
rm -rf "$stack"
if [ "${deepest%% *}" -gt 4096 ]; then
    echo "$library: too much stack, in bytes: $deepest" >&2
    exit 1
fi
echo "library: the most stack that a function takes, in bytes: $deepest"
# A program may have told the CPU to raise a signal where a float fits no integer (gfortran -ffpe-trap=invalid), and NumPy
# warns of it: the library converts none. A compiler does, for the vectors of `1 << n` in a loop.
for each in "$library" "${library%.so}"_*.so; do
    if objdump -d --no-show-raw-insn "$each" | grep -E 'cvtt?[ps][sd]2(si|dq)' | grep -m 3 . >&2; then
        echo "$each converts floats to integers, which may raise signals in the program" >&2
        exit 1
    fi
done
echo "library: converts no float"
# A program with an older C library of its own does not start where one of them asks for a version that it lacks.
for each in "$library" "${library%.so}"_*.so; do
    newest=$(objdump -T "$each" | sed -n 's/.*(\?GLIBC_\([0-9.]*\)[) ].*/\1/p' | sort -Vu | tail -n 1)
    if [ "$(printf '%s\n' "$newest" 2.17 | sort -V | tail -n 1)" != 2.17 ]; then
        objdump -T "$each" | grep "GLIBC_$newest" >&2
        echo "$each asks for glibc $newest; it is to load with 2.17: see crates/prezero-glibc" >&2
        exit 1
    fi
    if readelf -d "$each" | grep NEEDED | grep -qv libc.so.6; then
        echo "$each needs more than libc.so.6: $(readelf -d "$each" | grep NEEDED)" >&2
        exit 1
    fi
    echo "library: ${each##*/} loads with glibc $newest"
done

# What `make install` and the package make of it. A debugger would call malloc with the types that Rust gave it.
installed=$(mktemp)
trap 'rm -f "$installed"' EXIT
install -sm755 "$library" "$installed"
if readelf -SW "$installed" | grep -q '\.debug_\|\.symtab'; then
    echo "$library is not stripped by install -s" >&2
    exit 1
fi
probes() { readelf -n "$1" | grep -c stapsdt; }
if [ "$(probes "$installed")" -eq 0 ] || [ "$(probes "$installed")" -ne "$(probes "$library")" ]; then
    echo "$library: install -s takes its probes" >&2
    exit 1
fi
if ! command -v gdb >/dev/null; then
    echo "library: stripped as installed, with $(probes "$installed") probes; no gdb to call its malloc"
    exit 0
fi
# calls_in WRAPPER: gdb calls malloc and strlen in a program that is about to end.
calls_in() {
    said=$(gdb -nx -q -batch -ex "set exec-wrapper $1" -ex 'catch syscall exit_group' -ex run \
        -ex 'print (void *)malloc(1048576)' -ex 'print (int)strlen("a string in the program")' /bin/true 2>&1) || true
    echo "$said" | grep -q '^$1 = (void \*) 0x[1-9a-f]' && echo "$said" | grep -q '^$2 = 23$'
}
# An old gdb on a new CPU can write no registers.
if ! calls_in env; then
    echo "library: stripped as installed, with $(probes "$installed") probes; this gdb calls nothing in a plain program"
    exit 0
fi
if ! calls_in "env LD_PRELOAD=$installed"; then
    echo "gdb cannot call malloc of $library as installed: $said" >&2
    exit 1
fi
echo "library: stripped as installed, with $(probes "$installed") probes; gdb calls its malloc"
