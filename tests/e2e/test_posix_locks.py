"""fcntl and flock locks between processes, and mmap."""

import errno
import fcntl
import mmap
import os
import random
import signal
import struct
import time

import pytest

from harness.files import assert_same, content, pread_all, pwrite_all, read_file, seed_of_run, write_file

F_OFD_SETLK = 37
MIB = 1 << 20


def child(call):
    """call() in another process: its result, a small number."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            signal.setitimer(signal.ITIMER_REAL, 20)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            code = call() or 0
        except OSError as e:
            code = e.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def try_lock(path, how, *args):
    def call():
        fd = os.open(path, os.O_RDWR)
        how(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, *args)
        return 0
    return child(call)


@pytest.mark.short
@pytest.mark.parametrize("how", [fcntl.flock, fcntl.lockf])
def test_exclusive_lock_excludes(d, how):
    write_file(f"{d}/f", b"x")
    fd = os.open(f"{d}/f", os.O_RDWR)
    how(fd, fcntl.LOCK_EX)
    assert try_lock(f"{d}/f", how) in (errno.EAGAIN, errno.EACCES)
    how(fd, fcntl.LOCK_UN)
    assert try_lock(f"{d}/f", how) == 0
    how(fd, fcntl.LOCK_SH)
    assert child(lambda: how(os.open(f"{d}/f", os.O_RDWR), fcntl.LOCK_SH | fcntl.LOCK_NB)) == 0
    assert try_lock(f"{d}/f", how) in (errno.EAGAIN, errno.EACCES)
    os.close(fd)
    assert try_lock(f"{d}/f", how) == 0, "close gives the lock back"


@pytest.mark.short
def test_ranges(d):
    write_file(f"{d}/f", bytes(1000))
    fd = os.open(f"{d}/f", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX, 100, 200)
    assert try_lock(f"{d}/f", fcntl.lockf, 50, 100) == 0
    assert try_lock(f"{d}/f", fcntl.lockf, 101, 100) != 0
    assert try_lock(f"{d}/f", fcntl.lockf, 1, 299) != 0
    assert try_lock(f"{d}/f", fcntl.lockf, 0, 300) == 0
    fcntl.lockf(fd, fcntl.LOCK_UN, 50, 225)
    assert try_lock(f"{d}/f", fcntl.lockf, 50, 225) == 0
    assert try_lock(f"{d}/f", fcntl.lockf, 1, 274) == 0
    assert try_lock(f"{d}/f", fcntl.lockf, 1, 275) != 0
    os.close(fd)


def test_who_holds_it(d):
    write_file(f"{d}/f", bytes(10))
    fd = os.open(f"{d}/f", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX, 5, 2)
    me = os.getpid()

    def ask():
        other = os.open(f"{d}/f", os.O_RDWR)
        got = fcntl.fcntl(other, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        kind, _, start, length, pid = struct.unpack("hhqqi4x", got)
        return 0 if (kind, start, length, pid) == (fcntl.F_WRLCK, 2, 5, me) else 1
    assert child(ask) == 0
    os.close(fd)


@pytest.mark.short
@pytest.mark.parametrize("how", [fcntl.flock, fcntl.lockf])
def test_waiter_gets_it_when_the_holder_dies(d, how):
    write_file(f"{d}/f", b"x")
    r, w = os.pipe()
    holder = os.fork()
    if holder == 0:
        how(os.open(f"{d}/f", os.O_RDWR), fcntl.LOCK_EX)
        os.write(w, b"!")
        time.sleep(60)
        os._exit(0)
    assert os.read(r, 1) == b"!"
    waiter = os.fork()
    if waiter == 0:
        how(os.open(f"{d}/f", os.O_RDWR), fcntl.LOCK_EX)
        os._exit(7)
    time.sleep(0.2)
    assert os.waitpid(waiter, os.WNOHANG) == (0, 0), "it waits"
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        pid, status = os.waitpid(waiter, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 7
            break
        time.sleep(0.01)
    else:
        os.kill(waiter, signal.SIGKILL)
        os.waitpid(waiter, 0)
        pytest.fail("the waiter never got the lock")
    os.close(r)
    os.close(w)


def test_locked_counter(d):
    """Four processes count under a lock; none is lost."""
    write_file(f"{d}/n", b"%08d" % 0)
    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            fd = os.open(f"{d}/n", os.O_RDWR)
            for _ in range(100):
                fcntl.lockf(fd, fcntl.LOCK_EX)
                os.pwrite(fd, b"%08d" % (int(os.pread(fd, 8, 0)) + 1), 0)
                fcntl.lockf(fd, fcntl.LOCK_UN)
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(p, 0)[1] for p in pids] == [0] * 4
    assert int(read_file(f"{d}/n")) == 400


# --- mmap -------------------------------------------------------------------


@pytest.mark.short
def test_mmap_private_and_read_only(d):
    data = content(1, 0, 3 * MIB + 100)
    write_file(f"{d}/f", data)
    fd = os.open(f"{d}/f", os.O_RDWR)
    with mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as m:
        assert_same(m[:], data)
        m[5:10] = b"mine!"
        assert os.pread(fd, 5, 5) == data[5:10]
    with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
        assert_same(m[:], data)
    os.close(fd)


@pytest.mark.short
def test_mmap_shared_write(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, 2 * MIB)
    want = bytearray(2 * MIB)
    with mmap.mmap(fd, 2 * MIB, mmap.MAP_SHARED) as m:
        for off in (0, 4095, 65536, MIB - 1, 2 * MIB - 7):
            m[off:off + 7] = want[off:off + 7] = b"mapped!"[:2 * MIB - off]
        m.flush()
    os.fsync(fd)
    os.close(fd)
    assert_same(read_file(f"{d}/f"), bytes(want))


@pytest.mark.short
def test_mmap_and_read_write_agree(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    pwrite_all(fd, bytes(65536), 0)
    with mmap.mmap(fd, 65536, mmap.MAP_SHARED) as m:
        assert m[0] == 0
        os.pwrite(fd, b"written", 100)
        assert m[100:107] == b"written", "the mapping shows what is written"
        m[5000:5004] = b"mmap"
        m.flush()
        assert os.pread(fd, 4, 5000) == b"mmap", "read shows what is mapped"
        m[6000:6004] = b"late"
        assert os.pread(fd, 4, 6000) == b"late", "also before msync"
    os.close(fd)
    got = read_file(f"{d}/f")
    assert (got[100:107], got[5000:5004], got[6000:6004]) == (b"written", b"mmap", b"late")


def test_mmap_of_two_processes(d):
    write_file(f"{d}/f", bytes(8192))
    fd = os.open(f"{d}/f", os.O_RDWR)
    m = mmap.mmap(fd, 8192, mmap.MAP_SHARED)
    pid = os.fork()
    if pid == 0:
        other = mmap.mmap(os.open(f"{d}/f", os.O_RDWR), 8192, mmap.MAP_SHARED)
        other[4096:4100] = b"ping"
        while other[0:4] != b"pong":
            time.sleep(0.001)
        os._exit(0)
    until = time.monotonic() + 10
    while m[4096:4100] != b"ping" and time.monotonic() < until:
        time.sleep(0.001)
    m[0:4] = b"pong"
    assert os.waitpid(pid, 0)[1] == 0
    m.close()
    os.close(fd)


def test_mmap_random_writes_match_model(d):
    rnd = random.Random(seed_of_run())
    size = 3 * MIB
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, size)
    want = bytearray(size)
    with mmap.mmap(fd, size, mmap.MAP_SHARED) as m:
        for _ in range(150):
            n = rnd.randrange(1, 50000)
            off = rnd.randrange(size - n)
            data = rnd.randbytes(n)
            want[off:off + n] = data
            if rnd.random() < 0.5:
                m[off:off + n] = data
            else:
                os.pwrite(fd, data, off)
            if rnd.random() < 0.1:
                m.flush()
        assert_same(m[:], bytes(want), "mapping")
        m.flush()
    assert_same(pread_all(fd, size, 0), bytes(want), "read")
    os.close(fd)
