"""What a program that keeps a file open sees of what other nodes have published since."""

import os

import pytest

from harness.files import assert_same, content, pread_all, pwrite_all

LEN = 2_500_001


@pytest.fixture
def pair(store):
    """Descriptors of one file on two mounts; both have read the first version."""
    store.add_mount()
    a = os.open(store.mounts[0].at("f"), os.O_RDWR | os.O_CREAT, 0o644)
    pwrite_all(a, content(1, 0, LEN), 0)
    os.fsync(a)
    b = os.open(store.mounts[1].at("f"), os.O_RDWR)
    assert_same(pread_all(b, LEN, 0), content(1, 0, LEN))
    yield a, b
    os.close(a)
    os.close(b)


@pytest.mark.parametrize("longer", [0, 300_007])
def test_fsync_of_a_reader_shows_what_others_have_synced(pair, longer):
    """MPI_File_sync of the writer, barrier, MPI_File_sync of the reader, who has written nothing."""
    a, b = pair
    for version in range(2, 6):
        length = LEN + (version - 1) * longer
        pwrite_all(a, content(version, 0, length), 0)
        os.fsync(a)
        os.fsync(b)
        assert_same(pread_all(b, length + 1, 0), content(version, 0, length), f"version {version}")


def test_a_size_that_is_seen_has_its_data(pair):
    """Not zeros where the file has grown."""
    a, b = pair
    for version in range(2, 6):
        length = LEN + version * 300_007
        pwrite_all(a, content(version, 0, length), 0)
        os.fsync(a)
        assert os.fstat(b).st_size == length
        assert_same(pread_all(b, length + 1, 0), content(version, 0, length), f"version {version}")


def test_what_a_reader_has_written_itself_stays(pair):
    """News of another node's writes do not take what this one has not published yet."""
    a, b = pair
    want = bytearray(content(1, 0, LEN))
    for i in range(5):
        for fd, at in ((a, i * 94_002), (b, i * 94_002 + 47_001)):
            data = content(10 + i, at, 47_001)
            pwrite_all(fd, data, at)
            want[at:at + len(data)] = data
        os.fsync(a)
        os.fstat(b)
        assert_same(pread_all(b, LEN, 0), bytes(want), f"round {i}, before b publishes")
        os.fsync(b)
        os.fsync(a)
        assert_same(pread_all(a, LEN, 0), bytes(want), f"round {i}")
