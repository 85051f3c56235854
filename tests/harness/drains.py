"""A slow drain of some files, for tests that kill somebody or break something in the middle; and the processes fp-drain of benefactors.

    drains   a fixture, of the test: drains.slow_store(new_store), which has .target
    drain    fpctl drain --wait of all files, which the fixture begins and ends; Drain for copies, or a class of it for another layout
"""

import glob
import os
import random
import signal
import time

from .daemons import PACE, SLOW, wait_until
from .files import assert_same, content, seed_of_run, write_file

MIB = 1 << 20
FILE_MIB = 8


def workers_of(*benefactors):
    """Process ids of their fp-drain."""
    found = []
    for b in benefactors:
        for path in glob.glob(f"/proc/{b.pid}/task/*/children"):
            try:
                with open(path) as f:
                    found += [int(p) for p in f.read().split()]
            except OSError:  # the thread, or the benefactor, has ended
                pass
    return found


def kill_workers(*benefactors):
    """How many were killed."""
    killed = 0
    for pid in workers_of(*benefactors):
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            pass
    return killed


def half_written(target):
    """Files in a target that have no name yet, and something in them."""
    temps = os.path.join(target, ".fp-drain", "*-*-*")
    found = []
    for path in glob.glob(temps) + glob.glob(os.path.join(temps, "stream-*")):
        try:
            if os.path.isfile(path) and os.stat(path).st_blocks > 0:
                found.append(path)
        except FileNotFoundError:
            pass
    return found


def slow_store(new_store, files, drain_max="8MB/s"):
    """Two benefactors that drain slowly, files set/0, set/1, ... of `want`, and an empty target."""
    store = new_store()
    store.start_manager()
    for _ in range(2):
        store.add_benefactor(f"--drain-max={drain_max}")
    m = store.add_mount()
    store.target = store.make_dir("target")
    os.mkdir(m.at("set"))
    for i in range(files):
        write_file(m.at(f"set/{i}"), want(i), sync=True)
    return store


def want(i):
    return content(i, 0, FILE_MIB * MIB + i)


class Drain:
    """fpctl drain --wait, and a look at the target all the while."""
    options = ()

    def __init__(self, store):
        self.store = store
        self.files = len(os.listdir(store.mounts[0].at("set")))
        self.proc = store.begin_fpctl("drain", store.mounts[0].at("set"), f"--to={store.target}", "--wait", "--timeout=5min", *self.options)

    def name(self, i):
        return str(i)

    def check(self, i, path):
        """What has its name there is whole."""
        with open(path, "rb") as f:
            assert_same(f.read(), want(i), path)

    def look(self):
        for i in range(self.files):
            path = os.path.join(self.store.target, "set", self.name(i))
            if os.path.exists(path):
                self.check(i, path)

    def begun(self):
        """Something has been written, and not all."""
        def some():
            assert self.proc.poll() is None, self.proc.stderr.read()
            return half_written(self.store.target)
        wait_until("a file that is being drained", 60, some, 0.02)

    def finish(self):
        out, err = self.proc.communicate(timeout=200 * SLOW)
        assert self.proc.returncode == 0, (self.proc.returncode, out, err)
        self.look()
        assert sorted(os.listdir(os.path.join(self.store.target, "set"))) == [self.name(i) for i in range(self.files)]
        wait_until("the end of temporary files", 60, lambda: not os.listdir(os.path.join(self.store.target, ".fp-drain")))

    def end(self):
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait(20)


def kill_again_and_again(store, drain, times, pause, whom=("manager", "benefactor", "all")):
    """Somebody, after up to `pause` seconds each time; a look at the target, and they are started again. "worker" is fp-drain of all benefactors."""
    store.expect(".")
    r = random.Random(seed_of_run())
    for _ in range(times):
        time.sleep(r.uniform(0.1, pause) * PACE)
        who = r.choice(whom)
        if who == "worker":
            kill_workers(*store.benefactors)
        kill_daemons(store, who)
        drain.look()
        restart_daemons(store)
    drain.finish()


def kill_daemons(store, who):
    """The manager, the first benefactor, or both ("all")."""
    if who in ("manager", "all"):
        store.manager.kill(signal.SIGKILL)
    if who in ("benefactor", "all"):
        store.benefactors[0].kill(signal.SIGKILL)


def restart_daemons(store):
    """Those that kill_daemons has killed."""
    if not store.manager.alive():
        store.restart_manager()
    if not store.benefactors[0].alive():
        store.benefactors[0].start()
