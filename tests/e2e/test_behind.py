"""--close behind: close returns before what was closed is published, and an open on another mount has it published first."""

import errno
import json
import mmap
import os
import random
import threading
import time

import pytest

from harness.daemons import SLOW, wait_until
from harness.files import assert_same, content, pwrite_all, read_file, seed_of_run, write_file
from harness.fixtures import store_for_a_module

MIB = 1 << 20
BEHIND = ["--close=behind"]


@pytest.fixture(scope="module")
def store2():
    with store_for_a_module(mounts=2, mount_args=BEHIND) as s:
        yield s


@pytest.fixture
def ab(store2, request):
    """A new directory, on either mount."""
    name = request.node.name.replace("[", "-").replace("]", "")
    os.mkdir(store2.mounts[0].at(name))
    return store2.mounts[0].at(name), store2.mounts[1].at(name)


@pytest.fixture
def two(new_store):
    """Two mounts of a store of this test's own."""
    return new_store().up(mounts=2, mount_args=[*BEHIND, "--io-timeout=20s"])


def leases(store):
    return [(k["path"], k["state"], k["behind"]) for k in json.loads(store.fpctl("locks", "--json").stdout)["locks"] if k["kind"] == "lease"]


def at_risk(path):
    return sum(int(n) for n in os.getxattr(path, "user.fp.at_risk").split())


@pytest.mark.short
@pytest.mark.limit(120)
def test_open_elsewhere_sees_what_was_closed(ab):
    """Of all sizes, 200 times, at once."""
    rnd = random.Random(seed_of_run())
    for i in range(200):
        data = content(i, 0, rnd.choice([0, 1, 100, 5000, 65536, 65537, MIB - 1, MIB, MIB + 1, 3 * MIB + 7]))
        a, b = ab if rnd.random() < 0.5 else reversed(ab)
        name = f"f{rnd.randrange(20)}"
        write_file(f"{a}/{name}", data)
        with open(f"{b}/{name}", "rb") as f:
            assert os.fstat(f.fileno()).st_size == len(data), f"round {i}"
            assert_same(f.read(), data, f"round {i}")


def test_close_waits_for_nothing(two):
    """The benefactors stand still: what was closed is in the pool, is read on its own mount, and is told to be at risk."""
    a = two.mounts[0].at("f")
    data = content(1, 0, 3 * MIB)
    write_file(a, b"first")  # space is leased, the benefactors known
    wait_until("it is published", 10, lambda: at_risk(a) == 0)
    for b in two.benefactors:
        b.freeze()
    try:
        begun = time.monotonic()
        fd = os.open(a, os.O_WRONLY)
        pwrite_all(fd, data[:500000], 0)
        os.close(fd)
        assert time.monotonic() - begun < 5 * SLOW  # publishing would take until --io-timeout, 20 s
        assert at_risk(a) == 500000
        assert_same(read_file(a), data[:500000])
        wait_until("the manager to know", 10, lambda: leases(two) == [("/f", "held", True)])
        assert " held, closed " in two.fpctl("locks").stdout
    finally:
        for b in two.benefactors:
            b.send(18)
    wait_until("it is published", 20, lambda: at_risk(a) == 0)
    wait_until("the lease to go", 10, lambda: leases(two) == [])
    assert_same(read_file(two.mounts[1].at("f")), data[:500000])


def test_rename_after_close(ab):
    a, b = ab
    for i in range(30):
        write_file(f"{a}/new", content(i, 0, 700_001))
        os.rename(f"{a}/new", f"{a}/f{i % 3}")
        assert_same(read_file(f"{b}/f{i % 3}"), content(i, 0, 700_001), f"round {i}")


def test_size_at_open(ab):
    a, b = ab
    for i in range(1, 60):
        write_file(f"{a}/f", content(i, 0, i * 10_007))
        os.path.exists(f"{b}/f")  # its kernel looks before the open has had it published
        with open(f"{b}/f", "rb") as f:
            assert os.fstat(f.fileno()).st_size == os.lseek(f.fileno(), 0, os.SEEK_END) == i * 10_007


@pytest.mark.limit(120)
def test_stat_elsewhere_sees_what_was_closed(two):
    """Size and time, while nothing can be published; also in a listing, and when the manager was started again."""
    a, b = two.mounts
    os.mkdir(a.at("d"))
    write_file(a.at("d/f"), b"first")
    wait_until("it is published", 10, lambda: at_risk(a.at("d/f")) == 0)
    for x in two.benefactors:
        x.freeze()
    try:
        write_file(a.at("d/f"), content(1, 0, 300_001))
        was = os.stat(a.at("d/f"))
        assert was.st_size == 300_001

        def is_seen():
            seen = [os.stat(b.at("d/f")), *(e.stat() for e in os.scandir(b.at("d")))]
            return [(x.st_size, x.st_mtime_ns) for x in seen] == 2 * [(was.st_size, was.st_mtime_ns)]
        wait_until("it is seen", 10, is_seen)
        two.manager.term()
        two.restart_manager()
        wait_until("it is seen again", 30, is_seen)
        os.utime(a.at("d/f"), ns=(10**18, 10**18))
        wait_until("the time is that which was set", 10, lambda: os.stat(b.at("d/f")).st_mtime_ns == 10**18)
        assert os.stat(b.at("d/f")).st_size == 300_001
    finally:
        for x in two.benefactors:
            x.send(18)
    assert_same(read_file(b.at("d/f")), content(1, 0, 300_001))


def test_copies_elsewhere_are_whole(ab):
    """By calls that go no further than the size that their own kernel knows, and without asking for it."""
    a, b = ab
    for i in range(1, 60):
        n = i * 10_007 % 65_537 + 4096 * (i % 3) + i % 2
        write_file(f"{a}/f", content(i, 0, n))
        src, dst = os.open(f"{b}/f", os.O_RDONLY), os.open(f"{b}/copy", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        got = (os.copy_file_range(src, dst, 10 * MIB) if i % 2 else os.sendfile(dst, src, 0, 10 * MIB))
        assert got == n, f"round {i}: of {n} bytes"
        assert_same(os.pread(dst, 10 * MIB, 0), content(i, 0, n), f"round {i}")
        os.close(src)
        os.close(dst)


def test_many_files(ab):
    a, b = ab
    for i in range(300):
        write_file(f"{a}/f{i}", content(i, 0, 20_001))
    for i in range(300):
        assert_same(read_file(f"{b}/f{i}"), content(i, 0, 20_001), f"file {i}")


def test_truncate_elsewhere_comes_after_what_was_closed(ab):
    a, b = ab
    for i in range(20):
        write_file(f"{a}/f", content(i, 0, 2 * MIB))
        os.truncate(f"{b}/f", 1_000_003)
        assert_same(read_file(f"{a}/f"), content(i, 0, 1_000_003), f"round {i}")
        assert_same(read_file(f"{b}/f"), content(i, 0, 1_000_003), f"round {i}")


def test_times_set_elsewhere_come_after_what_was_closed(ab):
    a, b = ab
    for i in range(20):
        write_file(f"{a}/f{i}", content(i, 0, 50_000))
        os.utime(f"{b}/f{i}", ns=(10**18, 10**18 + i))
    for i in range(20):
        for d in a, b:
            with open(f"{d}/f{i}", "rb") as f:  # all is published then
                assert os.fstat(f.fileno()).st_mtime_ns == 10**18 + i, f"round {i}"
                assert_same(f.read(), content(i, 0, 50_000), f"round {i}")


def test_writers_in_turns(ab):
    """Each opens, changes its part and closes; whoever comes next sees it."""
    rnd = random.Random(seed_of_run())
    want = bytearray(2_000_000)
    write_file(f"{ab[0]}/f", bytes(want))
    for i in range(100):
        fd = os.open(f"{ab[i % 2]}/f", os.O_RDWR)
        off, n = rnd.randrange(1_900_000), rnd.randrange(1, 100_000)
        got = os.pread(fd, len(want), 0)
        assert_same(got, bytes(want), f"turn {i}")
        pwrite_all(fd, content(i, 0, n), off)
        want[off:off + n] = content(i, 0, n)
        os.close(fd)


def test_mapping_elsewhere_sees_what_was_closed(ab):
    a, b = ab
    for i in range(20):
        write_file(f"{a}/f", content(i, 0, 300_000 + i))
        with open(f"{b}/f", "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as m:
            assert_same(m[:], content(i, 0, 300_000 + i), f"round {i}")


def test_dup_that_stays_open(ab):
    """Each close of a descriptor counts, though the file stays open."""
    a, b = ab
    fd = os.open(f"{a}/f", os.O_RDWR | os.O_CREAT, 0o644)
    for i in range(20):
        pwrite_all(fd, content(i, 0, 100_000), 0)
        os.close(os.dup(fd))
        assert_same(read_file(f"{b}/f"), content(i, 0, 100_000), f"round {i}")
    os.close(fd)


def test_one_who_opens_over_and_over_again_keeps_nobody_out(ab):
    a, b = ab
    write_file(f"{a}/f", b"0" * 1000)
    stop = threading.Event()

    def rewrite():
        while not stop.is_set():
            fd = os.open(f"{a}/f", os.O_WRONLY)
            os.pwrite(fd, b"1" * 1000, 0)
            os.close(fd)

    t = threading.Thread(target=rewrite)
    t.start()
    try:
        for _ in range(10):
            begun = time.monotonic()
            read_file(f"{b}/f")
            assert time.monotonic() - begun < 10 * SLOW
    finally:
        stop.set()
        t.join()


def stored(store):
    return sum(b["used_bytes"] for b in store.status()["benefactors"])


@pytest.mark.limit(120)
def test_recall_of_256_mib(new_store):
    s = new_store().up(mounts=2, size="2GiB", pool="384MiB", mount_args=BEHIND)
    a, b = (m.at("f") for m in s.mounts)
    data = content(5, 0, 256 * MIB)
    begun = time.monotonic()
    write_file(a, data)
    closed = time.monotonic() - begun
    got = read_file(b)
    total = time.monotonic() - begun
    assert_same(got, data)
    assert stored(s) <= 256 * (MIB + 8192)  # each byte once, and the heads of its chunks
    print(f"closed after {closed:.2f} s, read elsewhere after {total:.2f} s")


def test_o_sync_and_fsync_wait(ab):
    a, _ = ab
    fd = os.open(f"{a}/f", os.O_WRONLY | os.O_CREAT | os.O_SYNC, 0o644)
    pwrite_all(fd, content(1, 0, MIB), 0)
    assert at_risk(f"{a}/f") == 0
    os.close(fd)
    fd = os.open(f"{a}/g", os.O_WRONLY | os.O_CREAT, 0o644)
    pwrite_all(fd, content(2, 0, MIB), 0)
    os.fsync(fd)
    assert at_risk(f"{a}/g") == 0
    os.close(fd)


def test_unlinked_before_it_was_published(two):
    """It goes, and nothing of it is lost that anybody could have wanted."""
    m = two.mounts[0]
    used = stored(two)
    for i in range(30):
        write_file(m.at(f"f{i}"), content(i, 0, MIB + 17))
        os.unlink(m.at(f"f{i}"))
    wait_until("all space is free again", 30, lambda: stored(two) <= used)


def test_unmount_publishes_what_was_closed(two):
    a, b = two.mounts
    for i in range(20):
        write_file(a.at(f"f{i}"), content(i, 0, MIB + i))
    a.unmount()
    for i in range(20):
        assert_same(read_file(b.at(f"f{i}")), content(i, 0, MIB + i), f"file {i}")


def test_sigterm_publishes_what_was_closed(two):
    a, b = two.mounts
    for i in range(20):
        write_file(a.at(f"f{i}"), content(i, 0, MIB + i))
    a.term()
    for i in range(20):
        assert_same(read_file(b.at(f"f{i}")), content(i, 0, MIB + i), f"file {i}")


def test_full_store_is_told_to_write(new_store):
    """Not after close: the space was taken before."""
    s = new_store().up(benefactors=1, size="64MiB", mount_args=BEHIND)
    fd = os.open(s.mounts[0].at("f"), os.O_WRONLY | os.O_CREAT, 0o644)
    n = 0
    with pytest.raises(OSError) as e:
        while n < 128 * MIB:
            n += os.pwrite(fd, content(3, n, MIB), n)
    assert e.value.errno == errno.ENOSPC
    try:
        os.close(fd)
    except OSError as e2:
        assert e2.errno == errno.ENOSPC
    wait_until("it is published", 20, lambda: at_risk(s.mounts[0].at("f")) == 0)
    assert_same(read_file(s.mounts[0].at("f")), content(3, 0, n))
