#!/usr/bin/env python3
"""make style: what can be checked about the tree without building it.

Each check_* function yields (file, line, text). What they enforce is written
down in docs/CONTRIBUTING.md: who may include whom, how long a file and a
function may be, that every source file says first what it is for, that no
work is left lying about, and that nothing generated is committed.

Run without arguments for the whole tree, or with files for these alone.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import check_docs

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

# Spelled apart so that this file passes its own check.
LEFTOVERS = re.compile(
    r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b"
    r"|\b[Ff]or " + r"now\b"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')

# Which top folders a folder's files may include; tests may include anything.
MODULES = ("common", "manager", "benefactor", "client", "drain", "auxapps", "jobscripts")
ALLOWED = {
    "include": {"include", "proto"},
    "common": {"common", "include", "proto"},
    "manager": {"manager", "common", "include", "proto"},
    "benefactor": {"benefactor", "common", "include", "proto"},
    "client": {"client", "common", "include", "proto"},
    "drain": {"drain", "common", "include", "proto"},
    "jobscripts": {"jobscripts", "common", "include", "proto"},
}
AUXHOST = ("auxapps/host/", "auxapps/auxtest/")  # the host, and the program that loads plugins as it does
PLUGIN_HEADER = "include/fp/auxapp.h"
PLUGIN_LOADER = "auxapps/host/load.h"  # of the library auxhost: fp-job asks plugins what the host would ask them

FUZZ_INPUT = re.compile(r"^tests/fuzz/(corpus|regress)/")
GENERATED = re.compile(r"(\.pb-c\.[ch]|\.o|\.a|\.d|\.so(\.\d+)*|\.pyc)$|^build[^/]*/|(^|/)core$")
TEXT_EXEMPT = re.compile(r"^(LICENSE|papers/)")


def tree_files():
    """Files that are committed or would be."""
    try:
        out = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            check=True, capture_output=True).stdout.decode()
        names = out.split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = []
        for top, dirs, files in os.walk("."):
            dirs[:] = [d for d in dirs if not d.startswith("build") and d != ".git"]
            names += [os.path.relpath(os.path.join(top, f), ".") for f in files]
    return sorted(n for n in set(names) if n and os.path.isfile(n))


def read(name):
    with open(name, "rb") as f:
        return f.read()


def lines_of(name):
    return read(name).decode("utf-8", "replace").splitlines()


def is_c(name):
    return name.endswith((".c", ".h"))


def resolve(name, target):
    """The path of an included file, or None when it is not of this tree."""
    if target.endswith((".pb-c.h", ".inc")):  # made by the build
        return "proto/" + os.path.basename(target)
    for base in (os.path.dirname(name), "include", ""):
        path = os.path.normpath(os.path.join(base, target))
        if os.path.isfile(path):
            return path
    return None


def check_includes(files):
    for name in filter(is_c, files):
        top = name.split("/")[0]
        for number, line in enumerate(lines_of(name), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            path = resolve(name, match.group(1))
            if path is None:
                yield name, number, f'"{match.group(1)}" is not in the tree'
                continue
            target = path.split("/")[0]
            if name == PLUGIN_HEADER:
                yield name, number, "the plugin header includes nothing of ours"
            elif top == "auxapps" and not name.startswith(AUXHOST):
                own = os.path.dirname(path) == os.path.dirname(name)
                if path != PLUGIN_HEADER and not own:
                    yield name, number, f"a plugin includes {PLUGIN_HEADER} alone, not {path}"
            elif path == PLUGIN_LOADER and top == "jobscripts":
                continue
            elif top in ALLOWED and target not in ALLOWED[top]:
                yield name, number, f"{top} must not include {path}"


def check_file_length(files):
    for name in files:
        if name.endswith((".c", ".h", ".py", ".sh", ".sql", ".proto")):
            count = len(lines_of(name))
            if count > FILE_LINES_MAX:
                yield name, count, f"{count} lines, at most {FILE_LINES_MAX}"


def functions_by_ctags(files):
    out = subprocess.run(
        ["ctags", "--languages=C", "--langmap=C:.c.h", "--kinds-C=f", "--fields=+ne",
         "--output-format=json", "-f", "-", "-L", "-"],
        input="\n".join(files), check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        tag = json.loads(line)
        if tag.get("_type") == "tag" and "end" in tag:
            yield tag["path"], tag["line"], tag["end"], tag["name"]


def functions_by_braces(files):
    """Where ctags is missing: a body opens and closes in the first column."""
    for name in files:
        start = None
        for number, line in enumerate(lines_of(name), 1):
            if line.startswith("{"):
                start = number - 1
            elif line.startswith("}"):
                if start is not None and line.rstrip() == "}":
                    yield name, start, number, "function"
                start = None


def check_function_length(files):
    sources = [f for f in files if is_c(f)]
    if not sources:
        return
    finder = functions_by_ctags if shutil.which("ctags") else functions_by_braces
    for name, start, end, function in finder(sources):
        count = end - start + 1
        if count > FUNCTION_LINES_MAX:
            yield name, start, f"{function} has {count} lines, at most {FUNCTION_LINES_MAX}"


def check_leftovers(files):
    for name in files:
        data = read(name)
        if TEXT_EXEMPT.match(name) or b"\0" in data:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            match = LEFTOVERS.search(line)
            if match:
                yield name, number, f'"{match.group(0)}": finish it, or say why it is so'


def check_opening_comment(files):
    for name in files:
        if name.endswith(".c"):
            first = next((l for l in lines_of(name) if l.strip()), "")
            if not first.startswith(("/*", "//")):
                yield name, 1, "does not open with a comment that says what it is for"


def check_indentation(files):
    """Four spaces, as .clang-format has it."""
    for name in files:
        if name.endswith((".c", ".h")):
            for number, line in enumerate(lines_of(name), 1):
                if line.startswith("\t"):
                    yield name, number, "begins with a tab: four spaces for each level"
                    break


def check_generated(files):
    for name in files:
        if GENERATED.search(name):
            yield name, 1, "is generated, and does not belong into the repository"
        elif FUZZ_INPUT.match(name):
            if len(read(name)) > 4096:
                yield name, 1, "is too long for an input of a fuzzing harness: 4 KiB"
        elif b"\0" in read(name)[:8192]:
            yield name, 1, "is a binary file"


CHECKS = (check_includes, check_file_length, check_function_length, check_leftovers,
          check_opening_comment, check_indentation, check_generated) + check_docs.CHECKS


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    files = sys.argv[1:] or tree_files()
    found = 0
    for check in CHECKS:
        for name, number, text in check(files):
            print(f"{name}:{number}: {text}")
            found += 1
    print(f"style: {len(files)} files, {len(CHECKS)} checks, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
