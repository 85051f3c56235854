"""Processes that lock files when they are told, and say what came of it: for tests of locks between mounts."""

import errno
import fcntl
import os
import pickle
import select
import signal
import struct
import time

F_OFD_SETLK, F_OFD_SETLKW = 37, 38
FLOCK = "hhqqi4x"


class Locker:
    """A process of its own. do("name", …) calls a method of _Inside there, and waits for it; begin and result, in two steps."""

    def __init__(self):
        self.to, there = os.pipe(), os.pipe()
        self.back = there
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.to[1])
            os.close(self.back[0])
            _serve(self.to[0], self.back[1])
        os.close(self.to[0])
        os.close(self.back[1])

    def begin(self, name, *args):
        os.write(self.to[1], pickle.dumps((name, args)).ljust(4096, b"."))

    def done(self, seconds=0):
        return bool(select.select([self.back[0]], [], [], seconds)[0])

    def result(self, seconds=20):
        """What it returned, or the errno it failed with, as a negative number."""
        assert self.done(seconds), "no answer"
        return pickle.loads(os.read(self.back[0], 4096))

    def do(self, name, *args, seconds=20):
        self.begin(name, *args)
        return self.result(seconds)

    def end(self, sig=signal.SIGKILL):
        if self.pid:
            os.kill(self.pid, sig)
            os.waitpid(self.pid, 0)
            os.close(self.to[1])
            os.close(self.back[0])
        self.pid = 0


class _Inside:
    def __init__(self):
        self.fds = {}

    def open(self, path, name="f", flags=os.O_RDWR | os.O_CREAT):
        self.fds[name] = os.open(path, flags, 0o644)
        return 0

    def close(self, name="f"):
        os.close(self.fds.pop(name))
        return 0

    def lock(self, how, start=0, length=0, name="f"):
        """how: of LOCK_SH, LOCK_EX, LOCK_UN, and LOCK_NB, by fcntl."""
        fcntl.lockf(self.fds[name], how, length, start)
        return 0

    def flock(self, how, name="f"):
        fcntl.flock(self.fds[name], how)
        return 0

    def ofd(self, kind, start=0, length=0, name="f", wait=False):
        fcntl.fcntl(self.fds[name], F_OFD_SETLKW if wait else F_OFD_SETLK, struct.pack(FLOCK, kind, 0, start, length, 0))
        return 0

    def who(self, start=0, length=0, name="f"):
        """type, start, length, pid of what stands in the way of a write lock."""
        got = fcntl.fcntl(self.fds[name], fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, 0, start, length, 0))
        kind, _, start, length, pid = struct.unpack(FLOCK, got)
        return kind, start, length, pid

    def read(self, n, off=0, name="f"):
        return os.pread(self.fds[name], n, off)

    def write(self, data, off=0, name="f"):
        return os.pwrite(self.fds[name], data, off)

    def alarm(self, seconds):
        """A signal that interrupts a call, once."""
        def on_alarm(sig, frame):
            raise InterruptedError(errno.EINTR, "alarm")
        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return 0

    def count(self, times, name="f"):
        """Reads, adds one, writes, under a lock."""
        fd = self.fds[name]
        for _ in range(times):
            fcntl.lockf(fd, fcntl.LOCK_EX)
            os.pwrite(fd, b"%08d" % (int(os.pread(fd, 8, 0) or b"0") + 1), 0)
            fcntl.lockf(fd, fcntl.LOCK_UN)
        return 0


def _serve(fd, out):
    inside = _Inside()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while True:
        command = b""
        while len(command) < 4096:
            piece = os.read(fd, 4096 - len(command))
            if not piece:
                os._exit(0)
            command += piece
        name, args = pickle.loads(command)
        try:
            got = getattr(inside, name)(*args)
        except OSError as e:
            got = -e.errno
        except BaseException as e:  # to be seen by the test
            got = repr(e)
        os.write(out, pickle.dumps(got))


class Lockers:
    """Those of one test; each has opened path."""

    def __init__(self):
        self.all = []

    def __call__(self, path=None):
        p = Locker()
        self.all.append(p)
        if path:
            assert p.do("open", path) == 0
        return p

    def end(self):
        for p in self.all:
            p.end()


def eventually(call, want, seconds=10):
    until = time.monotonic() + seconds
    while (got := call()) != want and time.monotonic() < until:
        time.sleep(0.02)
    assert got == want
