"""Files under test: calls that Python does not have, content that tells where it belongs, and a model to compare with."""

import ctypes
import os
import random
import stat

LIBC = ctypes.CDLL(None, use_errno=True)
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE, FALLOC_ZERO, FALLOC_INSERT = 1, 2, 8, 16, 32
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW = -100, 0x1000, 0x400
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

# Prime, so that no shift by a power of two looks the same.
_PATTERN_LEN = 1000003
_PATTERN = random.Random(20100).randbytes(_PATTERN_LEN)
_TWICE = _PATTERN + _PATTERN[:1 << 18]


def seed_of_run():
    """FP_SEED replays; else a new one, which a failing test prints with its output."""
    seed = int(os.environ.get("FP_SEED") or int.from_bytes(os.urandom(4), "little"))
    print(f"seed: FP_SEED={seed}")
    return seed


def content(key, off, length):
    """The bytes that belong at [off, off+length) of the file called key (a number)."""
    at = (off + key * 7919) % _PATTERN_LEN
    if length <= (1 << 18):
        return _TWICE[at:at + length]
    parts = [_PATTERN[at:]]
    got = len(parts[0])
    while got < length:
        parts.append(_PATTERN)
        got += _PATTERN_LEN
    return b"".join(parts)[:length]


def first_difference(a, b):
    if a == b:
        return None
    n = min(len(a), len(b))
    lo, hi = 0, n  # the first differing byte, by halves
    if a[:n] == b[:n]:
        return n
    while hi - lo > 1:
        mid = (lo + hi) // 2
        if a[lo:mid] == b[lo:mid]:
            lo = mid
        else:
            hi = mid
    return lo


def assert_same(got, want, what=""):
    at = first_difference(got, want)
    assert at is None, (f"{what}: {len(got)} bytes, {len(want)} wanted; first difference at {at}: "
                        f"{got[at:at + 16].hex()} != {want[at:at + 16].hex()}")


def check(rc):
    if rc < 0:
        err = ctypes.get_errno()
        raise OSError(err, os.strerror(err))
    return rc


def fallocate(fd, mode, off, length):
    check(LIBC.fallocate(fd, mode, off, length))


def renameat2(a, b, flags):
    check(LIBC.renameat2(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), flags))


def linkat_fd(fd, path):
    check(LIBC.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, os.fsencode(path), AT_SYMLINK_FOLLOW))


def syncfs(fd):
    check(LIBC.syncfs(fd))


def pwrite_all(fd, data, off):
    done = 0
    view = memoryview(data)
    while done < len(data):
        done += os.pwrite(fd, view[done:], off + done)
    return done


def pread_all(fd, length, off):
    parts = []
    while length > 0:
        got = os.pread(fd, min(length, 8 << 20), off)
        if not got:
            break
        parts.append(got)
        off += len(got)
        length -= len(got)
    return b"".join(parts)


def write_file(path, data, sync=False):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        pwrite_all(fd, data, 0)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    return path


def level(path):
    return os.getxattr(path, "user.fp.level").decode()


def read_file(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return pread_all(fd, os.fstat(fd).st_size + 1, 0)
    finally:
        os.close(fd)


class Twin:
    """One file on the store and one on the native file system, doing the same random things; every answer is compared."""

    SIZE = 6 << 20

    def __init__(self, ours, native, seed):
        self.paths = (ours, native)
        self.rnd = random.Random(seed)
        self.fds = [self.open(p, os.O_CREAT) for p in self.paths]
        self.trace = []

    def open(self, path, flags=0):
        return os.open(path, os.O_RDWR | flags, 0o644)

    def both(self, what, call):
        self.trace.append(what)
        results = []
        for fd in self.fds:
            try:
                results.append(call(fd))
            except OSError as e:
                results.append(("errno", e.errno))
        a, b = results
        if isinstance(a, bytes) and isinstance(b, bytes):
            assert_same(a, b, f"{what} after {self.trace[-12:]}")
        else:
            assert a == b, f"{what}: {a}, native {b}, after {self.trace[-12:]}"
        return a

    def place(self):
        """Offsets and lengths of all kinds: near chunk borders, page borders, anywhere."""
        r = self.rnd
        length = r.choice([1, 7, 512, 4095, 4096, 4097, r.randrange(1, 70000), r.randrange(1, 300000), 1 << 20])
        base = r.choice([0, r.randrange(self.SIZE), r.randrange(6) << 20, r.randrange(1 << 8) << 12])
        return max(0, base + r.choice([0, 0, -1, 1, -17, 4096])), length

    def op_write(self):
        off, n = self.place()
        data = self.rnd.randbytes(n)
        self.both(f"pwrite({off},{n})", lambda fd: os.pwrite(fd, data, off))

    def op_read(self):
        off, n = self.place()
        self.both(f"pread({off},{n})", lambda fd: pread_all(fd, n, off))

    def op_truncate(self):
        n = self.rnd.choice([0, self.rnd.randrange(self.SIZE), self.rnd.randrange(self.SIZE)])
        self.both(f"ftruncate({n})", lambda fd: os.ftruncate(fd, n))

    def op_append(self):
        data = self.rnd.randbytes(self.rnd.randrange(1, 50000))
        self.trace.append(f"append({len(data)})")
        for p in self.paths:
            fd = os.open(p, os.O_WRONLY | os.O_APPEND)
            assert os.write(fd, data) == len(data)
            os.close(fd)

    def op_punch(self):
        off, n = self.place()
        self.both(f"punch({off},{n})", lambda fd: fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, off, n))

    def op_zero(self):
        off, n = self.place()
        keep = self.rnd.choice([0, FALLOC_KEEP_SIZE])
        self.both(f"zero({off},{n},{keep})", lambda fd: fallocate(fd, FALLOC_ZERO | keep, off, n))

    def op_sync(self):
        self.both("fsync", os.fsync)

    def op_reopen(self):
        self.trace.append("reopen")
        for fd in self.fds:
            os.close(fd)
        self.fds = [self.open(p) for p in self.paths]

    def op_copy(self):
        src, n = self.place()
        dst, _ = self.place()
        if abs(src - dst) < n:
            return
        self.both(f"copy({src},{n},{dst})", lambda fd: self.copy_all(fd, src, n, dst))

    @staticmethod
    def copy_all(fd, src, n, dst):
        done = 0
        while done < n:
            got = os.copy_file_range(fd, fd, n - done, src + done, dst + done)
            if got == 0:
                break
            done += got
        return done

    OPS = [("op_write", 40), ("op_read", 30), ("op_truncate", 4), ("op_append", 5), ("op_punch", 4), ("op_zero", 3),
           ("op_sync", 3), ("op_reopen", 3), ("op_copy", 3)]

    def run(self, steps):
        names = [name for name, weight in self.OPS for _ in range(weight)]
        for _ in range(steps):
            getattr(self, self.rnd.choice(names))()
            self.both("size", lambda fd: os.fstat(fd).st_size)
        self.compare()

    def compare(self):
        self.both("all", lambda fd: pread_all(fd, os.fstat(fd).st_size + 1, 0))

    def close(self):
        for fd in self.fds:
            os.close(fd)


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)
