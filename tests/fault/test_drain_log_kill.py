"""Drains with layout=log, and merges, survive whoever dies: what has the log's name is whole, and so is what has the file's."""

import glob
import os
import random
import signal
import subprocess
import time

import pytest

from harness.daemons import SLOW, bin_path, wait_until
from harness.drains import MIB, Drain, kill_again_and_again, kill_workers, slow_store
from harness.files import assert_same, content, seed_of_run, write_file


def merge(log, to):
    return subprocess.run([bin_path("fpctl"), "merge", "--offline", log, f"--to={to}", "--force"], capture_output=True, text=True, timeout=120 * SLOW)


class LogDrain(Drain):
    options = ("--layout=log",)

    def name(self, i):
        return f"{i}.fplog"

    def check(self, i, path):
        """Whatever has its name can be merged."""
        out = os.path.join(self.store.dir, f"merged-{i}")
        r = merge(path, out)
        assert r.returncode == 0, r.stderr
        super().check(i, out)
        os.unlink(out)


@pytest.fixture
def drains(new_store):
    return slow_store(new_store, files=4)


@pytest.fixture
def drain(drains):
    d = LogDrain(drains)
    yield d
    d.end()


def test_workers_are_killed_while_they_write_logs(drains, drain):
    """Each that is started anew begins a stream; what the others have half written counts for nothing."""
    drains.expect("drain")
    drain.begun()
    wait_until("a process fp-drain", 20, lambda: kill_workers(*drains.benefactors))
    drain.finish()


def test_all_are_killed_again_and_again_while_they_write_logs(drains, drain):
    kill_again_and_again(drains, drain, 4, 1.5)


def test_a_merge_that_is_killed_leaves_no_name_and_the_next_one_makes_it(drains):
    m = drains.mounts[0]
    data = content(77, 0, 48 * MIB)
    write_file(m.at("big"), data, sync=True)
    drains.fpctl("benefactor", "set", "all", "max=0")
    drains.fpctl("drain", m.at("big"), f"--to={drains.target}", "--layout=log", "--wait", "--now", "--timeout=2min", seconds=140)
    log, out = os.path.join(drains.target, "big.fplog"), os.path.join(drains.dir, "big")
    r, killed = random.Random(seed_of_run()), 0
    for _ in range(20):
        proc = subprocess.Popen([bin_path("fpctl"), "merge", "--offline", log, f"--to={out}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(r.uniform(0, 0.05))
        proc.kill()
        proc.communicate(timeout=30)
        killed += proc.returncode == -signal.SIGKILL
        if os.path.exists(out):
            with open(out, "rb") as f:
                assert_same(f.read(), data)
            os.unlink(out)
    assert killed
    result = merge(log, out)
    assert result.returncode == 0, result.stderr
    with open(out, "rb") as f:
        assert_same(f.read(), data)
    assert not glob.glob(os.path.join(drains.dir, ".*fpmerge"))
