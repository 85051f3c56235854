"""Strict files: random reads and writes of registers by processes of three mounts have one order (harness/history.py)."""

import os

import pytest

from harness import forks, history
from harness.daemons import PACE
from harness.files import seed_of_run, write_file
from harness.fixtures import store_for_a_module

SIZES = [8, 47001, 4096, 8, 100000, 65536, 13, 47001, 1000, 300000, 8, 20000]
SECONDS = 4


@pytest.fixture(scope="module")
def three():
    with store_for_a_module(mounts=3) as s:
        yield s


def run(store, name, strict, processes, registers, seconds):
    os.mkdir(store.mounts[0].at(name))
    os.setxattr(store.mounts[0].at(name), "user.fp.strict", b"%d" % strict)
    os.setxattr(store.mounts[0].at(name), "user.fp.chunk_size", b"65536")
    write_file(store.mounts[0].at(name, "f"), b"")
    paths = [store.mounts[i % 3].at(name, "f") for i in range(processes)]
    return forks.collect(history.start(paths, registers, seconds, seed_of_run()))


@pytest.mark.short
@pytest.mark.limit(120)
def test_random_registers_have_an_order(three):
    """6 processes, 12 registers of 8 to 300,000 bytes at odd places."""
    calls = run(three, "mixed", True, 6, history.layout(SIZES), SECONDS * PACE)
    n = history.check(calls)
    writes = sum(1 for c in calls if c[4])
    print(f"{n} calls, {writes} writes")
    assert writes > 100 and len({c[3] for c in calls if not c[4]}) > 50, "too few to tell anything"


@pytest.mark.limit(120)
def test_one_register_of_one_page_has_an_order(three):
    """All of them at the same 8 bytes, and beside them."""
    history.check(run(three, "hot", True, 9, history.layout([8, 8, 50], gap=0), SECONDS * PACE))


def test_files_that_are_not_strict_have_none(three):
    """What the check is worth: close-to-open is not enough."""
    with pytest.raises(AssertionError):
        history.check(run(three, "loose", False, 6, history.layout([8, 47001, 4096]), 2 * PACE))


def call(begin, end, stamp, is_write=False):
    return (begin, end, 0, stamp, is_write)


def test_the_check_itself():
    w1, w2 = call(0, 1, 1, True), call(2, 3, 2, True)
    assert history.contradiction([w1, w2, call(4, 5, 2)]) is None
    assert history.contradiction([w1, w2, call(4, 5, 1)])  # stale
    assert history.contradiction([w1, w2, call(2, 3, 1)]) is None  # beside the write
    assert history.contradiction([w1, call(2, 9, 2, True), call(3, 4, 2), call(5, 6, 1)])  # back again
    assert history.contradiction([w1, w2, call(4, 5, 0)])  # as if nobody had written
    assert history.contradiction([w1, call(2, history.NEVER, 2, True), call(4, 5, 1)]) is None  # failed: never made …
    assert history.contradiction([w1, call(2, history.NEVER, 2, True), call(4, 5, 1), call(6, 7, 2)]) is None  # … or later
    with pytest.raises(AssertionError):
        history.contradiction([w1, w2, call(0.1, 1.5, 2)])  # before it was written
    with pytest.raises(AssertionError):
        history.stamp_of(history.filled(1, 100) + history.filled(2, 100), 200)
