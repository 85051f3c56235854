"""Locks of programs on different mounts: fcntl, flock, and what is seen under them."""

import errno
import fcntl
import os
import sqlite3
import subprocess
import sys
import time
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN

import pytest

from harness.daemons import SLOW
from harness.files import read_file, write_file
from harness.lockers import eventually

BUSY = (-errno.EAGAIN, -errno.EACCES)
TRY = LOCK_EX | LOCK_NB
MOUNTS = 2


@pytest.fixture
def ab(dirs, lockers):
    """A process on each mount, with the same file open."""
    write_file(f"{dirs[0]}/f", bytes(1000))
    return [lockers(f"{d}/f") for d in dirs]


@pytest.mark.short
@pytest.mark.parametrize("how", ["lock", "flock"])
def test_exclusive_and_shared(ab, how):
    a, b = ab
    assert a.do(how, LOCK_EX) == 0
    assert b.do(how, TRY) in BUSY and b.do(how, LOCK_SH | LOCK_NB) in BUSY
    assert a.do(how, LOCK_SH) == 0, "downgrade"
    assert b.do(how, LOCK_SH | LOCK_NB) == 0
    assert a.do(how, TRY) in BUSY, "upgrade, while the other shares it"
    assert b.do(how, LOCK_UN) == 0
    assert a.do(how, TRY) == 0
    assert b.do(how, TRY) in BUSY
    assert a.do(how, LOCK_UN) == 0
    assert b.do(how, TRY) == 0


@pytest.mark.short
def test_ranges_split_and_join(ab):
    a, b = ab
    assert a.do("lock", LOCK_EX, 100, 200) == 0
    assert b.do("lock", TRY, 50, 50) == 0 and b.do("lock", TRY, 300, 0) == 0
    assert b.do("lock", TRY, 299, 1) in BUSY and b.do("lock", TRY, 99, 2) in BUSY
    assert a.do("lock", LOCK_UN, 150, 50) == 0
    assert b.do("lock", TRY, 150, 50) == 0
    assert b.do("lock", TRY, 149, 1) in BUSY and b.do("lock", TRY, 200, 1) in BUSY
    assert a.do("lock", LOCK_EX | LOCK_NB, 100, 200) in BUSY
    assert b.do("lock", LOCK_UN, 0, 0) == 0
    assert a.do("lock", LOCK_EX | LOCK_NB, 100, 200) == 0
    assert b.do("who") == (fcntl.F_WRLCK, 100, 200, a.pid), "one range again"


@pytest.mark.short
def test_who_holds_it(ab):
    a, b = ab
    assert b.do("who")[0] == fcntl.F_UNLCK
    a.do("lock", LOCK_SH, 10, 5)
    a.do("lock", LOCK_EX, 40, 0)
    assert b.do("who") == (fcntl.F_RDLCK, 10, 5, a.pid)
    assert b.do("who", 20, 100) == (fcntl.F_WRLCK, 40, 0, a.pid)
    assert a.do("who")[0] == fcntl.F_UNLCK, "its own is no obstacle"


@pytest.mark.short
@pytest.mark.parametrize("how", ["lock", "flock"])
def test_waits_and_wakes_up(ab, how):
    a, b = ab
    a.do(how, LOCK_EX)
    b.begin(how, LOCK_EX)
    assert not b.done(0.5), "it waits"
    a.do(how, LOCK_UN)
    assert b.result() == 0
    assert a.do(how, TRY) in BUSY


@pytest.mark.short
def test_deadlock_between_mounts(ab):
    a, b = ab
    assert a.do("lock", LOCK_EX, 0, 1) == 0 and b.do("lock", LOCK_EX, 1, 1) == 0
    a.begin("lock", LOCK_EX, 1, 1)
    assert not a.done(0.3)
    assert b.do("lock", LOCK_EX, 0, 1) == -errno.EDEADLK
    assert b.do("lock", LOCK_UN, 1, 1) == 0
    assert a.result() == 0


@pytest.mark.short
def test_deadlock_of_three(ab, lockers, dirs):
    three = [*ab, lockers(f"{dirs[0]}/f")]
    for i, p in enumerate(three):
        assert p.do("lock", LOCK_EX, i, 1) == 0
    for i in range(2):
        three[i].begin("lock", LOCK_EX, i + 1, 1)
        assert not three[i].done(0.3)
    assert three[2].do("lock", LOCK_EX, 0, 1) == -errno.EDEADLK
    assert three[2].do("lock", LOCK_UN, 2, 1) == 0
    assert three[1].result() == 0
    assert three[1].do("lock", LOCK_UN) == 0
    assert three[0].result() == 0


@pytest.mark.short
@pytest.mark.parametrize("how", ["lock", "flock"])
def test_locks_are_the_file_s_whatever_its_name(ab, dirs, lockers, how):
    a, b = ab
    assert a.do(how, LOCK_EX) == 0
    os.rename(f"{dirs[1]}/f", f"{dirs[1]}/g")
    assert b.do(how, TRY) in BUSY and lockers(f"{dirs[1]}/g").do(how, TRY) in BUSY
    write_file(f"{dirs[1]}/f", b"another file")
    assert lockers(f"{dirs[1]}/f").do(how, TRY) == 0
    os.unlink(f"{dirs[1]}/g")
    assert b.do(how, TRY) in BUSY
    b.begin(how, LOCK_EX)
    assert not b.done(0.3)
    a.end()
    assert b.result() == 0, "it has no name any more"
    assert b.do(how, LOCK_UN) == 0 and b.do("close") == 0


@pytest.mark.short
def test_upgrade_of_a_part_keeps_the_rest(ab):
    a, b = ab
    assert a.do("lock", LOCK_SH, 0, 100) == 0
    assert a.do("lock", LOCK_EX, 40, 20) == 0
    assert b.do("lock", LOCK_SH | LOCK_NB, 0, 40) == 0 and b.do("lock", LOCK_SH | LOCK_NB, 60, 0) == 0
    assert b.do("lock", LOCK_SH | LOCK_NB, 59, 1) in BUSY
    assert b.do("lock", TRY, 60, 1) in BUSY and b.do("lock", TRY, 100, 1) == 0
    assert a.do("lock", TRY, 39, 1) in BUSY, "the other shares it"
    assert b.do("lock", LOCK_UN, 100, 1) == 0
    assert a.do("lock", LOCK_SH | LOCK_NB, 0, 0) == 0 and b.do("lock", LOCK_SH | LOCK_NB, 40, 20) == 0
    assert a.do("lock", LOCK_UN) == 0
    assert b.do("who")[0] == fcntl.F_UNLCK


@pytest.mark.short
@pytest.mark.parametrize("how", ["lock", "flock"])
def test_a_signal_ends_the_wait(ab, how):
    a, b = ab
    a.do(how, LOCK_EX)
    b.do("alarm", 0.3)
    assert b.do(how, LOCK_EX, seconds=5) == -errno.EINTR
    a.do(how, LOCK_UN)
    assert a.do(how, TRY) == 0, "nothing is left of it"
    assert b.do(how, TRY) in BUSY


@pytest.mark.short
def test_a_process_that_waits_can_be_killed(ab, lockers, dirs):
    a, b = ab
    a.do("lock", LOCK_EX)
    b.begin("lock", LOCK_EX)
    assert not b.done(0.3)
    begun = time.monotonic()
    b.end()
    assert time.monotonic() - begun < 5
    a.do("lock", LOCK_UN)
    eventually(lambda: a.do("who")[0], fcntl.F_UNLCK)
    assert lockers(f"{dirs[1]}/f").do("lock", TRY) == 0


@pytest.mark.short
def test_any_close_of_the_file_drops_what_the_process_holds(ab, dirs):
    a, b = ab
    a.do("lock", LOCK_EX)
    a.do("open", f"{dirs[0]}/f", "second", os.O_RDONLY)
    assert b.do("lock", TRY) in BUSY
    a.do("close", "second")
    assert b.do("lock", TRY) == 0


@pytest.mark.short
def test_flock_is_the_open_file_s(ab, dirs):
    a, b = ab
    a.do("flock", LOCK_EX)
    a.do("open", f"{dirs[0]}/f", "second")
    assert a.do("flock", TRY, "second") in BUSY
    a.do("close", "second")
    assert b.do("flock", TRY) in BUSY, "another open file of the same process"
    for _ in range(30):
        assert a.do("close") == 0
        assert b.do("flock", TRY) == 0, "close gives it back, and is over when it returns"
        b.do("flock", LOCK_UN)
        a.do("open", f"{dirs[0]}/f")
        assert a.do("flock", TRY) == 0


@pytest.mark.short
def test_locks_of_open_files(ab, dirs):
    a, b = ab
    assert a.do("ofd", fcntl.F_WRLCK, 5, 5) == 0
    assert b.do("lock", TRY, 0, 0) in BUSY and b.do("ofd", fcntl.F_WRLCK, 9, 1) in BUSY
    a.do("open", f"{dirs[0]}/f", "second")
    assert a.do("ofd", fcntl.F_WRLCK, 5, 1, "second") in BUSY
    a.do("close", "second")
    assert b.do("ofd", fcntl.F_WRLCK, 9, 1) in BUSY, "another file's close drops nothing"
    a.do("close")
    assert b.do("ofd", fcntl.F_WRLCK, 9, 1) == 0


@pytest.mark.short
def test_a_child_has_none_of_them(ab, dirs):
    a, b = ab
    a.do("lock", LOCK_EX)
    pid = os.fork()
    if pid == 0:
        fd = os.open(f"{dirs[0]}/f", os.O_RDWR)
        try:
            fcntl.lockf(fd, TRY)
            os._exit(0)
        except OSError:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    a.end()
    eventually(lambda: b.do("lock", TRY), 0)


@pytest.mark.short
def test_what_was_written_under_a_lock_is_seen_under_the_next(ab):
    a, b = ab
    for i in range(50):
        one, other = (a, b) if i % 2 else (b, a)
        one.do("lock", LOCK_EX)
        one.do("write", b"%06d" % i, 500)
        one.do("lock", LOCK_UN)
        other.do("lock", LOCK_SH)
        assert other.do("read", 6, 500) == b"%06d" % i
        other.do("lock", LOCK_UN)
    a.do("flock", LOCK_EX)
    a.do("write", b"by flock", 200)
    a.do("flock", LOCK_SH)
    b.do("flock", LOCK_SH)
    assert b.do("read", 8, 200) == b"by flock", "a lesser lock shows it, too"


@pytest.mark.short
@pytest.mark.parametrize("how", ["lock", "flock"])
def test_what_was_written_is_seen_when_a_descriptor_for_reading_is_closed(ab, dirs, how):
    """What it was written through stays open; fcntl's lock goes with any descriptor of the file, flock's with its own."""
    a, b = ab
    a.do("open", f"{dirs[0]}/f", "reads", os.O_RDONLY)
    if how == "flock":
        a.do("flock", LOCK_EX, "reads")
    else:
        a.do("lock", LOCK_EX)
    a.do("write", b"written", 500)
    a.do("close", "reads")
    assert b.do(how, LOCK_EX) == 0
    assert b.do("read", 7, 500) == b"written"


@pytest.mark.limit(120)
def test_counter(dirs, lockers):
    """Four processes on two mounts, 1,000 times each: reading, adding one and writing under a lock loses nothing."""
    write_file(f"{dirs[0]}/n", b"%08d" % 0)
    four = [lockers(f"{dirs[i % 2]}/n") for i in range(4)]
    for p in four:
        p.begin("count", 1000)
    assert [p.result(100) for p in four] == [0] * 4
    assert int(read_file(f"{dirs[1]}/n")) == 4000


SIEVE = """
import fcntl, os, sys, time
fd, i = os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2])
until, off, k = time.monotonic() + float(sys.argv[3]), i * 5003, 0
while time.monotonic() < until:
    fcntl.lockf(fd, fcntl.LOCK_EX, 5003, off)
    got = os.pread(fd, 5003, off)
    assert got == bytes([k % 251]) * 5003, (k, got[:4], len(got))
    k += 1
    os.pwrite(fd, bytes([k % 251]) * 5003, off)
    fcntl.lockf(fd, fcntl.LOCK_UN, 5003, off)
"""


@pytest.mark.limit(120)
def test_many_processes_read_and_write_under_locks_of_their_own_ranges(dirs):
    """As ROMIO's data sieving does: 32 on each mount. What the others publish all the time holds no read up, let alone fails it."""
    write_file(f"{dirs[0]}/f", bytes(5003 * 64))
    all_ = [subprocess.Popen([sys.executable, "-c", SIEVE, f"{dirs[i % 2]}/f", str(i), "12"]) for i in range(64)]
    assert [p.wait(60 * SLOW) for p in all_] == [0] * 64


ADD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for _ in range(int(sys.argv[2])):
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE n SET v = v + 1")
    db.execute("INSERT INTO log VALUES (?)", (sys.argv[3],))
    db.execute("COMMIT")
"""


@pytest.mark.limit(120)
def test_sqlite_on_two_mounts(dirs):
    db = sqlite3.connect(f"{dirs[0]}/db")
    db.executescript("PRAGMA journal_mode=DELETE; CREATE TABLE n (v); INSERT INTO n VALUES (0); CREATE TABLE log (who)")
    db.close()
    procs = [subprocess.Popen(["python3", "-c", ADD, f"{dirs[i % 2]}/db", "60", str(i)]) for i in range(4)]
    assert [p.wait(100) for p in procs] == [0] * 4
    db = sqlite3.connect(f"{dirs[1]}/db")
    assert db.execute("SELECT v FROM n").fetchone() == (240,)
    assert db.execute("SELECT who, count(*) FROM log GROUP BY who").fetchall() == [(str(i), 60) for i in range(4)]
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_local_locks_are_the_kernel_s(new_store, lockers):
    s = new_store().up(mounts=0)
    s.add_mount("--locks=local")
    s.add_mount("--locks=local")
    write_file(s.mounts[0].at("f"), b"x")
    a, b, c = [lockers(s.mounts[i].at("f")) for i in (0, 0, 1)]
    assert a.do("lock", LOCK_EX) == 0
    assert b.do("lock", TRY) in BUSY
    assert c.do("lock", TRY) == 0
