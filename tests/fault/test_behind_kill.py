"""--close behind while mounts, manager and benefactors are killed at random: what was synced is there, what was replaced is the old file or the new one as a whole.

Two programs, one on each mount, take turns with the same files, so that each knows what the other was told. A version of a file is known by its content. A
file that was synced has that version, or one that came after it; one whose rename returned has that version, at least until something is killed.
"""

import errno
import os
import random
import threading
import time

import pytest

from harness.daemons import PACE, unmount, wait_until
from harness.files import content, pwrite_all, read_file, seed_of_run

SIZES = [100, 5000, 65537, 1_000_003, 2_500_000]
IN_PLACE = 1_500_000
SECONDS = 20
DEAD = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV)  # of a mount that was killed


class File:
    """candidates: the versions that it may have, the oldest first; 0: none yet."""

    def __init__(self, name, in_place):
        self.name, self.in_place = name, in_place
        self.lock = threading.Lock()  # held over each deed: so they have an order
        self.candidates = [0]
        self.torn = False      # a write in place failed on a mount that lives: it may have any part of it until all of it was written and synced
        self.sure_until = -1   # the newest is there, and nothing else, while there were no more kills than these

    def size(self, key):
        return 0 if key == 0 else IN_PLACE if self.in_place else SIZES[key % len(SIZES)]

    def look(self, mount):
        """The version that it has; -1: none of them. Raises OSError."""
        try:
            got = read_file(mount.at(self.name))
        except FileNotFoundError:
            return 0 if 0 in self.candidates else -1
        found = [k for k in reversed(self.candidates) if (k or self.in_place) and got == content(k, 0, self.size(k))]
        return found[0] if found else -1


class Model:
    def __init__(self, mounts):
        self.gates = {m: threading.Lock() for m in mounts}  # held over each deed, and while it is mounted anew: else the directory below is used
        self.files = [File(f"f{i}", i % 3 == 2) for i in range(9)]
        self.kills, self.key, self.over = 0, 0, False
        self.done, self.errors, self.wrong = {}, [], []
        self.key_lock = threading.Lock()

    def next_key(self):
        with self.key_lock:
            self.key += 1
            return self.key

    def write(self, mount, f, rnd):
        key, kills, sync = self.next_key(), self.kills, rnd.random() < 0.4
        path = mount.at(f.name) if f.in_place else mount.at(f"{f.name}.{key}")
        f.candidates.append(key)
        f.sure_until = -1
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            pwrite_all(fd, content(key, 0, f.size(key)), 0)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        if not f.in_place:
            os.rename(path, mount.at(f.name))
        if sync:
            f.candidates, f.torn = [key], False
        f.sure_until = kills
        return "synced" if sync else "closed"

    def read(self, mount, f):
        sure = f.sure_until
        key = f.look(mount)
        if key < 0 and not f.torn:
            self.wrong.append(f"{f.name}: none of the versions {f.candidates}")
        elif sure == self.kills and key != f.candidates[-1]:
            self.wrong.append(f"{f.name}: version {key}, though {f.candidates[-1]} was there and nothing was killed since")
        return "read"

    def deed(self, mount, f, rnd):
        with f.lock:
            reads = rnd.random() < 0.5
            try:
                what = self.read(mount, f) if reads else self.write(mount, f, rnd)
                self.done[what] = self.done.get(what, 0) + 1
            except OSError as e:
                self.errors.append(e.errno)
                f.torn |= f.in_place and not reads and e.errno not in DEAD
                time.sleep(0.05)

    def program(self, mount, seed):
        rnd = random.Random(seed)
        while not self.over:
            with self.gates[mount]:
                self.deed(mount, rnd.choice(self.files), rnd)


def killed(store, rnd, gates):
    """One process dies and is started again, a moment later."""
    who = rnd.choice([*store.mounts, *store.mounts, store.manager, *store.benefactors])
    who.kill()
    time.sleep(rnd.random() * 1.5)
    if who is store.manager:
        store.restart_manager()
        return "manager"
    if who not in store.mounts:
        who.start()
        return "benefactor"
    with gates[who]:
        unmount(who.path)
        who.start()
    return "mount"


def at_the_end(f, mounts):
    """What is wrong with it, once it can be read."""
    def look(m):
        try:
            return (f.look(m),)
        except OSError:
            return None  # benefactors come back, and an error that no close could tell is told once
    keys = {wait_until(f"{f.name} can be read on {m.name}", 60, lambda m=m: look(m))[0] for m in mounts}
    if f.torn or (len(keys) == 1 and -1 not in keys):
        return None
    return f"{f.name} has at the end {keys}, of {f.candidates}"


@pytest.mark.limit(240)
@pytest.mark.expect_log("benefactor", "inode", "manager", "could not be opened", "closed", "lost", "refused", "session")
def test_what_was_synced_or_replaced_is_whole(new_store):
    seed = seed_of_run()
    rnd = random.Random(seed)
    s = new_store().up(mounts=2, pool="48MiB", manager_args=["--session-timeout=6s"], mount_args=["--close=behind", "--io-timeout=8s"])
    model, deeds = Model(s.mounts), []
    programs = [threading.Thread(target=model.program, args=(m, seed + i)) for i, m in enumerate(s.mounts)]
    for t in programs:
        t.start()
    until = time.monotonic() + SECONDS * PACE
    try:
        while (time.monotonic() < until or len(deeds) < 3) and not model.wrong:
            time.sleep(0.3 + rnd.random() * 2)
            model.kills += 1
            deeds.append(killed(s, rnd, model.gates))
            model.kills += 1  # what was told while it was away is not sure either
    finally:
        model.over = True
        for t in programs:
            t.join()
    print(f"seed {seed}: {model.done}, {len(model.errors)} errors; killed: {deeds}")
    assert model.wrong == []
    assert [w for w in (at_the_end(f, s.mounts) for f in model.files) if w] == []
    assert min(model.done.get(k, 0) for k in ("synced", "closed", "read")) > 5 and len(deeds) > 2
