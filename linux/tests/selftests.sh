#!/bin/bash
# selftests.sh build SOURCE HEADERS OUT    the kernel's own mm selftests as static programs
# selftests.sh compare UNPATCHED PATCHED   consoles of two guests that ran them
#
# compare: a test that passes, or is left out, on the unpatched kernel does so on the patched one,
# and no fewer of its parts pass. What fails on both is named: it is no news about the series.
set -euo pipefail

tests="compaction_test cow droppable gup_longterm gup_test hugepage-mmap hugepage-mremap hugepage-shm
    hugepage-vmemmap hugetlb-madvise hugetlb_fault_after_madv hugetlb_madv_vs_map khugepaged
    ksm_functional_tests madv_populate map_fixed_noreplace map_hugetlb map_populate memfd_secret mkdirty
    mlock2-tests mrelease_test mremap_dontunmap mremap_test on-fault-limit pagemap_ioctl soft-dirty
    split_huge_page_test thuge-gen transhuge-stress uffd-stress uffd-unit-tests"

build() {
    local source=$1/tools/testing/selftests headers=$2 out=$3 test more
    mkdir -p "$out"
    : > "$out/local_config.h"
    for test in $tests; do
        case $test in uffd-*) more=$source/mm/uffd-common.c ;; *) more= ;; esac
        [ "$out/$test" -ot "$source/mm/$test.c" ] || continue
        # shellcheck disable=SC2086 # none or one
        gcc -O2 -w -static -pthread -D_GNU_SOURCE= -include "$source/kselftest.h" -I "$out" -I "$1" \
            -I "$source" -isystem "$headers" -I "$1/tools/include/uapi" -o "$out/$test" \
            "$source/mm/$test.c" "$source/mm/vm_util.c" "$source/mm/thp_settings.c" $more -lrt -lm ||
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
