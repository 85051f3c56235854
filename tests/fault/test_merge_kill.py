"""fpctl merge in a store survives whoever dies: what has the file's name is whole, and the job goes on where it was."""

import os
import signal

import pytest

from harness.daemons import wait_until
from harness.drains import Drain, kill_again_and_again, kill_workers
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20
SIZE = 40 * MIB + 77


@pytest.fixture
def merges(new_store):
    """A log in the target, and benefactors so slow from then on that a merge has a middle."""
    store = new_store()
    store.start_manager()
    for _ in range(2):
        store.add_benefactor()
    m = store.add_mount()
    store.target = store.make_dir("target")
    store.data = content(9, 0, SIZE)
    write_file(m.at("f"), store.data, sync=True)
    store.fpctl("drain", m.at("f"), "--layout=log", f"--to={store.target}", "--wait", "--now", "--timeout=60s", seconds=80)
    for b in store.benefactors:
        b.args.append("--drain-max=8MB/s")
    store.fpctl("benefactor", "set", "all", "max=8MB/s")
    return store


class Merge(Drain):
    def __init__(self, store):
        self.store = store
        self.file = os.path.join(store.target, "f")
        self.proc = store.begin_fpctl("merge", self.file + ".fplog", "--verify", "--timeout=3min")

    def look(self):
        """Whatever has the name is whole."""
        if os.path.exists(self.file):
            assert_same(read_file(self.file), self.store.data)

    def finish(self):
        out, err = self.proc.communicate(timeout=200)
        assert self.proc.returncode == 0, (self.proc.returncode, out, err)
        assert_same(read_file(self.file), self.store.data)
        wait_until("the end of temporary files", 60, lambda: not os.listdir(os.path.join(self.store.target, ".fp-drain")))


@pytest.fixture
def merge(merges):
    m = Merge(merges)
    yield m
    m.end()


def test_workers_are_killed_while_they_merge(merges, merge):
    merges.expect("drain")
    merge.begun()
    assert kill_workers(*merges.benefactors)
    merge.look()
    merge.finish()


def test_a_benefactor_dies_for_good_and_the_other_one_does_its_part(merges, merge):
    """The log is in the target: nothing of it is lost with who has written it."""
    merges.expect(".")
    merge.begun()
    merges.benefactors[1].kill(signal.SIGKILL)
    merge.finish()
    merges.benefactors[1].start()


def test_all_are_killed_again_and_again_while_they_merge(merges, merge):
    merge.begun()
    kill_again_and_again(merges, merge, 4, 1.0)


def test_the_log_is_replaced_while_it_is_merged(merges, merge):
    """The attempt is over, and another one makes the file of the new log."""
    merges.expect("drain")
    merge.begun()
    merges.fpctl("benefactor", "set", "all", "max=2MB/s")
    m = merges.mounts[0]
    merges.data = content(10, 0, 2 * MIB + 5)  # there long before the other one is merged
    write_file(m.at("f"), merges.data, sync=True)
    merges.fpctl("drain", m.at("f"), "--layout=log", f"--to={merges.target}", "--wait", "--now", "--timeout=60s", seconds=80)
    assert merge.proc.poll() is None and not os.path.exists(merge.file), "the log was merged before it was replaced"
    merges.fpctl("benefactor", "set", "all", "max=0")
    merge.finish()
