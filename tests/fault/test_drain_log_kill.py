"""Drains with layout=log, and merges, survive whoever dies: what has the log's name is whole, and so is what has the file's."""

import glob
import os
import random
import signal
import subprocess
import time

import pytest

from harness.daemons import PACE, SLOW, bin_path, wait_until
from harness.files import assert_same, content, seed_of_run, write_file

MIB = 1 << 20
FILES, FILE_MIB = 4, 8


def processes_of(store):
    """fp-drain of the benefactors of this store."""
    found = []
    for b in store.benefactors:
        for path in glob.glob(f"/proc/{b.pid}/task/*/children"):
            with open(path) as f:
                found += [int(p) for p in f.read().split()]
    return found


def merge(log, to):
    return subprocess.run([bin_path("fpctl"), "merge", log, f"--to={to}", "--force"], capture_output=True, text=True, timeout=120 * SLOW)


class Drain:
    def __init__(self, store):
        self.store = store
        self.proc = subprocess.Popen([bin_path("fpctl"), "drain", store.mounts[0].at("set"), f"--to={store.target}", "--layout=log", "--wait", "--timeout=5min",
                                      f"--manager={store.addr}", f"--key={store.key}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def look(self):
        """Whatever has its name can be merged."""
        for i in range(FILES):
            log = os.path.join(self.store.target, f"set/{i}.fplog")
            if not os.path.exists(log):
                continue
            out = os.path.join(self.store.dir, f"merged-{i}")
            r = merge(log, out)
            assert r.returncode == 0, r.stderr
            with open(out, "rb") as f:
                assert_same(f.read(), content(i, 0, FILE_MIB * MIB + i), log)
            os.unlink(out)

    def begun(self):
        def some():
            assert self.proc.poll() is None, self.proc.stderr.read()
            found = glob.glob(os.path.join(self.store.target, ".fp-drain", "*-*-*", "stream-*"))
            return [t for t in found if os.path.exists(t) and os.stat(t).st_blocks > 0]
        wait_until("a log that is being written", 60, some, 0.02)

    def finish(self):
        out, err = self.proc.communicate(timeout=200 * SLOW)
        assert self.proc.returncode == 0, (self.proc.returncode, out, err)
        assert sorted(os.listdir(os.path.join(self.store.target, "set"))) == [f"{i}.fplog" for i in range(FILES)]
        self.look()
        wait_until("the end of temporary files", 60, lambda: not os.listdir(os.path.join(self.store.target, ".fp-drain")))

    def end(self):
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait(20)


@pytest.fixture
def drains(new_store):
    store = new_store()
    store.start_manager()
    for _ in range(2):
        store.add_benefactor("--drain-max=8MB/s")
    m = store.add_mount()
    store.target = os.path.join(store.dir, "target")
    os.mkdir(store.target)
    os.mkdir(m.at("set"))
    for i in range(FILES):
        write_file(m.at(f"set/{i}"), content(i, 0, FILE_MIB * MIB + i), sync=True)
    return store


@pytest.fixture
def drain(drains):
    d = Drain(drains)
    yield d
    d.end()


def test_workers_are_killed_while_they_write_logs(drains, drain):
    """Each that is started anew begins a stream; what the others have half written counts for nothing."""
    drains.expect("drain")
    drain.begun()
    for pid in wait_until("a process fp-drain", 20, lambda: processes_of(drains)):
        os.kill(pid, signal.SIGKILL)
    drain.finish()


def test_all_are_killed_again_and_again_while_they_write_logs(drains, drain):
    drains.expect(".")
    r = random.Random(seed_of_run())
    for _ in range(4):
        time.sleep(r.uniform(0.1, 1.5) * PACE)
        who = r.choice(["manager", "benefactor", "all"])
        if who in ("manager", "all"):
            drains.manager.kill(signal.SIGKILL)
        if who in ("benefactor", "all"):
            drains.benefactors[0].kill(signal.SIGKILL)
        drain.look()
        if not drains.manager.alive():
            drains.restart_manager()
        if not drains.benefactors[0].alive():
            drains.benefactors[0].start()
    drain.finish()


def test_a_merge_that_is_killed_leaves_no_name_and_the_next_one_makes_it(drains):
    m = drains.mounts[0]
    data = content(77, 0, 48 * MIB)
    write_file(m.at("big"), data, sync=True)
    drains.fpctl("benefactor", "set", "all", "max=0")
    drains.fpctl("drain", m.at("big"), f"--to={drains.target}", "--layout=log", "--wait", "--now", "--timeout=2min", seconds=140)
    log, out = os.path.join(drains.target, "big.fplog"), os.path.join(drains.dir, "big")
    r, killed = random.Random(seed_of_run()), 0
    for _ in range(20):
        proc = subprocess.Popen([bin_path("fpctl"), "merge", log, f"--to={out}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
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
