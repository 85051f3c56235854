"""Checkpoints are written, drained, evicted and restarted from while somebody is killed at any moment: no byte is wrong, no complete set is lost, and what is shown is true.

FP_KILLS=200 for the whole; FP_SEED replays the choices (who, when), not what of it the machine's load makes.
"""

import glob
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest

from harness.daemons import PACE, SLOW, bin_path, wait_until
from harness.drains import kill_workers
from harness.files import assert_same, content, seed_of_run

MIB = 1 << 20
KILLS = int(os.environ.get("FP_KILLS", "20"))
FILES, KEEP = 3, 12


def size_of(step, i):
    return (i + 1) * MIB // 2 + step * 4099 + i


def want(step, i):
    return content(step * FILES + i, 0, size_of(step, i))


class Life(threading.Thread):
    """The application and its script: writes a step, commits it, drains it, evicts an older one, and reads one back. What fails while somebody is dead is left and the next step begun;
    what was said to be done is held against the store."""

    def __init__(self, store, target, seed):
        super().__init__(daemon=True)
        self.store, self.target, self.r = store, target, random.Random(seed)
        self.mount = store.mounts[0]
        self.stopping = threading.Event()
        self.synced, self.committed, self.copied = set(), set(), set()
        self.restarts = self.looks = self.levels = self.gone = self.evicted = 0
        self.wrong = None

    def dir(self, step):
        return self.mount.at(f"chk_{step:04}")

    def fpctl(self, *args, seconds=20):
        return subprocess.run([bin_path("fpctl"), *args, f"--manager={self.store.addr}", f"--key={self.store.key}"], capture_output=True, text=True,
                              timeout=seconds * SLOW)

    def write(self, step):
        os.mkdir(self.dir(step))
        for i in range(FILES):
            with open(os.path.join(self.dir(step), f"rank_{i}"), "wb", buffering=0) as f:
                if os.fstat(f.fileno()).st_dev == os.stat(self.store.dir).st_dev:
                    raise OSError("the directory below the mount, which is not back yet")
                data = want(step, i)
                while data:
                    data = data[f.write(data):]
                os.fsync(f.fileno())
        self.synced.add(step)

    def read(self, step):
        """OSError: who has it is dead just now."""
        for i in range(FILES):
            path = os.path.join(self.dir(step), f"rank_{i}")
            with open(path, "rb", buffering=0) as f:
                got = b""
                while piece := f.read(MIB):
                    got += piece
            assert_same(got, want(step, i), path)

    def read_patiently(self, step):
        """Whoever is dead is back in a moment: what can't be read for a minute is lost."""
        until = time.monotonic() + 60 * SLOW
        while True:
            try:
                return self.read(step)
            except OSError as e:
                assert time.monotonic() < until, f"step {step} can't be read: {e}"
                time.sleep(0.2)

    def copies(self, step):
        for i in range(FILES):
            with open(os.path.join(self.target, f"chk_{step:04}", f"rank_{i}"), "rb") as f:
                assert_same(f.read(), want(step, i), f.name)

    def look(self):
        """Whatever has its name in the target is whole, and each level that is shown is so."""
        for path in glob.glob(os.path.join(self.target, "chk_*", "rank_*")):
            step, i = int(path.split("chk_")[1][:4]), int(path[-1])
            with open(path, "rb") as f:
                assert_same(f.read(), want(step, i), path)
            self.looks += 1
        shown = self.fpctl("checkpoints", self.mount.at(), "--json")
        for s in json.loads(shown.stdout)["checkpoints"] if shown.returncode == 0 else []:
            step = int(s["path"].split("chk_")[1][:4])
            if s["state"] == "complete" and step in self.synced:
                assert s["files"] == FILES, s
            if s["level"] in ("drained", "verified"):
                self.copies(step)
                self.levels += 1

    def step(self, step):
        self.write(step)
        if self.fpctl("checkpoint", "commit", self.dir(step), "--timeout=10s").returncode == 0:
            self.committed.add(step)
        verify = ["--verify"] if step % 2 else []
        if self.fpctl("drain", self.dir(step), f"--to={self.target}", "--wait", "--timeout=15s", *verify, seconds=40).returncode == 0:
            self.copies(step)
            self.copied.add(step)
        self.look()
        if self.copied:
            older = self.r.choice(sorted(self.copied)[:-2] or sorted(self.copied))  # the newest two stay
            self.evicted += self.fpctl("evict", self.dir(older), "--timeout=10s", seconds=30).returncode == 0
            self.read(older)
        self.read(self.r.choice(sorted(self.synced)))
        self.restarts += 1
        if len(self.synced) > KEEP:
            self.remove(min(self.synced))

    def remove(self, step):
        self.read_patiently(step)
        for said in (self.synced, self.committed, self.copied):
            said.discard(step)
        self.gone += 1
        shutil.rmtree(self.dir(step))
        shutil.rmtree(os.path.join(self.target, f"chk_{step:04}"), ignore_errors=True)

    def run(self):
        step = 0
        while not self.stopping.is_set():
            step += 1
            try:
                self.step(step)
            except OSError:  # somebody is dead
                time.sleep(0.1)
            except BaseException as e:  # told by the test
                self.wrong = e
                return


def kill_one(store, who):
    if who == "worker":
        kill_workers(*store.benefactors)
        return
    daemon = {"manager": store.manager, "benefactor 1": store.benefactors[0], "benefactor 2": store.benefactors[1], "mount": store.mounts[0]}[who]
    daemon.kill(signal.SIGKILL)
    if who == "manager":
        store.restart_manager()
    else:
        daemon.start(seconds=30)


@pytest.mark.limit(60 + 6 * KILLS)
def test_killed_at_random_moments_of_a_cycle_nothing_is_lost_or_shown_that_is_not_so(new_store, targets):
    r = random.Random(seed_of_run())
    store = new_store()
    store.expect(".")
    store.start_manager("--session-timeout=3s", "--orphan-grace=2s")
    for _ in range(2):
        store.add_benefactor()
    store.add_mount()
    target = targets.dir().path
    life = Life(store, target, r.random())
    life.start()
    killed = dict.fromkeys(("manager", "benefactor 1", "benefactor 2", "mount", "worker"), 0)
    try:
        for _ in range(KILLS):
            time.sleep(r.uniform(0.05, 1.2) * PACE)
            who = r.choice(sorted(killed))
            kill_one(store, who)
            killed[who] += 1
            assert life.wrong is None, life.wrong
    finally:
        life.stopping.set()
        life.join(150 * SLOW)
    assert not life.is_alive(), "a call hangs"
    if life.wrong:
        raise life.wrong
    # All are well: what was said to be safe is there, and can be drained.
    for step in sorted(life.synced):
        life.read_patiently(step)
    assert life.committed <= life.synced and life.copied <= life.synced
    for step in sorted(life.copied):
        life.copies(step)
    if life.synced:
        last = max(life.synced)
        done = life.fpctl("drain", life.dir(last), f"--to={target}", "--wait", "--verify", "--timeout=60s", seconds=90)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        life.copies(last)

    def left():
        return [n for n in os.listdir(os.path.join(target, ".fp-drain")) if "-needs-" not in n]  # these stay as long as something is only there
    wait_until(lambda: f"the end of temporary files: {left()}", 90, lambda: not left())
    life.look()
    print(f"{sum(killed.values())} kills {killed}: {len(life.synced) + life.gone} sets synced, {len(life.synced)} of them kept, {len(life.committed)} complete, "
          f"{len(life.copied)} drained, {life.evicted} times one evicted, {life.restarts} read back, "
          f"{life.looks} looks at files of the target, {life.levels} levels compared")
    assert len(life.synced) > 0 and len(life.copied) > 0, "nothing was tried"
    if KILLS >= 100:  # else they may all have been in vain
        assert life.evicted > 0 and life.levels > 0 and life.committed and life.restarts > 0, "a part of it was not tried"
