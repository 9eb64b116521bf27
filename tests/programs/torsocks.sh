# about: torsocks in front of sort, Python and threads, without a network
# version: dpkg-query -W -f 'torsocks ${Version}' torsocks
# needs: torsocks
# python: ssl
# Its library stands beside ours, and hooks mmap, syscall, fclose and what opens a connection.
awk 'BEGIN { srand(5); for (n = 0; n < 300000; n++) printf "%08x\n", rand() * 4294967295 }' >lines
torsocks sort -S 64M --parallel=2 lines | sha256sum
torsocks "$PYTHON" - <<'P' 2>&1 | grep -v torsocks
import hashlib, socket, threading
def work(n):
    blocks = [bytes(300_000 + i) for i in range(40)]
    assert all(not any(block[::997]) for block in blocks)
    results[n] = hashlib.sha256(bytearray(b"x" * (5 << 20))).hexdigest()[:8]
results = {}
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(sorted(results.items()))
try:
    socket.create_connection(("192.0.2.1", 80), timeout=2)
except OSError as error:
    print("refused", error.errno)
P
