"""The last handles of many files go, which nobody waits for, while something that is needed to publish what they leave is away.

Files are written through mappings: no close has confirmed anything. Rows of "Errors and deadlines" in docs/ARCHITECTURE.md name these tests.
"""

import ctypes
import os
import signal
import time

import pytest

from harness.aux import unique, used
from harness.daemons import SLOW, unmount, wait_until
from harness.files import read_file, write_file
from harness.mappings import mapping, unmap

KIB = 1024
FILES, LEN = 300, 64 * KIB
PIECE = 16 * KIB
DEDUP = "dedup chunking=fixed size=16KiB pays=0% scope=store"

pytestmark = pytest.mark.expect_log(r"benefactor|same as stored ones|found stored|lost|referred|manager|not published in time|can't be read|away")


def at_risk(s):
    """Bytes that the mount has and no file of the store. No fpctl of the path: it is only a figure of the mount."""
    m = s.status()["mounts"][0]
    return m["dirty_bytes"] + m["uncommitted_bytes"]


class Mapped:
    """Files whose bytes are the mount's alone, each kept open by a mapping."""

    def __init__(self, m, data):
        self.m, self.open = m, []
        self.want = [data[i * PIECE:i * PIECE + LEN] for i in range(FILES)]
        for i, want in enumerate(self.want):
            fd = os.open(m.at(f"f{i}"), os.O_RDWR | os.O_CREAT)
            os.ftruncate(fd, LEN)
            self.open.append(mapping(fd, LEN))
            at = mapping(fd, LEN)
            os.close(fd)
            ctypes.memmove(at, want, LEN)
            unmap(at, LEN)

    def release(self):
        for at in self.open:
            unmap(at, LEN)

    def is_good(self, i):
        try:
            return read_file(self.m.at(f"f{i}")) == self.want[i]
        except OSError:
            return False

    def good(self):
        return sum(self.is_good(i) for i in range(FILES))


def works(m):
    """Files that have nothing to do with it are opened, written and closed meanwhile."""
    begun = time.monotonic()
    write_file(m.at("other"), b"x" * 100)
    assert read_file(m.at("other")) == b"x" * 100
    assert time.monotonic() - begun < 2 * SLOW


@pytest.fixture
def files(start):
    """A store of two benefactors, the one that has most of a checkpoint, and files that are the same as parts of it."""
    def make(*args):
        s = start(DEDUP, args=args, benefactors=2)
        m, data = s.mounts[0], unique(1, FILES * PIECE + LEN)
        write_file(m.at("ckpt"), data, sync=True)
        before = used(s)
        of = [r["benefactor"] for r in s.layout("/ckpt")["ranges"] if not r["hole"]]
        addr, = [b["address"] for b in s.status()["benefactors"] if b["id"] == max(set(of), key=of.count)]
        away = next(b for b in s.benefactors if b.ready == addr)
        f = Mapped(m, data)
        wait_until("all to be sealed and stored", 30, lambda: s.status()["mounts"][0]["uncommitted_bytes"] >= FILES * LEN, 0.2)
        assert used(s) < before + FILES * LEN / 4, "most of it refers to the checkpoint"
        return s, m, away, f
    return make


@pytest.mark.limit(120)
@pytest.mark.parametrize("back", [True, False], ids=["comes back", "stays away"])
def test_many_last_closes_beside_a_benefactor_that_is_away(files, back):
    s, m, away, f = files("--io-timeout=5s")
    away.kill()
    time.sleep(0.5)
    begun = time.monotonic()
    f.release()
    works(m)
    time.sleep(2)
    assert at_risk(s) > 0, "it is waited for"
    if back:
        away.start()
    wait_until("the end of all", 30, lambda: at_risk(s) == 0, 0.2)
    assert time.monotonic() - begun < (20 if back else 5 + 15) * SLOW, "and not of one after the other"
    works(m)
    if not back:
        away.start()
        s.wait_status("it to be back", 20, lambda t: all(b["state"] == "ok" for b in t["benefactors"]))
    assert f.good() == FILES
    if not back:  # it was told that what they refer to was not there
        m.ended_as_told = True
        unmount(m.path)
        assert m.wait() == 1
        m.wait_log(r"are the same as stored ones that are damaged or on a benefactor that is away", 1)


@pytest.mark.limit(120)
def test_many_last_closes_while_the_manager_stands_still(files):
    """Longer than --manager-timeout; and when it is back, a benefactor is away for a moment."""
    s, m, away, f = files("--io-timeout=20s", "--manager-timeout=2s")
    s.manager.freeze()
    f.release()
    time.sleep(5)
    away.kill()
    s.manager.send(signal.SIGCONT)
    s.wait_status("it to be missed", 20, lambda t: any(b["state"] != "ok" for b in t["benefactors"]))
    time.sleep(1)
    assert at_risk(s) > 0
    away.start()
    wait_until("all to be published", 30, lambda: at_risk(s) == 0, 0.2)
    assert f.good() == FILES
    m.unmount()  # with 0: it has lost nothing, and told nobody so
    assert "same as stored ones" not in m.text()


@pytest.mark.limit(120)
def test_sigterm_with_many_last_closes_beside_a_benefactor_that_is_away(files):
    """They are told to the manager all the same, within the time that the end has for all of them."""
    s, m, away, f = files("--io-timeout=1h")
    away.kill()
    time.sleep(0.5)
    f.release()
    time.sleep(1)
    begun = time.monotonic()
    m.ended_as_told = True
    s.expect("not everything could be written out")  # it can't sync what the killed one had last; whether it knows by now is a matter of time
    m.send(signal.SIGTERM)
    m.wait(60)
    assert time.monotonic() - begun < 45 * SLOW
    away.start()
    m.start()
    s.wait_status("it to be back", 20, lambda t: all(b["state"] == "ok" for b in t["benefactors"]))
    assert f.good() == FILES
