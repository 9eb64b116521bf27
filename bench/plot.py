"""What is made of figures: one page of HTML with pictures, results that are kept, and their index.

    plot.py report --output FILE [--pictures DIR] [--quick] --bench PROGRAM [FILE|FOLDER...]
    plot.py results --folder FOLDER [--commit NAME] [--check] [FILE...]

`prezero bench report` and `results` run it. Pictures are matplotlib's; without it the page has tables alone. Colours of
text and rules are the reader's, light or dark.
"""
import argparse
import datetime
import html
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt
except ImportError:
    plt = None

# What is measured without files: the benchmark, its words, and those that make it short.
RUNS = [
    ("grid", ["--idle", "all"], ["--sizes", "64K,1M,16M", "--lines", "1,16,64", "--passes-s", "5"]),
    ("seeds", [], ["--mib", "64", "--runs", "1"]),
    ("waste", [], ["--times", "0.3"]),
    ("disturb", [], ["--rounds", "5", "--seconds", "0.1", "--pairs-s", "2"]),
]
# Which sheets have a picture: words of the title, its kind, what it is of, its axes and what it shows.
PICTURES = [
    ("Grid, ", "heat", "best", ("cache lines touched of each page", ""), "Blocks by size and lines touched: the fastest peer's time over prezero's."),
    ("Grid, ", "curves", "best", ("cache lines touched of each page", "speed-up over the best peer"), "Lameter's curve: the more of a page is touched at once, the less there is to gain."),
    ("cache lines touched a page", "lines", "flt/cpu/s", ("cache lines touched of each page", "pages in a CPU second"), "Lameter's curve: his figures of 2004 and today's levels."),
    ("Waste: ", "bars", "hit", ("MiB", ""), "What scrubd cleared and a request for zeroes used, by pattern of demand."),
    ("what neighbours feel", "changes", "never", ("% better than without scrubbing", ""), "Time of the neighbours' work, or lateness of their wake-ups. A change below its noise, which the table has, says nothing."),
]
# Above this load a figure of idle CPUs is one of busy ones.
QUIET = float(os.environ["PREZERO_BENCH_QUIET"])
# What a reader asks, in this order, and the benchmarks that answer it. What is in no row comes last.
QUESTIONS = (
    ("Does it help?", ("real", "steady", "grid", "numpy", "doors", "start", "lease", "pinned", "seeds")),
    ("What does it cost?", ("waste", "disturb", "busy", "fork", "pair", "small", "short", "single", "verify")),
    ("What is each part worth?", ()),
)
MARKS = "< misses what is wanted, ? noise hides whether, = misses it and no allocator can do better"
# Text and rules while a picture is drawn; the page's own colour then.
INK = "#010203"
WIDTHS = {"wide": 820, "narrow": 360}
STYLE = """:root{color-scheme:light dark;--paper:#fff;--ink:#1b1b1b;--rule:#ccc;--soft:#f4f4f4}
@media(prefers-color-scheme:dark){:root{--paper:#16181b;--ink:#e6e6e6;--rule:#444;--soft:#22262a}}
@media print{:root{--paper:#fff;--ink:#000;--soft:#fff}figure{break-inside:avoid}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:900px;padding:1rem;background:var(--paper);color:var(--ink);font:16px/1.45 system-ui,sans-serif}
h1{font-size:1.6rem}h3{font-size:1.05rem;margin-top:1.8rem}h2{font-size:1.3rem;margin-top:2.2rem;border-top:1px solid var(--rule);padding-top:1rem}
figure{margin:1rem 0}figcaption,small{font-size:.85rem}svg{display:block;max-width:100%;height:auto}
.narrow{display:none}@media screen and (max-width:880px){.wide{display:none}.narrow{display:block}}
@media print{details>*{display:block}details::details-content{content-visibility:visible}}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}
th,td{padding:.15rem .5rem;text-align:right;border-bottom:1px solid var(--rule);vertical-align:top}
th[scope=row],.runs td{text-align:left;font-weight:normal}summary{cursor:pointer;margin:.4rem 0}
code{background:var(--soft);overflow-wrap:anywhere}"""


def asked(taken):
    """Where a report's question stands in QUESTIONS, and the report under it."""
    places = [(nth, names.index(taken["benchmark"])) for nth, (_, names) in enumerate(QUESTIONS) if taken["benchmark"] in names]
    return places[0] if places else (len(QUESTIONS) - 1, 0)


# ---- figures -------------------------------------------------------------------------------------
def shown(value):
    """Three digits that count."""
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e5, "k")):
        if abs(value) >= scale:
            return shown(value / (1e3 if unit == "k" else scale)) + unit
    digits = 0 if abs(value) >= 100 or value == 0 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(digits, 9)}f}"


def judged(value, noise, wanted):
    """The mark of what is to be so much or more."""
    if wanted is None or value - noise >= wanted:
        return ""
    return "<" if value + noise < wanted else "?"


def mark(figure):
    noise = (figure.get("noise") or 0) * abs(figure["value"])
    wanted = figure.get("wanted")
    if figure.get("better") == "more" or wanted is None:
        return judged(figure["value"], noise, wanted)
    return judged(-figure["value"], noise, -wanted)


def named(figure):
    return figure["name"] + (f", {figure['unit']}" if figure["unit"] else "")


def table(sheet, place):
    """Rows of cells, each (text, where its number stands in the JSON)."""
    rows, columns = {}, []
    for nth, figure in enumerate(sheet["figures"]):
        key = (*figure.get("of", []), named(figure))
        cells = rows.setdefault(key, {})
        cells[figure["who"]] = (shown(figure["value"]) + mark(figure), f"{place}/{nth}/value")
        columns += [figure["who"]] if figure["who"] not in columns else []
        for at, against in enumerate(figure.get("against", [])):
            head = f"x {against['what']}" if figure["who"] == "prezero" else f"{figure['who']} x {against['what']}"
            text = f"{against['times']:.3f}" if 0.01 <= against["times"] < 10 else shown(against["times"])
            missed = judged(against["times"], against.get("noise") or 0, against.get("wanted"))
            text += "=" if missed == "<" and against.get("at_limit") else missed
            text += f" ± {against['noise']:.3f}" if against.get("noise") is not None else ""
            cells[head] = (text, f"{place}/{nth}/against/{at}/times")
    compared = [head for cells in rows.values() for head in cells if head not in columns]
    columns += list(dict.fromkeys(compared))
    heads = [*sheet["labels"], "", *columns]
    return heads, [(key, [cells.get(column, ("-", None)) for column in columns]) for key, cells in rows.items()]


def says(sheet):
    return sheet.get("verdicts", []) + sheet.get("says", [])


# ---- pictures ------------------------------------------------------------------------------------
def times(figure, what):
    return next((each["times"] for each in figure.get("against", []) if each["what"] == what), None)


def points(sheet, kind, what):
    """What a picture is of: curve or row, place along it, and value."""
    for figure in sheet["figures"]:
        of = figure.get("of", [])
        value = times(figure, what) if kind not in ("lines", "bars") else figure["value"] if figure["name"] == what else None
        if kind == "first" and (figure["who"] != "prezero" or figure["name"] != sheet["figures"][0]["name"]):
            continue
        if value is None:
            continue
        if kind in ("heat", "curves"):
            yield of[0], of[-1], value
        elif kind == "lines":
            yield figure["who"], of[-1], value
        else:
            words = [*of, figure["name"], figure["who"]] if kind == "changes" else of
            yield " ".join(words), "", value if kind == "bars" else 100 * (value - 1)


def draw(kind, data, axes, width):
    """One picture as SVG, so many px wide."""
    names, along = list(dict.fromkeys(point[0] for point in data)), list(dict.fromkeys(point[1] for point in data))
    rows = len(names) if kind == "heat" else len(data) if kind not in ("curves", "lines") else 12
    size = (width / 72, (70 + 24 * rows) / 72)
    style = {"font.size": 12, "svg.fonttype": "none", "svg.hashsalt": "prezero", "axes.edgecolor": INK, "axes.labelcolor": INK,
             "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        figure, axis = plt.subplots(figsize=size, layout="constrained")
        if kind == "heat":
            grid = [[next((v for n, a, v in data if (n, a) == (name, place)), math.nan) for place in along] for name in names]
            most = max(abs(math.log2(v)) for _, _, v in data) or 1
            axis.imshow([[math.log2(v) for v in row] for row in grid], cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
            for y, row in enumerate(grid):
                for x, value in enumerate(row):
                    dark = abs(math.log2(value)) > 0.6 * most
                    axis.text(x, y, shown(value), ha="center", va="center", color="white" if dark else "black")
            axis.set_xticks(range(len(along)), along)
            axis.set_yticks(range(len(names)), names)
        elif kind in ("curves", "lines"):
            for nth, name in enumerate(names):
                xs, ys = zip(*((float(place), value) for of, place, value in data if of == name))
                axis.plot(xs, ys, marker=".", label=name, gid=f"curve-{nth}", color=plt.cm.tab20(nth % 20))
            axis.set(xscale="log", yscale="log")
            axis.set_xticks(sorted({float(place) for place in along}), sorted(along, key=float))
            least, most = min(value for *_, value in data), max(value for *_, value in data)
            decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
            ticks = [step * 10.0 ** decade for decade in decades for step in ((1, 2, 5) if len(decades) < 5 else (1,))]
            axis.set_yticks(ticks, [shown(tick) for tick in ticks])
            axis.set_ylim(least / 1.2, most * 1.2)
            axis.minorticks_off()
            figure.legend(loc="outside lower center", ncols=max(1, width // 190), frameon=False, fontsize=12)
        else:
            bars = axis.barh(range(len(data)), [value for *_, value in data], color=["#2166ac" if value >= 0 else "#b2182b" for *_, value in data])
            for nth, bar in enumerate(bars):
                bar.set_gid(f"bar-{nth}")
            axis.set_yticks(range(len(data)), [name if width > 500 else name[:22] for name, *_ in data])
            axis.invert_yaxis()
            axis.margins(y=0.01)
        axis.set(xlabel=axes[0], ylabel=axes[1])
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)
    svg = out.getvalue()[out.getvalue().index("<svg"):]
    return svg.replace(INK, "currentColor")


def others(sheet):
    """Of a sheet without a picture of its own: what prezero is of the first that it is compared with."""
    what = next((each["what"] for figure in sheet["figures"] for each in figure.get("against", [])), None)
    words = (f"% better than {what}", "")
    return [("", "first", what, words, f"Beside {what}. A change below its noise, which the table has, says nothing.")] if what else []


def pictures(sheet):
    """Kind, caption, and the picture wide and narrow, of each that a sheet has."""
    for _, kind, what, axes, caption in ([each for each in PICTURES if each[0] in sheet["title"]] or others(sheet)) if plt else []:
        data = list(points(sheet, kind, what))
        if data:
            slug = re.sub(r"[^a-z0-9]+", "-", sheet["title"].split(":")[0].lower()).strip("-")
            slug += "-lines" if kind == "lines" else "-heat" if kind == "heat" else f"-{kind}"
            yield slug, kind, caption, {name: draw(kind, data, axes, width) for name, width in WIDTHS.items()}


def alone(svg):
    """A picture in a file of its own, which follows the reader's choice by itself."""
    style = "<style>:root{color:#1b1b1b}@media(prefers-color-scheme:dark){:root{color:#e6e6e6}}</style>"
    return re.sub(r"(<svg[^>]*>)", r"\1" + style, svg, count=1)


# ---- the page ------------------------------------------------------------------------------------
def machine(taken):
    of = taken["machine"]
    return (f"{of['cpu']}, {of['cpus']} CPUs, L2 {of['l2']}, L3 {of['l3']}, {of['memory_bytes'] / 2 ** 30:.1f} GiB, Linux {of['kernel']}, "
            f"THP {of['thp']}, {of['libc']}")


def verdict(name, taken):
    load = taken["machine"]["load"]
    if load > QUIET:
        return [f"<strong>{name}</strong>: no verdict, because the load was {load} when it began; take it again at {QUIET} or less"]
    first = [(sheet["title"], says(sheet)[0]) for sheet in taken["sheets"] if says(sheet)]
    return [f"<strong>{html.escape(re.split('[:(]', title)[0].strip())}</strong> (load {load}): {html.escape(text)}" for title, text in first]


def run(name, origin, taken):
    allocators = ", ".join(f"{each['name']} {each['version']}".strip() for each in taken["allocators"])
    allocators += "".join(f"; without {each['name']} ({each['mend']})" for each in taken["absent"])
    turned = ", ".join(f"{knob} {taken['settings'][knob]}" for knob in taken.get("turned", []))
    cells = [name, f"<code>{html.escape(taken['command'])}</code>", taken["machine"]["load"], html.escape(f"{taken['prezero']} {turned}"), html.escape(f"{origin} {allocators}")]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def section(name, taken, nth, drawn):
    sheet = taken["sheets"][nth]
    out = [f"<section><h3>{html.escape(sheet['title'])}</h3>"]
    out += [f"<p class=\"verdict\">{html.escape(text)}</p>" for text in says(sheet)]
    for _, kind, caption, svgs in drawn:
        both = "".join(f"<div class=\"{width}\">{svg}</div>" for width, svg in svgs.items())
        out.append(f"<figure data-kind=\"{kind}\">{both}<figcaption>{html.escape(caption)}</figcaption></figure>")
    heads, rows = table(sheet, f"{name}#/sheets/{nth}/figures")
    out.append("<details><summary>The figures</summary>" + "".join(f"<p><small>{html.escape(note)}</small></p>" for note in sheet["notes"]))
    out.append("<div class=\"scroll\"><table><tr>" + "".join(f"<th>{html.escape(head)}</th>" for head in heads) + "</tr>")
    for key, cells in rows:
        words = "".join(f"<th scope=\"row\">{html.escape(word)}</th>" for word in key)
        numbers = "".join(f"<td data-at=\"{place}\">{html.escape(text)}</td>" if place else f"<td>{text}</td>" for text, place in cells)
        out.append(f"<tr>{words}{numbers}</tr>")
    return "\n".join([*out, "</table></div></details></section>"])


def page(documents, drawn):
    partial = ", ".join(name for name, _, taken in documents if not taken["complete"])
    head = ["<h1>prezero: memory that is already zero when a program asks for it</h1>"]
    head += [f"<p><strong>Interrupted: incomplete.</strong> ({partial})</p>"] if partial else []
    head += [] if plt else ["<p>Without pictures: this Python has no matplotlib.</p>"]
    head.append("<p>Below, x is prezero's speed-up over the named other: above 1 is better.</p>")
    for nth, (question, _) in enumerate(QUESTIONS):
        of = [text for name, _, taken in documents if asked(taken)[0] == nth for text in verdict(name, taken)]
        head += [f"<p><a href=\"#q{nth}\">{question}</a></p><ul>", *(f"<li>{text}</li>" for text in of), "</ul>"] if of else []
    head += [*dict.fromkeys(f"<p><small>{html.escape(machine(taken))}</small></p>" for *_, taken in documents)]
    head.append("<details><summary>How each was taken</summary><div class=\"scroll\"><table class=\"runs\">")
    head += [run(*document) for document in documents] + ["</table></div></details>"]
    body = []
    for at, (question, _) in enumerate(QUESTIONS):
        of = [section(name, taken, nth, drawn[name, nth]) for name, _, taken in documents if asked(taken)[0] == at for nth in range(len(taken["sheets"]))]
        body += [f"<h2 id=\"q{at}\">{question}</h2>", *of] if of else []
    body.append(f"<section><h2>Everything, as it was measured</h2><p>In tables: {html.escape(MARKS)}. Each number says in its "
                "<code>data-at</code> where in this JSON it stands.</p>")
    for name, _, taken in documents:
        text = json.dumps(taken).replace("</", "<\\/")
        body.append(f"<script type=\"application/json\" id=\"{name}\">{text}</script>")
    meta = "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><link rel=\"icon\" href=\"data:,\">"
    return (f"<!doctype html>\n<html lang=\"en\"><head>{meta}<title>prezero: report</title>\n<style>{STYLE}</style></head><body>\n"
            + "\n".join(head + body) + "</section></body></html>\n")


def measure(bench, quick, folder):
    """Runs the benchmarks. An interruption is passed on to the one that runs, which writes what it has."""
    running, stopped = [], []

    def stop(*_):
        stopped.append(True)
        for child in running:
            child.send_signal(signal.SIGINT)

    for each in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(each, stop)
    for nth, (name, words, short) in enumerate(RUNS):
        if stopped:
            break
        if sys.stderr.isatty():
            print(f"{name}, {nth + 1} of {len(RUNS)}", file=sys.stderr)
        file = Path(folder) / f"{name}.json"
        running[:] = [subprocess.Popen([bench, name, *words, *(short if quick else []), "--json", file], stdout=subprocess.DEVNULL, process_group=0)]
        if stopped:
            stop()
        status = running[0].wait()
        running.clear()
        if file.exists():
            yield file
        elif not stopped:
            sys.exit(f"prezero: bench: {name} ended with {status}")
    if stopped:
        yield None


def report(args):
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(file) for file in args.files] or list(measure(args.bench, args.quick, folder))
        taken = []
        for file in filter(None, files):
            if file.is_dir():
                taken += [(f"{kept['date']}, {kept['commit']}", each) for _, last in kept_last(file) for kept, _, each in last]
            else:
                taken.append(("", read(file)))
    if not taken:
        sys.exit("prezero: bench: nothing was measured, or kept there")
    documents, seen = [], {}
    for origin, each in sorted(taken, key=lambda one: asked(one[1])):
        seen[each["benchmark"]] = seen.get(each["benchmark"], 0) + 1
        nth = seen[each["benchmark"]]
        documents.append((each["benchmark"] + (f"-{nth}" if nth > 1 else ""), origin, each))
    drawn = {(name, nth): list(pictures(sheet)) for name, _, each in documents for nth, sheet in enumerate(each["sheets"])}
    write(Path(args.output), page(documents, drawn), "--output")
    print(args.output)
    if args.pictures:
        names = {}
        for slug, _, _, svgs in (each for all in drawn.values() for each in all):
            names[slug] = names.get(slug, 0) + 1
            slug += f"-{names[slug]}" if names[slug] > 1 else ""
            for width, svg in svgs.items():
                file = Path(args.pictures) / f"{slug}{'-narrow' if width == 'narrow' else ''}.svg"
                file.parent.mkdir(parents=True, exist_ok=True)
                write(file, alone(svg), "--pictures")
                print(file)
    return 130 if None in files else 0


def write(file, text, option):
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.exit(f"prezero: bench: {option} {file}: give a file that can be written ({error.strerror})")


def read(file):
    try:
        taken = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"prezero: bench: {file}: give a file that bench --json wrote ({error})")
    if taken.get("format") != 2:
        sys.exit(f"prezero: bench: {file}: not what this version's bench --json writes; measure again")
    return taken


# ---- results -------------------------------------------------------------------------------------
HEAD = """# Results

Made by `prezero bench results` from the files beside it; do not edit. A file holds what was measured on one
machine, of one commit, on one day. `prezero bench BENCHMARK --keep` adds to it, or `prezero bench results FILE` what
`--json` wrote. Of each benchmark the last report is told here.

Tables of before are in the history: `git show d85e5bb:bench/RESULTS.md`.
"""
# Sentences that say of something that it showed nothing, or that it is not known: one line for all of them.
SHORT = "nothing beyond noise", "too few runs"


def kept_last(folder):
    """By machine: of each benchmark the last report, with its file and where that lies."""
    for place in sorted(path for path in Path(folder).iterdir() if path.is_dir()):
        last = {}
        for file in sorted(place.glob("*.json")):
            kept = json.loads(file.read_text(encoding="utf-8"))
            for taken in kept["reports"]:
                if taken["taken_s"] >= last.get(taken["benchmark"], (0, 0, {"taken_s": 0}))[2]["taken_s"]:
                    last[taken["benchmark"]] = kept, file, taken
        yield place, sorted(last.values(), key=lambda each: asked(each[2]))


def index(folder):
    out = [HEAD]
    for place, last in kept_last(folder):
        many = len(list(place.glob("*.json")))
        out.append(f"## {machine(last[0][2])}\n\n{many} file{'' if many == 1 else 's'}\n")
        for kept, file, taken in last:
            out.append(f"### {taken['benchmark']}: {kept['date']}, [{kept['commit']}]({file.relative_to(folder)})\n\n`{taken['command']}`\n")
            out += [] if taken["complete"] else ["It was interrupted.\n"]
            out += [f"{note}\n" for note in taken["notes"]]
            for sheet in filter(says, taken["sheets"]):
                lines = [line for line in says(sheet) if not line.endswith(tuple(f": {word}" for word in SHORT))]
                for word in SHORT:
                    of = dict.fromkeys(line[:-len(word) - 2] for line in says(sheet) if line.endswith(f": {word}"))
                    lines += [f"{word}: {', '.join(of)}"] if of else []
                out.append("\n".join([f"{sheet['title']}, {len(sheet['figures'])} figures:\n", *(f"- {line}" for line in lines)]) + "\n")
    text = "\n".join(out)
    if text.count("\n") > 200:
        sys.exit(f"prezero: bench: the index would have {text.count(chr(10))} lines; shorten what sheets say")
    return text


def short(value):
    """Five digits that count: further ones are far below any noise. Where files lay says nothing to a reader."""
    if isinstance(value, dict):
        return {key: Path(each).name if key == "library" and each else each if key in ("machine", "taken_s") else short(each) for key, each in value.items()}
    if isinstance(value, list):
        return [short(each) for each in value]
    return float(f"{value:.4e}") if isinstance(value, float) else value


def lines(value, depth=0):
    """JSON with a line for each figure, so that a change of one is a change of one line."""
    parts = value.items() if isinstance(value, dict) else ((None, each) for each in value) if isinstance(value, list) else ()
    parts = list(parts)
    if depth >= 6 or not any(isinstance(each, (dict, list)) for _, each in parts):
        return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    indent = "\n" + " " * (depth + 1)
    inside = ",".join(f"{indent}{'' if name is None else json.dumps(name) + ': '}{lines(each, depth + 1)}" for name, each in sorted(parts, key=lambda part: part[0] or ""))
    ends = "{}" if isinstance(value, dict) else "[]"
    return f"{ends[0]}{inside}{indent[:-1]}{ends[1]}"


def keep(folder, taken, commit):
    """Adds a report to the file of its machine, date and commit. One of the same benchmark is replaced."""
    if not commit:
        near = next(path for path in [folder.resolve(), *folder.resolve().parents] if path.is_dir())
        told = subprocess.run(["git", "-C", near, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True)
        commit = told.stdout.strip() or sys.exit(f"prezero: bench: {near}: no repository; give --commit NAME")
    if taken["machine"]["load"] > QUIET:
        sys.exit(f"prezero: bench: {taken['benchmark']}: not kept, since the load was {taken['machine']['load']} when it began: take it again at {QUIET} or less")
    taken = short(taken)
    taken["command"] = re.sub(r" --json(?: (?!-)\S+)?", "", taken["command"])
    words = re.split(r"[^a-z0-9.]", taken["machine"]["cpu"].lower())
    slug = "-".join([word for word in words if word not in ("", "r", "tm", "cpu", "processor")] + [str(taken["machine"]["cpus"]), "cpus"])
    date = datetime.datetime.fromtimestamp(taken["taken_s"], datetime.timezone.utc).strftime("%Y-%m-%d")
    file = folder / slug / f"{date}-{commit}.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"date": date, "commit": commit, "reports": []}
    kept["reports"] = sorted([each for each in kept["reports"] if each["benchmark"] != taken["benchmark"]] + [taken], key=lambda each: each["benchmark"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(lines(kept) + "\n", encoding="utf-8")


def results(args):
    folder = Path(args.folder)
    for file in args.files:
        keep(folder, read(Path(file)), args.commit)
    told = folder / "README.md"
    if not args.check:
        told.write_text(index(folder), encoding="utf-8")
    elif not told.exists() or told.read_text(encoding="utf-8") != index(folder):
        sys.exit(f"prezero: bench: {told}: not what the files say; prezero bench results makes it again")
    return 0


def main():
    parser = argparse.ArgumentParser()
    below = parser.add_subparsers(required=True)
    of_report, of_results = below.add_parser("report"), below.add_parser("results")
    of_report.set_defaults(run=report)
    of_results.set_defaults(run=results)
    for option in "--output", "--pictures", "--bench":
        of_report.add_argument(option)
    of_report.add_argument("--quick", action="store_true")
    for option in "--folder", "--commit":
        of_results.add_argument(option)
    of_results.add_argument("--check", action="store_true")
    for each in of_report, of_results:
        each.add_argument("files", nargs="*")
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
