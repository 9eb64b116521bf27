#!/usr/bin/env python3
"""mutants.py TREE < TABLE: many mutations in one kernel, of which prezero_mutant=N on its command line chooses one.

A line of TABLE is a number, a file and a sed expression, parted by tabs. What the expression makes of a whole
statement, a condition, a constant or an operand becomes a choice at run time; the files of TREE are rewritten, and the
numbers that are in them printed. The others take a kernel of their own.
"""
import difflib
import re
import subprocess
import sys

DECLARATION = re.compile(r"(void|char|const|static|extern|unsigned|int|bool|long|u32|struct|enum|gfp_t|typeof)\b")
CONDITION = re.compile(r"(\t+(?:} )?(?:else )?(?:if|while)) \((.*)\)( {)?$")
CONSTANT = re.compile(r"(#define \w+)\t+(\S.*)$")
CHOOSE = "prezero_mutant == {}"
LOOP = re.compile(r"(\t+for )\((.*);(.*);(.*)\)( {)?$")
# Where an operand begins, and where it ends: what is chosen there cannot bind otherwise than the operand did.
BEGINS = re.compile(r"(^\s+|[(,\[]\s*|[^=!<>]=\s|\breturn\s|&&\s|\|\|\s|\?\s|\s:\s)$")
ENDS = re.compile(r"\s*([),;\]]|&&|\|\||\?|:\s|\+\s)")
FILES = re.compile(r"(mm|fs|arch)/.*\.c|mm/prezero\.h")


def balanced(text):
    depths = [text[:i].count("(") - text[:i].count(")") for i in range(len(text) + 1)]
    return min(depths) == depths[-1] == 0 and text.count("{") == text.count("}")


def ternary(old, news):
    """The expression that is `old`, or one of `news`."""
    for number, new in news:
        if new != old:
            old = f"({CHOOSE.format(number)} ? ({new}) : ({old}))" if old else f"(void)({CHOOSE.format(number)} && ({new}))"
    return old


def loop(old, news):
    """The head of a loop, each of its three parts by itself; None if it is no such head."""
    match, others = LOOP.match(old), [(number, LOOP.match(new)) for number, new in news]
    if not match or not all(other for _, other in others):
        return None
    parts = [ternary(match.group(i).strip(), [(number, other.group(i).strip()) for number, other in others]) for i in (2, 3, 4)]
    return f"{match.group(1)}({'; '.join(parts)}){match.group(5) or ''}\n"


def operand(old, news):
    """The line with the smallest operand that all of `news` differ in; None if there is none, or it is no code."""
    if old[0] not in "\t" or re.search(r"\bstatic\b|\*/|/\*", old):
        return None
    common = lambda one, other: next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    first = min(common(old, new) for _, new in news)
    last = len(old) - min(common(old[first:][::-1], new[first:][::-1]) for _, new in news)
    for begin in range(first, -1, -1):
        for end in range(last, len(old)):
            middles = [old[begin:end]] + [new[begin:len(new) - (len(old) - end)] for _, new in news]
            if BEGINS.search(old[:begin]) and ENDS.match(old[end:]) and all(m.strip() and balanced(m) for m in middles):
                return old[:begin] + ternary(middles[0], [(n, m) for (n, _), m in zip(news, middles[1:])]) + old[end:]
    return None


def begins_here(before):
    """Is what follows the line `before` the begin of a statement?"""
    before = before.strip()
    return not before or before[-1] in ";{}:)" or before.endswith(("else", "*/")) or before[0] == "#"


def choice(before, old, news):
    """The line that is `old`, or one of `news`, (number, line) each; None if that cannot be said."""
    for pattern in CONDITION, CONSTANT:
        match = pattern.match(old)
        others = [(number, pattern.match(new)) for number, new in news]
        if match and all(other and other.group(1) == match.group(1) for _, other in others):
            text = f"({match.group(2)})"
            for number, other in others:
                text = f"({CHOOSE.format(number)} ? ({other.group(2)}) : {text})"
            if not balanced(text):
                return None
            if pattern is CONDITION:
                return f"{match.group(1)} ({text}){match.group(3) or ''}\n"
            return f"{match.group(1)}\t{text}\n"
    statement = old.strip()
    if (not statement.endswith(";") or not begins_here(before) or DECLARATION.match(statement)
            or old[0] != "\t" or not all(balanced(line) for line in [old] + [new for _, new in news])
            or any(new.strip() and new.strip()[-1] not in ";" for _, new in news)):
        return loop(old, news) or operand(old, news)
    chain = "".join(f"if ({CHOOSE.format(number)}) {{ {new.strip()} }} else " for number, new in news)
    return f"\t{{ {chain}{{ {statement} }} }}\n"


def main():
    tree = sys.argv[1]
    originals, edits, taken = {}, {}, []
    for line in sys.stdin:
        number, name, expression = line.rstrip("\n").split("\t")
        path = f"{tree}/{name}"
        if not FILES.fullmatch(name):
            continue
        lines = originals.setdefault(path, open(path).read().splitlines(True))
        mutated = subprocess.run(["sed", expression, path], capture_output=True, text=True, check=True).stdout.splitlines(True)
        here = {}
        for kind, a, b, c, d in difflib.SequenceMatcher(None, lines, mutated, autojunk=False).get_opcodes():
            if kind == "insert" or kind == "replace" and b - a != d - c:
                break
            if kind != "equal":
                here.update({a + i: mutated[c + i] if kind == "replace" else "\n" for i in range(b - a)})
        else:
            file = edits.setdefault(path, {})
            if here and all(choice(lines[at - 1], lines[at], file.get(at, []) + [(number, new)]) for at, new in here.items()):
                for at, new in here.items():
                    file.setdefault(at, []).append((number, new))
                taken.append(number)
    # What chooses is there, whatever it chooses.
    chooser = f"{tree}/mm/prezero.c"
    originals.setdefault(chooser, open(chooser).read().splitlines(True))
    edits.setdefault(chooser, {})
    for path, file in edits.items():
        lines = list(originals[path])
        for at, news in file.items():
            lines[at] = choice(originals[path][at - 1], originals[path][at], news)
        if path == chooser:
            lines.append("\nint prezero_mutant;\ncore_param(prezero_mutant, prezero_mutant, int, 0444);\n")
        with open(path, "w") as out:
            out.write("extern int prezero_mutant;\n" + "".join(lines))
    print(" ".join(taken))


main()
