# about: headless: a page computes and draws, a worker thread beside it, and sends what came of it
# version: firefox-esr --version 2>/dev/null
# needs: firefox-esr python3
# scale: long
set -e
turns=1
[ "$SCALE" = short ] || turns=10
export HOME=$PWD
cat >page.html <<'HTML'
<!doctype html><title>work</title><div id=out></div><script>
const sum = data => { let all = 0; for (const each of data) all = (all * 31 + each) >>> 0; return all; };
async function work() {
    const lines = [], zero = new Uint8Array(40 << 20);
    lines.push("zero " + zero.every(byte => byte === 0));
    const numbers = Float64Array.from({length: 1 << 20}, (_, n) => n * 7919 % 100003).sort();
    lines.push("sorted " + sum(numbers));
    const canvas = new OffscreenCanvas(2000, 1500), draw = canvas.getContext("2d", {willReadFrequently: true});
    for (let n = 0; n < 500; n++) { draw.fillStyle = `rgb(${n % 256},${n * 7 % 256},9)`; draw.fillRect(n * 3, n * 2, 400, 300); }
    lines.push("drawn " + sum(draw.getImageData(0, 0, 2000, 1500).data));
    const worker = new Worker(URL.createObjectURL(new Blob(
        ["onmessage = e => { const a = new Uint32Array(8 << 20); for (let n = 0; n < a.length; n += 1024) a[n] = n;",
         "postMessage(a.reduce((one, two) => (one + two) >>> 0) + e.data); }"])));
    lines.push("worker " + await new Promise(done => { worker.onmessage = e => done(e.data); worker.postMessage(1); }));
    for (let n = 0; n < 20000; n++) { const item = document.createElement("i"); item.textContent = n; out.append(item); }
    lines.push("elements " + document.querySelectorAll("i").length);
    return lines.join("\n");
}
work().catch(error => "" + error).then(text => fetch("/", {method: "POST", body: text}));
</script>
HTML
cat >serve.py <<'PYTHON'
import http.server
import subprocess
import sys

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = open("page.html", "rb").read()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def do_POST(self):
        if self.headers["Content-Type"].startswith("text/plain"):
            self.server.said = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Page)
server.said, server.timeout = None, 300
command = ["firefox-esr", "--headless", "--no-remote", "--profile", sys.argv[1], f"http://127.0.0.1:{server.server_port}/"]
with open("log", "ab") as log:
    browser = subprocess.Popen(command, stdout=log, stderr=log)
    while server.said is None and browser.poll() is None:
        server.handle_request()
    print(server.said)
    browser.terminate()
    browser.wait()
PYTHON
for turn in $(seq "$turns"); do
    mkdir "profile.$turn"
    python3 serve.py "profile.$turn"
    rm -rf "profile.$turn"
done
