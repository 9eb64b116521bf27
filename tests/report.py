#!/usr/bin/env python3
"""The report in a real browser: no console error, every plot drawn, legible at 400 and 1400 px in
light and dark, printed whole; and each number in it, in tables and in plots, the one of the JSON.

    tests/report.py REPORT.html PICTURES [CHROMIUM]      SHOTS=FOLDER keeps screenshots
"""
import html.parser
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections import Counter

PROBE = """
<!doctype html><body><script>
const widths = [400, 1400], told = [];
const channels = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = color => {
  const [r, g, b] = channels(color).map(c => c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [x, y] = [light(a) + 0.05, light(b) + 0.05];
  return Math.max(x / y, y / x);
};
const frame = width => new Promise(done => {
  const element = document.createElement('iframe');
  element.style.cssText = `border:0;width:${width}px;height:3000px`;
  element.onload = () => {
    const page = element.contentDocument, style = node => element.contentWindow.getComputedStyle(node);
    page.querySelectorAll('details').forEach(details => details.open = true);
    const shown = [...page.querySelectorAll('svg')].filter(svg => svg.getClientRects().length);
    const texts = shown.flatMap(svg => [...svg.querySelectorAll('text')]).filter(t => t.textContent.trim());
    const box = node => node.getBoundingClientRect();
    const scaled = text => parseFloat(style(text).fontSize) * text.ownerSVGElement.getScreenCTM().a;
    const outside = texts.filter(text => {
      const inner = box(text), outer = box(text.ownerSVGElement.closest('figure'));
      return inner.left < outer.left - 1 || inner.right > outer.right + 1;
    });
    // Figures that lie on each other cannot be read.
    const over = [];
    for (const svg of shown) {
      const own = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());
      const boxes = own.map(box);
      for (let i = 0; i < own.length; i++) for (let j = 0; j < i; j++) {
        const [a, b] = [boxes[i], boxes[j]];
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > 3 && y > 6) over.push(own[j].textContent.trim() + ' and ' + own[i].textContent.trim());
      }
    }
    const paper = style(page.body).backgroundColor;
    const inks = texts.filter(t => !t.closest('[data-kind=heat]') || t.getAttribute('fill') === 'currentColor')
      .map(t => contrast(style(t).fill, paper));
    told.push({
      width,
      dark: element.contentWindow.matchMedia('(prefers-color-scheme: dark)').matches,
      overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      figures: page.querySelectorAll('figure').length,
      shown: shown.length,
      marks: shown.map(svg => svg.querySelectorAll('rect,circle,polyline').length),
      smallest: Math.min(...texts.map(scaled)),
      outside: outside.map(text => text.textContent.trim()).slice(0, 5),
      over: over.slice(0, 5),
      ink: Math.min(...inks, contrast(style(page.body).color, paper)),
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
    """Sections with their tables and plots, numbers with where they stand, and the documents they stand in."""

    def __init__(self):
        super().__init__()
        self.documents, self.script = {}, None
        self.sections, self.cell, self.figure, self.text, self.wide = [], None, None, None, False
        self.verdict, self.heads = None, []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:"), f"it needs {attributes[name]}"
        if tag == "section":
            self.sections.append({"figures": [], "rows": [], "verdict": {}})
        elif tag == "span" and "data-verdict" in attributes:
            self.verdict = attributes["data-verdict"]
        elif tag == "tr" and self.sections:
            self.sections[-1]["rows"].append([])
        elif tag in ("td", "th") and self.sections and self.sections[-1]["rows"]:
            self.cell = attributes
            self.sections[-1]["rows"][-1].append([attributes, ""])
        elif tag == "figure":
            self.figure = {"kind": attributes["data-kind"], "texts": [], "circles": [], "rects": []}
            self.sections[-1]["figures"].append(self.figure)
        elif tag == "div" and self.figure is not None:
            self.wide = attributes.get("class") == "wide"
        elif self.figure is not None and self.wide:
            if tag == "text":
                self.text = ""
            elif tag == "circle":
                self.figure["circles"].append((float(attributes["cx"]), float(attributes["cy"])))
            elif tag == "rect":
                self.figure["rects"].append((float(attributes["width"]), float(attributes["height"])))
        if tag == "script":
            self.script = attributes.get("id")
            assert attributes.get("type") == "application/json", "a script that could run"

    def handle_endtag(self, tag):
        if tag == "span":
            self.verdict = None
        elif tag == "text" and self.text is not None:
            self.figure["texts"].append(self.text.strip())
            self.text = None
        elif tag == "figure":
            self.figure = None
        elif tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data):
        if self.verdict and self.sections:
            self.sections[-1]["verdict"][self.verdict] = data
        elif self.verdict:
            self.heads.append((self.verdict, data))
        elif self.text is not None:
            self.text += data
        elif self.cell is not None:
            self.sections[-1]["rows"][-1][-1][1] += data
        if self.script:
            self.documents[self.script] = json.loads(data)
            self.script = None


def browse(browser, folder, page, *arguments):
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
               "--allow-file-access-from-files", "--enable-logging=stderr", f"--user-data-dir={folder}/profile",
               "--virtual-time-budget=20000", "--timeout=300000", *arguments, f"file://{folder}/{page}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr[-2000:]
    console = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    assert not console, f"the console says {console}"
    return run.stdout


def pages_of(browser, folder, page):
    browse(browser, folder, page, "--no-pdf-header-footer", f"--print-to-pdf={folder}/page.pdf")
    pdf = open(f"{folder}/page.pdf", "rb").read()
    assert pdf.startswith(b"%PDF"), "not printed"
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def look_up(documents, place):
    name, pointer = place.split("#", 1)
    value = documents[name]
    for part in pointer.strip("/").split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        value = value[int(part)] if isinstance(value, list) else value[part]
    return float(value)


def as_number(text):
    scale = {"G": 1e9, "M": 1e6, "k": 1e3}.get(text[-1], 1)
    return float(text.rstrip("GMk")) * scale


def value_of(documents, attributes):
    value = look_up(documents, attributes["data-at"])
    if "data-over" in attributes:
        value /= look_up(documents, attributes["data-over"])
    return value / float(attributes.get("data-scale", 1))


def numbers(documents, row):
    """The cells of a row that are numbers: what is shown, and what it has to be."""
    return [(shown, value_of(documents, attributes)) for attributes, shown in row if "data-at" in attributes]


def check_heights(points, values, what):
    """A logarithmic axis: the place is linear in the logarithm, the larger the higher."""
    assert len(points) == len(values) > 0, f"{what}: {len(points)} points for {len(values)} figures"
    logs, ys = [math.log2(value) for value in values], [y for _, y in points]
    if max(logs) - min(logs) < 1e-9:
        return
    low, high = logs.index(min(logs)), logs.index(max(logs))
    slope = (ys[high] - ys[low]) / (logs[high] - logs[low])
    assert slope < 0, f"{what}: upside down"
    for value, log, y in zip(values, logs, ys):
        wanted = ys[low] + slope * (log - logs[low])
        assert abs(y - wanted) <= 1.6, f"{what}: {value} is drawn at {y}, not at {wanted}"


def in_turn(rows):
    """Rows by their first cell, in the order in which it appears."""
    groups = {}
    for key, value in rows:
        groups.setdefault(key, []).append(value)
    return [value for values in groups.values() for value in values]


def check_plots(documents, section):
    """Every figure of a plot is one of the tables beside it, and the other way round."""
    rows = [row for row in section["rows"] if any("data-at" in attributes for attributes, _ in row)]
    ratios = [(row[0][1], row[-1][1], value_of(documents, row[-1][0])) for row in rows
              if "data-over" in row[-1][0]]
    if ratios:
        told, values = section["verdict"], [value for _, _, value in ratios]
        mean = math.exp(sum(map(math.log, values)) / len(values))
        assert abs(float(told["mean"]) - mean) <= 0.0051, (told, mean)
        assert abs(float(told["worst"]) - min(values)) <= 0.0051, (told, min(values))
        assert int(told["lost"]) == sum(value < 1 for value in values), (told, values)
    for figure in section["figures"]:
        kind, texts = figure["kind"], Counter(figure["texts"])
        if kind == "heat":
            assert len(figure["rects"]) == len(ratios) > 0, "a cell of the heat map is missing"
            missing = Counter(shown for _, shown, _ in ratios) - texts
            assert not missing, f"not in the heat map: {missing}"
        elif kind == "lines" and ratios:
            check_heights(figure["circles"], in_turn([(size, value) for size, _, value in ratios]), "speed-up")
        elif kind == "lines":
            # One row a level and count of lines; its fourth figure is the rate.
            curve = [(row[0][1], numbers(documents, row)[3][1]) for row in rows
                     if sum(attributes.get("scope") == "row" for attributes, _ in row) == 2]
            check_heights(figure["circles"], in_turn(curve), "Lameter's curve")
        else:
            first = {"cost": slice(0, 3), "waste": slice(1, 4), "bars": slice(0, 1)}[kind]
            rows_shown = [row for row in rows if "data-over" not in row[-1][0]] if kind == "cost" else rows
            if kind == "cost":
                rows_shown = [row for row in rows_shown if "/costs/" in next(
                    attributes["data-at"] for attributes, _ in row if "data-at" in attributes)]
            values = [pair for row in rows_shown for pair in numbers(documents, row)[first]]
            missing = Counter(shown for shown, _ in values) - texts
            assert not missing, f"not among the bars: {missing}"
            bars = [width for width, height in figure["rects"] if height == 11]
            assert len(bars) == len(values), f"{len(bars)} bars for {len(values)} figures"
            longest = max(values, key=lambda pair: abs(pair[1]))[1]
            for width, (shown, value) in zip(bars, values):
                wanted = max(abs(value / longest) * max(bars), 1) if longest else 1
                assert abs(width - wanted) <= 1.6, f"the bar of {shown} is {width} long, not {wanted}"


def main():
    report, pictures = sys.argv[1], sorted(pathlib.Path(sys.argv[2]).glob("*.svg"))
    browser = sys.argv[3] if len(sys.argv) > 3 else "chromium"
    source = open(report, encoding="utf-8").read()
    reader = Reader()
    reader.feed(source)
    cells = [(attributes, shown) for section in reader.sections for row in section["rows"]
             for attributes, shown in row if "data-at" in attributes]
    assert cells and reader.documents, "no numbers"
    for attributes, shown in cells:
        value = value_of(reader.documents, attributes)
        assert abs(as_number(shown) - value) <= max(0.006 * abs(value), 0.0051), (attributes, shown, value)
    for section in reader.sections:
        check_plots(reader.documents, section)
    told = [pair for section in reader.sections for pair in section["verdict"].items()]
    assert reader.heads == told, f"the head says {reader.heads}, the sections {told}"
    plots = sum(len(section["figures"]) for section in reader.sections)
    assert len(pictures) == 2 * plots > 0, f"{len(pictures)} pictures, wide and narrow, of {plots} plots"

    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/report.html", "w", encoding="utf-8") as page:
            page.write(source)
        with open(f"{folder}/probe.html", "w", encoding="utf-8") as page:
            page.write(PROBE)
        for scheme, arguments in ("light", ["--blink-settings=preferredColorScheme=1"]), (
                "dark", ["--blink-settings=preferredColorScheme=0"]):
            browse(browser, folder, "report.html", "--dump-dom", *arguments)
            dom = browse(browser, folder, "probe.html", "--dump-dom", *arguments)
            told = json.loads(html.unescape(dom.split("<pre>")[1].split("</pre>")[0]))
            assert [page["width"] for page in told] == [400, 1400], told
            for page in told:
                assert page["dark"] == (scheme == "dark"), f"the browser is not {scheme}: {page}"
                assert page["overflow"] <= 0, f"wider than the window: {page}"
                assert page["figures"] == page["shown"] == plots, f"a plot is not shown: {page}"
                assert min(page["marks"]) > 0, f"a plot is empty: {page}"
                assert page["smallest"] >= 11, f"text too small to read: {page}"
                assert not page["outside"], f"text outside its figure: {page}"
                assert not page["over"], f"text on text: {page}"
                assert page["ink"] >= 7, f"ink too faint: {page}"
        # Printed, the tables that wait behind a click are there too.
        for name, text in ("open", source.replace("<details>", "<details open>")), (
                "bare", re.sub("<details>.*?</details>", "", source, flags=re.S)):
            with open(f"{folder}/{name}.html", "w", encoding="utf-8") as page:
                page.write(text)
        whole, opened, bare = (pages_of(browser, folder, f"{name}.html") for name in ("report", "open", "bare"))
        assert whole == opened > bare >= 1, f"{whole} pages, {opened} opened, {bare} without tables"
        for picture in pictures:
            alone = picture.read_text(encoding="utf-8")
            with open(f"{folder}/picture.svg", "w", encoding="utf-8") as page:
                page.write(alone)
            assert "<parsererror" not in browse(browser, folder, "picture.svg", "--dump-dom"), picture
            assert "prefers-color-scheme:dark" in alone and "010203" not in alone, picture
        for width in (400, 1400) if os.environ.get("SHOTS") else ():
            for scheme in ("light", "dark"):
                shot = f"{os.path.abspath(os.environ['SHOTS'])}/report-{width}-{scheme}.png"
                browse(browser, folder, "report.html", f"--window-size={width},{os.environ.get('TALL', '2400')}",
                       f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", f"--screenshot={shot}")
    print(f"report: {len(cells)} numbers, {plots} plots: good")


main()
