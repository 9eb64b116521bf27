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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
os.environ["PREZERO_BENCH_QUIET"] = "0.5"  # as the command that carries the script
import plot  # noqa: E402

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
      marks: shown.map(svg => svg.querySelectorAll('path,use,image').length),
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
    """Sections with their tables, plots and sentences, and the documents that the numbers stand in."""

    def __init__(self):
        super().__init__()
        self.documents, self.script = {}, None
        self.sections, self.cell, self.figure, self.text, self.wide = [], None, None, None, False
        self.verdict, self.heads, self.mark = False, "", None

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith(("data:", "#")), f"it needs {attributes[name]}"
        if tag == "section":
            self.sections.append({"figures": [], "rows": [], "verdicts": []})
        elif tag == "p" and attributes.get("class") == "verdict":
            self.sections[-1]["verdicts"].append("")
            self.verdict = True
        elif tag == "tr" and self.sections:
            self.sections[-1]["rows"].append([])
        elif tag in ("td", "th") and self.sections and self.sections[-1]["rows"]:
            self.cell = attributes
            self.sections[-1]["rows"][-1].append([attributes, ""])
        elif tag == "figure":
            self.figure = {"kind": attributes["data-kind"], "texts": [], "curve": [], "bar": []}
            self.sections[-1]["figures"].append(self.figure)
        elif tag == "div" and self.figure is not None:
            self.wide = attributes.get("class") == "wide"
        elif self.figure is not None and self.wide:
            if tag == "text":
                self.text = ""
            elif tag == "g":
                self.mark = attributes.get("id", "").split("-")[0]
            elif tag == "path" and self.mark in ("curve", "bar"):
                path = [tuple(map(float, point)) for point in re.findall(r"[ML] ([-0-9.e]+) ([-0-9.e]+)", attributes["d"])]
                self.figure[self.mark].append(path)
                self.mark = None
        if tag == "script":
            self.script = attributes.get("id")
            assert attributes.get("type") == "application/json", "a script that could run"

    def handle_endtag(self, tag):
        if tag == "p":
            self.verdict = False
        elif tag == "text" and self.text is not None:
            self.figure["texts"].append(self.text.strip())
            self.text = None
        elif tag == "figure":
            self.figure = None
        elif tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data):
        if self.verdict:
            self.sections[-1]["verdicts"][-1] += data
        elif self.text is not None:
            self.text += data
        elif self.cell is not None:
            self.sections[-1]["rows"][-1][-1][1] += data
        elif not self.sections:
            self.heads += data
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
    text = text.rstrip("<?=")
    scale = {"G": 1e9, "M": 1e6, "k": 1e3}.get(text[-1], 1)
    return float(text.rstrip("GMk")) * scale


def close(shown, value):
    """Two digits that count, of what is small, or three behind the point."""
    least = 0.0051 if abs(value) >= 0.1 else min(0.06 * abs(value), 0.00051)
    return abs(shown - value) <= max(0.006 * abs(value), least, 0.00051 if abs(value) > 1e-4 else 0)


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


def against(figure, what):
    found = [each for each in figure.get("against", []) if each["what"] == what]
    return found[0]["times"] if found else None


def check_verdicts(section, sheet):
    """The mean, the worst and the lost of each sentence are those of the figures."""
    times = {}
    for figure in sheet["figures"]:
        for each in figure.get("against", []):
            if each.get("wanted") is not None or each["what"] == "best":
                times.setdefault((each["what"], each.get("wanted")), []).append(each["times"])
    told = [sentence for sentence in section["verdicts"] if sentence.startswith("x ")]
    assert len(told) == len(times), (told, times)
    for sentence, values in zip(told, times.values()):
        worst = float(re.search(r"worst ([0-9.]+)", sentence)[1])
        assert close(worst, min(values)), (sentence, values)
        mean = re.search(r"mean ([0-9.]+), (\d+) of (\d+) below 1", sentence)
        if len(values) > 1:
            wanted = math.exp(sum(map(math.log, values)) / len(values))
            assert abs(float(mean[1]) - wanted) <= 0.0051, (sentence, wanted)
            assert (int(mean[2]), int(mean[3])) == (sum(value < 1 for value in values), len(values)), sentence


def check_bars(bars, shown):
    """Each is as long as its figure, on one scale."""
    assert len(bars) == len(shown) > 0, f"{len(bars)} bars for {len(shown)} figures"
    lengths = [max(x for x, _ in bar) - min(x for x, _ in bar) for bar in bars]
    scale = max(lengths) / max(map(abs, shown), default=1) if any(shown) else 0
    for length, value in zip(lengths, shown):
        assert abs(length - abs(value) * scale) <= 1.6, f"a bar is {length} long for {value}"


def check_plots(section, sheet):
    """Every picture has all the figures that it is of, at their places."""
    kinds = [each for each in plot.PICTURES if each[0] in sheet["title"]] or plot.others(sheet)
    wanted = [(kind, list(plot.points(sheet, kind, what))) for _, kind, what, *_ in kinds]
    wanted = [(kind, points) for kind, points in wanted if points]
    assert [figure["kind"] for figure in section["figures"]] == [kind for kind, _ in wanted], sheet["title"]
    for figure, (kind, points) in zip(section["figures"], wanted):
        values = [value for *_, value in points]
        if kind == "heat":
            missing = {plot.shown(value) for value in values} - set(figure["texts"])
            assert not missing, f"{sheet['title']}: the heat map lacks {missing}"
        elif kind in ("curves", "lines"):
            of = dict.fromkeys(curve for curve, *_ in points)
            by_curve = [value for each in of for curve, _, value in points if curve == each]
            check_heights([point for curve in figure["curve"] for point in curve], by_curve, sheet["title"])
        else:
            check_bars(figure["bar"], values)


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
        value = look_up(reader.documents, attributes["data-at"])
        assert close(as_number(shown.split(" ")[0]), value), (attributes, shown, value)
    sheets = [sheet for document in reader.documents.values() for sheet in document["sheets"]]
    # The last section is the JSON itself.
    assert len(sheets) == len(reader.sections) - 1, "a sheet has no section"
    for section, sheet in zip(reader.sections, sheets):
        check_verdicts(section, sheet)
        check_plots(section, sheet)
        assert not section["verdicts"] or section["verdicts"][0] in reader.heads, "the head does not say it"
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
