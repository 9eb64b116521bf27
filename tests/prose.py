#!/usr/bin/env python3
"""Pages and comments: their length, their turns of phrase, their links, their commands.

    tests/prose.py                      lengths, turns and links, as `make lint` runs it
    tests/prose.py --commands DIR       each `prezero ...` of a page against the --help of the programs in DIR
    tests/prose.py --test               these checks, tried on made-up texts

A page, a manual, a header, an example of a configuration or a comment in Rust has no turn of `TURNS`.
A comment in Rust speaks of named things: it has no word of `PERSONS`.
A link names a file of the repository, and its anchor a heading of that file.
"""
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TURNS = re.compile(r"\b(so many|so long|of late|none of|for ever|whom|somebody|who asks|nobody's|nothing measured)\b", re.I)
# Code is no person. A user, an operator or people may be one "who".
PERSONS = re.compile(r"\b(someone|anybody|anyone|everybody|everyone|nobody|whoever|he|his|him|she|hers?)\b"
                     r"|(?<!`)(?<!person )(?<!people )(?<!user )(?<!operator )\bwho\b", re.I)
# Other texts that users read.
OTHERS = ["crates/*/man/*", "crates/*/include/*", "crates/*/*.toml", "kubernetes/manifests/**/*.*"]
# Words of all pages together; lines or words of some. What a command wrote does not count: the index of results, which
# `prezero bench results` bounds, and the table of `make matrix`.
WORDS = 27_000
INDEX = "bench/results/README.md"
MADE = re.compile(r"<!-- matrix -->.*?<!-- end of matrix -->", re.S)
LINES = {"README.md": 150, "DESIGN.md": 250}
PAGE = {"CHANGELOG.md": 700}
COMMENT = re.compile(r"^\s*//|\s// ")
LINK = re.compile(r"!?\[[^]\n]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
# `prezero` and its kin with what follows them in a code block or between backquotes, to the end of their own options.
COMMAND = re.compile(r"(?:^ *|[$#;&|] *|\bsudo |\b[A-Z_]+=\S+ |\bbin/|\./|release/)(prezero(?:-bench|-qemu|d)?)((?: +[^\s`|&;)\\]+)*)(?![\w-])")


def pages():
    """The Markdown files of the repository, without what was built or installed."""
    return sorted(path for path in ROOT.rglob("*.md") if not {"target", "build"} & set(path.relative_to(ROOT).parts)
                  and not any(part.startswith(".") for part in path.relative_to(ROOT).parts))


def turns(text):
    """The number of each line with a turn, and the turn. A turn may be broken at the end of a line."""
    return [(text.count("\n", 0, found.start()) + 1, " ".join(found[0].split()))
            for found in re.compile(TURNS.pattern.replace(" ", r"\s+"), re.I).finditer(text)]


def comments(source):
    """The lines of a Rust source whose comment has a turn, or takes code for a person."""
    for number, line in enumerate(source.read_text().splitlines(), 1):
        comment = COMMENT.search(line)
        if turn := comment and (TURNS.search(line, comment.start()) or PERSONS.search(line, comment.start())):
            yield f"{number}: a comment with the turn '{turn[0]}'"


@cache
def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    found = {}
    for heading in re.findall(r"^#+ +(.*)", FENCE.sub("", path.read_text()), re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return {name if nth == 0 else f"{name}-{nth}" for name, last in found.items() for nth in range(last + 1)}


def links(page):
    """What is wrong with a page's links."""
    for found in LINK.finditer(FENCE.sub("", page.read_text())):
        target = found[1] or found[2]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists():
            yield f"{target} is not there"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            yield f"{target} is no heading"


def lint():
    wrong, words = [], 0
    for file in sorted(file for glob in OTHERS for file in ROOT.glob(glob)):
        wrong += [f"{file.relative_to(ROOT)}:{line}: \"{turn}\"" for line, turn in turns(file.read_text())]
    for page in pages():
        name, text = str(page.relative_to(ROOT)), page.read_text()
        words += len(MADE.sub("", text).split()) if name != INDEX else 0
        wrong += [f"{name}:{line}: \"{turn}\"" for line, turn in turns(text)]
        wrong += [f"{name}: {why}" for why in links(page)]
        if text.count("\n") > LINES.get(name, 10_000):
            wrong.append(f"{name} has {text.count(chr(10))} lines, of {LINES[name]}")
        if len(text.split()) > PAGE.get(name, WORDS):
            wrong.append(f"{name} has {len(text.split())} words, of {PAGE[name]}")
    if words > WORDS:
        wrong.append(f"all pages together have {words} words, of {WORDS}")
    for source in sorted((ROOT / "crates").rglob("*.rs")):
        wrong += [f"{source.relative_to(ROOT)}:{why}" for why in comments(source)]
    print("".join(f"{line}\n" for line in wrong), end="")
    print(f"prose: {words} words in pages")
    return 1 if wrong else 0


def shown(page):
    """The commands that a page shows: program, and the words behind it up to a program that it starts."""
    text = page.read_text()
    code = [line for block in FENCE.findall(text) for line in block.replace("\\\n", " ").splitlines()[1:-1] if not line.lstrip().startswith("#")]
    code += re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    for line in code:
        for found in COMMAND.finditer(line.split(" #")[0]):
            words = found[2].split()
            yield found[1], words[:words.index("--")] if "--" in words else words


def commands(folder):
    @cache
    def told(*command):
        run = subprocess.run([folder / command[0], *command[1:], "--help"], capture_output=True, text=True, timeout=30)
        return run.stdout if run.returncode == 0 else ""

    wrong, seen = [], set()
    # A kept result tells the command of its day.
    for page in (page for page in pages() if page.parent.name != "results"):
        for program, words in shown(page):
            if program == "prezero" and words[:1] == ["bench"]:
                program, words = "prezero-bench", words[1:]
            if not (folder / program).exists() or not told(program):
                continue
            command, help_ = [program], told(program)
            while words and re.match(r"[a-z][a-z-]*$", words[0]) and re.search(r"^Usage: .*COMMAND", help_, re.M):
                listed = re.findall(r"^  ([a-z-]+)  ", help_, re.M) + re.findall(r"[a-z-]+", help_.partition("Benchmarks")[2])
                if words[0] not in listed:
                    wrong.append(f"{page.relative_to(ROOT)}: {' '.join([*command, words[0]])} is no command")
                    break
                command.append(words.pop(0))
                help_ = told(*command)
            if command == ["prezero"] and words and re.fullmatch(r"[A-Z]+|\d+", words[0]):
                words = []
            if command[-1] == "ctl" and len(words) > 1:
                verb = words[1]
                if not re.search(rf"^  {re.escape(verb)}  ", help_, re.M) and verb.islower():
                    wrong.append(f"{page.relative_to(ROOT)}: prezero ctl PID {verb} is no command")
                continue
            for word in words:
                if not word.startswith("-") and command[-1] in ("run", "try"):
                    break
                option = re.match(r"--?[a-z][a-z-]*", word)
                if option and option[0] not in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", help_):
                    wrong.append(f"{page.relative_to(ROOT)}: {' '.join(command)} has no {option[0]}")
            seen.add(" ".join(command))
    print("".join(f"{line}\n" for line in dict.fromkeys(wrong)), end="")
    print(f"prose: pages show {len(seen)} commands")
    return 1 if wrong else 0


def try_it():
    said = turns("It asks\nso\nmany times, and none of\nit whomever.\nFor ever.\n")
    if said != [(2, "so many"), (3, "none of"), (5, "For ever")]:
        sys.exit(f"prose: the check itself finds {said}")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.md"
        page.write_text("# A `page`: its head\n[a](#a-page-its-head) [b](#b) [c](page.md) [d](none.md) [e](https://there.is)\n"
                        "```\nprezero claim 1G --wait 5 -- ls --all   # --none\nmake [f](none)\n```\n`prezero top` and `cargo test -p prezero`\n")
        said = list(links(page)), list(shown(page))
    if said != (["#b is no heading", "none.md is not there"],
                [("prezero", ["claim", "1G", "--wait", "5"]), ("prezero", ["top"])]):
        sys.exit(f"prose: the check itself finds {said}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "a.rs"
        source.write_text("/// So many bytes.\nlet so_many = 1; // of late\nlet text = \"none of it\";\n"
                          "let who = 1;\n/// Nobody reads it.\n// A user who\n// `who`\n//! Who asks\n")
        assert [line.split(":")[0] for line in comments(source)] == ["1", "2", "5", "8"]


def main():
    match sys.argv[1:]:
        case []:
            return lint()
        case ["--commands", folder]:
            return commands(Path(folder).resolve())
        case ["--test"]:
            return try_it()
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
