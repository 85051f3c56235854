"""Drains survive whoever dies: they go on where they were, and no name in the target is ever seen with less than a whole file."""

import os
import signal
import time

import pytest

from harness.daemons import PACE, SLOW, wait_until
from harness.drains import FILE_MIB, MIB, Drain, kill_again_and_again, kill_workers, slow_store
from harness.files import assert_same, content, write_file


@pytest.fixture
def drains(new_store):
    return slow_store(new_store, files=6)


@pytest.fixture
def drain(drains):
    d = Drain(drains)
    yield d
    d.end()


def test_manager_is_killed_while_it_drains(drains, drain):
    drains.expect("manager|connection|session|drain")
    drain.begun()
    drains.manager.kill(signal.SIGKILL)
    drain.look()
    time.sleep(0.5 * PACE)
    drains.restart_manager()
    drain.finish()


def test_benefactor_is_killed_while_it_drains(drains, drain):
    drains.expect("connection|benefactor|drain")
    drain.begun()
    drains.benefactors[0].kill(signal.SIGKILL)
    drain.look()
    time.sleep(0.5 * PACE)
    drains.benefactors[0].start()
    drain.finish()


def test_worker_is_killed_while_it_drains(drains, drain):
    drains.expect("drain")
    drain.begun()
    wait_until("a process fp-drain", 20, lambda: kill_workers(*drains.benefactors))
    drain.finish()


def test_all_are_killed_again_and_again(drains, drain):
    kill_again_and_again(drains, drain, 5, 1.5, ("manager", "benefactor", "worker", "all"))


def test_file_is_rewritten_while_it_is_drained(drains, drain):
    """What has the name in the target is one of the versions, whole; in the end the last."""
    drain.begun()
    m = drains.mounts[0]
    write_file(m.at("set/3"), content(33, 0, FILE_MIB * MIB + 3), sync=True)
    out, err = drain.proc.communicate(timeout=200 * SLOW)
    assert drain.proc.returncode == 0, (out, err)
    drains.fpctl("drain", m.at("set"), f"--to={drains.target}", "--wait", "--timeout=5min", seconds=320)
    with open(os.path.join(drains.target, "set/3"), "rb") as f:
        assert_same(f.read(), content(33, 0, FILE_MIB * MIB + 3))
