#!/bin/bash
# selftests.sh build SOURCE HEADERS OUT    the kernel's own mm selftests as static programs
# selftests.sh compare UNPATCHED PATCHED   consoles of two guests that ran them
#
# compare: a test that passes, or is left out, on the unpatched kernel does so on the patched one,
# and no fewer of its parts pass. What fails on both is named: it is no news about the series.
set -euo pipefail

# What needs a module, a second architecture, or a caller that sets it up.
others=' hmm-tests write_to_hugetlbfs '

build() {
    local source=$1/tools/testing/selftests headers=$2 out=$3 test more
    mkdir -p "$out"
    # What the build looks for: no liburing.
    touch "$out/local_config.h" "$out/local_config.h_gen"
    for test in $(sed -n 's/^TEST_GEN_FILES += \([a-z][A-Za-z0-9_-]*\)$/\1/p' "$source/mm/Makefile"); do
        [[ $others != *" $test "* && -e $source/mm/$test.c ]] || continue
        case $test in
        uffd-*) more=$source/mm/uffd-common.c ;;
        pkey_* | protection_keys) more=$source/mm/pkey_util.c ;;
        *) more= ;;
        esac
        [ "$out/$test" -ot "$source/mm/$test.c" ] || continue
        # shellcheck disable=SC2086 # none or one
        gcc -O2 -w -static -pthread -D_GNU_SOURCE= -include "$source/kselftest.h" -I "$out" -I "$1" \
            -I "$source" -isystem "$headers" -I "$1/tools/include/uapi" -idirafter "$1/tools/include" -o "$out/$test" \
            "$source/mm/$test.c" "$source/mm/vm_util.c" "$source/mm/hugepage_settings.c" $more -lrt -lm ||
            echo "selftests.sh: $test does not build here: left out" >&2
    done
}

# Of a console's last boot: "NAME pass|skip|fail PARTS".
results() {
    awk '/== selftests.* on / { delete of }
        $1 == "SELFTEST" { of[$2] = ($3 == 0 ? "pass" : $3 == 4 ? "skip" : "fail") " " $4 }
        END { for (name in of) print name, of[name] }' "$1" | sort
}

compare() {
    local worse=0 name before after parts_before parts_after
    while read -r name before after parts_before parts_after; do
        printf '%-28s %-5s %-5s %4d %4d\n' "$name" "$before" "$after" "$parts_before" "$parts_after"
        if [ "$before" != fail ] && [ "$after" != "$before" ] || [ "$parts_after" -lt "$parts_before" ]; then
            worse=$((worse + 1))
        fi
    done < <(join -a 1 -e -1 -o 0,1.2,2.2,1.3,2.3 <(results "$1") <(results "$2"))
    [ "$(results "$1" | grep -c pass)" -gt 0 ] || { echo "selftests.sh: none passed" >&2; return 1; }
    [ "$worse" -eq 0 ] || { echo "selftests.sh: $worse are worse with the series" >&2; return 1; }
    echo "selftests: $(results "$2" | grep -c pass) pass, none is worse than unpatched"
}

"$@"
