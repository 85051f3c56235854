"""O_APPEND of several mounts when a mount or the manager dies."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from harness.append import appender, check, parse
from harness.daemons import unmount, wait_until
from harness.files import read_file, write_file

WAITS = "import os, sys; fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND); sys.stdin.read(1); os.write(fd, b'x')"
CUTS = "import os, sys; sys.stdin.read(1); os.truncate(sys.argv[1], 100)"


@pytest.fixture
def pair(new_store):
    def make(*manager):
        s = new_store()
        s.start_manager(*manager)
        s.add_benefactor()
        s.add_mount()
        s.add_mount()
        write_file(s.mounts[0].at("f"), b"")
        return s
    return make


@pytest.mark.limit(120)
def test_manager_started_again_while_two_mounts_append(pair):
    s = pair()
    pids = [appender(s.mounts[i].at("f"), i, 20000, lambda w, n: 1 + n * 7 % 300) for i in range(2)]
    for _ in range(2):
        time.sleep(0.5)
        s.manager.kill()
        s.restart_manager()
    assert [os.waitpid(p, 0)[1] for p in pids] == [0] * 2
    check(s.mounts[1].at("f"), 2, 20000)


@pytest.mark.limit(120)
def test_mount_killed_that_has_the_right_to_append(pair):
    s = pair("--session-timeout=3s")
    s.expect("lost|silent|closed")
    path = s.mounts[1].at("f")
    dead = appender(s.mounts[0].at("f"), 0, 10 ** 6, lambda w, n: 100, fsync_every=50)
    time.sleep(1)
    s.mounts[0].kill()
    os.waitpid(dead, 0)
    unmount(s.mounts[0].path)
    begun = time.monotonic()
    alive = appender(path, 1, 500, lambda w, n: 200)
    assert os.waitpid(alive, 0)[1] == 0
    assert time.monotonic() - begun < 20, "when its session has ended"
    seen = parse(read_file(path))
    assert [n for w, n in seen if w == 1] == list(range(500))
    first = [n for w, n in seen if w == 0]
    assert len(first) >= 50 and first == list(range(len(first))), "what it had synced"
    assert seen == sorted(seen), "what came after it is behind it"


@pytest.mark.limit(120)
def test_writer_killed_while_it_waits_for_the_right_to_append(pair):
    """The right comes to nobody then, and does not stay there."""
    s = pair()
    a, b = s.mounts
    waits = subprocess.Popen([sys.executable, "-c", WAITS, a.at("f")], stdin=subprocess.PIPE)
    time.sleep(0.5)
    fd = os.open(b.at("f"), os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"1")
    os.kill(b.pid, signal.SIGSTOP)  # so it does not give it back
    try:
        waits.stdin.write(b"1")
        waits.stdin.flush()
        time.sleep(1.5)
        assert waits.poll() is None
        waits.kill()
        waits.wait()
        time.sleep(0.5)
    finally:
        os.kill(b.pid, signal.SIGCONT)
    time.sleep(1)
    begun = time.monotonic()
    os.write(fd, b"2")
    os.close(fd)
    assert time.monotonic() - begun < 20
    assert read_file(a.at("f")) == b"12"


@pytest.mark.limit(120)
def test_truncate_that_is_killed_while_another_mount_appends_loses_nothing(pair):
    """It has not been done, so what this mount had written behind the new end is there."""
    s = pair()
    a, b = s.mounts
    data = bytes(range(256)) * 4000
    cuts = subprocess.Popen([sys.executable, "-c", CUTS, a.at("f")], stdin=subprocess.PIPE)
    appends = os.open(b.at("f"), os.O_WRONLY | os.O_APPEND)
    os.write(appends, b"1")
    fd = os.open(a.at("f"), os.O_RDWR)
    os.pwrite(fd, data, 1)
    os.kill(b.pid, signal.SIGSTOP)  # so it does not give the right back
    try:
        cuts.stdin.write(b"1")
        cuts.stdin.flush()
        time.sleep(1.5)
        assert cuts.poll() is None, "it waits for its turn"
        cuts.kill()
        cuts.wait()
    finally:
        os.kill(b.pid, signal.SIGCONT)
    assert os.fstat(fd).st_size == 1 + len(data)
    assert os.pread(fd, len(data), 1) == data
    os.close(fd)
    os.close(appends)
    assert read_file(b.at("f")) == b"1" + data


@pytest.mark.limit(120)
def test_mount_that_was_cut_off_tells_that_it_had_no_right_to_append(pair):
    """What it had appended and not published does not go over what others appended meanwhile; nor is it said to be well."""
    s = pair("--session-timeout=2s", "--orphan-grace=30s")
    s.expect("lost|closed|silent|lock|append")
    a, b = s.mounts
    fd = os.open(a.at("f"), os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"1")
    os.fsync(fd)
    os.write(fd, b"2")
    a.send(signal.SIGSTOP)
    try:
        write = os.open(b.at("f"), os.O_WRONLY | os.O_APPEND)
        os.write(write, b"3")
        os.close(write)
    finally:
        a.send(signal.SIGCONT)
    wait_until("the line in the log", 20, lambda: "the right to append is lost" in a.tail())
    with pytest.raises(OSError) as e:
        os.fsync(fd)
    assert e.value.errno == errno.EIO
    os.write(fd, b"4")
    os.close(fd)
    assert read_file(a.at("f")) == read_file(b.at("f")) == b"134"


@pytest.mark.limit(120)
@pytest.mark.parametrize("then", ["write", "close"])
def test_right_that_was_lost_while_another_mount_has_it_and_has_not_published(pair, then):
    """Its end is the one that counts."""
    s = pair("--session-timeout=2s", "--orphan-grace=30s")
    s.expect("lost|closed|silent|lock|append")
    a, b = s.mounts
    fd = os.open(a.at("f"), os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"1")
    os.fsync(fd)
    write = os.open(b.at("f"), os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"22")
    a.send(signal.SIGSTOP)
    try:
        os.write(write, b"3")
    finally:
        a.send(signal.SIGCONT)
    wait_until("the line in the log", 20, lambda: "the right to append is lost" in a.tail())
    with pytest.raises(OSError) as e:
        if then == "write":
            os.write(fd, b"4")
        else:
            os.close(fd)
    assert e.value.errno == errno.EIO
    os.close(write)
    if then == "write":
        with pytest.raises(OSError):
            os.close(fd)
    assert read_file(a.at("f")) == read_file(b.at("f")) == b"13"


@pytest.mark.limit(120)
def test_right_that_was_lost_and_that_nobody_wanted_costs_nothing(pair):
    s = pair("--session-timeout=2s", "--orphan-grace=30s")
    s.expect("lost|closed|silent|lock|append")
    a, b = s.mounts
    fd = os.open(a.at("f"), os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"1")
    os.fsync(fd)
    os.write(fd, b"2")
    a.send(signal.SIGSTOP)
    time.sleep(4)
    a.send(signal.SIGCONT)
    wait_until("the line in the log", 20, lambda: "the right to append is lost" in a.tail())
    os.write(fd, b"3")
    os.close(fd)
    assert read_file(b.at("f")) == b"123"
