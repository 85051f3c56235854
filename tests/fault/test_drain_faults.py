"""Draining to a target that fails for a while or does not answer: nothing but the drain waits for it, a name in it is a whole file or not there at every
moment, and the drain goes on by itself. (What is killed while it drains: test_drain_kill.py.)
"""

import os
import time

import pytest

from harness.daemons import PACE, SLOW, wait_until
from harness.files import assert_same, content, write_file

MIB = 1 << 20
FILES, SIZE = 6, 5 * MIB + 4321


@pytest.fixture
def target(new_store):
    """A store of one benefactor, a set of files in it, and a directory for them. Called with arguments of the benefactors."""
    def make(*args, fault):
        store = new_store()
        store.start_manager()
        store.add_benefactor(*args, fault=fault)
        m = store.add_mount()
        os.makedirs(m.at("run/chk_0007"))
        for i in range(FILES):
            write_file(m.at(name(i)), content(i, 0, SIZE), sync=True)
        path = store.make_dir("target")
        return store, path
    return make


def name(i):
    return f"run/chk_0007/rank_{i}"


def begin(store, path):
    store.fpctl("drain", store.mounts[0].at("run/chk_0007"), f"--to={path}")


def whole(path):
    """How many files have their name there. Each of them is whole."""
    found = 0
    for i in range(FILES):
        try:
            with open(os.path.join(path, name(i)), "rb") as f:
                assert_same(f.read(), content(i, 0, SIZE), name(i))
        except FileNotFoundError:
            continue
        found += 1
    return found


def finish(store, path, seconds=60):
    r = store.fpctl("drain", store.mounts[0].at("run/chk_0007"), f"--to={path}", "--wait", f"--timeout={round(seconds * SLOW * 1000)}ms", check=False, seconds=seconds + 20)
    assert r.returncode == 0, r
    assert whole(path) == FILES
    assert os.listdir(os.path.join(path, ".fp-drain")) == []


def workers(*benefactors):
    """Process ids of their fp-drain."""
    parents = {b.pid for b in benefactors}
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                comm, rest = f.read().rsplit(")", 1)
        except OSError:
            continue
        if comm.endswith("(fp-drain") and int(rest.split()[1]) in parents and rest.split()[0] != "Z":
            found.append(int(pid))
    return found


@pytest.mark.limit(90)
@pytest.mark.expect_log("drain", "target")
def test_a_target_that_hangs_holds_up_nobody(target):
    """The first calls of one benefactor's fp-drain never come back: programs go on, and both daemons end when they are told to."""
    store, path = target("--target-timeout=500ms", fault="drain.pwrite=hang")
    begin(store, path)
    store.benefactors[0].wait_log("fault fired: drain.pwrite", 20)
    m = store.mounts[0]
    began = time.monotonic()
    write_file(m.at("other"), content(99, 0, 3 * MIB), sync=True)
    assert time.monotonic() - began < 10 * PACE
    store.benefactors[0].wait_log("does not come back", 20)
    assert whole(path) < FILES
    began = time.monotonic()
    store.benefactors[0].term()
    assert time.monotonic() - began < 5 * PACE, "a target that hangs holds up the end"
    wait_until("its fp-drain to end", 10, lambda: not workers(store.benefactors[0]))
    store.benefactors[0].fault = None
    store.benefactors[0].start()
    finish(store, path)


@pytest.mark.limit(90)
@pytest.mark.expect_log("drain", "target")
@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EDQUOT", "EROFS", "ESTALE"])
def test_a_target_that_fails_for_a_while(target, error):
    """Some of the first writes, syncs and renames fail: that is shown, and they are tried again."""
    store, path = target(fault=f"drain.pwrite={error}:every=2:count=2,drain.fsync={error}:every=3:count=2,drain.rename={error}:count=1")
    begin(store, path)
    finish(store, path)
    store.benefactors[0].wait_log("target .* draining to it waits", 5)
