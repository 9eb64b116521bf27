# about: its own tests of memory, threads, fork, processes, ctypes, mmap, pickle
# version: "$PYTHON" --version
# python: test.test_mmap test.test_multiprocessing_fork
modules="test_multiprocessing_fork:WithProcesses test_subprocess test_multiprocessing_fork:others
    test_multiprocessing_fork:WithThreads test_threading test_multiprocessing_fork:WithManager test_fork1 test_pickle
    test_mmap test_memoryview test_bytes test_array test_gc test_threadedtempfile test_ctypes test_zlib"
[ "$SCALE" = short ] || modules="test_multiprocessing_spawn test_multiprocessing_forkserver
    test_concurrent_futures $modules test_os test_io test_posix test_signal test_socket test_shelve test_buffer
    test_bz2 test_lzma test_sort test_list test_dict test_set test_unicode test_re test_json
    test_hashlib test_tempfile test_mailbox test_tarfile test_zipfile test_decimal test_long test_bigmem"
more=
[ "$SCALE" = short ] || more="-u cpu,subprocess,largefile -M 3g"
set -f
# tested MODULE[:PART]: a part is the classes of that name, or the others.
tested() {
    part=
    case $1 in
    *:others) part="-i WithProcesses* -i WithThreads* -i WithManager*" ;;
    *:*) part="-m ${1#*:}*" ;;
    esac
    # A guest's vsock waits for its host, for ever; whatever else hangs is told.
    # Some depend on time: a module that fails is tried once more, not all of them.
    for _ in first second; do
        status=0
        $PYTHON -m test $more $part -i "*VSOCK*" --timeout 900 -v "${1%:*}" >"log.$1" 2>&1 || status=$?
        [ $status != 0 ] || break
    done
    # How many tests, and what became of each that did not pass; not how long it took.
    {
        echo "$1: exit $status, $(grep -E '^(OK|FAILED)( |$)' "log.$1" | tail -n 1)"
        grep -E '^Ran [0-9]+ tests' "log.$1" | sed 's/ in .*//' | sort
        grep -E '^(ERROR|FAIL): ' "log.$1" | sort
    } >"said.$1"
}
# They wait more than they work: four at a time, those that take longest first.
running=0
for module in $modules; do
    [ $running -lt 4 ] || wait -n
    tested "$module" &
    running=$((running + 1 - running / 4))
done
wait
for module in $modules; do
    cat "said.$module"
    grep -qE '^Ran [1-9]' "log.$module" || exit 1  # nothing was tested
done
