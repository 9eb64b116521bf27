# about: headless: a page computes, draws and compresses, a worker thread beside it
# version: chromium --version 2>/dev/null
# needs: chromium
# scale: long
set -e
turns=2
[ "$SCALE" = short ] || turns=20
export HOME=$PWD
# Root has no sandbox of Chromium's.
more=
[ "$(id -u)" -ne 0 ] || more=--no-sandbox
cat >page.html <<'HTML'
<!doctype html><title>work</title><pre id=out></pre><script>
const sum = async data => [...new Uint8Array(await crypto.subtle.digest("SHA-256", data))]
    .map(byte => byte.toString(16).padStart(2, "0")).join("").slice(0, 16);
const packed = async data => new Response(new Blob([data]).stream().pipeThrough(new CompressionStream("gzip"))
    .pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
async function work() {
    const lines = [], zero = new Uint8Array(40 << 20);
    lines.push("zero " + zero.every(byte => byte === 0));
    const numbers = Float64Array.from({length: 1 << 20}, (_, n) => n * 7919 % 100003).sort();
    lines.push("sorted " + await sum(numbers.buffer));
    lines.push("packed " + await sum(await packed(numbers.buffer)));
    const canvas = new OffscreenCanvas(2000, 1500), draw = canvas.getContext("2d", {willReadFrequently: true});
    for (let n = 0; n < 500; n++) { draw.fillStyle = `rgb(${n % 256},${n * 7 % 256},9)`; draw.fillRect(n * 3, n * 2, 400, 300); }
    lines.push("drawn " + await sum(draw.getImageData(0, 0, 2000, 1500).data));
    const worker = new Worker(URL.createObjectURL(new Blob(
        ["onmessage = e => { const a = new Uint32Array(8 << 20); for (let n = 0; n < a.length; n += 1024) a[n] = n;",
         "postMessage(a.reduce((one, two) => (one + two) >>> 0) + e.data); }"])));
    lines.push("worker " + await new Promise(done => { worker.onmessage = e => done(e.data); worker.postMessage(1); }));
    for (let n = 0; n < 20000; n++) { const item = document.createElement("i"); item.textContent = n; out.append(item); }
    lines.push("elements " + document.querySelectorAll("i").length);
    out.textContent = lines.join("\n") + "\n";
}
work().catch(error => out.textContent = error + "\n");
</script>
HTML
for turn in $(seq "$turns"); do
    # shellcheck disable=SC2086 # words
    chromium --headless=new $more --disable-gpu --no-first-run --user-data-dir="$PWD/data.$turn" \
        --virtual-time-budget=100000 --dump-dom "file://$PWD/page.html" 2>log | sed -n '/<pre/,/<\/pre>/p' |
        sed 's/.*<pre[^>]*>//; s/<\/pre>.*//'
    rm -rf "data.$turn"
done
