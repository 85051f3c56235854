"""Names that several mounts change at the same moment: it ends as on one node."""

import errno
import os
import threading

import pytest

from harness import fixtures
from harness.daemons import SLOW


@pytest.fixture(scope="module")
def three():
    s = fixtures.Store()
    fixtures.LIVE.append(s)
    try:
        s.up(mounts=3)
    except BaseException:
        s.remove()
        fixtures.LIVE.remove(s)
        raise
    yield s
    fixtures.check(fixtures.stop(s))


@pytest.fixture
def roots(three, request):
    fixtures.revive(three)
    os.mkdir(three.mounts[0].at(request.node.name))
    return [m.at(request.node.name) for m in three.mounts]


class Rename:
    """One call, and what came of it."""

    def __init__(self, old, new):
        self.old, self.new, self.error = old, new, 0

    def __repr__(self):
        return f"{self.old} to {self.new}: {errno.errorcode.get(self.error, 'ok')}"

    def run(self, barrier):
        barrier.wait()
        try:
            os.rename(self.old, self.new)
        except OSError as e:
            self.error = e.errno


@pytest.mark.limit(120)
def test_directories_do_not_become_their_own_parents(roots):
    """Each is to go into the next, in a circle, from three mounts at once: one call at least fails, and nothing gets lost."""
    wins = 0
    for turn in range(20):
        tops = [f"{root}/{turn}" for root in roots]
        os.mkdir(tops[turn % 3])
        for n in "xyz":
            os.mkdir(f"{tops[turn % 3]}/{n}")
        calls = [Rename(f"{top}/{n}", f"{top}/{into}/{n}") for top, n, into in zip(tops, "xyz", "yzx")]
        barrier = threading.Barrier(3)
        threads = [threading.Thread(target=c.run, args=(barrier,)) for c in calls]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60 * SLOW)
        assert all(c.error in (0, errno.EINVAL, errno.ENOENT, errno.ESTALE) for c in calls) and any(c.error for c in calls), f"round {turn}: {calls}"
        wins += sum(not c.error for c in calls)
        for top in tops:
            found = sorted(d for _, dirs, _ in os.walk(top) for d in dirs)
            assert found == list("xyz"), f"round {turn}: {found}: {calls}"
    assert wins >= 20
