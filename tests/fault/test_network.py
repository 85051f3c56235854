"""The network between nodes: a link is cut and comes back; a node that hangs is as good as cut off."""

import errno
import os
import signal
import time

import pytest

from harness.daemons import SLOW, wait_until
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20
LINK_WORDS = r"benefactor|connection|manager|can't be read|session|answer|lost|reach|chunk"


def store_over(new_store, net, benefactors):
    """The manager is on node 0."""
    s = new_store(net)
    s.start_manager(node=0)
    for node in benefactors:
        s.add_benefactor(node=node)
    return s


def file_on_both(m):
    """both/f, spread over two benefactors; the mount has forgotten it. Its content."""
    os.mkdir(m.at("both"))
    os.setxattr(m.at("both"), "user.fp.stripe", b"2")
    data = content(1, 0, 16 * MIB)
    write_file(m.at("both", "f"), data, sync=True)
    m.unmount()
    m.start()
    return data


def whole_again(s, m, data):
    s.wait_status("both", 15, lambda st: all(b["state"] == "ok" for b in st["benefactors"]))
    wait_until("the file to be whole again", 15, lambda: bounded_read(m.at("both", "f"), data) == 0, 0.2)


def bounded_read(path, want, seconds=10):
    """The right bytes or EIO, each call within the limit. How many calls failed: 0 or 1, as the first one ends it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        for off in range(0, len(want), MIB):
            started = time.monotonic()
            try:
                assert_same(os.pread(fd, MIB, off), want[off:off + MIB], f"at {off}")
            except OSError as e:
                assert e.errno == errno.EIO
                return 1
            finally:
                took = time.monotonic() - started
                assert took < seconds * SLOW, f"{took:.1f} s"
    finally:
        os.close(fd)
    return 0


@pytest.mark.limit(150)
@pytest.mark.expect_log(LINK_WORDS)
def test_link_to_a_benefactor_is_cut(nodes, new_store, stress):
    net = nodes(3)
    s = store_over(new_store, net, benefactors=[1, 2])
    m = s.add_mount(node=0)
    data = file_on_both(m)
    os.mkdir(m.at("load"))
    work = stress(s, dirs=[m.at("load")], workers=3, tolerant=True)
    wait_until("load", 30, lambda: work.progress() > 20)
    net.cut(2)
    assert bounded_read(m.at("both", "f"), data) == 1, "half of it is on the other side"
    started = time.monotonic()

    def written():
        try:
            write_file(m.at("new"), content(2, 0, 8 * MIB), sync=True)
            return True
        except OSError as e:
            assert e.errno == errno.EIO
            return False
    wait_until("writes to go to the benefactor that is there", 15, written, 0.2)
    assert time.monotonic() - started < 15 * SLOW
    assert_same(read_file(m.at("new")), content(2, 0, 8 * MIB))
    s.wait_status("one to be down", 10, lambda st: sorted(b["state"] for b in st["benefactors"]) == ["down", "ok"])
    os.mkdir(m.at("later"))
    later = stress(s, dirs=[m.at("later")], workers=2, first_seed=50)
    wait_until("files that are not on it to be as quick as ever", 20, lambda: later.progress() > 20)
    before = work.progress()
    wait_until("the load to go on", 40, lambda: work.progress() > before + 20)
    net.restore(2)
    whole_again(s, m, data)
    assert s.status()["damaged"] == [], "away is not damaged"
    assert later.stop()["errors"] == 0
    later.verify(m.at("later"))
    work.stop()
    work.verify(m.at("load"))


@pytest.mark.limit(150)
@pytest.mark.expect_log(LINK_WORDS)
def test_client_cut_off_from_the_manager(nodes, new_store, stress):
    """Applications wait; when the link is back, they go on without an error."""
    net = nodes(2)
    s = store_over(new_store, net, benefactors=[0, 1])
    s.add_mount(node=0)
    m = s.add_mount(node=1)
    os.mkdir(s.mounts[0].at("a"))
    os.mkdir(s.mounts[0].at("b"))
    work = stress(s, dirs=[m.at("b")], workers=2, first_seed=10)
    near = stress(s, dirs=[s.mounts[0].at("a")], workers=1, first_seed=20)
    wait_until("load", 30, lambda: work.progress() > 20)
    net.cut(1)
    before = near.progress()
    time.sleep(8)
    assert near.progress() > before, "the others are not held up"
    net.restore(1)
    before = work.progress()
    wait_until("the load to go on", 30, lambda: work.progress() > before + 20)
    assert work.stop()["errors"] == 0
    near.stop()
    work.verify(s.mounts[0].at("b"))
    near.verify(m.at("a"))


@pytest.mark.limit(120)
@pytest.mark.expect_log(LINK_WORDS)
def test_benefactor_that_hangs(nodes, new_store):
    s = store_over(new_store, nodes(2), benefactors=[0, 1])
    m = s.add_mount(node=0)
    data = file_on_both(m)
    s.benefactors[1].send(signal.SIGSTOP)
    try:
        assert bounded_read(m.at("both", "f"), data) == 1
        started = time.monotonic()
        write_file(m.at("new"), content(2, 0, 8 * MIB), sync=True)
        assert time.monotonic() - started < 15 * SLOW
    finally:
        s.benefactors[1].send(signal.SIGCONT)
    whole_again(s, m, data)


@pytest.mark.limit(120)
@pytest.mark.expect_log(LINK_WORDS)
def test_link_is_cut_again_and_again(nodes, new_store, stress):
    net = nodes(3)
    s = store_over(new_store, net, benefactors=[0, 1, 2])
    m = s.add_mount(node=0)
    os.setxattr(m.path, "user.fp.stripe", b"3")
    work = stress(s, workers=3, tolerant=True)
    wait_until("load", 30, lambda: work.progress() > 20)
    for i in (1, 2, 1, 2):
        net.cut(i)
        time.sleep(1.5)
        net.restore(i)
        time.sleep(1)
    s.wait_status("all three", 20, lambda st: all(b["state"] == "ok" for b in st["benefactors"]))
    work.stop()
    wait_until("all benefactors to be used again", 10,
               lambda: os.path.exists(write_file(m.at("probe"), content(3, 0, 6 * MIB), sync=True)))
    work.verify(m.path)
