"""Directories and names: create, link, rename with all flags, long names, large directories that change while read."""

import ctypes
import errno
import os
import random
import subprocess

import pytest

from harness.daemons import SLOW
from harness.files import (LIBC, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, read_file, renameat2, seed_of_run,
                           write_file)


def fails(err, call, *args):
    with pytest.raises(OSError) as e:
        call(*args)
    assert e.value.errno == err, f"{errno.errorcode[e.value.errno]}, {errno.errorcode[err]} expected"


@pytest.mark.short
def test_directories(d):
    os.makedirs(f"{d}/a/b/c")
    assert os.stat(f"{d}/a").st_nlink == 3
    assert os.stat(d).st_nlink == 3
    fails(errno.ENOTEMPTY, os.rmdir, f"{d}/a/b")
    fails(errno.EEXIST, os.mkdir, f"{d}/a")
    fails(errno.ENOENT, os.mkdir, f"{d}/x/y")
    fails(errno.ENOTDIR, os.rmdir, write_file(f"{d}/f", b""))
    fails(errno.EISDIR, os.unlink, f"{d}/a")
    fails(errno.ENOTDIR, os.mkdir, f"{d}/f/x")
    os.rmdir(f"{d}/a/b/c")
    os.rmdir(f"{d}/a/b")
    assert os.stat(f"{d}/a").st_nlink == 2
    os.rmdir(f"{d}/a")
    assert sorted(os.listdir(d)) == ["f"]


def test_dot_and_dotdot(d):
    os.makedirs(f"{d}/a/b")
    assert os.stat(f"{d}/a/b/..").st_ino == os.stat(f"{d}/a").st_ino
    assert os.stat(f"{d}/a/.").st_ino == os.stat(f"{d}/a").st_ino
    fails(errno.EINVAL, os.rmdir, f"{d}/a/.")
    os.rename(f"{d}/a/b", f"{d}/b")
    assert os.stat(f"{d}/b/..").st_ino == os.stat(d).st_ino


@pytest.mark.short
def test_hard_links(d):
    write_file(f"{d}/a", b"one")
    os.link(f"{d}/a", f"{d}/b")
    a, b = os.stat(f"{d}/a"), os.stat(f"{d}/b")
    assert (a.st_ino, a.st_nlink) == (b.st_ino, 2)
    write_file(f"{d}/b", b"two")
    assert read_file(f"{d}/a") == b"two"
    os.unlink(f"{d}/a")
    assert os.stat(f"{d}/b").st_nlink == 1
    assert read_file(f"{d}/b") == b"two"
    os.mkdir(f"{d}/dir")
    fails(errno.EPERM, os.link, f"{d}/dir", f"{d}/dir2")
    fails(errno.EEXIST, os.link, f"{d}/b", f"{d}/dir")


@pytest.mark.short
def test_symbolic_links(d):
    target = "t" * 1000
    os.symlink(target, f"{d}/l")
    assert os.readlink(f"{d}/l") == target
    assert os.lstat(f"{d}/l").st_size == 1000
    os.symlink("file", f"{d}/ok")
    write_file(f"{d}/file", b"via link")
    assert read_file(f"{d}/ok") == b"via link"
    os.symlink("loop", f"{d}/loop")
    fails(errno.ELOOP, os.stat, f"{d}/loop")
    os.symlink("x" * 4095, f"{d}/longest")
    assert len(os.readlink(f"{d}/longest")) == 4095
    fails(errno.ENAMETOOLONG, os.symlink, "x" * 4096, f"{d}/toolong")
    fails(errno.EINVAL, os.readlink, f"{d}/file")


@pytest.mark.short
def test_names_up_to_255_bytes(d):
    for name in ("n" * 255, "ä" * 127 + "x", "new\nline", " ", "-rf", "\\040", "a\tb"):
        write_file(f"{d}/{name}", b"x")
    raw = os.fsencode(d) + b"/\xff\xfe\x80"
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    names = os.listdir(os.fsencode(d))
    assert len(names) == 8 and b"n" * 255 in names and b"\xff\xfe\x80" in names
    fails(errno.ENAMETOOLONG, os.mkdir, f"{d}/{'n' * 256}")
    fails(errno.ENAMETOOLONG, os.stat, f"{d}/{'n' * 256}")
    for name in names:
        os.unlink(os.fsencode(d) + b"/" + name)
    assert os.listdir(d) == []


def test_deep_path(d):
    here = os.open(d, os.O_RDONLY)
    for i in range(200):
        os.mkdir("deeper" * 8, dir_fd=here)
        down = os.open("deeper" * 8, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = down
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    assert os.listdir(here) == ["bottom"]
    os.close(here)
    assert subprocess.run(["rm", "-rf", f"{d}/{'deeper' * 8}"], timeout=30 * SLOW).returncode == 0


@pytest.mark.short
def test_rename_replaces(d):
    write_file(f"{d}/a", b"a")
    write_file(f"{d}/b", b"b")
    os.rename(f"{d}/a", f"{d}/b")
    assert os.listdir(d) == ["b"] and read_file(f"{d}/b") == b"a"
    os.makedirs(f"{d}/d1/sub")
    os.mkdir(f"{d}/d2")
    os.rename(f"{d}/d1", f"{d}/d2")
    assert os.listdir(f"{d}/d2") == ["sub"]
    os.mkdir(f"{d}/d3")
    fails(errno.ENOTEMPTY, os.rename, f"{d}/d3", f"{d}/d2")
    fails(errno.EISDIR, os.rename, f"{d}/b", f"{d}/d3")
    fails(errno.ENOTDIR, os.rename, f"{d}/d3", f"{d}/b")
    fails(errno.EINVAL, os.rename, f"{d}/d2", f"{d}/d2/sub/x")
    fails(errno.ENOENT, os.rename, f"{d}/nothing", f"{d}/x")
    os.link(f"{d}/b", f"{d}/c")
    os.rename(f"{d}/b", f"{d}/c")
    assert sorted(os.listdir(d)) == ["b", "c", "d2", "d3"], "two names of one file: rename does nothing"


@pytest.mark.short
def test_rename_noreplace(d):
    write_file(f"{d}/a", b"a")
    write_file(f"{d}/b", b"b")
    fails(errno.EEXIST, renameat2, f"{d}/a", f"{d}/b", RENAME_NOREPLACE)
    renameat2(f"{d}/a", f"{d}/c", RENAME_NOREPLACE)
    assert sorted(os.listdir(d)) == ["b", "c"]


@pytest.mark.short
def test_rename_exchange(d):
    write_file(f"{d}/f", b"file")
    os.makedirs(f"{d}/p/dir/in")
    renameat2(f"{d}/f", f"{d}/p/dir", RENAME_EXCHANGE)
    assert read_file(f"{d}/p/dir") == b"file"
    assert os.listdir(f"{d}/f") == ["in"]
    assert os.stat(f"{d}/f/..").st_ino == os.stat(d).st_ino
    assert os.stat(f"{d}/p").st_nlink == 2
    fails(errno.ENOENT, renameat2, f"{d}/f", f"{d}/none", RENAME_EXCHANGE)
    fails(errno.EINVAL, renameat2, f"{d}/f", f"{d}/p", RENAME_EXCHANGE | RENAME_NOREPLACE)


def test_rename_whiteout(d, as_root):
    write_file(f"{d}/a", b"a")
    renameat2(f"{d}/a", f"{d}/b", RENAME_WHITEOUT)
    st = os.lstat(f"{d}/a")
    assert (st.st_mode & 0o170000, st.st_rdev) == (0o020000, 0), "a character device 0:0 takes the old place"
    assert read_file(f"{d}/b") == b"a"


def test_special_files(d, as_root):
    os.mkfifo(f"{d}/fifo", 0o640)
    os.mknod(f"{d}/null", 0o020666, os.makedev(1, 3))
    os.mknod(f"{d}/sock", 0o140600)
    assert os.lstat(f"{d}/null").st_rdev == os.makedev(1, 3)
    assert [os.lstat(f"{d}/{n}").st_mode >> 12 for n in ("fifo", "null", "sock")] == [1, 2, 12]
    reader = os.open(f"{d}/fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(f"{d}/fifo", os.O_WRONLY)
    os.write(writer, b"through")
    assert os.read(reader, 10) == b"through"
    os.close(reader)
    os.close(writer)


# --- large directories ------------------------------------------------------


def in_parallel(count, call):
    """call(i) in count processes at once."""
    pids = []
    for i in range(count):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                call(i)
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * count


@pytest.mark.limit(240)
def test_100000_entries(d):
    count, workers = int(os.environ.get("FP_ENTRIES", 100000)), 8
    fd = os.open(d, os.O_RDONLY)

    def create(worker):
        for i in range(worker, count, workers):
            os.close(os.open(f"entry-{i:06d}", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))
    in_parallel(workers, create)
    names = os.listdir(d)
    assert len(names) == count and len(set(names)) == count
    with os.scandir(d) as it:
        assert sum(1 for e in it if e.is_file(follow_symlinks=False)) == count
    out = subprocess.run(["ls", "-l", d], capture_output=True, timeout=120 * SLOW)
    assert out.stdout.count(b"\n") == count + 1
    assert os.path.exists(f"{d}/entry-{count - 1:06d}")

    def remove(worker):
        for name in names[worker::workers]:
            os.unlink(name, dir_fd=fd)
    in_parallel(workers, remove)
    os.close(fd)
    assert os.listdir(d) == []


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16), ("type", ctypes.c_uint8)]


class Dir:
    """getdents64 in small pieces, with the offsets that telldir gives."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def read(self, size=1024):
        buf = ctypes.create_string_buffer(size)
        n = LIBC.getdents64(self.fd, buf, size)
        assert n >= 0, os.strerror(ctypes.get_errno())
        out, at = [], 0
        while at < n:
            e = Dirent.from_buffer(buf, at)
            out.append((ctypes.string_at(ctypes.addressof(buf) + at + 19).decode(), e.off))
            at += e.reclen
        return out

    def all(self):
        out = []
        while got := self.read():
            out += got
        return out

    def seek(self, off):
        os.lseek(self.fd, off, os.SEEK_SET)

    def close(self):
        os.close(self.fd)


@pytest.mark.short
def test_offsets_are_stable_under_change(d):
    """While a directory is read in small pieces, entries come and go; those that were there all the time are seen
    exactly once, and an offset still means the same place."""
    rnd = random.Random(seed_of_run())
    stay = {f"stay-{i}" for i in range(400)}
    go = [f"go-{i}" for i in range(400)]
    for name in sorted(stay) + go:
        os.mknod(f"{d}/{name}")
    reader, seen, new = Dir(d), [], 0
    while got := reader.read():
        seen += [name for name, _ in got]
        for _ in range(5):
            if go:
                os.unlink(f"{d}/{go.pop(rnd.randrange(len(go)))}")
            if new < 150:
                os.mknod(f"{d}/new-{new}")
                new += 1
        a = f"stay-{rnd.randrange(400)}"
        os.rename(f"{d}/{a}", f"{d}/{a}")
    kept = [n for n in seen if n.startswith("stay-")]
    assert len(kept) == len(set(kept)), "an entry came twice"
    assert set(kept) == stay, f"not seen: {sorted(stay - set(kept))[:5]}"
    assert len(seen) == len(set(seen)), "an entry came twice"
    reader.close()


def test_seekdir_goes_back_to_the_same_entry(d):
    rnd = random.Random(seed_of_run())
    for i in range(300):
        os.mknod(f"{d}/f{i}")
    reader = Dir(d)
    everything = reader.all()
    for k in rnd.sample(range(len(everything) - 1), 20):
        reader.seek(everything[k][1])
        assert reader.read()[0][0] == everything[k + 1][0]
    for i in range(0, 300, 2):
        os.unlink(f"{d}/f{i}")
    left = {name for name, _ in everything if not name.startswith("f") or int(name[1:]) % 2}
    for k in rnd.sample(range(len(everything) - 1), 20):
        reader.seek(everything[k][1])
        rest = [name for name, _ in reader.all()]
        assert rest == [name for name, _ in everything[k + 1:] if name in left]
    reader.seek(0)
    assert {name for name, _ in reader.all()} == left
    reader.close()


def test_removed_directory_that_is_open(d):
    os.mkdir(f"{d}/x")
    fd = os.open(f"{d}/x", os.O_RDONLY)
    os.rmdir(f"{d}/x")
    assert os.listdir(fd) == []
    fails(errno.ENOENT, lambda: os.open("y", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def test_rm_rf_of_a_tree(d):
    for i in range(20):
        os.makedirs(f"{d}/t/{i}/a/b")
        for k in range(20):
            write_file(f"{d}/t/{i}/a/{k}", b"x" * k)
    assert subprocess.run(["cp", "-a", f"{d}/t", f"{d}/u"], timeout=60 * SLOW).returncode == 0
    assert subprocess.run(["diff", "-r", f"{d}/t", f"{d}/u"], timeout=60 * SLOW).returncode == 0
    assert subprocess.run(["rm", "-rf", f"{d}/t", f"{d}/u"], timeout=60 * SLOW).returncode == 0
    assert os.listdir(d) == []


def test_renaming_each_entry_while_reading_ends(d):
    for i in range(1500):
        open(f"{d}/{i}", "w").close()
    seen = 0
    with os.scandir(d) as entries:
        for entry in entries:
            os.rename(f"{d}/{entry.name}", f"{d}/{entry.name}x")
            seen += 1
            assert seen <= 1500
    assert sorted(os.listdir(d)) == sorted(f"{i}x" for i in range(1500))
