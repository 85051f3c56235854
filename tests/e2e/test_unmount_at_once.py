"""A mount goes right behind the last close: what was closed is whole, what was left open is torn.

The kernel sends the release of a file when close(2) has returned, and drops it if the file system is gone by then.
"""

import ctypes
import errno
import json
import mmap
import os
import signal
import subprocess
import sys
import time

import pytest

from harness.daemons import LIBC, SLOW, wait_until
from harness.files import write_file
from harness.mappings import mapping, unmap

ROUNDS, FILES = 5, 12
LEN = 2 * mmap.PAGESIZE
FORCE, LAZY = 1, 2  # MNT_FORCE aborts the connection


def umount(m, flags=0):
    """errno, or 0."""
    m.ended_as_told = True
    return ctypes.get_errno() if LIBC.umount2(m.path.encode(), flags) != 0 else 0


def close_dead(fd):
    with pytest.raises(OSError) as e:
        os.close(fd)
    assert e.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)


def states(store):
    """Of each step, when none is open any more."""
    def look():
        found = json.loads(store.fpctl("checkpoints", store.mounts[1].path, "--all", "--json").stdout)["checkpoints"]
        return {s["step"]: s["state"] for s in found} if found and all(s["state"] != "open" for s in found) else None
    return wait_until("the sets", 20, look, 0.1)


def begin(m, step, files=FILES):
    os.makedirs(m.at("run", f"chk_{step}"))
    fds = [os.open(m.at("run", f"chk_{step}", f"rank_{i}"), os.O_RDWR | os.O_CREAT) for i in range(files)]
    for fd in fds:
        os.write(fd, b"x" * 1000)
    return fds


@pytest.fixture(params=["publish", "behind"])
def two(request, new_store):
    """One mount is to go; the other looks."""
    s = new_store()
    s.up(benefactors=1, mounts=0, manager_args=("--ckpt-quiet=500ms", "--session-timeout=4s"))
    s.add_mount(f"--close={request.param}")
    s.add_mount()
    return s


def umounts(m):
    assert umount(m) == 0


def fusermounts(m):
    subprocess.run(["fusermount3", "-u", m.path], check=True, timeout=20)


def terminates(m):
    m.send(signal.SIGTERM)


def nothing(m):
    del m


def umounts_lazily(m):
    assert umount(m, LAZY) == 0


@pytest.mark.short
@pytest.mark.parametrize("before,after", [(nothing, umounts), (nothing, fusermounts), (nothing, terminates), (umounts_lazily, nothing)],
                         ids=["umount", "fusermount3", "SIGTERM", "lazily before"])
def test_what_was_closed_is_whole(two, before, after):
    m = two.mounts[0]
    for step in range(1, ROUNDS + 1):
        fds = begin(m, step)
        m.ended_as_told = True
        before(m)
        for fd in fds:
            os.close(fd)
        after(m)
        assert m.wait() == 0
        m.start()
    assert states(two) == dict.fromkeys(range(1, ROUNDS + 1), "complete")


@pytest.mark.short
@pytest.mark.parametrize("stored", [False, True], ids=["closed", "written through a mapping"])
def test_releases_that_are_never_sent(two, stored):
    """Mappings keep files open, beyond the answer to their close; when they go the mount stands still, and takes no request."""
    m = two.mounts[0]
    fds = begin(m, 1)
    maps, others = [], []
    for fd in fds:
        os.ftruncate(fd, LEN)
        maps.append(mapping(fd, LEN))
        if stored:
            others.append(mapping(fd, LEN))
        os.close(fd)
    for at in others:
        ctypes.memmove(at + 1000, b"y" * 1000, 1000)
        unmap(at, LEN)
    m.freeze()
    for at in maps:
        unmap(at, LEN)
    assert umount(m) == 0
    m.send(signal.SIGCONT)
    assert m.wait() == 0
    assert states(two) == {1: "complete"}
    with open(two.mounts[1].at("run", "chk_1", "rank_3"), "rb") as f:
        assert f.read() == b"x" * 1000 + (b"y" if stored else b"\0") * 1000 + b"\0" * (LEN - 2000)


@pytest.mark.short
@pytest.mark.parametrize("manner", ["open", "a duplicate was closed"])
@pytest.mark.parametrize("end", ["SIGTERM", "lazy, SIGTERM", "aborted", "aborted, lazy"])
def test_what_is_left_open_is_torn(two, end, manner):
    """Beside files that were closed. What was written is there."""
    m = two.mounts[0]
    left, *fds = begin(m, 1)
    if manner != "open":
        os.close(os.dup(left))
    for fd in fds:
        os.close(fd)
    m.ended_as_told = True
    if "lazy" in end:
        assert umount(m, LAZY | (FORCE if "aborted" in end else 0)) == 0
    elif end == "aborted":
        assert umount(m, FORCE) == errno.EBUSY
    if "SIGTERM" in end:
        m.send(signal.SIGTERM)
    assert m.wait() == 0
    assert states(two) == {1: "torn"}
    close_dead(left)
    assert os.path.getsize(two.mounts[1].at("run", "chk_1", "rank_0")) == 1000


@pytest.mark.short
@pytest.mark.parametrize("first,then", [(FORCE | LAZY, None), (FORCE, 0), (FORCE, LAZY)], ids=["forced and lazy", "forced, unmounted", "forced, lazy"])
def test_what_is_closed_after_an_abort_is_torn(two, first, then):
    """The program has heard by then that its mount is gone, and had more to write."""
    m = two.mounts[0]
    left, *fds = begin(m, 1)
    for fd in fds:
        os.close(fd)
    assert umount(m, first) in (0, errno.EBUSY)
    with pytest.raises(OSError):
        os.write(left, b"x" * 1000)
    close_dead(left)
    if then is not None:
        umount(m, then)
    assert m.wait() == 0
    assert states(two) == {1: "torn"}


@pytest.mark.short
def test_a_mount_with_files_open_ends_after_its_grace(two):
    m = two.mounts[0]
    left, *fds = begin(m, 1)
    for fd in fds:
        os.close(fd)
    m.ended_as_told = True
    began = time.monotonic()
    m.send(signal.SIGTERM)
    assert m.wait() == 0
    assert time.monotonic() - began < 2.5 * SLOW  # one second of grace, and none for a file system that can't be gone
    close_dead(left)


WRITER = """
import os, sys, time
for path in sys.argv[1:]:
    os.write(os.open(path, os.O_WRONLY | os.O_CREAT), b"x" * 1000)
print("written", flush=True)
time.sleep(600)
"""


@pytest.mark.short
def test_what_a_killed_program_wrote_is_torn(two):
    m = two.mounts[0]
    for step in range(1, ROUNDS + 1):
        for fd in begin(m, step, 3):
            os.close(fd)
        p = subprocess.Popen([sys.executable, "-c", WRITER, *(m.at("run", f"chk_{step}", f"killed_{i}") for i in range(FILES))], stdout=subprocess.PIPE, text=True)
        assert p.stdout.readline() == "written\n"
        p.kill()
        p.wait(20)
        wait_until("the files to be closed", 10, lambda: umount(m) != errno.EBUSY, 0)
        assert m.wait() == 0
        m.start()
    assert states(two) == dict.fromkeys(range(1, ROUNDS + 1), "torn")


@pytest.mark.short
def test_a_torn_file_is_mended_right_before_an_unmount(two):
    """Written anew and closed, by a mount that goes at once."""
    m = two.mounts[0]
    left, *fds = begin(m, 1)
    for fd in fds:
        os.close(fd)
    umount(m, LAZY)
    m.send(signal.SIGTERM)
    assert m.wait() == 0
    close_dead(left)
    assert states(two) == {1: "torn"}
    m.start()
    write_file(m.at("run", "chk_1", "rank_0"), b"z" * 1000)
    assert umount(m) == 0
    assert m.wait() == 0
    wait_until("the set", 20, lambda: states(two) == {1: "complete"}, 0.1)
