"""A program under faults: writes and reads files of known content for as long as it is told, and keeps a journal of what it was promised.

    promises.py write DIR KEY JOURNAL SECONDS     promises.py read DIR JOURNALDIR SECONDS ERRORS

The journal lies on the native file system. A line is written after the call it speaks of has returned: `synced NAME SIZE KEY` after fsync,
`closed NAME SIZE KEY` after close, `deleted NAME` before an unlink, `error CALL ERRNO SECONDS` for what the program was told. Whatever happens to the
store, a file that stands in the journal as synced must be there with those bytes.

Readers read files that a journal promises and compare: `bad NAME …` is written for wrong bytes, `error …` for errors.
"""

import errno
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from harness.files import content, first_difference, pread_all, pwrite_all  # noqa: E402

SIZES = [3 << 20, 5 << 20, 1 << 20, 47001 * 40, 4096 * 3 + 17, 100]
PIECES = [1 << 20, 1 << 20, 256 << 10, 47001]
KEPT = 12  # files of a writer at a time


class Journal:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, *words):
        os.write(self.fd, (" ".join(str(w) for w in words) + "\n").encode())


def attempt(journal, what, call):
    """The call's result, or None after an error, which is told with how long it took."""
    begun = time.monotonic()
    try:
        return call()
    except OSError as e:
        journal.say("error", what, errno.errorcode.get(e.errno, e.errno), f"{time.monotonic() - begun:.2f}")
        time.sleep(0.05)
        return None


def write_one(journal, path, name, size, key, piece, sync):
    fd = attempt(journal, "open", lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
    if fd is None:
        return False
    good = True
    for off in range(0, size, piece):
        if attempt(journal, "write", lambda: pwrite_all(fd, content(key, off, min(piece, size - off)), off)) is None:
            good = False
            break
    if good and sync:
        if attempt(journal, "fsync", lambda: os.fsync(fd) or True):
            journal.say("synced", name, size, key)
        else:
            good = False
    if attempt(journal, "close", lambda: os.close(fd) or True) is None:
        good = False
    if good and not sync:
        journal.say("closed", name, size, key)
    return good


def write(directory, key, journal_path, seconds):
    journal = Journal(journal_path)
    rng = random.Random(int(key))
    until = time.monotonic() + float(seconds)
    names, n = [], 0
    while time.monotonic() < until:
        n += 1
        name = f"w{key}-{n}"
        path = os.path.join(directory, name)
        write_one(journal, path, name, rng.choice(SIZES), int(key) * 100000 + n, rng.choice(PIECES), rng.random() < 0.6)
        names.append(name)
        if len(names) > KEPT:
            old = names.pop(0)
            journal.say("deleted", old)
            attempt(journal, "unlink", lambda: os.unlink(os.path.join(directory, old)))
    journal.say("end", n)


def promised(journal_path, kinds=("synced", "closed")):
    """{name: (size, key)} of what the journal promises now."""
    files = {}
    try:
        lines = open(journal_path).read().splitlines()
    except FileNotFoundError:
        return files
    for line in lines:
        words = line.split()
        if words[0] in kinds and len(words) == 4:
            files[words[1]] = (int(words[2]), int(words[3]))
        elif words[0] == "deleted":
            files.pop(words[1], None)
    return files


def difference(path, size, key):
    """None, or what is wrong with the file. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        got = pread_all(fd, size + 1, 0)
    finally:
        os.close(fd)
    at = first_difference(got, content(key, 0, size))
    return None if at is None else f"{len(got)} bytes of {size}, differs at {at}"


def read(directory, journal_dir, seconds, errors_path):
    journal = Journal(errors_path)
    rng = random.Random(os.getpid())
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        files = [(n, s, k, j) for j in sorted(os.listdir(journal_dir)) if j.startswith("w")
                 for n, (s, k) in promised(os.path.join(journal_dir, j)).items()]
        if not files:
            time.sleep(0.05)
            continue
        name, size, key, j = rng.choice(files)
        def look():
            try:
                return difference(os.path.join(directory, name), size, key) or ""
            except FileNotFoundError:
                return "not there"
        wrong = attempt(journal, "read", look)
        if wrong and name in promised(os.path.join(journal_dir, j)):  # else it was deleted meanwhile
            journal.say("bad", name, wrong)
    journal.say("end", 0)


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
