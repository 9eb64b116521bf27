# about: its own tests of memory, threads, fork, processes, ctypes, mmap, pickle
# version: "$PYTHON" --version
# python: test.test_mmap test.test_multiprocessing_fork
modules="test_mmap test_memoryview test_bytes test_array test_gc test_threading test_threadedtempfile
    test_fork1 test_subprocess test_ctypes test_pickle test_zlib test_multiprocessing_fork"
[ "$SCALE" = short ] || modules="$modules test_multiprocessing_spawn test_multiprocessing_forkserver
    test_concurrent_futures test_os test_io test_posix test_signal test_socket test_shelve test_buffer
    test_bz2 test_lzma test_sort test_list test_dict test_set test_unicode test_re test_json
    test_hashlib test_tempfile test_mailbox test_tarfile test_zipfile test_decimal test_long test_bigmem"
[ "$SCALE" = short ] || more="-u cpu,subprocess,largefile -M 3g"
# A guest's vsock waits for its host, for ever; whatever else hangs is told.
more="$more -i *VSOCK* --timeout 900"
set -f
for module in $modules; do
    # How many tests, and what became of each that did not pass; not how long it took.
    # Some depend on time: a module that fails is tried once more, not all of them.
    $PYTHON -m test $more -v $module >log 2>&1 || $PYTHON -m test $more -v $module >log 2>&1
    status=$?
    echo "$module: exit $status, $(grep -E '^(OK|FAILED)( |$)' log | tail -n 1)"
    grep -E '^Ran [0-9]+ tests' log | sed 's/ in .*//' | sort
    grep -E '^(ERROR|FAIL): ' log | sort
    grep -qE '^Ran [1-9]' log || exit 1  # nothing was tested
done
