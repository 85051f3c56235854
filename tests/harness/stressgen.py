"""One process that writes, reads and verifies: a part of Stress (stress.py).

    stressgen.py DIR JOURNAL SEED ENTRIES [tolerant]

Every file has a key, and the bytes at each offset follow from it (files.content), so whoever knows the key can verify
any range, and writing a range again does not change it. What the file system has promised is written to the journal
after the promise was made, one JSON list per line:

    ["new", name, key]      a name was made         ["sync", name, size]    fsync returned: all up to size is there
    ["close", name, size]   close returned          ["gone", name]          about to be unlinked
    ["move", old, new]      about to be renamed     ["moved", old, new]
    ["err", errno, what]    tolerant runs only      ["stat", {…}]           at the end
    ["bad", text]           wrong bytes: the test has failed

Ends on SIGTERM after the operation under way. An error ends it at once (exit 1) unless it is tolerant; then the file is
given up as it is, and the next is begun.
"""

import json
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from harness.files import content, first_difference, pread_all  # noqa: E402

KEEP = 6  # files of each worker
SIZE = 3 << 20  # of a file, at most


class Worker:
    def __init__(self, base, journal, seed, tolerant):
        self.base, self.tolerant = base, tolerant
        self.rnd, self.seed = random.Random(seed), seed
        self.journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.files = {}  # name -> (key, size that must be readable)
        self.count, self.stop = 0, False
        self.stats = {"writes": 0, "reads": 0, "syncs": 0, "bytes": 0, "errors": 0, "longest_s": 0.0}
        signal.signal(signal.SIGTERM, self.on_term)

    def on_term(self, signum, frame):
        self.stop = True

    def note(self, *what):
        os.write(self.journal, json.dumps(what).encode() + b"\n")

    def timed(self, call, *args):
        started = time.monotonic()
        try:
            return call(*args)
        finally:
            took = time.monotonic() - started
            if took > self.stats["longest_s"]:
                self.stats["longest_s"] = took

    def path(self, name):
        return os.path.join(self.base, name)

    def write_one(self):
        self.count += 1
        name, key = f"w{self.seed}-{self.count}", self.seed * 1000 + self.count
        fd = self.timed(os.open, self.path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self.note("new", name, key)
        self.files[name] = (key, 0)
        try:
            self.fill(fd, name, key)
        except OSError:
            del self.files[name]  # what is there of it is in the journal
            try:
                os.close(fd)
            except OSError:
                pass
            raise

    def fill(self, fd, name, key):
        size, total = 0, self.rnd.randrange(1, SIZE)
        while size < total and not self.stop:
            n = min(total - size, self.rnd.choice([100, 4096, 47001, 65536, 262144, 1 << 20]))
            n = self.timed(os.pwrite, fd, content(key, size, n), size)
            size += n
            self.stats["writes"] += 1
            self.stats["bytes"] += n
            if self.rnd.random() < 0.1 and size > 5000:  # the same bytes once more, somewhere before
                off = self.rnd.randrange(size - 4000)
                self.timed(os.pwrite, fd, content(key, off, 3333), off)
            if self.rnd.random() < 0.15:
                self.timed(os.fsync, fd)
                self.note("sync", name, size)
                self.stats["syncs"] += 1
        self.timed(os.close, fd)
        self.note("close", name, size)
        self.files[name] = (key, size)

    def read_one(self):
        if not self.files:
            return
        name = self.rnd.choice(list(self.files))
        key, size = self.files[name]
        fd = self.timed(os.open, self.path(name), os.O_RDONLY)
        try:
            off = self.rnd.randrange(size) if size else 0
            n = min(size - off, self.rnd.choice([1, 5000, 300000, SIZE]))
            got = self.timed(pread_all, fd, n, off)
        finally:
            os.close(fd)
        at = first_difference(got, content(key, off, n))
        if at is not None:
            self.note("bad", f"{name} (key {key}): byte {off + at} of [{off}, {off + n}) is wrong")
            sys.exit(3)
        self.stats["reads"] += 1

    def move_one(self):
        if not self.files:
            return
        name = self.rnd.choice(list(self.files))
        self.count += 1
        to = f"m{self.seed}-{self.count}"
        self.note("move", name, to)
        self.timed(os.rename, self.path(name), self.path(to))
        self.note("moved", name, to)
        self.files[to] = self.files.pop(name)

    def remove_one(self):
        name = self.rnd.choice(list(self.files))
        self.note("gone", name)
        del self.files[name]
        self.timed(os.unlink, self.path(name))

    def step(self):
        if len(self.files) > KEEP:
            self.remove_one()
        act = self.rnd.random()
        if act < 0.4:
            self.write_one()
        elif act < 0.92:
            self.read_one()
        else:
            self.move_one()

    def run(self):
        while not self.stop:
            try:
                self.step()
            except OSError as e:
                self.stats["errors"] += 1
                self.note("err", e.errno, str(e))
                if not self.tolerant:
                    sys.exit(1)
                time.sleep(0.05)
        self.note("stat", self.stats)


if __name__ == "__main__":
    Worker(sys.argv[1], sys.argv[2], int(sys.argv[3]), "tolerant" in sys.argv[4:]).run()
