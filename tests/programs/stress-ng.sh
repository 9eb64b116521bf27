# about: its memory stressors with --verify
# version: stress-ng --version
# needs: stress-ng
seconds=1
[ "$SCALE" = short ] || seconds=60
for stressor in malloc vm mmap mremap madvise mprotect fork vfork bigheap brk shm userfaultfd; do
    size=() most=unlimited
    case $stressor in
    malloc) size=(--malloc-bytes 256M --malloc-max 4096) ;;
    vm) size=(--vm-bytes 128M) ;;
    mmap) size=(--mmap-bytes 64M) ;;
    bigheap) size=(--bigheap-growth 256K) most=4000000 ;; # it takes what it gets
    shm) size=(--shm-bytes 8M) ;;
    esac
    (ulimit -v $most; exec stress-ng --$stressor 2 "${size[@]}" --verify --timeout ${seconds}s) >log 2>&1
    echo "$stressor: exit $?"
    ! grep 'unrecognized option' log || exit 1  # nothing was tested
    grep -iE 'fail|corrupt|mismatch' log | sed 's/.*stress-ng: //; s/\[[0-9]*\]//g' | grep -v 'failed: 0' | sort -u
done
true
