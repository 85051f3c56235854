"""One checkpoint name is rewritten a hundred times, while in turn the program, its mount, the manager and the benefactor are killed: after each, the file is, byte by byte, a version that was
whole; the new one, if its close has said so, and else the one before (docs/CHECKPOINTS.md, V1).

FP_SEED runs another sequence, FP_REWRITES another number of them.
"""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from harness.daemons import SLOW
from harness.files import content, read_file, write_file

KIB = 1024
PIECE = 64 * KIB
SIZES = (1280 * KIB + 4321, 2048 * KIB, 777 * KIB + 1)
WAYS = ("in_place", "trunc", "rename")
KILLED = ("program", "mount", "manager", "benefactor", "program and mount")

pytestmark = pytest.mark.expect_log(r"benefactor|manager|not published in time|not stored|could not be|session|lost|refused|away|written data")

# Rewrites a file in the way told, in pieces, in an order told; publishes what it has at some of them, as any close on that node does. Says each piece, and "closed" when close has said 0.
WRITER = """
import os, sys
path, way, new, order, publish = sys.argv[1], sys.argv[2], sys.argv[3], eval(sys.argv[4]), eval(sys.argv[5])
data = open(new, "rb").read()
say = lambda what: os.write(1, (what + "\\n").encode())
name = path + ".tmp" if way == "rename" else path
fd = os.open(name, os.O_WRONLY | (0 if way == "in_place" else os.O_TRUNC | os.O_CREAT))
say("open")
try:
    for i in order:
        at = i * %d
        part = memoryview(data)[at:at + %d]
        while part:
            n = os.pwrite(fd, part, at)
            part, at = part[n:], at + n
        if i in publish:
            os.close(os.open(name, os.O_WRONLY))
        say("piece")
    if way == "in_place":
        os.ftruncate(fd, len(data))
    os.close(fd)
    if way == "rename":
        os.rename(name, path)
except OSError as e:
    say("failed")
    os._exit(3)
say("closed")
os._exit(0)
""" % (PIECE, PIECE)


class Rewriting:
    def __init__(self, store, rng, scratch):
        self.store, self.rng, self.new = store, rng, os.path.join(scratch, "new")
        self.mount, self.manager, self.benefactor = store.mounts[0], store.manager, store.benefactors[0]
        self.path = self.mount.at("ckpt")
        self.good = content(1, 0, SIZES[0])
        write_file(self.path, self.good)

    def begin(self, key, way):
        data = content(key, 0, self.rng.choice(SIZES))
        with open(self.new, "wb") as f:
            f.write(data)
        order = list(range((len(data) + PIECE - 1) // PIECE))
        if self.rng.random() < 0.5:
            self.rng.shuffle(order)
        publish = self.rng.sample(order, self.rng.randint(0, 2))
        p = subprocess.Popen([sys.executable, "-S", "-E", "-c", WRITER, self.path, way, self.new, repr(order), repr(publish)], stdout=subprocess.PIPE, text=True)
        return p, data, len(order)

    def kill(self, what, p):
        if "program" in what:
            p.send_signal(signal.SIGKILL)
        if "mount" in what:
            self.mount.kill()
        if what in ("manager", "benefactor"):
            getattr(self, what).kill()
            getattr(self, what).start()

    def remount(self):
        if self.mount.alive():
            self.mount.term()
        self.mount.start()

    def once(self, key):
        way, what = self.rng.choice(WAYS), KILLED[key % len(KILLED)]
        p, data, pieces = self.begin(key, way)
        lines, upto = [], self.rng.randint(0, pieces + 1)
        try:
            while len(lines) <= upto and (line := p.stdout.readline()):
                lines.append(line.strip())
            self.kill(what, p)
            lines += p.stdout.read().split()
            p.wait(60 * SLOW)
        finally:
            p.kill()
            p.wait(20)
        if what != "manager" or "closed" not in lines:
            self.remount()
        got = read_file(self.path)
        where = f"{key}: {way}, {what} killed at piece {upto} of {pieces}, {lines[-1:]}"
        if "closed" in lines:
            assert got == data, f"{where}: what was closed is not there: {self.which(got, data)}"
        elif "program" in what or "mount" in what or "failed" in lines: # it may have been closed, and not have come to say so
            assert got in (self.good, data), f"{where}: {self.which(got, data)}"
            assert got == self.good or len(lines) > pieces, f"{where}: it is the new one, which was not closed"
        else:
            raise AssertionError(f"{where}: the program has ended, and neither closed nor failed")
        self.good = got
        return "closed" in lines

    def which(self, got, data):
        n = min(len(got), len(data), len(self.good))
        blocks = [("new" if got[i:i + PIECE] == data[i:i + PIECE] else "old" if got[i:i + PIECE] == self.good[i:i + PIECE] else "else") for i in range(0, n, PIECE)]
        return f"{len(got)} bytes, old {len(self.good)}, new {len(data)}: {' '.join(blocks)}"


@pytest.mark.limit(300)
def test_a_name_that_is_rewritten_with_kills_between_is_always_a_whole_version(new_store, tmp_path):
    store = new_store()
    store.start_manager("--versions=on", "--session-timeout=10s", "--orphan-grace=2s")
    store.add_benefactor()
    store.add_mount("--close=publish")
    seed = int(os.environ.get("FP_SEED", "0")) or 20251
    r, begun, closed = Rewriting(store, random.Random(seed), tmp_path), time.monotonic(), 0
    times = int(os.environ.get("FP_REWRITES", "100"))
    for key in range(2, 2 + times):
        closed += r.once(key)
    print(f"seed {seed}: {times} rewritings, {closed} of them closed, {time.monotonic() - begun:.0f} s")
    assert 0 < closed < times, "all or none came to an end: the kills show nothing"
