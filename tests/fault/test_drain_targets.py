"""Draining to real file systems, each in trouble in the middle: GlusterFS without its brick and without its mount, a disk that is full or read-only, a file
system that stops. Meanwhile programs write and read as ever, `fpctl drain show` says what it is, and in the end all is there, equal.

What fp-drain makes of each error, and processes that are killed: test_drain_faults.py, test_drain_kill.py.
"""

import glob
import json
import os
import time

import pytest

from harness.daemons import PACE, wait_until
from harness.drains import half_written
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20
FILES, SIZE = 4, 6 * MIB + 777

pytestmark = [pytest.mark.limit(240), pytest.mark.expect_log("drain", "target")]


@pytest.fixture
def drains(new_store):
    """A store that drains slowly, and a set in it."""
    store = new_store()
    store.start_manager()
    for _ in range(2):
        store.add_benefactor("--drain-max=4MB/s", "--target-timeout=2s")
    m = store.add_mount()
    os.makedirs(m.at("chk_0007"))
    for i in range(FILES):
        write_file(m.at(f"chk_0007/{i}"), content(i, 0, SIZE + i), sync=True)
    return store


def begin(store, target):
    """A part of it is in the target, and most is not."""
    job = json.loads(store.fpctl("drain", store.mounts[0].at("chk_0007"), f"--to={target.path}", "--json").stdout)["job"]
    wait_until("a file that is being drained", 60, lambda: half_written(target.path), 0.02)
    return job


def shown(store):
    return json.loads(store.fpctl("drain", "show", "--json").stdout)


def programs_go_on(store, seed):
    m = store.mounts[0]
    began = time.monotonic()
    write_file(m.at(f"other-{seed}"), content(seed, 0, 3 * MIB), sync=True)
    assert_same(read_file(m.at(f"other-{seed}")), content(seed, 0, 3 * MIB))
    took = time.monotonic() - began
    assert took < 10 * PACE, f"a program has waited for a target: {took:.1f} s"


def told(store, words, seconds=60):
    """fpctl drain show says that the target is in trouble, in one of these words."""
    def look():
        states = [s["state"] for t in shown(store)["targets"] for s in t["benefactors"]]
        return [s for s in states if s in words]
    wait_until(lambda: f"{words} in {shown(store)}", seconds, look, 0.2)


def finish(store, target, job, seconds=150):
    def ended():
        state = [j for j in shown(store)["jobs"] if j["job"] == job][0]
        assert state["state"] not in ("failed", "cancelled"), state
        return state["state"] == "done"
    wait_until(lambda: f"the end of the job: {shown(store)}", seconds, ended, 0.3)
    for i in range(FILES):
        with open(os.path.join(target.path, f"chk_0007/{i}"), "rb") as f:
            assert_same(f.read(), content(i, 0, SIZE + i), f"file {i}")
    assert not glob.glob(os.path.join(target.path, ".fp-drain", "*-*-*"))


def test_a_brick_of_glusterfs_dies_and_comes_back(drains, targets, as_root):
    target = targets.gluster(ping_seconds=3)
    job = begin(drains, target)
    target.kill_brick()
    programs_go_on(drains, 50)
    told(drains, ("unreachable", "I/O errors", "stale"))
    target.restart_brick()
    target.wait_usable()
    finish(drains, target, job)


def test_a_brick_of_glusterfs_stops_and_goes_on(drains, targets, as_root):
    target = targets.gluster(ping_seconds=5)
    job = begin(drains, target)
    target.hang()
    programs_go_on(drains, 51)
    told(drains, ("hangs", "unreachable", "I/O errors"))
    programs_go_on(drains, 52)
    target.resume()
    target.wait_usable()
    finish(drains, target, job)


def test_a_mount_of_glusterfs_is_lost_and_made_again(drains, targets, as_root):
    target = targets.gluster(ping_seconds=3)
    job = begin(drains, target)
    target.lose()
    programs_go_on(drains, 53)
    told(drains, ("unreachable", "I/O errors", "stale"))
    target.come_back()
    finish(drains, target, job)


def test_a_disk_that_others_fill(drains, targets, as_root):
    target = targets.loop()
    job = begin(drains, target)
    target.fill()
    told(drains, ("full",))
    programs_go_on(drains, 54)
    target.make_room()
    finish(drains, target, job)


def test_a_disk_that_is_too_small_until_there_is_room(drains, targets, as_root):
    """Of the set it takes a part, which stays as it is."""
    target = targets.loop()
    target.fill(leave_bytes=9 * MIB)
    job = begin(drains, target)
    told(drains, ("full",))
    programs_go_on(drains, 55)
    for path in glob.glob(os.path.join(target.path, "chk_0007/*")):
        i = int(os.path.basename(path))
        with open(path, "rb") as f:
            assert_same(f.read(), content(i, 0, SIZE + i), "what has its name is whole")
    target.make_room()
    finish(drains, target, job)


def test_a_disk_that_is_read_only(drains, targets, as_root):
    target = targets.loop()
    drains.fpctl("drain", drains.mounts[0].at("chk_0007/0"), f"--to={target.path}", "--wait", "--timeout=60s", seconds=80)
    wait_until("nothing of it to be open for writing", 60, lambda: read_only(target))
    job = json.loads(drains.fpctl("drain", drains.mounts[0].at("chk_0007"), f"--to={target.path}", "--json").stdout)["job"]
    told(drains, ("read-only",))
    programs_go_on(drains, 56)
    target.read_only(False)
    finish(drains, target, job)


def read_only(target):
    try:
        target.read_only()
        return True
    except Exception:  # busy
        return False


def test_a_file_system_that_stops(drains, targets):
    target = targets.slow()
    job = begin(drains, target)
    target.hang()
    programs_go_on(drains, 57)
    told(drains, ("hangs",))
    programs_go_on(drains, 58)
    r = drains.fpctl("drain", drains.mounts[0].at("chk_0007"), f"--to={target.path}", "--wait", "--timeout=2s", check=False, seconds=30)
    assert r.returncode == 3, r
    target.resume()
    finish(drains, target, job)


def test_who_waits_is_told_of_a_target_that_stops(drains, targets):
    """All is there, and nobody can look: late, with the reason, and there again when it answers."""
    target, top = targets.slow(), drains.mounts[0].at("chk_0007")
    drains.fpctl("drain", top, f"--to={target.path}", "--now", "--wait", "--timeout=120s", seconds=150)
    drains.fpctl("checkpoint", "commit", top, "--timeout=30s", seconds=50)
    time.sleep(6 * PACE)  # what was found is looked at again
    target.hang()
    for word, limit in (("being looked at", 1), ("does not come back", 8)):
        began = time.monotonic()
        r = drains.fpctl("wait", top, "--level=drained", f"--timeout={limit}s", check=False, seconds=40)
        assert r.returncode == 3 and word in r.stderr, r
        assert time.monotonic() - began < limit + 10 * PACE
    began = time.monotonic()
    r = drains.fpctl("checkpoint", "latest", drains.mounts[0].path, "--level=drained", "--timeout=4s", check=False, seconds=40)
    assert r.returncode == 3 and "does not come back" in r.stderr and "chk_0007" in r.stderr and not r.stdout, r
    assert time.monotonic() - began < 4 + 10 * PACE
    programs_go_on(drains, 60)
    target.resume()
    r = drains.fpctl("wait", top, "--level=drained", "--timeout=60s", check=False, seconds=80)
    assert r.returncode == 0, r
    assert len(shown(drains)["jobs"]) == 1  # nothing was drained again


def test_a_file_system_over_quota(drains, targets):
    target = targets.slow()
    job = begin(drains, target)
    target.fail("write=EDQUOT")
    told(drains, ("over quota",))
    programs_go_on(drains, 59)
    target.fail()
    finish(drains, target, job)
