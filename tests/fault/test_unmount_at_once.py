"""A close that has failed stays one, if the mount goes before the kernel has released the file: tests/e2e/test_unmount_at_once.py has those that have not."""

import errno
import json
import os
import signal

import pytest

from harness.daemons import LIBC, wait_until
from harness.mappings import mapping, unmap

LEN = 64 * 1024


@pytest.mark.expect_log(r"pwrite|write|stor|lost|fail|Input/output|No space|benefactor")
def test_a_close_that_failed_leaves_a_torn_set(new_store):
    s = new_store()
    s.start_manager("--ckpt-quiet=500ms")
    s.add_benefactor()
    m = s.add_mount("--close=publish", "--io-timeout=2s", fault="cl.pwrite=EIO:after=1")
    m.ended_as_told = True
    os.makedirs(m.at("chk_1"))
    for rank in range(2):
        fd = os.open(m.at("chk_1", f"rank_{rank}"), os.O_RDWR | os.O_CREAT)
        os.write(fd, os.urandom(LEN))
        at = mapping(fd, LEN)  # keeps it open beyond the answer to its close
        if rank == 0:
            os.close(fd)
        else:
            with pytest.raises(OSError) as e:
                os.close(fd)
            assert e.value.errno in (errno.EIO, errno.ENOSPC)
        if rank == 1:
            m.freeze()
        unmap(at, LEN)
    assert LIBC.umount2(m.path.encode(), 0) == 0
    m.send(signal.SIGCONT)
    m.wait()

    def state():
        return [c["state"] for c in json.loads(s.fpctl("checkpoints", "--all", "--json").stdout)["checkpoints"]]
    wait_until("the set", 20, lambda: state() not in ([], ["open"]), 0.1)
    assert state() == ["torn"]
    assert "fault fired: cl.pwrite" in m.text(), "the fault never fired"


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.expect_log(r"pwrite|write|stor|lost|fail|Input/output|No space|benefactor|away|silent|answer|not everything|Transport")
def test_what_was_closed_behind_and_is_lost_leaves_a_torn_set(new_store, released):
    """close(2) said 0; the mount went before anything could be stored."""
    s = new_store()
    s.start_manager("--ckpt-quiet=500ms")
    b = s.add_benefactor()
    m = s.add_mount("--close=behind", "--io-timeout=2s")
    m.ended_as_told = True
    os.makedirs(m.at("chk_1"))
    fds = [os.open(m.at("chk_1", f"rank_{rank}"), os.O_RDWR | os.O_CREAT) for rank in range(3)]
    alone = os.open(m.at("alone"), os.O_RDWR | os.O_CREAT)
    for fd in [*fds, alone]:
        os.write(fd, os.urandom(LEN))
    b.freeze()
    maps = [mapping(fd, LEN) for fd in fds] if not released else []
    for fd in [*fds, alone]:
        os.close(fd)
    if maps:
        m.freeze()
    for at in maps:
        unmap(at, LEN)
    assert LIBC.umount2(m.path.encode(), 0) == 0
    if maps:
        m.send(signal.SIGCONT)
    assert m.wait() == 1
    assert "are lost" in m.text()
    b.send(signal.SIGCONT)

    def state():
        return [c["state"] for c in json.loads(s.fpctl("checkpoints", "--all", "--json").stdout)["checkpoints"]]
    wait_until("the set", 30, lambda: state() not in ([], ["open"]), 0.1)
    assert state() == ["torn"]
    assert sorted(json.loads(s.fpctl("status", "--json").stdout)["lost"]) == ["/alone"] + [f"/chk_1/rank_{rank}" for rank in range(3)]
    m = s.add_mount()
    assert os.getxattr(m.at("alone"), "user.fp.level") == b"none"
