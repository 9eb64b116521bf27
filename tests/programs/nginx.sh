# about: files, compressed answers and a proxy, with reloads and a new binary under load
# version: nginx -v 2>&1
# needs: nginx python3
set -e
fail() { echo "$1" >&2; tail error.log >&2; exit 1; }
. "$TOP/tests/common/until.sh"
binary=$(command -v nginx)
rounds=40
[ "$SCALE" = short ] || rounds=2000
chmod 755 .
mkdir -m 777 files tmp
seq 300000 >files/numbers
head -c 3000000 /dev/zero >files/zero
# Buffers large enough for blocks of the zone.
cat >conf <<CONF
daemon on; worker_processes 2; pid $PWD/pid; error_log $PWD/error.log warn;
$([ "$(id -u)" -ne 0 ] || echo 'user nobody nogroup;')
events { worker_connections 256; }
http {
    access_log off; client_body_temp_path tmp/body; proxy_temp_path tmp/proxy; fastcgi_temp_path tmp/fastcgi;
    uwsgi_temp_path tmp/uwsgi; scgi_temp_path tmp/scgi; default_type text/plain;
    client_max_body_size 16m; client_body_buffer_size 4m; output_buffers 2 1m;
    server { listen unix:$PWD/files.sock; root $PWD/files; }
    server {
        listen unix:$PWD/front.sock; gzip on; gzip_http_version 1.0; gzip_proxied any; gzip_buffers 4 1m;
        location / {
            proxy_pass http://unix:$PWD/files.sock; proxy_request_buffering on;
            proxy_buffering on; proxy_buffer_size 256k; proxy_buffers 8 512k; proxy_busy_buffers_size 1m;
        }
    }
}
CONF
nginx() { "$binary" -p "$PWD" -c conf -e "$PWD/error.log" "$@"; }
nginx
until_true "a server" test -s pid
ended() { [ ! -e pid ]; }
stop() { nginx -s stop 2>/dev/null && within 60 ended || true; }
trap stop EXIT
# Asks until it is told to stop, and at least so often; what comes is what the file holds, each time.
python3 - "$rounds" >said 2>&1 <<'PYTHON' &
import gzip, hashlib, http.client, os, socket, sys, threading

class Local(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

wanted = {name: hashlib.sha256(open(f"files/{name}", "rb").read()).digest() for name in ("numbers", "zero")}
wrong, answers = [], 0

def ask(nth):
    global answers
    while answers < int(sys.argv[1]) or not os.path.exists("over"):
        for path in ("files.sock", "front.sock"):
            for name, digest in wanted.items():
                connection = Local(path)
                connection.request("GET", f"/{name}", body=b"x" * 2_000_000, headers={"Accept-Encoding": "gzip"})
                answer = connection.getresponse()
                body = answer.read()
                if answer.getheader("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if answer.status != 200 or hashlib.sha256(body).digest() != digest:
                    wrong.append((path, name, answer.status, len(body)))
        answers += 1

threads = [threading.Thread(target=ask, args=(nth,)) for nth in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("wrong answers:", wrong)
PYTHON
client=$!
for _ in 1 2 3 4; do
    nginx -s reload
    sleep 0.2
done
# The new binary takes over the sockets, and the old one ends when its last answer is sent.
old=$(cat pid)
kill -USR2 "$old"
taken() { [ -s pid ] && [ -s pid.oldbin ]; }
until_true "a new binary" taken
kill -QUIT "$old"
gone() { ! kill -0 "$old" 2>/dev/null; }
until_true "the end of the old one" gone
touch over
wait $client || true
cat said
! grep -E '\[(alert|emerg)\]' error.log
