#!/usr/bin/env python3
"""The report in a real browser: no console error, every plot drawn, legible at 400 and 1400 px,
and each number in it the one of the JSON.

    tests/report.py REPORT.html [CHROMIUM]
"""
import html.parser
import json
import os
import subprocess
import sys
import tempfile

PROBE = """
<!doctype html><body><script>
const widths = [400, 1400], told = [];
const frame = width => new Promise(done => {
  const element = document.createElement('iframe');
  element.style.cssText = `border:0;width:${width}px;height:3000px`;
  element.onload = () => {
    const page = element.contentDocument;
    page.querySelectorAll('details').forEach(details => details.open = true);
    const shown = [...page.querySelectorAll('svg')].filter(svg => svg.getClientRects().length);
    const texts = shown.flatMap(svg => [...svg.querySelectorAll('text')]).filter(t => t.textContent.trim());
    const box = node => node.getBoundingClientRect();
    const scaled = text => parseFloat(element.contentWindow.getComputedStyle(text).fontSize)
      * text.ownerSVGElement.getScreenCTM().a;
    const outside = texts.filter(text => {
      const inner = box(text), outer = box(text.ownerSVGElement.closest('figure'));
      return inner.left < outer.left - 1 || inner.right > outer.right + 1;
    });
    told.push({
      width,
      overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      figures: page.querySelectorAll('figure').length,
      shown: shown.length,
      marks: shown.map(svg => svg.querySelectorAll('rect,circle,polyline').length),
      smallest: Math.min(...texts.map(scaled)),
      outside: outside.map(text => text.textContent.trim()).slice(0, 5),
      ink: [...new Set(texts.map(text => element.contentWindow.getComputedStyle(text).fill))],
    });
    done();
  };
  element.src = 'report.html';
  document.body.append(element);
});
(async () => {
  for (const width of widths) await frame(width);
  document.body.innerHTML = '';
  document.body.append(document.createElement('pre'));
  document.querySelector('pre').textContent = JSON.stringify(told);
  document.title = 'done';
})();
</script></body>
"""


class Reader(html.parser.HTMLParser):
    """Numbers with where they stand, and the documents they stand in."""

    def __init__(self):
        super().__init__()
        self.cells, self.documents, self.cell, self.script = [], {}, None, None

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "data-at" in attributes:
            self.cell = attributes
        if tag == "script":
            self.script = attributes.get("id")
            assert attributes.get("type") == "application/json", "a script that could run"

    def handle_data(self, data):
        if self.cell:
            self.cells.append((self.cell, data))
            self.cell = None
        if self.script:
            self.documents[self.script] = json.loads(data)
            self.script = None


def browse(browser, folder, page, *arguments):
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
               "--allow-file-access-from-files", "--enable-logging=stderr", f"--user-data-dir={folder}/profile",
               "--virtual-time-budget=20000", "--timeout=60000", *arguments, f"file://{folder}/{page}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr[-2000:]
    console = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    assert not console, f"the console says {console}"
    return run.stdout


def look_up(documents, place):
    name, pointer = place.split("#", 1)
    value = documents[name]
    for part in pointer.strip("/").split("/"):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return float(value)


def as_number(text):
    scale = {"G": 1e9, "M": 1e6, "k": 1e3}.get(text[-1], 1)
    return float(text.rstrip("GMk")) * scale


def main():
    report = sys.argv[1]
    browser = sys.argv[2] if len(sys.argv) > 2 else "chromium"
    source = open(report, encoding="utf-8").read()
    reader = Reader()
    reader.feed(source)
    assert reader.cells and reader.documents, "no numbers"
    for cell, shown in reader.cells:
        value = look_up(reader.documents, cell["data-at"])
        if "data-over" in cell:
            value /= look_up(reader.documents, cell["data-over"])
        value /= float(cell.get("data-scale", 1))
        assert abs(as_number(shown) - value) <= max(0.006 * abs(value), 0.0051), (cell, shown, value)

    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/report.html", "w", encoding="utf-8") as page:
            page.write(source)
        with open(f"{folder}/probe.html", "w", encoding="utf-8") as page:
            page.write(PROBE)
        browse(browser, folder, "report.html", "--dump-dom")
        dom = browse(browser, folder, "probe.html", "--dump-dom")
        told = json.loads(html.unescape(dom.split("<pre>")[1].split("</pre>")[0]))
        assert [page["width"] for page in told] == [400, 1400], told
        for page in told:
            assert page["overflow"] <= 0, f"wider than the window: {page}"
            assert page["figures"] == page["shown"] > 0, f"a plot is not shown: {page}"
            assert min(page["marks"]) > 0, f"a plot is empty: {page}"
            assert page["smallest"] >= 11, f"text too small to read: {page}"
            assert not page["outside"], f"text outside its figure: {page}"
            assert "rgb(1, 2, 3)" not in page["ink"], page
        if os.environ.get("SHOTS"):
            for width in (400, 1400):
                shot = f"{os.path.abspath(os.environ['SHOTS'])}/report-{width}.png"
                browse(browser, folder, "report.html", f"--window-size={width},2400", f"--screenshot={shot}")
    print(f"report: {len(reader.cells)} numbers, {told[0]['shown']} plots: good")


main()
