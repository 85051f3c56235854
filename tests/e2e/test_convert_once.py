"""Several mounts declare the same convert: each dump is converted by one of them, or each part of it, and once, however late a coordinator hears of what was closed."""

import os
import signal
import threading
import time

import pytest

from harness.conversions import PATTERN, mark, processes, temporaries, wait_mark
from harness.daemons import PACE, wait_until
from harness.files import write_file

np = pytest.importorskip("numpy")
h5py = pytest.importorskip("h5py")
QUICK = ("--ckpt-quiet=500ms", "--ckpt-late=3s")
FILES = 600
DUMP, RESULT = "run/dump_0007", "run/dump_0007.h5"
SCHEMA = """\
fpschema: 1
ranks: {{grid: [{n}]}}
rank: "rank_{{rank}}.raw"
dims: {{x: {n}}}
datasets:
  - {{name: /t, type: float64, dims: [x]}}
"""


class Started:
    """Processes of conversions that mounts have started, and results of which they say that they have made them."""

    def __init__(self, mounts):
        self.mounts, self.seen, self.over = mounts, set(), threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self.over.wait(0.005):
            for m in self.mounts:
                self.seen.update((m.path, pid) for pid in processes(m))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        self.thread.join()

    def count(self):
        """(conversions, results)"""
        return len(self.seen), sum(m.text().count(f"{RESULT}: {FILES} files of ") for m in self.mounts)


@pytest.fixture
def mounts(new_store):
    """A function: so many mounts of a store, each of a node of its own, that convert the same; more: how."""
    def make(n, more=""):
        s = new_store().up(benefactors=1, mounts=0, manager_args=QUICK)
        schema = os.path.join(s.dir, "schema.yaml")
        write_file(schema, SCHEMA.format(n=FILES).encode())
        for i in range(n):
            m = s.add_mount(f"--auxapp=convert from=raw to=hdf5 schema={schema} pattern={PATTERN} {more}".strip(), node=i)
            wait_until("its coordinator", 10, lambda m=m: processes(m, "watch"))
        return s.mounts
    return make


def write_dump(mounts, version=0):
    """Rank i by mount i modulo their number, all mounts at once."""
    def write(m, ranks):
        for rank in ranks:
            write_file(m.at(DUMP, f"rank_{rank}.raw"), np.array([rank + 1000000 * version], "<f8").tobytes())
    os.makedirs(mounts[0].at(DUMP), exist_ok=True)
    writers = [threading.Thread(target=write, args=(m, range(i, FILES, len(mounts)))) for i, m in enumerate(mounts)]
    for t in writers:
        t.start()
    for t in writers:
        t.join()


def is_whole(m, version=0):
    try:
        with h5py.File(m.at(RESULT), "r", locking=False) as f:
            return np.array_equal(f["t"][()], np.arange(FILES) + 1000000 * version)
    except OSError:
        return False


def signal_all(pids, sig):
    for pid in pids:
        os.kill(pid, sig)


def stays_done(mounts, seconds):
    """It was said to be done, and all have heard of all: nothing begins anew."""
    until = time.monotonic() + seconds * PACE
    while time.monotonic() < until:
        for m in mounts:
            assert mark(m, DUMP).startswith("done "), "it is converted again"
        time.sleep(0.02)


@pytest.mark.limit(240)
@pytest.mark.parametrize("n,more,runs", [(2, "", 2), (3, "join=one", 1)])
def test_each_part_is_made_once(mounts, n, more, runs):
    all_of_them = mounts(n, more)
    with Started(all_of_them) as started:
        for version in range(2):
            write_dump(all_of_them, version)
            wait_until("the result", 90, lambda v=version: is_whole(all_of_them[0], v) and mark(all_of_them[0], DUMP).startswith("done "), 0.1)
            stays_done(all_of_them, 3)
            begun, made = started.count()
            assert begun <= runs * (version + 1) and made == version + 1  # fewer: one coordinator was so late that the other has taken its files
    assert temporaries(all_of_them[0].path) == []


@pytest.mark.limit(240)
@pytest.mark.parametrize("late", [0, 1])
def test_who_hears_late_of_what_it_has_closed_converts_nothing_again(mounts, late):
    """One coordinator stands still from the first file until the result is there: then what it hears of was converted by another, though it has closed half of the files."""
    both = mounts(2)
    frozen = processes(both[late], "watch")
    with Started(both) as started:
        signal_all(frozen, signal.SIGSTOP)
        try:
            write_dump(both)
            wait_mark(both[1 - late], DUMP, "done ", 120)
        finally:
            signal_all(frozen, signal.SIGCONT)
        stays_done(both, 6)
        assert started.count() == (1, 1)
    assert is_whole(both[0]) and temporaries(both[0].path) == []
