"""Sparse files: holes, SEEK_HOLE/SEEK_DATA, fallocate, copy_file_range."""

import errno
import os
import random

import pytest

from harness.files import (FALLOC_COLLAPSE, FALLOC_INSERT, FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO, assert_same,
                           content, fallocate, pread_all, pwrite_all, read_file, seed_of_run, write_file)

MIB = 1 << 20


def data_map(fd):
    """[(start, end)] of data, as SEEK_DATA and SEEK_HOLE tell."""
    out, at, size = [], 0, os.fstat(fd).st_size
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as e:
            assert e.errno == errno.ENXIO
            break
        at = os.lseek(fd, start, os.SEEK_HOLE)
        assert at > start
        out.append((start, at))
    return out


@pytest.mark.short
def test_hole_reads_as_zeros_and_takes_nothing(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    pwrite_all(fd, b"end", 100 * MIB)
    os.fsync(fd)
    assert pread_all(fd, 2 * MIB, 50 * MIB) == bytes(2 * MIB)
    assert os.fstat(fd).st_blocks * 512 < MIB
    os.close(fd)


@pytest.mark.short
@pytest.mark.parametrize("synced", [False, True])
def test_seek_hole_and_data(d, synced):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    for off in (0, 3 * MIB, 10 * MIB):
        pwrite_all(fd, content(1, off, 65536), off)
    os.ftruncate(fd, 20 * MIB)
    if synced:
        os.fsync(fd)
    assert data_map(fd) == [(0, 65536), (3 * MIB, 3 * MIB + 65536), (10 * MIB, 10 * MIB + 65536)]
    assert os.lseek(fd, 3 * MIB + 5, os.SEEK_DATA) == 3 * MIB + 5
    assert os.lseek(fd, 70000, os.SEEK_HOLE) == 70000
    assert os.lseek(fd, 19 * MIB, os.SEEK_HOLE) == 19 * MIB
    for whence in (os.SEEK_DATA, os.SEEK_HOLE):
        with pytest.raises(OSError) as e:
            os.lseek(fd, 20 * MIB, whence)
        assert e.value.errno == errno.ENXIO
    os.close(fd)


def test_data_never_hides_in_a_hole(d):
    """Whatever is written, every byte outside of the data map reads as zero."""
    rnd = random.Random(seed_of_run())
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    size = 4 * MIB
    os.ftruncate(fd, size)
    for i in range(60):
        off, n = rnd.randrange(size - 70000), rnd.randrange(1, 70000)
        if rnd.random() < 0.3:
            fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, off, n)
        else:
            pwrite_all(fd, content(i, off, n), off)
        if rnd.random() < 0.2:
            os.fsync(fd)
    everything, at = pread_all(fd, size, 0), 0
    for start, end in data_map(fd) + [(size, size)]:
        assert not any(everything[at:start]), f"data in a hole at {at}..{start}"
        at = end
    os.close(fd)


@pytest.mark.short
def test_punch_frees_and_zeros(shared, d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    data = bytearray(content(2, 0, 8 * MIB))
    pwrite_all(fd, data, 0)
    os.fsync(fd)
    blocks = os.fstat(fd).st_blocks
    for off, n in ((2 * MIB, 3 * MIB), (100, 1000), (7 * MIB - 1, 2), (8 * MIB - 5, 100)):
        fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, off, n)
        end = min(off + n, len(data))
        data[off:end] = bytes(end - off)
        assert_same(pread_all(fd, 9 * MIB, 0), bytes(data), f"punch {off},{n}")
    assert os.fstat(fd).st_size == 8 * MIB
    os.fsync(fd)
    assert os.fstat(fd).st_blocks <= blocks - 3 * MIB // 512
    os.close(fd)


def test_zero_range(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    pwrite_all(fd, content(3, 0, 100000), 0)
    fallocate(fd, FALLOC_ZERO, 50000, 200000)
    assert os.fstat(fd).st_size == 250000
    assert_same(pread_all(fd, 300000, 0), content(3, 0, 50000) + bytes(200000))
    fallocate(fd, FALLOC_ZERO | FALLOC_KEEP_SIZE, 0, 500000)
    assert os.fstat(fd).st_size == 250000
    assert not any(pread_all(fd, 300000, 0))
    os.close(fd)


def test_fallocate_that_we_do_not_have_is_refused_cleanly(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    pwrite_all(fd, content(4, 0, 2 * MIB), 0)
    for mode in (FALLOC_COLLAPSE, FALLOC_INSERT):
        with pytest.raises(OSError) as e:
            fallocate(fd, mode, 0, MIB)
        assert e.value.errno == errno.EOPNOTSUPP
    for off, n in ((-1, 10), (0, 0), (0, -1)):
        with pytest.raises(OSError) as e:
            fallocate(fd, 0, off, n)
        assert e.value.errno == errno.EINVAL
    os.close(fd)


def copy_all(src, dst, n, src_off, dst_off):
    done = 0
    while done < n:
        got = os.copy_file_range(src, dst, n - done, src_off + done, dst_off + done)
        assert got > 0
        done += got


@pytest.mark.short
def test_copy_file_range_shares_chunks(store):
    m = store.mounts[0]
    data = content(5, 0, 16 * MIB)
    write_file(m.at("a"), data, sync=True)
    before = store.status()
    a, b = os.open(m.at("a"), os.O_RDONLY), os.open(m.at("b"), os.O_RDWR | os.O_CREAT, 0o644)
    copy_all(a, b, 16 * MIB, 0, 0)
    os.fsync(b)
    after = store.status()
    assert after["chunks"] == before["chunks"]
    assert after["space"]["used_bytes"] - before["space"]["used_bytes"] < MIB
    assert_same(read_file(m.at("b")), data)
    os.pwrite(b, b"mine alone", 5 * MIB)
    os.fsync(b)
    assert_same(read_file(m.at("a")), data, "the source of the copy")
    os.close(a)
    os.close(b)
    os.unlink(m.at("a"))
    got = read_file(m.at("b"))
    assert_same(got, data[:5 * MIB] + b"mine alone" + data[5 * MIB + 10:], "after the source is gone")


def test_copy_file_range_of_what_is_not_yet_stored(d):
    a = os.open(f"{d}/a", os.O_RDWR | os.O_CREAT, 0o644)
    b = os.open(f"{d}/b", os.O_RDWR | os.O_CREAT, 0o644)
    pwrite_all(a, content(6, 0, 3 * MIB + 11), 0)
    pwrite_all(b, content(7, 0, MIB), 0)
    copy_all(a, b, 2 * MIB + 5, 1000, 77)
    want = content(7, 0, 77) + content(6, 1000, 2 * MIB + 5)
    assert_same(pread_all(b, 4 * MIB, 0), want)
    os.close(a)
    os.close(b)
    assert_same(read_file(f"{d}/b"), want)


def test_copy_file_range_odd_places(d):
    rnd = random.Random(seed_of_run())
    model = {"a": bytearray(content(8, 0, 4 * MIB)), "b": bytearray(content(9, 0, 4 * MIB))}
    fds = {}
    for name, data in model.items():
        fds[name] = os.open(f"{d}/{name}", os.O_RDWR | os.O_CREAT, 0o644)
        pwrite_all(fds[name], data, 0)
    for _ in range(25):
        n = rnd.choice([1, 4096, 65536, MIB, rnd.randrange(1, MIB)])
        so, do = (rnd.choice([rnd.randrange(4 * MIB - n), rnd.randrange(3) * MIB]) for _ in "ab")
        copy_all(fds["a"], fds["b"], n, so, do)
        model["b"][do:do + n] = model["a"][so:so + n]
        assert_same(pread_all(fds["b"], 5 * MIB, 0), bytes(model["b"]), f"copy {n} bytes {so} -> {do}")
    for name, fd in fds.items():
        os.close(fd)
        assert_same(read_file(f"{d}/{name}"), bytes(model[name]), name)


def test_copy_file_range_at_the_end_of_the_source(d):
    write_file(f"{d}/a", b"0123456789")
    a, b = os.open(f"{d}/a", os.O_RDONLY), os.open(f"{d}/b", os.O_RDWR | os.O_CREAT, 0o644)
    assert os.copy_file_range(a, b, 100, 5, 0) == 5
    assert os.copy_file_range(a, b, 100, 10, 5) == 0
    assert os.pread(b, 100, 0) == b"56789"
    os.close(a)
    os.close(b)
