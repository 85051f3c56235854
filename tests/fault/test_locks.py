"""Locks between mounts when something dies or is away: a mount, the manager, or for a while both from each other."""

import errno
import os
import signal
import time
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN

import pytest

from harness.daemons import SLOW, wait_until
from harness.files import read_file, write_file
from harness.fixtures import settle

BUSY = (-errno.EAGAIN, -errno.EACCES)
TRY = LOCK_EX | LOCK_NB


@pytest.fixture
def pair(new_store, lockers):
    """A function: a store with two mounts, and a process on each that has the same file open."""
    def make(manager=(), mount=()):
        s = new_store()
        s.start_manager(*manager)
        s.add_benefactor()
        for _ in range(2):
            s.add_mount(*mount)
        write_file(s.mounts[0].at("f"), bytes(100))
        return s, *[lockers(m.at("f")) for m in s.mounts]
    return make


@pytest.mark.parametrize("how", ["lock", "flock"])
def test_mount_killed_its_locks_are_free_when_its_session_has_ended(pair, how):
    s, a, b = pair(manager=["--session-timeout=3s"])
    s.expect("lost|closed|silent")
    assert a.do(how, LOCK_EX) == 0
    b.begin(how, LOCK_EX)
    assert not b.done(0.3)
    begun = time.monotonic()
    s.mounts[0].kill()
    assert not b.done(1.5), "its data may still come"
    assert b.result(20) == 0
    assert time.monotonic() - begun < 15


def test_mount_ended_its_locks_are_free_at_once(pair):
    s, a, b = pair()
    assert a.do("lock", LOCK_EX) == 0
    b.begin("lock", LOCK_EX)
    assert not b.done(0.3)
    a.end()
    assert b.result(5) == 0
    c_begun = time.monotonic()
    s.mounts[1].kill(signal.SIGTERM)
    assert time.monotonic() - c_begun < 15


def test_mount_ends_while_a_program_waits_for_a_lock(pair):
    s, a, b = pair()
    assert a.do("lock", LOCK_EX) == 0
    b.begin("lock", LOCK_EX)
    assert not b.done(0.3)
    assert s.mounts[1].kill(signal.SIGTERM) == 0
    assert b.result(5) < 0
    assert a.do("lock", LOCK_UN) == 0
    assert a.do("lock", TRY) == 0


def test_manager_killed_while_locks_are_held_and_waited_for(pair):
    s, a, b = pair()
    for _ in range(3):
        assert a.do("lock", LOCK_EX, 0, 50) == 0 and a.do("flock", LOCK_SH) == 0
        b.begin("lock", LOCK_EX, 40, 20)
        assert not b.done(0.3)
        s.manager.kill()
        assert not b.done(0.5)
        s.restart_manager()
        assert not b.done(2), "what was held is held"
        assert a.do("who", 50, 50)[0] == 2, "nothing else is locked"
        assert a.do("lock", LOCK_UN, 0, 50) == 0
        assert b.result() == 0
        assert a.do("lock", TRY, 45, 1) in BUSY
        assert b.do("flock", TRY) in BUSY
        assert b.do("lock", LOCK_UN) == 0 and a.do("flock", LOCK_UN) == 0
        assert b.do("flock", TRY) == 0 and b.do("flock", LOCK_UN) == 0


@pytest.mark.parametrize("point", ["cl.hello_locks", "cl.hello_held"])
def test_mount_without_memory_to_say_what_it_holds_says_no_hello(new_store, lockers, point):
    """What a hello does not name goes to others: locks, and files without a name that are open."""
    s = new_store()
    s.start_manager()
    s.add_benefactor()
    s.add_mount(fault=f"{point}=ENOMEM:count=2")
    s.add_mount()
    write_file(s.mounts[0].at("f"), b"data")
    a, b = [lockers(m.at("f")) for m in s.mounts]
    assert a.do("flock", LOCK_EX) == 0
    write_file(s.mounts[0].at("gone"), b"open")
    with open(s.mounts[0].at("gone"), "rb", buffering=0) as f:
        os.unlink(s.mounts[1].at("gone"))
        s.manager.kill()
        s.restart_manager()
        s.mounts[0].wait_log(f"fault fired: {point}", 20)
        assert f.read(10) == b"open"
        assert b.do("flock", TRY) in BUSY
        assert a.do("flock", LOCK_UN) == 0
        assert b.do("flock", TRY) == 0
    assert "is lost" not in s.mounts[0].text()


def test_flock_that_was_not_converted_is_gone_and_nobody_is_told_that_it_was_lost(pair):
    """As flock(2) says: what was held goes before the other type is had."""
    s, a, b = pair()
    assert a.do("flock", LOCK_SH) == 0 and b.do("flock", LOCK_SH) == 0
    assert a.do("flock", TRY) in BUSY
    assert b.do("flock", TRY) == 0
    s.manager.kill()
    s.restart_manager()
    assert a.do("flock", LOCK_SH | LOCK_NB) in BUSY
    assert "is lost" not in s.mounts[0].tail()
    a.do("alarm", 0.5)
    assert a.do("flock", LOCK_EX, seconds=5) == -errno.EINTR
    assert b.do("flock", LOCK_UN) == 0
    assert b.do("flock", TRY) == 0, "nothing is left of it"


def test_manager_away(pair):
    """A call that does not want to wait fails in time; one that waits goes on, can be interrupted, and gets it when the manager is back."""
    s, a, b = pair(mount=["--manager-timeout=2s"])
    s.expect("has not answered|EIO")
    assert a.do("lock", LOCK_EX) == 0
    s.manager.kill()
    begun = time.monotonic()
    assert b.do("lock", TRY) == -errno.EIO
    assert 1 < time.monotonic() - begun < 10
    b.do("alarm", 1)
    begun = time.monotonic()
    assert b.do("lock", LOCK_EX) == -errno.EINTR
    assert time.monotonic() - begun < 4
    b.begin("lock", LOCK_EX)
    assert not b.done(3), "longer than it waits for anything else"
    s.restart_manager()
    assert not b.done(2)
    assert a.do("lock", LOCK_UN) == 0
    assert b.result() == 0


def test_process_dies_while_the_manager_is_away(pair):
    s, a, b = pair(mount=["--manager-timeout=1s"])
    s.expect("has not answered|EIO")
    assert a.do("lock", LOCK_EX) == 0
    s.manager.kill()
    a.end()
    s.restart_manager()
    assert b.do("lock", LOCK_EX) == 0


def test_mount_that_was_away_for_too_long_says_that_it_lost_its_locks(pair):
    s, a, b = pair(manager=["--session-timeout=2s", "--orphan-grace=30s"])
    s.expect("lost|closed|silent|lock")
    assert a.do("lock", LOCK_EX) == 0
    b.begin("lock", LOCK_EX)
    assert not b.done(0.3)
    s.mounts[0].send(signal.SIGSTOP)
    assert b.result(30) == 0
    s.mounts[0].send(signal.SIGCONT)
    wait_until("the line in the log", 20, lambda: "a lock that a program here holds is lost" in s.mounts[0].tail())
    assert a.do("lock", TRY) in BUSY
    assert b.do("lock", LOCK_UN) == 0
    assert a.do("lock", TRY) == 0


def test_program_is_told_that_what_it_wrote_under_a_lock_was_not_protected(pair):
    s, a, b = pair(manager=["--session-timeout=2s", "--orphan-grace=30s"])
    s.expect("lost|closed|silent|lock")
    assert a.do("lock", LOCK_EX) == 0
    assert a.do("write", b"under a lock") == 12
    b.begin("lock", LOCK_EX)
    assert not b.done(0.3)
    s.mounts[0].send(signal.SIGSTOP)
    assert b.result(30) == 0
    s.mounts[0].send(signal.SIGCONT)
    wait_until("the line in the log", 20, lambda: "a lock that a program here holds is lost" in s.mounts[0].tail())
    assert a.do("close") == -errno.EIO


def test_mount_that_was_away_for_a_moment_keeps_its_locks(pair):
    s, a, b = pair(manager=["--session-timeout=30s"])
    s.expect("lost the manager|lost its connection")
    assert a.do("lock", LOCK_EX, 0, 10) == 0 and a.do("lock", LOCK_EX, 20, 10) == 0
    assert a.do("lock", LOCK_UN, 20, 10) == 0
    s.mounts[0].send(signal.SIGSTOP)
    settle(7)  # longer than a silent connection is kept
    assert b.do("lock", TRY, 5, 1) in BUSY
    s.mounts[0].send(signal.SIGCONT)
    assert a.do("write", b"x") == 1
    settle(2)
    assert b.do("lock", TRY, 5, 1) in BUSY
    assert "is lost" not in s.mounts[0].tail()
    assert a.do("lock", LOCK_UN) == 0
    assert b.do("lock", TRY) == 0


APPENDED = 12
NAMES = [f"a{i}" for i in range(APPENDED)] + ["good"]


@pytest.mark.limit(120)
def test_locks_and_appends_beside_files_that_cannot_be_published(pair, lockers):
    """Another mount wants to append to many files of which this one has lines that a benefactor does not take. That holds up neither the locks of other
    files, whose pages are old, nor other appended files; and when the benefactor is back, all of them go on."""
    s, a, b = pair(mount=["--io-timeout=40s"])
    s.expect("benefactor|not stored|away|has not answered")
    here, there = s.mounts
    fds = []
    for name in NAMES:
        write_file(here.at(name), b"")
        fds.append(os.open(here.at(name), os.O_WRONLY | os.O_APPEND))
        os.write(fds[-1], b"a line\n")
    for fd in fds:
        os.fsync(fd)
    write_file(there.at("mine"), bytes(100), sync=True)  # so that it has room for what it appends
    pages = lockers(here.at("f"))
    assert pages.do("read", 100) == bytes(100)
    appending = [lockers() for _ in range(APPENDED + 1)]
    for p, name in zip(appending, NAMES):
        p.do("open", there.at(name), "f", os.O_WRONLY | os.O_APPEND)
    s.benefactors[0].freeze()
    for fd in fds[:-1]:
        os.write(fd, b"a line that is kept here\n")
    for p in appending[:-1]:
        p.begin("write", b"another line\n")
    assert not appending[0].done(1), "else nothing is shown"
    assert b.do("lock", LOCK_EX) == 0
    pages.begin("lock", LOCK_EX)
    assert not pages.done(0.3)
    os.truncate(there.at("f"), 50)  # what has changed has to be forgotten before the lock is had
    assert b.do("lock", LOCK_UN) == 0
    assert pages.result(10 * SLOW) == 0
    assert appending[-1].do("write", b"another line\n", seconds=10 * SLOW) == 13
    assert not any(p.done() for p in appending[:-1])
    s.benefactors[0].send(signal.SIGCONT)
    begun = time.monotonic()
    assert [p.result(30 * SLOW) for p in appending[:-1]] == [13] * APPENDED
    assert time.monotonic() - begun < 30 * SLOW
    for fd, p in zip(fds, appending):
        os.close(fd)
        assert p.do("close", seconds=30 * SLOW) == 0
    for name in NAMES[:-1]:
        assert read_file(there.at(name)) == b"a line\na line that is kept here\nanother line\n"
    assert read_file(there.at("good")) == b"a line\nanother line\n"
