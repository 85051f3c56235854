"""Draining and staging in beside cp: the same files to and from the same target, with the store and with the native file system of the same device."""

import filecmp
import os
import random
import shutil
import subprocess
import time

from cases import Result, alternate, case, drop_caches
from cases_perturb import slow_target
from store import MIB, BenchError

FILES = 8
LIMIT_S = 120


def make_set(env, directory):
    os.makedirs(directory)
    piece = random.Random(5).randbytes(MIB)  # the same in both
    for i in range(FILES):
        with open(os.path.join(directory, f"rank_{i}"), "wb", buffering=0) as f:
            for k in range(2 * env.file_bytes // FILES // MIB):
                f.write(bytes([i, k % 256]) + piece[2:])
            os.fsync(f.fileno())


def drained(env, store, path, target):
    """Seconds from the command until all have their names there."""
    names = sorted(os.listdir(os.path.join(store.mnt, path)))
    begun = time.monotonic()
    r = subprocess.run([store.program("fpctl"), "drain", os.path.join(store.mnt, path), f"--to={target}", "--now", f"--manager={store.manager.ready}",
                        f"--key={store.key}"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if r.returncode != 0:
        raise BenchError(f"fpctl drain: {r.stderr.strip()}")
    while not all(os.path.exists(os.path.join(target, path, n)) for n in names):
        if time.monotonic() - begun > LIMIT_S:
            raise BenchError(f"nothing is drained to {target} within {LIMIT_S} s")
        time.sleep(0.002)
    return time.monotonic() - begun


def set_mib(env):
    return 2 * env.file_bytes // FILES // MIB * FILES


def of_store(env, source, where, take):
    """take(i) brings the set to where(i), and says how long that took: MiB a second."""
    def run(i):
        took = take(i)
        same = filecmp.cmpfiles(source, os.path.join(where(i), "set"), os.listdir(source), shallow=False)[0] if i == 0 else os.listdir(source)
        if len(same) != FILES:
            raise BenchError("what has been copied is not what was written")
        shutil.rmtree(where(i))
        env.syncfs()
        return set_mib(env) / took
    return run


def of_cp(env, source):
    def run(i):
        copy = env.path(f"copy{i}")
        drop_caches()
        begun = time.monotonic()
        subprocess.run(["cp", "-r", source, copy], check=True, timeout=LIMIT_S)
        subprocess.run(["sync", "-f", copy], check=True, timeout=LIMIT_S)
        took = time.monotonic() - begun
        shutil.rmtree(copy)
        env.syncfs()
        return set_mib(env) / took
    return run


def make_small(directory):
    """Of one byte: the first that is drained to a target, or staged in from it, makes its marker."""
    os.mkdir(directory)
    with open(os.path.join(directory, "f"), "wb") as f:
        f.write(b"x")


@case("drain")
def drain(env):
    """One benefactor, one target on the same device; cp is synced, as a drain is."""
    source = os.path.join(env.native, "set")
    shutil.rmtree(env.native, ignore_errors=True)
    make_set(env, source)
    with env.store(size=8 * env.file_bytes) as store:
        make_set(env, os.path.join(store.mnt, "set"))
        make_small(os.path.join(store.mnt, "small"))

        def target(i):
            return env.path(f"target{i}")

        def take(i):
            shutil.rmtree(target(i), ignore_errors=True)
            os.mkdir(target(i))
            drained(env, store, "small", target(i))
            drop_caches()
            return drained(env, store, "set", target(i))
        a, b = alternate(env.runs, of_store(env, source, target, take), of_cp(env, source))
        yield Result("drain", "MiB/s", a, b, ("ratio", 1.0), "cp -r, sync", paired=True)
    shutil.rmtree(env.native, ignore_errors=True)


def staged_in(env, store, source, to):
    """Seconds from the command until all have their names in the store, and are synced."""
    options = [f"--manager={store.manager.ready}", f"--key={store.key}", f"--timeout={LIMIT_S}s"]
    paths = [os.path.join(to, os.path.basename(source), n) for n in os.listdir(source)]
    begun = time.monotonic()
    with subprocess.Popen([store.program("fpctl"), "stage-in", source, f"--to={to}", f"--target={os.path.dirname(source)}", *options], stdout=subprocess.DEVNULL) as p:
        while p.poll() is None and not all(os.path.exists(n) for n in paths):
            time.sleep(0.01)  # each look is a request to the manager, which takes processor time from our side alone
        r = subprocess.run([store.program("fpctl"), "wait", "--level=local", *paths, *options], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        took = time.monotonic() - begun
        if r.returncode != 0 or p.wait(LIMIT_S) != 0:
            raise BenchError(f"fpctl stage-in: {r.stderr.strip()}")
    return took


@case("stage-in")
def stage_in(env):
    """One benefactor, a target on the same device; cp is synced, and so is what is staged in."""
    target = env.path("target")
    source = os.path.join(target, "set")
    shutil.rmtree(target, ignore_errors=True)
    make_set(env, source)
    time.sleep(2)  # what has just changed is waited for
    with env.store(size=8 * env.file_bytes) as store:
        make_small(os.path.join(target, "small"))
        staged_in(env, store, os.path.join(target, "small"), store.mnt)

        def where(i):
            return os.path.join(store.mnt, f"in{i}")

        def take(i):
            os.mkdir(where(i))
            drop_caches()
            return staged_in(env, store, source, where(i))
        a, b = alternate(env.runs, of_store(env, source, where, take), of_cp(env, source))
        yield Result("stage-in", "MiB/s", a, b, ("ratio", 1.0), "cp -r, sync", paired=True)
    shutil.rmtree(target, ignore_errors=True)



BUFFER = 256 * MIB  # the paper's checkpoints have as much
SET = BUFFER - 4 * MIB  # with the headers of its records it fits into one buffer
SETS = 6
DISK = 85e6 / MIB  # a second, of fp-slowfs, as in the paper


class Checkpoints:
    """Of one process: each is written anew, in 1 MiB, as large as a buffer."""

    def __init__(self, store):
        self.store, self.n = store, 0
        self.piece = random.Random(7).randbytes(MIB)

    def fpctl(self, *args):
        r = subprocess.run([self.store.program("fpctl"), *args, f"--manager={self.store.manager.ready}", f"--key={self.store.key}"], capture_output=True, text=True,
                           timeout=LIMIT_S, check=False)
        if r.returncode != 0:
            raise BenchError(f"fpctl {' '.join(args)}: {r.stderr.strip()}")
        return r.stdout

    def path(self, n):
        return os.path.join(self.store.mnt, "run", f"chk_{n:04}")

    def write(self):
        """Seconds until close has returned; an error ends the benchmark."""
        self.n += 1
        os.makedirs(self.path(self.n))
        begun = time.monotonic()
        with open(os.path.join(self.path(self.n), "rank_0"), "wb", buffering=0) as f:
            for k in range(SET // MIB):
                f.write(bytes([self.n % 256, k % 256]) + self.piece[2:])
        took = time.monotonic() - begun
        with open(os.path.join(self.path(self.n), "DONE"), "wb"):
            pass
        return took

    def drained(self):
        self.fpctl("wait", "--level=drained", f"--timeout={LIMIT_S}s", self.path(self.n))


def to_a_slow_target(env, target):
    """Rates of checkpoints that come faster than the target takes them, once the buffers are full; and of such that leave it the time."""
    fast, slow = [], []
    for _ in range(min(env.runs, 3)):
        with env.store(backend="memory:buffers=3", size=3 * BUFFER, pool=32 * MIB) as store:
            c = Checkpoints(store)
            c.fpctl("drain", "set", f"to={target} keep=1 low=50%")  # one that is kept, one that fills, one that drains or is free
            for _ in range(4):  # what the buffers and the pool take
                c.write()
            begun = time.monotonic()
            for _ in range(SETS):
                c.write()
            fast.append(SETS * SET / MIB / (time.monotonic() - begun))
            shutil.rmtree(os.path.join(store.mnt, "run"))
            time.sleep(4)  # the space of what was deleted, and what was under way
            for _ in range(3):
                slow.append(SET / MIB / c.write())
                c.drained()
                time.sleep(1)
        for name in os.listdir(target):
            if not name.startswith("."):
                shutil.rmtree(os.path.join(target, name))
    return fast, slow


def in_memory(env, runs):
    """The same process and a store that is large enough, drained to nowhere."""
    rates = []
    with env.store(backend="memory", size=(runs + 2) * BUFFER, pool=32 * MIB) as store:
        c = Checkpoints(store)
        c.write()
        for _ in range(runs):
            rates.append(SET / MIB / c.write())
            time.sleep(0.5)
    return rates


@case("triple-buffer-fast", "triple-buffer-slow")
def triple_buffer(env):
    """The paper's Figure 7: three buffers in memory, drained to a disk of 85 MB/s."""
    with slow_target(env) as target:
        fast, slow = to_a_slow_target(env, target)
    yield Result("triple-buffer-fast", "MiB/s", fast, [DISK] * len(fast), ("ratio", 0.9), "the target's rate")
    yield Result("triple-buffer-slow", "MiB/s", slow, in_memory(env, len(slow)), ("ratio", 0.9), "memory, not drained")
