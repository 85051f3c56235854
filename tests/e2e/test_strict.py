"""Strict files (user.fp.strict): every read sees every write that has returned on any node. Three mounts of one store, and nothing is reopened."""

import errno
import os
import random
import struct
import threading

import pytest

from harness.files import pread_all, pwrite_all, read_file, seed_of_run, write_file
from harness.fixtures import revive, store_for_a_module

KIB = 1 << 10
MIB = 1 << 20
WHOLE = MIB - 4096  # what every kernel puts into one request, wherever the memory begins


@pytest.fixture(scope="module")
def three():
    with store_for_a_module(mounts=3) as s:
        yield s


@pytest.fixture
def dirs(three, request):
    """One new strict directory of small chunks, as each mount sees it."""
    revive(three)
    name = request.node.name.replace("[", "-").replace("]", "").replace("/", "-")
    os.mkdir(three.mounts[0].at(name))
    os.setxattr(three.mounts[0].at(name), "user.fp.strict", b"1")
    os.setxattr(three.mounts[0].at(name), "user.fp.chunk_size", b"65536")
    return [m.at(name) for m in three.mounts]


def open_all(dirs, flags=os.O_RDWR, name="f"):
    """The file, made by the first mount, open on each."""
    os.close(os.open(f"{dirs[0]}/{name}", os.O_RDWR | os.O_CREAT, 0o644))
    return [os.open(f"{d}/{name}", flags) for d in dirs]


def close_all(fds):
    for fd in fds:
        os.close(fd)


def each(n, fn):
    """fn(0) … fn(n - 1), each in a process of its own; what it raises fails the test."""
    pids = []
    for i in range(n):
        pid = os.fork()
        if pid == 0:
            rc = 1
            try:
                fn(i)
                rc = 0
            finally:
                os._exit(rc)
        pids.append(pid)
    assert [os.waitpid(p, 0)[1] for p in pids] == [0] * n


@pytest.mark.short
@pytest.mark.limit(180)
def test_ping_pong_through_a_file_held_open(dirs):
    """2,000 values go to and fro; neither side opens, closes, locks or syncs anything."""
    a, b, _ = fds = open_all(dirs)
    for i in range(2000):
        to, fro = (a, b) if i % 2 else (b, a)
        value = b"%08d" % i
        assert os.pwrite(to, value, 0) == 8
        assert os.pread(fro, 8, 0) == value
    close_all(fds)


@pytest.mark.limit(180)
def test_ping_pong_of_two_processes(dirs):
    """The same between two processes that look until the other's value is there."""
    os.close(os.open(f"{dirs[0]}/f", os.O_RDWR | os.O_CREAT, 0o644))
    rounds = 500

    def side(i):
        fd = os.open(f"{dirs[i]}/f", os.O_RDWR)
        for r in range(rounds):
            if r % 2 == i:
                os.pwrite(fd, b"%08d" % r, 0)
            else:
                while os.pread(fd, 8, 0) != b"%08d" % r:
                    pass
    each(2, side)


@pytest.mark.limit(180)
def test_a_record_is_seen_whole(dirs):
    """Records over 16 windows, each of one number, are never seen half; nor is an older one seen after a newer one. Until both readers have seen enough."""
    fds = open_all(dirs)
    pwrite_all(fds[0], bytes(WHOLE), 1000)
    close_all(fds)

    def write(fd):
        for r in range(1, 65536):
            assert os.pwrite(fd, struct.pack("<H", r) * (WHOLE // 2), 1000) == WHOLE
            if all(os.path.exists(f"{dirs[0]}/enough{i}") for i in (1, 2)):
                break
        write_file(f"{dirs[0]}/ending", b"%d" % r)
        os.rename(f"{dirs[0]}/ending", f"{dirs[0]}/last")

    def read(fd, i):
        last, seen, over = 0, set(), False
        while not over:
            over = os.path.exists(f"{dirs[i]}/last")
            got = os.pread(fd, WHOLE, 1000)
            assert len(got) == WHOLE and got == got[:2] * (WHOLE // 2), "a mixture"
            now = struct.unpack("<H", got[:2])[0]
            assert now >= last, f"{now} after {last}"
            last = now
            seen.add(now)
            if len(seen) == 20:
                write_file(f"{dirs[i]}/enough{i}", b"")
        assert last == int(read_file(f"{dirs[i]}/last"))

    def run(i):
        fd = os.open(f"{dirs[i]}/f", os.O_RDWR)
        if i == 0:
            write(fd)
        else:
            read(fd, i)
    each(3, run)


@pytest.mark.limit(120)
def test_overlapping_writes_are_one_after_the_other(dirs):
    """Of two writes to overlapping ranges one is over the other in all of the overlap."""
    size = 300 * KIB
    for r in range(25):
        fds = open_all(dirs, name=f"f{r}")
        barrier = threading.Barrier(2)

        def write(i, off):
            barrier.wait()
            pwrite_all(fds[i], bytes([i + 1]) * size, off)
        ts = [threading.Thread(target=write, args=(0, 0)), threading.Thread(target=write, args=(1, 100 * KIB + 7))]
        for t in ts:
            t.start()
        for t in ts:
            t.join()
        got = pread_all(fds[2], size + 100 * KIB + 7, 0)
        low, mid, high = got[:100 * KIB + 7], got[100 * KIB + 7:size], got[size:]
        assert set(low) == {1} and set(high) == {2} and set(mid) in ({1}, {2}), f"round {r}"
        close_all(fds)


@pytest.mark.short
def test_the_size_is_seen_at_once(dirs):
    fds = open_all(dirs)
    rnd = random.Random(seed_of_run())
    size = 0
    for r in range(200):
        writer, reader = rnd.sample(fds, 2)
        if r % 10 == 9:
            size = rnd.randrange(200000)
            os.ftruncate(writer, size)
        else:
            off = rnd.randrange(200000)
            os.pwrite(writer, b"x" * 10, off)
            size = max(size, off + 10)
        assert os.fstat(reader).st_size == size
        assert os.stat(f"{dirs[fds.index(reader)]}/f").st_size == size
        assert os.lseek(reader, 0, os.SEEK_END) == size
        assert os.pread(reader, 1, size) == b""
    close_all(fds)


@pytest.mark.short
def test_truncate_punch_and_copies_are_seen_at_once(dirs):
    fds = open_all(dirs)
    os.pwrite(fds[0], b"a" * 200000, 0)
    os.ftruncate(fds[1], 70000)
    assert os.pread(fds[2], 300000, 0) == b"a" * 70000
    os.ftruncate(fds[2], 100000)
    assert os.pread(fds[0], 300000, 0) == b"a" * 70000 + bytes(30000)
    other = open_all(dirs, name="g")
    os.pwrite(other[1], b"b" * 5000, 0)
    assert os.fstat(other[2]).st_size == 5000  # Linux copies no more than the size that its node saw last
    assert os.copy_file_range(other[2], fds[0], 5000, 0, 50000) == 5000
    assert os.pread(fds[1], 5000, 50000) == b"b" * 5000
    os.posix_fallocate(fds[1], 0, 150000)
    assert os.fstat(fds[2]).st_size == 150000
    os.posix_fallocate(fds[1], 0, 1000)
    assert os.fstat(fds[0]).st_size == 150000
    assert os.lseek(fds[2], 0, os.SEEK_HOLE) == 70000
    os.pwrite(fds[0], b"c", 120000)
    assert os.lseek(fds[2], 100001, os.SEEK_DATA) <= 120000 < os.lseek(fds[2], 120000, os.SEEK_HOLE)
    close_all(fds + other)


@pytest.mark.short
def test_rename_and_unlink_while_open(dirs):
    fds = open_all(dirs)
    os.rename(f"{dirs[1]}/f", f"{dirs[1]}/g")
    os.pwrite(fds[0], b"one", 0)
    assert read_file(f"{dirs[2]}/g") == b"one"
    os.unlink(f"{dirs[2]}/g")
    os.pwrite(fds[1], b"two", 0)
    assert os.pread(fds[0], 10, 0) == os.pread(fds[2], 10, 0) == b"two"
    close_all(fds)
    assert os.listdir(dirs[0]) == []


@pytest.mark.short
@pytest.mark.limit(120)
def test_appends_go_to_the_end_wherever_it_is(dirs):
    """Two mounts append while a third makes the file longer by other means: no record is torn or overwritten, none is lost."""
    os.close(os.open(f"{dirs[0]}/f", os.O_RDWR | os.O_CREAT, 0o644))
    n = 150

    def record(i, r):
        return b"<%d:%d:" % (i, r) + b"." * (r * 977 % 3000) + b">"

    def run(i):
        fd = os.open(f"{dirs[i]}/f", os.O_RDWR | (os.O_APPEND if i < 2 else 0))
        for r in range(n):
            if i < 2:
                assert os.write(fd, record(i, r)) == len(record(i, r))
            else:
                os.posix_fallocate(fd, 0, os.fstat(fd).st_size + 10000)
    each(3, run)
    got = read_file(f"{dirs[2]}/f")
    assert len(got.replace(b"\0", b"")) == sum(len(record(i, r)) for i in range(2) for r in range(n))
    for i in range(2):
        at = -1
        for r in range(n):
            found = got.find(record(i, r), at + 1)
            assert found > at, f"record {r} of {i} is not whole, or not in its place"
            at = found


@pytest.mark.short
def test_the_flag_is_inherited(dirs, three):
    os.mkdir(f"{dirs[1]}/sub")
    write_file(f"{dirs[2]}/sub/f", b"x")
    assert os.getxattr(f"{dirs[0]}/sub/f", "user.fp.strict") == b"1"
    assert "user.fp.strict" not in os.listxattr(f"{dirs[0]}/sub/f")
    os.setxattr(f"{dirs[0]}/sub", "user.fp.strict", b"0")
    write_file(f"{dirs[2]}/sub/g", b"x")
    assert os.getxattr(f"{dirs[1]}/sub/g", "user.fp.strict") == b"0"
    os.removexattr(f"{dirs[0]}", "user.fp.strict")
    write_file(f"{dirs[0]}/h", b"x")
    assert os.getxattr(f"{dirs[1]}/h", "user.fp.strict") == b"0"
    for bad in (b"2", b"", b"yes", b"-1"):
        with pytest.raises(OSError) as e:
            os.setxattr(dirs[0], "user.fp.strict", bad)
        assert e.value.errno == errno.EINVAL


@pytest.mark.short
def test_the_flag_is_set_right_after_close(dirs):
    """On the writer's mount and on another one: the kernel tells of a close a moment after it has returned."""
    busy = 0

    def change(call, *args):
        nonlocal busy
        try:
            call(*args)
        except OSError as e:
            assert e.errno == errno.EBUSY
            busy += 1  # a machine that stood still for a second
            call(*args)

    os.removexattr(dirs[0], "user.fp.strict")
    for i in range(60):
        write_file(f"{dirs[0]}/f{i}", b"x")
        change(os.setxattr, f"{dirs[i % 2]}/f{i}", "user.fp.strict", b"1")
    for i in range(60):
        assert read_file(f"{dirs[1]}/f{i}") == b"x"
        change(os.removexattr, f"{dirs[i % 2]}/f{i}", "user.fp.strict")
    assert busy < 6


@pytest.mark.short
def test_the_flag_of_a_file_that_is_open_stays(dirs):
    os.removexattr(dirs[0], "user.fp.strict")
    write_file(f"{dirs[0]}/f", b"has data")
    fd = os.open(f"{dirs[1]}/f", os.O_RDONLY)
    with pytest.raises(OSError) as e:
        os.setxattr(f"{dirs[0]}/f", "user.fp.strict", b"1")
    assert e.value.errno == errno.EBUSY
    os.close(fd)
    os.setxattr(f"{dirs[0]}/f", "user.fp.strict", b"1")
    a, b = os.open(f"{dirs[0]}/f", os.O_RDWR), os.open(f"{dirs[1]}/f", os.O_RDWR)
    os.pwrite(a, b"HAS", 0)
    assert os.pread(b, 20, 0) == b"HAS data"
    close_all([a, b])
