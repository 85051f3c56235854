"""A device that could not be synced: the kernel says so once, to one, and counts the data as written from then on.

Nothing is really lost here, only counted as lost: fault points of the programs say that fdatasync failed. Every fsync of a
file that had data there gives EIO once, on every mount and every node; then all is as before.
"""

import errno
import os

import pytest

from harness.files import assert_same, content, pwrite_all, read_file

MIB = 1 << 20
LOST = r"lost|synced|sync|benefactor|device|fsync"


class File:
    """An open file with data that is closed elsewhere but not synced."""

    def __init__(self, mount, name, seed):
        self.path, self.data = mount.at(name), bytearray(content(seed, 0, 3 * MIB))
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        self.write(0, 3 * MIB)

    def write(self, off, size):
        pwrite_all(self.fd, bytes(self.data[off:off + size]), off)
        os.close(os.dup(self.fd))  # close(2): it is on the benefactor and published

    def sync(self):
        try:
            os.fsync(self.fd)
            return 0
        except OSError as e:
            return e.errno

    def is_good(self):
        assert self.sync() == 0, f"{self.path}: told twice"
        self.data[MIB:2 * MIB] = content(77, 0, MIB)
        self.write(MIB, MIB)
        assert self.sync() == 0, f"{self.path}: what was written after the loss"
        assert_same(read_file(self.path), bytes(self.data))


def published(files):
    for f in files:
        os.close(os.open(f.path, os.O_RDONLY))


@pytest.mark.limit(90)
@pytest.mark.expect_log(LOST)
def test_mount_that_cannot_sync_tells_all_files_of_all_mounts_once(new_store):
    s = new_store()
    s.start_manager()
    s.add_benefactor()
    m, near, far = s.add_mount(fault="cl.fdatasync=EIO:count=1"), s.add_mount(), s.add_mount(node=2)
    files = [File(m, "a", 1), File(m, "b", 2), File(near, "c", 3), File(far, "d", 4)]
    published(files)
    assert files[1].sync() == errno.EIO
    assert "fault fired: cl.fdatasync" in m.text()
    assert [f.sync() for f in (files[0], *files[2:])] == [errno.EIO] * 3
    for f in files:
        f.is_good()


@pytest.mark.limit(90)
@pytest.mark.expect_log(LOST + r"|connection|No new data|manager")
@pytest.mark.parametrize("restarted", [False, True])
def test_benefactor_that_cannot_sync_tells_all_files_of_all_mounts_once(new_store, restarted):
    """Also those that hear of it from the next process of that benefactor only."""
    s = new_store()
    s.start_manager()
    s.add_benefactor(fault="bnf.fdatasync=EIO:count=1")
    far, m, far2 = s.add_mount(node=2), s.add_mount(), s.add_mount(node=3)
    files = [File(far, "a", 1), File(far, "b", 2), File(m, "c", 3), File(far2, "d", 4)]
    b = s.benefactors[0]
    assert files[0].sync() == errno.EIO
    assert "fault fired: bnf.fdatasync" in b.text()
    if restarted:
        b.kill()
        b.fault = None
        b.start()
    assert [f.sync() for f in files[1:]] == [errno.EIO] * 3
    s.wait_status("the device to be well", 20, lambda st: st["benefactors"][0]["state"] == "ok")
    for f in files:
        f.is_good()
