"""Several mounts of one store: close-to-open, names at once, shared files with disjoint ranges (N-1)."""

import os
import random
import threading
import time

import pytest

from harness.daemons import SLOW
from harness.files import assert_same, content, pread_all, pwrite_all, read_file, seed_of_run, write_file

MIB = 1 << 20
MOUNTS = 4


@pytest.mark.short
def test_open_after_close_sees_everything(dirs):
    rnd = random.Random(seed_of_run())
    for i in range(20):
        data = content(i, 0, rnd.choice([0, 1, 5000, MIB, 3 * MIB + 7]))
        writer, reader = rnd.sample(dirs, 2)
        write_file(f"{writer}/f", data)
        with open(f"{reader}/f", "rb") as f:
            assert os.fstat(f.fileno()).st_size == os.stat(f"{reader}/f").st_size == len(data)
            assert_same(f.read(), data, f"round {i}")


def test_stat_after_close_sees_the_size(new_store):
    """Without an open: what --close behind does not promise."""
    s = new_store().up(mounts=2, mount_args=["--close=publish"])
    a, b = (m.at("f") for m in s.mounts)
    for i in range(20):
        write_file(a, bytes(1000 * i))
        assert os.stat(b).st_size == 1000 * i, f"round {i}"


@pytest.mark.short
def test_open_after_fsync_sees_everything(dirs):
    fd = os.open(f"{dirs[0]}/f", os.O_RDWR | os.O_CREAT, 0o644)
    for i in range(1, 10):
        pwrite_all(fd, content(1, (i - 1) * 300001, 300001), (i - 1) * 300001)
        os.fsync(fd)
        assert_same(read_file(f"{dirs[i % 3 + 1]}/f"), content(1, 0, i * 300001), f"fsync {i}")
    os.close(fd)


def test_size_and_mtime_are_those_published(dirs):
    for i in range(20):
        a, b = dirs[i % 4], dirs[(i + 1) % 4]
        write_file(f"{a}/f", content(i, 0, 1000 + i))
        fd = os.open(f"{b}/f", os.O_RDONLY)
        here, there = os.stat(f"{a}/f"), os.fstat(fd)
        os.close(fd)
        assert there.st_size == 1000 + i and there.st_mtime_ns == here.st_mtime_ns
        assert abs(time.time() - there.st_mtime) < 10 * SLOW


def test_a_reader_that_looks_again_sees_the_new_version(dirs):
    write_file(f"{dirs[0]}/f", content(2, 0, 2 * MIB))
    assert_same(read_file(f"{dirs[1]}/f"), content(2, 0, 2 * MIB))
    write_file(f"{dirs[0]}/f", content(3, 0, MIB + 1))
    assert_same(read_file(f"{dirs[1]}/f"), content(3, 0, MIB + 1))
    fd = os.open(f"{dirs[2]}/f", os.O_RDWR)
    os.pwrite(fd, b"in the middle", 500000)
    os.close(fd)
    got = read_file(f"{dirs[1]}/f")
    assert got[500000:500013] == b"in the middle" and len(got) == MIB + 1


@pytest.mark.short
def test_names_are_seen_at_once(dirs):
    for i in range(30):
        a, b = dirs[i % 4], dirs[(i + 1) % 4]
        os.mkdir(f"{a}/x")
        assert os.path.isdir(f"{b}/x")
        os.rename(f"{b}/x", f"{b}/y")
        assert not os.path.exists(f"{a}/x") and os.path.isdir(f"{a}/y")
        os.chmod(f"{a}/y", 0o700)
        os.rmdir(f"{b}/y")
        assert os.listdir(a) == [] and not os.path.exists(f"{a}/y")


def test_attributes_are_seen(dirs):
    """By calls that begin after the change returned: nothing is waited for."""
    write_file(f"{dirs[0]}/f", b"x")
    for i in range(40):
        a, b = dirs[i % 4], dirs[(i + 1) % 4]
        os.stat(f"{b}/f")
        os.chmod(f"{a}/f", 0o600 + i % 8)
        assert os.stat(f"{b}/f").st_mode & 0o777 == 0o600 + i % 8
        os.utime(f"{a}/f", ns=(10**18 + i, 10**18 + 2 * i))
        seen = os.stat(f"{b}/f")
        assert (seen.st_atime_ns, seen.st_mtime_ns) == (10**18 + i, 10**18 + 2 * i)
        if os.geteuid() == 0:
            os.chown(f"{a}/f", 1000 + i, 2000 + i)
            seen = os.stat(f"{b}/f")
            assert (seen.st_uid, seen.st_gid) == (1000 + i, 2000 + i)
        os.setxattr(f"{a}/f", "user.a", b"%d" % i)
        assert os.getxattr(f"{b}/f", "user.a") == b"%d" % i


def test_unlinked_elsewhere_while_open(dirs):
    write_file(f"{dirs[0]}/f", content(4, 0, 2 * MIB))
    fd = os.open(f"{dirs[0]}/f", os.O_RDONLY)
    os.unlink(f"{dirs[1]}/f")
    assert_same(pread_all(fd, 2 * MIB, 0), content(4, 0, 2 * MIB))
    os.close(fd)
    assert not os.path.exists(f"{dirs[0]}/f")


def test_exclusive_create_has_one_winner(dirs):
    r, w = os.pipe()
    pids = []
    for path in dirs:
        pid = os.fork()
        if pid == 0:
            for i in range(30):
                try:
                    os.close(os.open(f"{path}/{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                    os.write(w, b"%3d" % i)
                except FileExistsError:
                    pass
            os._exit(0)
        pids.append(pid)
    os.close(w)
    won = b""
    while got := os.read(r, 1000):
        won += got
    os.close(r)
    for pid in pids:
        os.waitpid(pid, 0)
    assert sorted(int(won[i:i + 3]) for i in range(0, len(won), 3)) == list(range(30))


# --- N-1: one file, several writers -----------------------------------------


def n1(dirs, record, records, shuffle=False, sync=False, chunk_size=None):
    """Each mount writes every 4th record; afterwards each sees all of them."""
    path = "n1"
    if chunk_size:
        os.setxattr(dirs[0], "user.fp.chunk_size", b"%d" % chunk_size)
    write_file(f"{dirs[0]}/{path}", b"")
    pids = []
    for rank, base in enumerate(dirs):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                fd = os.open(f"{base}/{path}", os.O_RDWR)
                mine = list(range(rank, records, len(dirs)))
                if shuffle:
                    random.Random(rank).shuffle(mine)
                for k, i in enumerate(mine):
                    pwrite_all(fd, content(9, i * record, record), i * record)
                    if sync and k % 7 == 0:
                        os.fsync(fd)
                os.close(fd)
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(dirs)
    want = content(9, 0, record * records)
    for i, base in enumerate(dirs):
        assert os.stat(f"{base}/{path}").st_size == record * records
        assert_same(read_file(f"{base}/{path}"), want, f"mount {i}")


@pytest.mark.short
@pytest.mark.limit(120)
def test_n1_strided_records_of_47001_bytes(dirs):
    n1(dirs, 47001, 400)


@pytest.mark.limit(120)
@pytest.mark.parametrize("record,records", [(MIB, 48), (4096, 1000), (1000003, 24), (511, 2000), (65536, 300)])
def test_n1_strided(dirs, record, records):
    n1(dirs, record, records)


@pytest.mark.limit(120)
def test_n1_in_any_order_with_syncs(dirs):
    n1(dirs, 47001, 300, shuffle=True, sync=True)


@pytest.mark.limit(120)
def test_n1_small_chunks(dirs):
    n1(dirs, 30011, 300, shuffle=True, chunk_size=65536)


@pytest.mark.limit(120)
def test_n1_segments(dirs):
    """Each rank its own contiguous part, borders inside of a chunk; each reads its neighbour's part after all closed."""
    part = 2 * MIB + 12345
    write_file(f"{dirs[0]}/f", b"")
    for rank in (3, 1, 0, 2):
        fd = os.open(f"{dirs[rank]}/f", os.O_WRONLY)
        pwrite_all(fd, content(5, rank * part, part), rank * part)
        os.close(fd)
    for base in dirs:
        assert_same(read_file(f"{base}/f"), content(5, 0, 4 * part))


def test_n1_interleaved_bytes_within_one_page(dirs):
    fds = [os.open(f"{base}/f", os.O_RDWR | os.O_CREAT, 0o644) for base in dirs]
    for i in range(400):
        os.pwrite(fds[i % 4], bytes([i % 251]), i)
    for fd in fds:
        os.close(fd)
    want = bytes(i % 251 for i in range(400))
    for base in dirs:
        assert_same(read_file(f"{base}/f"), want)


def test_append_of_several_mounts_one_after_the_other(dirs):
    want = b""
    for i in range(40):
        record = b"%03d" % i * (i * 10 + 1)
        fd = os.open(f"{dirs[i % 4]}/f", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(fd, record)
        os.close(fd)
        want += record
    assert_same(read_file(f"{dirs[0]}/f"), want)


@pytest.mark.limit(120)
def test_random_turns_of_four_mounts_match_a_model(dirs):
    """Open, some writes and truncates, close: each turn by another mount, after the one before has closed."""
    rnd = random.Random(seed_of_run())
    model = bytearray()
    for turn in range(80):
        base = rnd.choice(dirs)
        fd = os.open(f"{base}/f", os.O_RDWR | os.O_CREAT, 0o644)
        assert_same(pread_all(fd, len(model) + 1, 0), bytes(model), f"turn {turn}")
        for _ in range(rnd.randrange(1, 5)):
            if rnd.random() < 0.15:
                n = rnd.randrange(3 * MIB)
                os.ftruncate(fd, n)
                model = model[:n] + bytes(max(0, n - len(model)))
                continue
            n, off = rnd.choice([1, 4096, rnd.randrange(1, 200000), MIB]), rnd.randrange(3 * MIB)
            data = rnd.randbytes(n)
            os.pwrite(fd, data, off)
            model += bytes(max(0, off + n - len(model)))
            model[off:off + n] = data
        os.close(fd)


@pytest.mark.short
def test_all_is_there_after_every_mount_was_unmounted(new_store):
    s = new_store().up(mounts=2)
    for i, m in enumerate(s.mounts):
        write_file(m.at(f"f{i}"), content(i, 0, 5 * MIB + i))
    for m in s.mounts:
        m.unmount()
        m.start()
    for m in s.mounts:
        for i in range(2):
            assert_same(read_file(m.at(f"f{i}")), content(i, 0, 5 * MIB + i))


def rewrite_until(path, data, end):
    while time.monotonic() < end:
        write_file(path, data)


@pytest.mark.parametrize("size", [5, 300000])
@pytest.mark.parametrize("reader", [0, 1], ids=["same-mount", "other-mount"])
def test_read_of_a_file_that_is_rewritten_has_no_zeros(dirs, reader, size):
    """It is empty between open and write, and then read as empty or in part, never as zeros up to the size of before."""
    data = b"h" * size
    write_file(f"{dirs[0]}/latest", data)
    end = time.monotonic() + 3
    writer = threading.Thread(target=rewrite_until, args=(f"{dirs[0]}/latest", data, end))
    writer.start()
    reads = 0
    while time.monotonic() < end:
        got = read_file(f"{dirs[reader]}/latest")
        assert not got.strip(b"h"), f"read {reads}: {len(got)} bytes, {got.count(0)} of them zeros"
        reads += 1
    writer.join()
    assert reads > 50
