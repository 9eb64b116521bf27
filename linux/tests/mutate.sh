#!/bin/bash
# mutate.sh BUILD PATCHED: breaks the series in one place at a time; a test has to fail each time.
#
# mutations.sh is the table.  A catch is a test that fails in each of BOOTS boots, and passes on the clean kernel: one
# that fails now and then says nothing of the mutation.  Most mutations share a kernel, whose command line chooses one
# (mutants.py); the others have one of their own.  Kernels are built in BUILD/um and BUILD/x86, incrementally.
# PATCHED is as it was when this ends; if this is killed, the next make applies the series anew.
# MUTATE: only those whose title matches this; MUTATE_TEST: whose test does. MUTATE_DRY: only try whether each changes
# something. MUTATE_TRUST: the clean kernel is known to pass. MUTATE_SECONDS: how long a guest may take, on a busy host.
set -uo pipefail
build=$1 patched=$2
here=$(cd "$(dirname "$0")" && pwd)
survivors=0 file= test= only=
export PREZERO_MUTATING=1

restore() {
    [ -n "$file" ] || return 0
    cp -p "$build/mutant.orig" "$patched/$file"
    # What was built from the mutant has to be built again; nothing else has.
    [ "$test" = barrier ] || [ -n "${MUTATE_DRY:-}" ] || touch "$patched/$file"
    file=
}
# What the mutations that share a kernel changed, not all of which is the series'.
restore_shared() {
    local name
    [ -d "$build/mutants.orig" ] || return 0
    (cd "$build/mutants.orig" && find . -type f) | while IFS= read -r name; do
        cmp -s "$build/mutants.orig/$name" "$patched/$name" || cp "$build/mutants.orig/$name" "$patched/$name"
    done
    rm -rf "$build/mutants.orig"
}
finish() {
    restore
    restore_shared
    make -s -C "$here/.." BUILD="$build" patch
}

# build KERNEL: what is there, without a look at the series
build() {
    [ ! -e "$build/mutants.$1" ] || return 0
    make -s -C "$here/.." BUILD="$build" -o "$build/patched.stamp" "$1" > "$build/mutant.log" 2>&1 ||
        { tail "$build/mutant.log"; return 99; }
    # The one that many share is built once.
    [ -z "${sharing:-}" ] || touch "$build/mutants.$1"
}

kernel_of() { case $1 in *x86* | *nodes* | pages* | rule*) echo x86 ;; *) echo um ;; esac; }

suites() { sed -n "s/^# kunit-$1: *//p" "$here/../config/series.config" | tr ' ' ,; }

# kunit [GLOB [ARG]]: KUnit's tests in user-mode Linux, or some, and an argument of the kernel
kunit() {
    local glob=${only:-${1:-prezero*}} suites
    suites=$(suites um)
    [ "${glob%.*}" = "$glob" ] || suites=${glob%.*}
    build um || return
    GUEST_APPEND="kunit.enable=1 kunit.filter_glob=$glob ${2:-}" GUEST_TIMEOUT=${MUTATE_SECONDS:-120} \
        "$here/../scripts/guest.sh" um "$build/um/linux" "$build/initramfs.gz" "kunit,$suites" 2>&1
}

# kunit_x86 [GLOB [CPU [ARG]]]: in the x86-64 guest; its CPU, and an argument of its kernel
kunit_x86() {
    local glob=${only:-${1:-prezero*}} suites
    suites=$(suites x86)
    [ "${glob%.*}" = "$glob" ] || suites=${glob%.*}
    build x86 || return
    GUEST_APPEND="kunit.enable=1 kunit.filter_glob=$glob hugepages=4 ${3:-}" GUEST_TIMEOUT=${MUTATE_SECONDS:-900} GUEST_MEM=512 GUEST_CPU=${2:-max} \
        "$here/../scripts/guest.sh" x86 "$build/x86/arch/x86/boot/bzImage" "$build/initramfs.gz" "kunit,$suites" 2>&1
}

# The same on two nodes, a CPU each.
kunit_nodes() {
    GUEST_QEMU="$(make -s -C "$here/.." BUILD="$build" nodes)" GUEST_CPUS=2,sockets=2 kunit_x86 "$@"
}

# pages WAY...
pages() {
    build x86 || return
    GUEST_TIMEOUT=${MUTATE_SECONDS:-900} GUEST_MEM=192 \
        "$here/../scripts/guest.sh" x86 "$build/x86/arch/x86/boot/bzImage" "$build/initramfs.gz" \
        "$(IFS=,; echo "pages,$*")" 2>&1
}

# um TEST [ARG...]: of the guest's, in user-mode Linux; with APPEND on its command line
um() {
    build um || return
    GUEST_APPEND=${APPEND:-} GUEST_MEM=${MEM:-192} GUEST_TIMEOUT=${MUTATE_SECONDS:-120} \
        "$here/../scripts/guest.sh" um "$build/um/linux" "$build/initramfs.gz" "$(IFS=,; echo "$*")" 2>&1
}

# A rule of the Makefile, of tests that take a guest of their own.
rule() {
    build x86 || return
    make -s -C "$here/.." BUILD="$build" -o "$build/patched.stamp" GUEST_TIMEOUT=${MUTATE_SECONDS:-900} "$1" 2>&1
}

vouched() { APPEND=prezero=on MEM=192 um vouched; }

params_free() { APPEND="prezero=on init_on_free=1" um params off prezero:_off; }

barrier() {
    "$here/barrier/run.sh" "$patched" 10 2>&1
}

# noticed OUTPUT: the tests of KUnit that failed, SUITE.TEST, a line each; or the test, however the guest ended: what lets
# dirty memory pass for zero may kill it in one boot and not in the next.
noticed() {
    local names
    names=$(sed -n 's/^    # Subtest: \(.*\)/\1/p; s/^    \(not ok\) [0-9]* \([a-z_0-9]*\).*/\1 \2/p' <<< "$1" |
        awk '/^not ok/ { print suite "." $3; next } { suite = $1 }' | sort -u)
    echo "${names:-$test}"
}

# mutate TITLE TEST FILE SED: TEST is one of the functions above and its arguments.
BOOTS=${MUTATE_BOOTS:-3}
titles=() tests=() files=() seds=()
mutate() {
    [[ $1 =~ ${MUTATE:-} && $2 =~ ${MUTATE_TEST:-} ]] || return 0
    titles+=("$1") tests+=("$2") files+=("$3") seds+=("$4")
}

# boots: which test fails in each of them. One that fails by itself is run alone from then on, where it can be.
boots() {
    local output status boot by='' now
    only=
    for ((boot = 1; boot <= BOOTS; boot++)); do
        status=0
        # shellcheck disable=SC2086 # words
        output=$($test) || status=$?
        if [ "$status" -eq 99 ]; then
            echo "mutate.sh: it does not build: $output" >&2
            exit 1
        fi
        now=
        [ "$status" -eq 0 ] || now=$(noticed "$output")
        [ "$boot" -eq 1 ] && by=$now || by=$(comm -12 <(sort <<< "$by") <(sort <<< "$now"))
        [ -n "$by" ] || break
        # Of several one may fail on a busy host whatever is broken: all are run again.
        case $by in *$'\n'*) ;; prezero*.*) only=$by ;; esac
    done
    only=
    caught=$by
}

# say TITLE: what the boots said
say() {
    if [ -n "$caught" ]; then
        echo "caught    $1    by $(paste -sd' ' <<< "$caught")"
    else
        echo "SURVIVED  $1"
        survivors=$((survivors + 1))
    fi
}

# verdict TITLE: by its test, or else by any of KUnit's
verdict() {
    boots
    [ -n "$caught" ] || case $test in *prezero*.*) test=${test%% *}; boots ;; esac
    say "$1"
}

# try INDEX: in a kernel of its own
try() {
    local title=${titles[$1]}
    test=${tests[$1]}
    cp -p "$patched/${files[$1]}" "$build/mutant.orig" || exit 1
    file=${files[$1]}
    sed -i "${seds[$1]}" "$patched/$file"
    if cmp -s "$patched/$file" "$build/mutant.orig"; then
        echo "mutate.sh: '$title' changes nothing in $file" >&2
        exit 1
    fi
    [ -z "${MUTATE_DRY:-}" ] || { restore; return; }
    verdict "$title"
    restore
}

. "$here/mutations.sh"

[ "${#titles[@]}" -gt 0 ] || { echo "mutate.sh: no title matches" >&2; exit 1; }
restore_shared
make -s -C "$here/.." BUILD="$build" patch initramfs > /dev/null || exit 1
rm -f "$build/patched.stamp"
trap finish EXIT
trap 'exit 1' INT TERM HUP
if [ -n "${MUTATE_DRY:-}" ]; then
    for ((index = 0; index < ${#titles[@]}; index++)); do try "$index"; done
    exit
fi

rm -f "$build"/mutants.*
sharing=1
mkdir "$build/mutants.orig"
(cd "$patched" && printf '%s\n' mm/prezero.c "${files[@]}" | sort -u | xargs cp -p --parents -t "$build/mutants.orig") || exit 1
shared=" $(for ((index = 0; index < ${#titles[@]}; index++)); do
    [ "${tests[index]}" = barrier ] || printf '%s\t%s\t%s\n' $((index + 1)) "${files[$index]}" "${seds[$index]}"
done | "$here/mutants.py" "$patched") " || exit 1
# Each test passes while no mutation is chosen, or what it says of one is worth nothing.
if [ -z "${MUTATE_TRUST:-}" ]; then
    while IFS= read -r test; do
        # shellcheck disable=SC2086 # words
        output=$($test) || { echo "mutate.sh: $test fails on the clean kernel" >&2; echo "$output"; exit 1; }
    done < <(printf '%s\n' "${tests[@]}" | sed 's/\(kunit[a-z_0-9]*\) prezero[a-z_]*\.[a-z_0-9]*$/\1/' | sort -u)
    echo "unchanged: all pass"
fi
# Several guests at once: they read one kernel.
: > "$build/mutants.log"
for ((index = 0; index < ${#titles[@]}; index++)); do
    [[ $shared = *" $((index + 1)) "* ]] || continue
    test=${tests[$index]}
    build "$(kernel_of "$test")" || exit 1
    [ "$(jobs -rp | wc -l)" -lt "${MUTATE_JOBS:-$(nproc)}" ] || wait -n
    (
        trap - EXIT
        export GUEST_ALSO=prezero_mutant=$((index + 1))
        verdict "${titles[$index]}"
    ) | tee -a "$build/mutants.log" &
done
wait
survivors=$(grep -c '^SURVIVED' "$build/mutants.log")
unset sharing
restore_shared
rm -f "$build"/mutants.*
make -s -C "$here/.." BUILD="$build" patch && rm "$build/patched.stamp" || exit 1
for ((index = 0; index < ${#titles[@]}; index++)); do
    [[ $shared = *" $((index + 1)) "* ]] || try "$index"
done
[ "$survivors" -eq 0 ] || { echo "mutate.sh: $survivors mutations survived" >&2; exit 1; }
