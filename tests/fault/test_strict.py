"""Strict files while the manager or a mount dies: what has returned stays, and there is one order of all calls (harness/history.py)."""

import os
import time

import pytest

from harness import forks, history
from harness.files import seed_of_run, write_file

SIZES = [8, 47001, 4096, 100000, 8]


def made(store):
    os.mkdir(store.mounts[0].at("d"))
    os.setxattr(store.mounts[0].at("d"), "user.fp.strict", b"1")
    os.setxattr(store.mounts[0].at("d"), "user.fp.chunk_size", b"65536")
    write_file(store.mounts[0].at("d", "f"), b"")
    return [m.at("d", "f") for m in store.mounts]


@pytest.mark.limit(180)
@pytest.mark.expect_log("manager")
def test_manager_killed_among_strict_calls(new_store):
    """Four times. Calls wait for it; none fails, none is forgotten, none is made twice."""
    store = new_store().up(mounts=3)
    workers = history.start(made(store) * 2, history.layout(SIZES), 12, seed_of_run())
    for _ in range(4):
        time.sleep(1.5)
        store.manager.kill()
        store.manager.start()
    history.check(forks.collect(workers))


@pytest.mark.limit(180)
def test_mount_killed_among_strict_calls(new_store):
    """What its programs were told is there; what they were not told of is whole or not there."""
    store = new_store().up(mounts=3)
    paths, seed = made(store), seed_of_run()
    workers = history.start([paths[0], paths[1], paths[0], paths[1]], history.layout(SIZES), 8, seed)
    doomed = history.start([paths[2]] * 2, history.layout(SIZES), 8, seed, may_fail=True, first=4)
    time.sleep(3)
    store.mounts[2].kill()
    calls = forks.collect(workers)
    history.check(calls + forks.collect(doomed))
