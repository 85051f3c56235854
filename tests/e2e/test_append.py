"""O_APPEND of several mounts to one file: whole writes one after the other, none lost."""

import os

import pytest

from harness.append import appender, check, parse
from harness.files import read_file, write_file

MIB = 1 << 20


@pytest.fixture
def two(new_store):
    return new_store().up(mounts=2)


@pytest.mark.limit(120)
def test_small_records_of_two_mounts(two):
    """2 mounts, 2 processes on each, 2,000 records of odd sizes."""
    write_file(two.mounts[0].at("f"), b"")
    pids = [appender(two.mounts[i % 2].at("f"), i, 2000, lambda w, n: 1 + (w * 977 + n * 131) % 600) for i in range(4)]
    assert [os.waitpid(p, 0)[1] for p in pids] == [0] * 4
    for m in two.mounts:
        seen = check(m.at("f"), 4, 2000)
    turns = sum(1 for a, b in zip(seen, seen[1:]) if a[0] % 2 != b[0] % 2)
    assert turns > 10, "they did append at the same time"


@pytest.mark.limit(120)
def test_large_records_of_two_mounts(two):
    """Writes that the kernel splits stay whole."""
    write_file(two.mounts[0].at("f"), b"")
    pids = [appender(two.mounts[i].at("f"), i, 12, lambda w, n: 5 * MIB + 7 + n) for i in range(2)]
    assert [os.waitpid(p, 0)[1] for p in pids] == [0] * 2
    check(two.mounts[0].at("f"), 2, 12)


@pytest.mark.short
def test_one_after_the_other(two):
    """What another mount has appended, and not closed, is not written over."""
    a, b = [os.open(m.at("f"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644) for m in two.mounts]
    want = b""
    for i in range(40):
        data = b"%d," % i * (i % 5 + 1)
        assert os.write(a if i % 3 else b, data) == len(data)
        want += data
    os.close(a)
    os.close(b)
    assert read_file(two.mounts[0].at("f")) == want
    assert read_file(two.mounts[1].at("f")) == want


@pytest.mark.short
def test_truncate_and_a_new_descriptor(two):
    path = [m.at("f") for m in two.mounts]
    write_file(path[0], b"first")
    fd = os.open(path[1], os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"second")
    os.ftruncate(fd, 3)
    os.write(fd, b"third")
    os.close(fd)
    assert read_file(path[0]) == b"firthird"
    fd = os.open(path[0], os.O_WRONLY | os.O_APPEND)
    os.pwrite(fd, b"!", 0)  # Linux appends, whatever the offset
    os.close(fd)
    assert read_file(path[1]) == b"firthird!"


@pytest.mark.short
@pytest.mark.parametrize("how", ["truncate", "open"])
def test_file_is_cut_by_another_mount(two, how):
    """As logs are rotated: what comes next goes to the new end, though the mount that appends had the right to, and knew another end."""
    path = [m.at("log") for m in two.mounts]
    fd = os.open(path[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for i in range(5):
        os.write(fd, b"before")
        if how == "truncate":
            os.truncate(path[1], 2)
        else:
            os.close(os.open(path[1], os.O_WRONLY | os.O_TRUNC))
        os.write(fd, b"after%d" % i)
        os.fsync(fd)
        assert read_file(path[1]) == (b"be" if how == "truncate" else b"") + b"after%d" % i
    os.close(fd)


@pytest.mark.limit(120)
def test_file_is_cut_while_others_append_without_a_pause(two):
    """A truncate comes to its turn, and every record after it is whole."""
    path = [m.at("log") for m in two.mounts]
    write_file(path[0], b"")
    pid = appender(path[0], 0, 4000, lambda w, n: 64)
    for _ in range(20):
        os.truncate(path[1], 0)
    assert os.waitpid(pid, 0)[1] == 0
    data = read_file(path[1])
    records = [n for _, n in parse(data)]
    assert records == list(range(4000 - len(records), 4000)), "what was cut off is what came first"
