"""What the documentation says about the tree must be there: part of make style (style.py runs these).

    links              a relative link leads to a file
    tests              tests/….py::name and tests/….c::name are tests, ::name alone is one of the file named before it
    rules              every rule in docs/CONSISTENCY.md and docs/CHECKPOINTS.md has a number of its own and names a test
    functions          a `name_like_this` in docs/ARCHITECTURE.md is a name in a source file
    file map           every .c file of the programs stands in the map of docs/ARCHITECTURE.md
    messages           every message of fp.proto stands in docs/PROTOCOL.md, with its number
    man pages          are free of warnings, where mandoc is installed; list every option table once
"""

import os
import re
import shutil
import subprocess

ARCHITECTURE = "docs/ARCHITECTURE.md"
PROTOCOL = "docs/PROTOCOL.md"
RULES = ("docs/CONSISTENCY.md", "docs/CHECKPOINTS.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST = re.compile(r"(?P<file>\btests/[a-z0-9_/]+\.(?:py|c)\b)?(?:::(?P<test>test_\w+))?")
NAME = re.compile(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`")
RULE = re.compile(r"[A-Z]\d+")
PLACEHOLDER = re.compile(r"^@(options|conf|commands) ([a-z-]+)@$")
MAPPED = {"manager", "benefactor", "client", "common", "drain"}


def text_of(name):
    with open(name, encoding="utf-8") as f:
        return f.read()


def pages(files):
    """(file, line number, line) of everything written in Markdown."""
    for name in files:
        if name.endswith(".md"):
            for number, line in enumerate(text_of(name).splitlines(), 1):
                yield name, number, line


def check_links(files):
    for name, number, line in pages(files):
        for target in LINK.findall(line):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if not os.path.exists(path):
                yield name, number, f"the link {target} leads nowhere"
            elif anchor and path.endswith(".md") and anchor not in anchors(path):
                yield name, number, f"{path} has no heading for #{anchor}"


def anchors(name):
    """Headings as GitHub turns them into anchors."""
    heads = re.findall(r"^#+ (.*)$", text_of(name), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}


def tests_named(name):
    """(line number, file, test) of each test that a page names; test None: the whole file, file None: no file stands before it in its row or paragraph."""
    file = None
    for number, line in enumerate(text_of(name).splitlines(), 1):
        if not line.strip() or line.startswith("|"):
            file = None
        for match in TEST.finditer(line):
            file = match["file"] or file
            if match[0]:
                yield number, file, match["test"]


def check_tests(files):
    for name in files:
        for number, path, test in tests_named(name) if name.endswith(".md") else ():
            if path is None:
                yield name, number, f"of which file is {test}?"
            elif not os.path.isfile(path):
                yield name, number, f"{path} is not there"
            elif test and not re.search(rf"^\s*(def|static void) {test}\(", text_of(path), re.M):
                yield name, number, f"{path} has no test {test}"


def check_rules(files):
    for name in filter(RULES.__contains__, files):
        seen, inside = set(), False
        tested = {number for number, _, _ in tests_named(name)}
        for number, line in enumerate(text_of(name).splitlines(), 1):
            inside = line.startswith("| rule |") or (inside and line.startswith("|"))
            rule = line.split("|")[1].strip() if inside else "rule"
            if rule in ("rule", "---"):
                continue
            if not RULE.fullmatch(rule) or rule in seen:
                yield name, number, f"{rule} is not a number that only this rule has"
            seen.add(rule)
            if number not in tested:
                yield name, number, f"rule {rule} names no test"
        if not seen:
            yield name, 1, "has no rules"


def check_functions(files):
    if ARCHITECTURE not in files:
        return
    code = "\n".join(text_of(f) for f in files if f.endswith((".c", ".h")))
    words = set(re.findall(r"\w+", code))
    for name, number, line in pages([ARCHITECTURE]):
        for function in NAME.findall(line):
            if function not in words:
                yield name, number, f"{function} is in no source file"


def check_file_map(files):
    if ARCHITECTURE not in files:
        return
    text = text_of(ARCHITECTURE)
    for name in files:
        folder = name.split("/")
        if not name.endswith(".c") or folder[0] not in MAPPED:
            continue
        base = folder[-1]
        mapped = "/".join(folder[1:-1])  # client/ops/read.c: the folder "ops/" will do
        if mapped in ("ops", "ctl", "store"):
            found = f"{mapped}/" in text
        else:
            found = re.search(rf"\b{re.escape(base)}\b", text)
        if not found:
            yield ARCHITECTURE, 1, f"{name} is not in the map of the source"


def check_messages(files):
    if PROTOCOL not in files:
        return
    text = text_of(PROTOCOL)
    for message, number in re.findall(r"^  (MSG_\w+) = (\d+);", text_of("common/proto/fp.proto"), re.M):
        if number != "0" and not re.search(rf"^\| {number} \| {message} \|", text, re.M):
            yield PROTOCOL, 1, f"{message} ({number}) is not in the tables"


def check_man(files):
    for name in files:
        if not re.fullmatch(r"docs/man/.*\.[1-8]\.in", name):
            continue
        lines = text_of(name).splitlines()
        for number, line in enumerate(lines, 1):
            if line.startswith("@") and not PLACEHOLDER.match(line):
                yield name, number, "is none of @options PROGRAM@, @conf PROGRAM@ and @commands PROGRAM@"
        if shutil.which("mandoc"):
            page = "\n".join(".TP\n.B x\nfilled in by fill.sh" if PLACEHOLDER.match(l) else l for l in lines) + "\n"
            lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=page, capture_output=True, text=True)
            for finding in lint.stdout.splitlines():
                yield name, 1, finding


CHECKS = (check_links, check_tests, check_rules, check_functions, check_file_map, check_messages, check_man)
