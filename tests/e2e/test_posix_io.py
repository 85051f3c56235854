"""Reading and writing as on a native file system: offsets, flags, open files without a name."""

import errno
import mmap
import os
import random
import threading

import pytest

from harness.files import (Twin, assert_same, content, fallocate, linkat_fd, pread_all, pwrite_all, read_file, seed_of_run,
                           syncfs, write_file, FALLOC_KEEP_SIZE)

MIB = 1 << 20


@pytest.mark.short
def test_what_is_written_is_read(d):
    data = content(1, 0, 3 * MIB + 17)
    write_file(f"{d}/f", data)
    assert os.stat(f"{d}/f").st_size == len(data)
    assert_same(read_file(f"{d}/f"), data)


@pytest.mark.short
@pytest.mark.parametrize("n", range(3))
@pytest.mark.limit(90)
def test_random_operations_match_native(d, native, n):
    twin = Twin(f"{d}/f", f"{native}/f", seed_of_run() + n)
    twin.run(200)
    twin.close()


@pytest.mark.short
def test_large_writes_from_any_place_in_memory(d):
    """The kernel cuts a write at the pages of the program's memory, so that its requests begin anywhere in the file: each byte is where it belongs all the same."""
    rng = random.Random(7)
    memory = mmap.mmap(-1, 5 * MIB)
    memory.write(content(5, 0, 5 * MIB))
    expected = [bytearray(8 * MIB), bytearray(8 * MIB)]
    fds = [os.open(f"{d}/f{i}", os.O_RDWR | os.O_CREAT, 0o600) for i in range(2)]
    for fd in fds:
        os.truncate(fd, 8 * MIB)
    for odd in (0, 16, 1, 4095, 16):
        for k in range(12):  # what is guessed of the next request is what several before it were like
            i, n, off = (k % 2, 4 * MIB, 0) if k < 8 else (rng.randrange(2), rng.randrange(100_000, 4 * MIB), rng.randrange(4 * MIB))
            with memoryview(memory) as m:
                assert os.pwrite(fds[i], m[odd:odd + n], off) == n
            expected[i][off:off + n] = memory[odd:odd + n]
        for fd, right in zip(fds, expected):
            assert_same(pread_all(fd, 8 * MIB, 0), bytes(right))
    for i, fd in enumerate(fds):
        os.close(fd)
        assert_same(read_file(f"{d}/f{i}"), bytes(expected[i]))


@pytest.mark.short
def test_two_descriptors_see_each_other_at_once(d):
    a = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    b = os.open(f"{d}/f", os.O_RDONLY)
    for off in (0, 5, MIB - 3, 4 * MIB + 1):
        os.pwrite(a, b"seen at once", off)
        assert os.pread(b, 12, off) == b"seen at once"
        assert os.fstat(b).st_size == off + 12
    os.close(a)
    os.close(b)


def test_read_past_the_end(d):
    write_file(f"{d}/f", b"abc")
    fd = os.open(f"{d}/f", os.O_RDONLY)
    assert os.pread(fd, 10, 0) == b"abc"
    assert os.pread(fd, 10, 3) == b""
    assert os.pread(fd, 10, 1 << 40) == b""
    os.close(fd)


def test_rewrite_of_a_byte_in_each_place(d):
    data = bytearray(content(2, 0, 200000))
    write_file(f"{d}/f", bytes(data), sync=True)
    fd = os.open(f"{d}/f", os.O_RDWR)
    for off in (0, 1, 4095, 4096, 65535, 65536, 131071, 199999):
        data[off] ^= 0xff
        os.pwrite(fd, bytes([data[off]]), off)
        assert_same(pread_all(fd, len(data), 0), bytes(data), f"byte {off}")
    os.fsync(fd)
    os.close(fd)
    assert_same(read_file(f"{d}/f"), bytes(data))


@pytest.mark.short
def test_append_lands_at_the_end(d):
    fds = [os.open(f"{d}/f", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for _ in range(3)]
    want = b""
    for i in range(60):
        record = bytes([65 + i % 26]) * (100 + i * 37)
        assert os.write(fds[i % 3], record) == len(record)
        want += record
    for fd in fds:
        os.close(fd)
    assert_same(read_file(f"{d}/f"), want)


def test_append_of_two_threads_keeps_records_whole(d):
    def run(letter):
        fd = os.open(f"{d}/f", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for _ in range(200):
            os.write(fd, letter * 999 + b"\n")
        os.close(fd)
    threads = [threading.Thread(target=run, args=(c,)) for c in (b"a", b"b", b"c")]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    lines = read_file(f"{d}/f").splitlines()
    assert len(lines) == 600
    assert {bytes(line) for line in lines} == {b"a" * 999, b"b" * 999, b"c" * 999}


def test_pwrite_on_append_descriptor_appends(d, native):
    got = []
    for path in (f"{d}/f", f"{native}/f"):
        write_file(path, b"0123456789")
        fd = os.open(path, os.O_RDWR | os.O_APPEND)
        os.pwrite(fd, b"X", 2)
        os.close(fd)
        got.append(read_file(path))
    assert got[0] == got[1]


@pytest.mark.short
def test_o_direct_aligned_and_not(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    buf = mmap.mmap(-1, 2 * MIB)
    buf.write(content(3, 0, 2 * MIB))
    assert os.pwritev(fd, [buf], 0) == 2 * MIB
    back = mmap.mmap(-1, 2 * MIB)
    assert os.preadv(fd, [back], 0) == 2 * MIB
    assert_same(bytes(back), bytes(buf))
    os.close(fd)
    fd = os.open(f"{d}/f", os.O_RDWR)
    os.pwrite(fd, b"odd", 4097)
    assert os.pread(fd, 5, 4096) == content(3, 4096, 1) + b"odd" + content(3, 4100, 1)
    os.close(fd)


def test_o_trunc_empties(d):
    write_file(f"{d}/f", content(4, 0, 2 * MIB))
    os.close(os.open(f"{d}/f", os.O_WRONLY | os.O_TRUNC))
    st = os.stat(f"{d}/f")
    assert (st.st_size, st.st_blocks) == (0, 0)
    write_file(f"{d}/f", b"new")
    assert read_file(f"{d}/f") == b"new"


def test_o_excl_on_existing(d):
    write_file(f"{d}/f", b"x")
    with pytest.raises(FileExistsError):
        os.open(f"{d}/f", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.symlink("nowhere", f"{d}/l")
    with pytest.raises(FileExistsError):
        os.open(f"{d}/l", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def test_o_excl_of_many_has_one_winner(d):
    wins = []
    def run():
        for i in range(50):
            try:
                os.close(os.open(f"{d}/{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                wins.append(i)
            except FileExistsError:
                pass
    threads = [threading.Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(wins) == list(range(50))


@pytest.mark.short
def test_o_tmpfile_or_clean_refusal(d):
    try:
        fd = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as e:
        assert e.errno == errno.EOPNOTSUPP
        return
    os.write(fd, b"nameless")
    assert os.fstat(fd).st_nlink == 0
    assert os.listdir(d) == []
    linkat_fd(fd, f"{d}/named")
    os.close(fd)
    assert read_file(f"{d}/named") == b"nameless"
    assert os.stat(f"{d}/named").st_nlink == 1


@pytest.mark.short
def test_unlinked_file_lives_while_open(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    data = content(5, 0, 2 * MIB + 5)
    pwrite_all(fd, data, 0)
    os.unlink(f"{d}/f")
    assert os.listdir(d) == []
    assert os.fstat(fd).st_nlink == 0
    assert_same(pread_all(fd, len(data), 0), data)
    pwrite_all(fd, b"more", len(data))
    os.fsync(fd)
    assert pread_all(fd, 4, len(data)) == b"more"
    os.ftruncate(fd, 3)
    assert pread_all(fd, 10, 0) == data[:3]
    os.close(fd)


def test_file_replaced_by_rename_lives_while_open(d):
    write_file(f"{d}/old", b"old")
    fd = os.open(f"{d}/old", os.O_RDONLY)
    write_file(f"{d}/new", b"new")
    os.rename(f"{d}/new", f"{d}/old")
    assert os.pread(fd, 9, 0) == b"old"
    assert read_file(f"{d}/old") == b"new"
    os.close(fd)


@pytest.mark.short
def test_truncate_up_and_down(d, native):
    rnd = random.Random(seed_of_run())
    twin = Twin(f"{d}/f", f"{native}/f", 1)
    twin.both("w", lambda fd: os.pwrite(fd, content(6, 0, 300000), 0))
    for _ in range(40):
        n = rnd.choice([0, 1, 4096, 65536, MIB, MIB + 1, rnd.randrange(3 * MIB)])
        twin.both(f"truncate({n})", lambda fd: os.ftruncate(fd, n))
        twin.compare()
        off = rnd.randrange(2 * MIB)
        twin.both(f"write({off})", lambda fd: os.pwrite(fd, b"mark", off))
        twin.compare()
    twin.close()


@pytest.mark.limit(120)
def test_file_over_4_gib(store):
    """Really written around 2^32, sparse elsewhere."""
    path = store.mounts[0].at("f")
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for off in (0, (1 << 31) - 5, (1 << 32) - 3 * MIB - 7, 5 << 30, (1 << 40) + 1):
        pwrite_all(fd, content(7, off, 6 * MIB), off)
    os.fsync(fd)
    os.close(fd)
    assert os.stat(path).st_size == (1 << 40) + 1 + 6 * MIB
    fd = os.open(path, os.O_RDONLY)
    for off in (0, (1 << 31) - 5, (1 << 32) - 3 * MIB - 7, 5 << 30, (1 << 40) + 1):
        assert_same(pread_all(fd, 6 * MIB, off), content(7, off, 6 * MIB), f"at {off}")
    assert pread_all(fd, 4096, 1 << 33) == bytes(4096)
    os.close(fd)
    assert os.stat(path).st_blocks * 512 < 64 * MIB


@pytest.mark.limit(120)
def test_4_gib_really_written(new_store):
    store = new_store().up(benefactors=2, size="3GiB")
    path = store.mounts[0].at("f")
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    total = (4 << 30) + 4 * MIB
    for off in range(0, total, 4 * MIB):
        pwrite_all(fd, content(8, off, 4 * MIB), off)
    os.close(fd)
    assert os.stat(path).st_size == total
    fd = os.open(path, os.O_RDONLY)
    rnd = random.Random(seed_of_run())
    for off in [0, (1 << 32) - 100, total - 4 * MIB] + [rnd.randrange(total // MIB - 1) * MIB for _ in range(200)]:
        n = min(MIB + 100, total - off)
        want = b"".join(content(8, o, 4 * MIB) for o in range(off // (4 * MIB) * 4 * MIB, off + n, 4 * MIB))
        skip = off % (4 * MIB)
        assert_same(pread_all(fd, n, off), want[skip:skip + n], f"at {off}")
    os.close(fd)


def test_write_of_nothing_and_seek(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    assert os.write(fd, b"") == 0
    assert os.fstat(fd).st_size == 0
    os.lseek(fd, 10, os.SEEK_SET)
    os.write(fd, b"x")
    assert os.lseek(fd, 0, os.SEEK_END) == 11
    assert os.lseek(fd, -1, os.SEEK_CUR) == 10
    with pytest.raises(OSError) as e:
        os.lseek(fd, -1, os.SEEK_SET)
    assert e.value.errno == errno.EINVAL
    os.close(fd)


def test_vectors(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    assert os.pwritev(fd, [b"ab", b"", b"cde", b"f" * 100000], 3) == 100005
    bufs = [bytearray(4), bytearray(3), bytearray(200000)]
    assert os.preadv(fd, bufs, 2) == 100006
    assert bytes(bufs[0]) == b"\0abc" and bytes(bufs[1]) == b"def"
    os.close(fd)


def test_access_modes_are_kept(d):
    write_file(f"{d}/f", b"x")
    fd = os.open(f"{d}/f", os.O_RDONLY)
    with pytest.raises(OSError) as e:
        os.write(fd, b"y")
    assert e.value.errno == errno.EBADF
    os.close(fd)
    with pytest.raises(IsADirectoryError):
        os.open(d, os.O_WRONLY)


@pytest.mark.short
def test_all_kinds_of_sync(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b"x" * 100000)
    os.fdatasync(fd)
    os.write(fd, b"y")
    os.fsync(fd)
    os.write(fd, b"z")
    syncfs(fd)
    dirfd = os.open(d, os.O_RDONLY)
    os.fsync(dirfd)
    os.close(dirfd)
    os.close(fd)
    os.sync()
    fd = os.open(f"{d}/s", os.O_WRONLY | os.O_CREAT | os.O_SYNC, 0o644)
    os.write(fd, b"each write is synced")
    os.close(fd)
    assert read_file(f"{d}/s") == b"each write is synced"


def test_fsync_leaves_nothing_at_risk(shared, d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    pwrite_all(fd, content(9, 0, 5 * MIB + 3), 0)
    os.fsync(fd)
    assert os.getxattr(f"{d}/f", "user.fp.at_risk") == b"0 0"
    os.close(fd)


def test_preferred_size_of_pieces_is_large(d):
    write_file(f"{d}/f", b"x")
    assert os.stat(f"{d}/f").st_blksize == MIB


def test_space_reserved_by_fallocate_reads_as_zeros(d):
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    fallocate(fd, 0, 0, 3 * MIB)
    assert os.fstat(fd).st_size == 3 * MIB
    assert pread_all(fd, 3 * MIB, 0) == bytes(3 * MIB)
    fallocate(fd, FALLOC_KEEP_SIZE, 0, 8 * MIB)
    assert os.fstat(fd).st_size == 3 * MIB
    os.close(fd)
