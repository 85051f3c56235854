"""Why something does not go on: whoever waits for it, or looks at it, is told within seconds, and not what it was like before."""

import json
import os
import threading
import time

import pytest

from harness.daemons import PACE, wait_until
from harness.files import content, write_file

MIB = 1 << 20
SIZE = 5 * MIB + 123


@pytest.fixture
def one(new_store, targets):
    """A benefactor with all times as they are by default, and a target that can be stopped."""
    s = new_store()
    s.expect("target|drain job")
    s.up(benefactors=1, mounts=1, manager_args=("--ckpt-quiet=500ms",))
    s.target = targets.slow()
    return s


def jobs(store):
    return json.loads(store.fpctl("drain", "show", "--json").stdout)["jobs"]


def late(store, *args):
    """It has waited in vain; what it has said."""
    r = store.fpctl(*args, check=False, seconds=60)
    assert r.returncode == 3, r
    return r.stdout + r.stderr


@pytest.mark.limit(180)
def test_a_target_that_has_just_stopped_is_said_to_be_slow(one):
    """Long before it is said to hang, which is so after half a minute."""
    m, to = one.mounts[0], one.target.path
    for name in ("gone", "there"):
        write_file(m.at(name), content(1, 0, SIZE))
    one.fpctl("drain", m.at("gone"), f"--to={to}", "--wait", "--timeout=60s", seconds=80)
    one.fpctl("evict", m.at("gone"), "--timeout=60s", seconds=80)
    one.target.hang()
    slow = "the target is slow on node"
    assert slow in late(one, "drain", m.at("there"), f"--to={to}", "--now", "--wait", f"--timeout={8 * PACE}s")
    state, = (t["benefactors"] for t in json.loads(one.fpctl("drain", "show", "--json").stdout)["targets"])
    assert [s["state"] for s in state] == ["slow"] and "under way for some seconds" in state[0]["who"], state
    assert slow in late(one, "stage-in", m.at("gone"), f"--timeout={8 * PACE}s")
    assert slow in late(one, "wait", m.at("there"), "--level=drained", f"--to={to}", f"--timeout={8 * PACE}s")
    one.target.resume()
    for args in (("stage-in", m.at("gone")), ("drain", m.at("there"), f"--to={to}", "--now", "--wait")):
        one.fpctl(*args, "--timeout=60s", seconds=80)
    wait_until("nothing to be said of it", 20, lambda: "slow" not in one.fpctl("drain", "show").stdout)


@pytest.mark.parametrize("what,word", [("hold=on", "holds back: hold=on"), ("drain=off", "drain=off")])
def test_benefactors_that_are_told_not_to_drain(one, what, word):
    m = one.mounts[0]
    os.makedirs(m.at("run/chk_1"))
    write_file(m.at("run/chk_1/rank_0"), content(1, 0, SIZE))
    one.fpctl("checkpoint", "commit", m.at("run/chk_1"))
    one.fpctl("benefactor", "set", "all", what)
    assert word in late(one, "drain", m.at("run/chk_1"), f"--to={one.target.path}", "--wait", f"--timeout={4 * PACE}s")
    assert word in jobs(one)[0]["why"]
    row, = json.loads(one.fpctl("checkpoints", m.at("run"), "--json").stdout)["checkpoints"]
    assert word in row["drain"]["why"] and row["drain"]["rate"] == row["drain"]["left_s"] == 0, row
    assert word in one.fpctl("checkpoints", m.at("run")).stdout
    one.fpctl("benefactor", "set", "all", "hold=off" if what == "hold=on" else "drain=on")
    one.fpctl("drain", m.at("run/chk_1"), f"--to={one.target.path}", "--wait", "--timeout=60s", seconds=80)


def longest_pause(times):
    """Seconds between two of them, or since the last one."""
    return max(b - a for a, b in zip(times, times[1:] + [time.monotonic()]))


@pytest.mark.limit(180)
def test_a_file_that_is_being_changed_is_not_copied_and_that_is_said(one, targets):
    """Written and synced all the time, to a target that takes a second for it: each attempt at it is over before it is done. Not so where the disk takes as long for a
    sync: the file was left alone in that time, and is copied."""
    m, over, synced = one.mounts[0], threading.Event(), []
    target = targets.slow(emulate="write=2MB/s")

    def write():
        with open(m.at("log"), "wb", buffering=0) as f:
            f.write(content(1, 0, 2 * MIB))
            while not over.is_set():
                f.write(b"x" * 4096)
                os.fsync(f.fileno())
                synced.append(time.monotonic())
                time.sleep(0.02)
    args = ("stage-out", m.at("log"), f"--to={target.path}")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until("the first sync", 20, lambda: synced)
        for _ in range(5):
            del synced[:-1]
            r = one.fpctl(*args, f"--timeout={6 * PACE}s", check=False, seconds=60)
            pause = longest_pause(list(synced))
            if r.returncode == 3 or pause < 0.5:
                break
    finally:
        over.set()
        writer.join()
    assert r.returncode == 3 and "log is being " in r.stdout + r.stderr, (r, pause)
    one.fpctl(*args, "--timeout=60s", seconds=80)


def test_when_a_target_is_looked_at_again_is_said(one):
    m = one.mounts[0]
    write_file(m.at("before"), content(0, 0, SIZE))
    one.fpctl("drain", m.at("before"), f"--to={one.target.path}", "--wait", "--timeout=60s", seconds=80)
    write_file(m.at("f"), content(1, 0, SIZE))
    one.target.fail("write=EIO")
    job = json.loads(one.fpctl("drain", m.at("f"), f"--to={one.target.path}", "--json").stdout)["job"]

    def again():
        j, = (j for j in jobs(one) if j["job"] == job)
        return j["why"] and j["again_s"] >= 3
    wait_until("pauses to grow", 40, again)
    shown = one.fpctl("drain", "show").stdout
    assert "(looked at again in " in shown and "; looked at again in " in shown, shown
    one.target.fail()
    one.fpctl("drain", m.at("f"), f"--to={one.target.path}", "--now", "--wait", "--timeout=60s", seconds=80)
