# about: uid_wrapper, fakeroot, libfaketime, libeatmydata and snoopy, which preload libraries of their own
# version: dpkg-query -W -f 'uid_wrapper ${Version}' libuid-wrapper
# needs: python3 fakeroot faketime eatmydata /usr/lib/*/libuid_wrapper.so
# Each hooks some of libc's functions, and asks the dynamic linker for libc's own with a lock held.
cat >work.py <<'P'
import os, threading
for turn in range(10):
    blocks = [bytearray(300_000 + n) for n in range(30)]
    assert all(not any(block[::997]) for block in blocks)
    for block in blocks:
        block[:] = b"x" * len(block)
done = []
thread = threading.Thread(target=lambda: done.append(os.getuid()))
thread.start(), thread.join()
child = os.fork() or os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(done))
P
ours=${LD_PRELOAD-}
wrapper=$(ls /usr/lib/*/libuid_wrapper.so | head -n 1)
export UID_WRAPPER=1 UID_WRAPPER_ROOT=1
for order in "$wrapper:$ours" "$ours:$wrapper"; do
    timeout 60 env LD_PRELOAD="$order" python3 work.py
    timeout 60 env LD_PRELOAD="$order" id -u
done
unset UID_WRAPPER UID_WRAPPER_ROOT
fakeroot sh -c 'touch file && chown 12:13 file && stat -c %u:%g file && python3 work.py'
faketime '2020-01-02 00:00:00' sh -c 'date +%F && python3 work.py'
eatmydata python3 work.py
snoopy=$(ls /usr/lib/*/libsnoopy.so* 2>/dev/null | head -n 1)
LD_PRELOAD=$ours:$snoopy python3 work.py
