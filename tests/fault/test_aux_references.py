"""De-duplication and what dies meanwhile: wherever close said 0, the file can be read in full.

A chunk that is found stored is only referred to where its bytes are safe. Rows of the failure table in docs/ARCHITECTURE.md name these tests.
"""

import errno
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from harness.aux import MIB, app, example, unique, used, wait_empty
from harness.daemons import PACE, SLOW, unmount, wait_until
from harness.files import assert_same, pread_all, read_file, write_file

pytestmark = pytest.mark.expect_log(r"benefactor|damaged|can't be read|same as stored ones|found stored|lost|referred")
DEDUP = "dedup chunking=fixed size=64KiB pays=0%"


@pytest.fixture
def start(new_store):
    def make(benefactors, *declared, args=(), mounts=1, **kw):
        s = new_store().up(benefactors=benefactors, mounts=0, **kw)
        for _ in range(mounts):
            s.add_mount(*[f"--auxapp={d}" for d in declared], *args)
        return s
    return make


def the_fullest(s, path):
    """The benefactor that has most of a file."""
    where = {}
    for r in s.layout(path)["ranges"]:
        if not r["hole"]:
            where[r["benefactor"]] = where.get(r["benefactor"], 0) + r["length_bytes"]
    addr, = [b["address"] for b in s.status()["benefactors"] if b["id"] == max(where, key=where.get)]
    return next(b for b in s.benefactors if b.ready == addr)


def set_stripe(m, n):
    os.setxattr(m.path, b"user.fp.stripe", str(n).encode())


def cold(m, lost=False):
    """Nothing in the mount's memory any more. lost: it has told somebody of data that is lost, and says so at its end."""
    if lost:
        unmount(m.path)
        m.wait()
    else:
        m.unmount()
    m.start()


def write_told(path, data, sync=False):
    """What close said: 0 or an errno."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        at = 0
        while at < len(data):
            at += os.write(fd, memoryview(data)[at:at + MIB])
        if sync:
            os.fsync(fd)
    except OSError as e:
        os.close(fd)
        return e.errno
    try:
        os.close(fd)
    except OSError as e:
        return e.errno
    return 0


# ---------------------------------------------------------------- dead before the checkpoint begins


@pytest.mark.limit(120)
@pytest.mark.parametrize("how", ["new name", "cut to nothing", "in place"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_benefactor_dead_between_two_checkpoints(start, n, how):
    """It never comes back: the second checkpoint, of which this mount has all bytes, is stored elsewhere."""
    s = start(n, DEDUP)
    m, data = s.mounts[0], unique(n, 16 * MIB)
    set_stripe(m, n)
    write_file(m.at("ckpt_1"), data, sync=True)
    the_fullest(s, "/ckpt_1").kill()
    name = "ckpt_2" if how == "new name" else "ckpt_1"
    if how == "in place":
        fd = os.open(m.at(name), os.O_WRONLY)
        for at in range(0, len(data), MIB):
            os.pwrite(fd, data[at:at + MIB], at)
        os.close(fd)
    else:
        assert write_told(m.at(name), data) == 0
    cold(m)
    assert_same(read_file(m.at(name)), data)


@pytest.mark.limit(120)
def test_benefactor_and_manager_dead_between_two_checkpoints(start):
    """The manager that is back has not heard of any benefactor: what it does not know to be there is not referred to."""
    s = start(2, DEDUP, "compress", args=["--io-timeout=20s"])
    m, data = s.mounts[0], unique(1, 16 * MIB)
    set_stripe(m, 2)
    write_file(m.at("ckpt_1"), data, sync=True)
    the_fullest(s, "/ckpt_1").kill()
    s.manager.kill()
    said = []
    t = threading.Thread(target=lambda: said.append(write_told(m.at("ckpt_2"), data)))
    t.start()
    time.sleep(1 * PACE)
    s.manager.start()
    t.join()
    assert said == [0]
    cold(m)
    assert_same(read_file(m.at("ckpt_2")), data)


# ---------------------------------------------------------------- dead while it is written


@pytest.mark.limit(120)
@pytest.mark.parametrize("chain", [[DEDUP], [DEDUP, "compress required"]], ids=["dedup", "required"])
def test_benefactor_dies_while_a_checkpoint_is_written(start, chain):
    """What was referred to before is lost with it, and close says so; what is written after is stored, although the aux-app knows the dead chunks."""
    s = start(2, *chain, args=["--io-timeout=4s", "--close=publish"])
    m, data = s.mounts[0], unique(2, 16 * MIB)
    set_stripe(m, 2)
    write_file(m.at("ckpt_1"), data, sync=True)
    dead = the_fullest(s, "/ckpt_1")
    fd = os.open(m.at("ckpt_2"), os.O_WRONLY | os.O_CREAT)
    os.pwrite(fd, data[:8 * MIB], 0)
    time.sleep(1 * PACE)  # no fpctl here: a child that is forked closes fd, too, which publishes what was written
    dead.kill()
    time.sleep(0.5 * PACE)
    os.pwrite(fd, data[8 * MIB:], 8 * MIB)
    with pytest.raises(OSError) as e:
        os.close(fd)
    assert e.value.errno == errno.EIO
    cold(m, True)
    fd = os.open(m.at("ckpt_2"), os.O_RDONLY)
    assert_same(pread_all(fd, 8 * MIB, 8 * MIB), data[8 * MIB:], "what was written after its death")
    os.close(fd)
    assert write_told(m.at("ckpt_3"), data) == 0
    cold(m)
    assert_same(read_file(m.at("ckpt_3")), data)
    assert app(s, "dedup")["failures"] == 0, "it is not its fault"


@pytest.mark.limit(120)
def test_close_waits_for_a_benefactor_that_starts_again(start):
    """A short absence is no error: close waits until it is known that what is referred to is there."""
    s = start(2, DEDUP, args=["--close=publish"])
    m, data = s.mounts[0], unique(3, 16 * MIB)
    set_stripe(m, 2)
    write_file(m.at("ckpt_1"), data, sync=True)
    away = the_fullest(s, "/ckpt_1")
    before = used(s)
    fd = os.open(m.at("ckpt_2"), os.O_WRONLY | os.O_CREAT)
    os.write(fd, data)
    time.sleep(1 * PACE)
    away.kill()
    t = threading.Thread(target=os.close, args=[fd])
    t.start()
    time.sleep(1 * PACE)
    assert t.is_alive()
    away.start()
    t.join()
    cold(m)
    assert_same(read_file(m.at("ckpt_2")), data)
    assert used(s) < before + 8 * MIB, "most of it was referred to"


# ---------------------------------------------------------------- on nodes of their own


@pytest.mark.limit(120)
def test_node_dead_between_two_checkpoints(nodes, new_store):
    """Each node has a benefactor and a mount; a node goes without a word, connections and all."""
    s = new_store(nodes(4))
    s.start_manager()
    for i in range(1, 4):
        s.add_benefactor(node=i)
        s.add_mount(f"--auxapp={DEDUP} scope=store", node=i)
    data = [unique(i, 8 * MIB) for i in range(4)]
    for i, m in enumerate(s.mounts):
        write_file(m.at(f"rank{i}_1"), data[i] + data[3], sync=True)
    s.benefactors[0].kill()
    s.mounts[0].kill()
    for i, m in enumerate(s.mounts[1:], 1):
        assert write_told(m.at(f"rank{i}_2"), data[i] + data[3] + data[0]) == 0
    for m in s.mounts[1:]:
        cold(m)
    for i in (1, 2):
        assert_same(read_file(s.mounts[3 - i].at(f"rank{i}_2")), data[i] + data[3] + data[0], f"of rank {i}")


# ---------------------------------------------------------------- damaged


def segments(s):
    return [os.path.join(top, f) for b in s.benefactors for top, _, files in os.walk(b.dir) for f in files
            if os.path.isfile(os.path.join(top, f))]


def flip(s, needle):
    """One bit of these bytes, where they are on a device."""
    for path in segments(s):
        with open(path, "r+b") as f:
            at = f.read().find(needle)
            if at < 0:
                continue
            f.seek(at)
            f.write(bytes([needle[0] ^ 8]))
            return
    raise AssertionError("not found on disk")


def is_readable(path, data):
    try:
        return read_file(path) == data
    except OSError as e:
        assert e.errno == errno.EIO
        return False


@pytest.mark.limit(120)
@pytest.mark.parametrize("how", ["cut to nothing", "in place", "new name"])
@pytest.mark.parametrize("who", ["file", "store", "figure2"])
def test_writing_a_damaged_file_again_mends_it(start, how, who):
    s = start(2, example("figure2") if who == "figure2" else f"{DEDUP} scope={who}")
    m, data = s.mounts[0], unique(4, 4 * MIB)
    write_file(m.at("f_1"), data, sync=True)
    cold(m)
    flip(s, data[MIB + 70000:MIB + 70064])
    assert not is_readable(m.at("f_1"), data)
    name = "f_2" if how == "new name" else "f_1"
    fd = os.open(m.at(name), os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if how == "cut to nothing" else 0))
    os.pwrite(fd, data, 0)
    os.close(fd)
    assert is_readable(m.at(name), data), "right after"
    cold(m)
    assert is_readable(m.at(name), data)
    wait_until("only what is damaged to be stored once more", 10, lambda: used(s) < 5.5 * MIB)


@pytest.mark.limit(120)
def test_damage_found_while_the_file_is_written_is_not_referred_to(start):
    """The aux-app has looked at the earlier version already; another mount finds the damage."""
    s = start(2, DEDUP, mounts=2)
    (m, other), data = s.mounts, unique(5, 4 * MIB)
    write_file(m.at("f_1"), data, sync=True)
    flip(s, data[2 * MIB + 70000:2 * MIB + 70064])
    fd = os.open(m.at("f_2"), os.O_WRONLY | os.O_CREAT)
    os.pwrite(fd, data[:MIB], 0)
    time.sleep(1 * PACE)
    assert not is_readable(other.at("f_1"), data)
    wait_until("the manager to know of it", 10, lambda: s.status()["damaged"])
    os.pwrite(fd, data[MIB:], MIB)
    os.close(fd)
    cold(m)
    assert is_readable(m.at("f_2"), data)


@pytest.mark.limit(180)
def test_deaths_at_random(start):
    """Four benefactors, of which one is dead now and then, and a checkpoint after another: what close said is true."""
    s = start(4, DEDUP, "compress", args=["--io-timeout=5s"])
    m, rnd = s.mounts[0], random.Random(6)
    set_stripe(m, 4)
    data, good = bytearray(unique(6, 8 * MIB)), {}
    for i in range(8):
        victim = rnd.choice(s.benefactors)
        at = rnd.randrange(8) * MIB
        data[at:at + MIB] = unique(100 + i, MIB)
        t = threading.Timer(rnd.random() * 0.3, victim.kill)
        t.start()
        if write_told(m.at(f"ckpt_{i}"), bytes(data)) == 0:
            good[i] = bytes(data)
        t.join()
        if rnd.random() < 0.5 and write_told(m.at(f"ckpt_{i}b"), bytes(data)) == 0: # while it is dead
            assert is_readable(m.at(f"ckpt_{i}b"), bytes(data))
        victim.start()
    cold(m, len(good) < 8)
    wait_until("all to be there", 20 * SLOW, lambda: all(b["state"] == "ok" for b in s.status()["benefactors"]))
    time.sleep(0.5)
    for i, want in good.items():
        assert_same(read_file(m.at(f"ckpt_{i}")), want, f"checkpoint {i}")
    assert len(good) >= 4


@pytest.mark.limit(120)
@pytest.mark.expect_log("manager at .* has not answered", "could not be asked for")
def test_what_a_manager_holds_after_nobody_waits_any_more_is_released(start):
    """It stands still for longer than --manager-timeout, then does what it was asked for: with the files gone, nothing is held, though the mount is there."""
    s = start(1, "dedup", args=["--manager-timeout=1s"])
    m, data = s.mounts[0], unique(61, 4 * MIB)
    write_file(m.at("f"), unique(60, 4 * MIB), sync=True)
    fd = os.open(m.at("f"), os.O_WRONLY)
    os.kill(s.manager.pid, signal.SIGSTOP)
    try:
        os.pwrite(fd, data, 0)
        m.wait_log("the earlier version of a file could not be asked for", 20)
    finally:
        os.kill(s.manager.pid, signal.SIGCONT)
    os.close(fd)
    assert_same(read_file(m.at("f")), data)
    os.unlink(m.at("f"))
    wait_empty(s)


HOLDER = """import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
with open(sys.argv[2], "rb") as f:
    assert os.pwrite(fd, f.read(), 0) == os.stat(sys.argv[2]).st_size
print("written", flush=True)
sys.stdin.readline()
try:
    os.close(fd)
    print(0, flush=True)
except OSError as e:
    print(e.errno, flush=True)
"""


class Holder:
    """A program of its own that has written a file and not closed it: each fork of ours would close it, too, and so publish it."""

    def __init__(self, path, data, scratch):
        with open(scratch, "wb") as f:
            f.write(data)
        self.proc = subprocess.Popen([sys.executable, "-c", HOLDER, path, scratch], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.proc.stdout.readline() == "written\n"

    def close(self):
        self.proc.stdin.write("\n")
        self.proc.stdin.close()
        said = int(self.proc.stdout.readline())
        self.proc.wait(20)
        self.proc.stdout.close()
        return said


def forget_chunks(db, name):
    """The manager's database as if a file had never been written: its chunks are gone, and so is what was held of them."""
    c = sqlite3.connect(db)
    ino, = c.execute("SELECT ino FROM dirent WHERE name = ?", (name,)).fetchone()
    rows, = c.execute("SELECT count(*) FROM slice WHERE ino = ?", (ino,)).fetchone()
    chunks = c.execute("SELECT id, bnf, stored FROM chunk WHERE id IN (SELECT chunk FROM slice WHERE ino = ?)", (ino,)).fetchall()
    for chunk, bnf, stored in chunks:
        for table, column in ("chunk", "id"), ("hold", "chunk"), ("note", "chunk"), ("note_key", "chunk"):
            c.execute(f"DELETE FROM {table} WHERE {column} = ?", (chunk,))
        c.execute("UPDATE benefactor SET chunks = chunks - 1, stored = stored - ? WHERE id = ?", (stored, bnf))
    c.execute("DELETE FROM slice WHERE ino = ?", (ino,))
    c.execute("UPDATE inode SET mapped = 0 WHERE ino = ?", (ino,))
    c.execute("UPDATE counters SET slices = slices - ?, chunks = chunks - ?", (rows, len(chunks)))
    c.commit()
    c.close()
    return len(chunks)


def is_stored(path, n):
    """All of it, and not published."""
    dirty, uncommitted = (int(x) for x in os.getxattr(path, "user.fp.at_risk").split())
    return dirty == 0 and uncommitted >= n


@pytest.mark.limit(120)
@pytest.mark.parametrize("before", ["a new file", "older data"])
def test_what_a_commit_refers_to_is_gone(start, before):
    """By a real COMMIT: the range is EIO on every node, and neither zeros nor what was there before, until it is overwritten."""
    s = start(1, f"{DEDUP} scope=store", args=["--close=publish"], mounts=2)
    m, other = s.mounts
    data, old, new = unique(71, 4 * MIB), unique(72, 4 * MIB), unique(73, 4 * MIB)
    write_file(m.at("ckpt"), data, sync=True)
    if before == "older data":
        write_file(m.at("f"), old, sync=True)
    space = used(s)
    holder = Holder(m.at("f"), data, os.path.join(s.dir, "scratch"))
    wait_until("all to be sealed, and to refer to the checkpoint", 30, lambda: is_stored(m.at("f"), len(data)))
    assert used(s) <= space + MIB
    s.manager.term()
    assert forget_chunks(os.path.join(s.dir, "manager", "store.db"), b"ckpt") > 0
    s.restart_manager()
    assert holder.close() == errno.EIO
    for x in other, m:
        for off in 0, MIB + 17, 4 * MIB - 100:
            with open(x.at("f"), "rb", buffering=0) as f, pytest.raises(OSError) as e:
                os.pread(f.fileno(), 100, off)
            assert e.value.errno == errno.EIO
    assert len(s.status()["damaged"]) > 0
    assert write_told(m.at("f"), new) == 0
    for x in other, m:
        assert_same(read_file(x.at("f")), new)
    s.wait_status("no damage any more", 20, lambda t: not t["damaged"])
    unmount(m.path)
    m.ended_as_told = True
    assert m.wait() == 1, "it has lost something, and told so"
