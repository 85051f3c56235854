"""Drains survive whoever dies: they go on where they were, and no name in the target is ever seen with less than a whole file."""

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
FILES, FILE_MIB = 6, 8


def processes_of(store):
    """fp-drain of the benefactors of this store."""
    found = []
    for b in store.benefactors:
        for path in glob.glob(f"/proc/{b.pid}/task/*/children"):
            with open(path) as f:
                found += [int(p) for p in f.read().split()]
    return found


@pytest.fixture
def drains(new_store):
    """A store whose benefactors drain slowly, files in it, and the target."""
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


class Drain:
    """fpctl drain --wait, and a look at the target all the while."""

    def __init__(self, store):
        self.store = store
        self.proc = subprocess.Popen([bin_path("fpctl"), "drain", store.mounts[0].at("set"), f"--to={store.target}", "--wait", "--timeout=5min",
                                      f"--manager={store.addr}", f"--key={store.key}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def look(self):
        """Whatever has its name is whole."""
        for i in range(FILES):
            path = os.path.join(self.store.target, f"set/{i}")
            if os.path.exists(path):
                with open(path, "rb") as f:
                    assert_same(f.read(), content(i, 0, FILE_MIB * MIB + i), path)

    def begun(self):
        """Something has been written, and not all."""
        def some():
            assert self.proc.poll() is None, self.proc.stderr.read()
            temps = glob.glob(os.path.join(self.store.target, ".fp-drain", "*-*-*"))
            return [t for t in temps if os.stat(t).st_blocks > 0]
        wait_until("a file that is being drained", 60, some, 0.02)

    def finish(self):
        out, err = self.proc.communicate(timeout=200 * SLOW)
        assert self.proc.returncode == 0, (self.proc.returncode, out, err)
        self.look()
        assert sorted(os.listdir(os.path.join(self.store.target, "set"))) == [str(i) for i in range(FILES)]

        def clean():
            return not os.listdir(os.path.join(self.store.target, ".fp-drain"))
        wait_until("the end of temporary files", 60, clean)

    def end(self):
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait(20)


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
    pids = wait_until("a process fp-drain", 20, lambda: processes_of(drains))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    drain.finish()


def test_all_are_killed_again_and_again(drains, drain):
    drains.expect(".")
    r = random.Random(seed_of_run())
    for _ in range(5):
        time.sleep(r.uniform(0.1, 1.5) * PACE)
        who = r.choice(["manager", "benefactor", "worker", "all"])
        if who == "worker":
            for pid in processes_of(drains):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
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
