#!/usr/bin/env python3
"""Lays the pages out for mdBook, in target/book/src, in the order of docs/SUMMARY.md; and checks the site that it makes of them.

    packaging/book.py                  lays out; then `mdbook build` makes target/book/html
    packaging/book.py --check FOLDER   each link of a page of the site leads to a file of it, and to a place in that file

Pages keep their places, so their links hold. A file that a page links to and that is no page leads to the repository that
Cargo.toml names. Until it names one, the file lies in the site, and the link to a folder is text alone.
"""
import html.parser
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target/book/src"
LINK = re.compile(r"(?P<text>!?\[(?:[^]\n]|\n(?!\n))*\])\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"(^ *```.*?^ *```)", re.M | re.S)


def about(key):
    return subprocess.run([ROOT / "packaging/about.sh", key], check=True, capture_output=True, text=True).stdout.strip()


def indexed(place):
    """A folder's page, by the name that it has in a site."""
    return re.sub(r"(^|/)README[.]md(?=#|$)", r"\1index.md", place)


def lay_out():
    summary = (ROOT / "docs/SUMMARY.md").read_text()
    pages = [(ROOT / "docs" / found["target"]).resolve() for found in LINK.finditer(summary)]
    repository, version = about("repository"), about("version")
    shutil.rmtree(OUT, ignore_errors=True)

    def put(path):
        to = OUT / indexed(str(path.relative_to(ROOT)))
        to.parent.mkdir(parents=True, exist_ok=True)
        return to

    def led(page, found):
        target = found["target"]
        name = target.partition("#")[0]
        path = (page.parent / name).resolve()
        if path in pages:
            return f"{found['text']}({indexed(target)})"
        if not name or re.match("[a-z]+:", target):
            return found[0]
        if repository and not found["text"].startswith("!"):
            return f"{found['text']}({repository}/blob/v{version}/{path.relative_to(ROOT)})"
        if path.is_dir():
            return found["text"][1:-1]
        # mdBook takes each .md for a page's source.
        shutil.copy(path, put(path).with_suffix(".txt" if path.suffix == ".md" else path.suffix))
        return f"{found['text']}({re.sub(r'[.]md$', '.txt', name)})"

    for page in pages:
        parts = FENCE.split(page.read_text())
        parts[::2] = [LINK.sub(lambda found, page=page: led(page, found), part) for part in parts[::2]]
        put(page).write_text("".join(parts))
    for picture in sorted((ROOT / "docs/pictures").glob("*.svg")):
        shutil.copy(picture, put(picture))
    placed = LINK.sub(lambda found: f"{found['text']}({indexed(str((ROOT / 'docs' / found['target']).resolve().relative_to(ROOT)))})", summary)
    (OUT / "SUMMARY.md").write_text(placed)


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id":
                self.places.add(value)


def check(folder):
    pages = {path: Page(path) for path in folder.rglob("*.html") if path.name not in ("404.html", "print.html", "toc.html")}
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            to = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if not to.exists():
                wrong.append(f"{path.relative_to(folder)}: {link} is not there")
            elif url.fragment and to in pages and urllib.parse.unquote(url.fragment) not in pages[to].places:
                wrong.append(f"{path.relative_to(folder)}: {link} is no place in that page")
    print("".join(f"{line}\n" for line in sorted(set(wrong))), end="")
    print(f"book: {len(pages)} pages, {sum(len(page.links) for page in pages.values())} links")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            lay_out()
        case ["--check", folder]:
            sys.exit(check(Path(folder).resolve()))
        case _:
            sys.exit(__doc__)
