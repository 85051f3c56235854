"""Draining beside cp: the same files to the same target, from the store and from the native file system of the same device."""

import filecmp
import os
import random
import shutil
import subprocess
import time

from cases import Result, alternate, case, drop_caches
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


@case("drain")
def drain(env):
    """One benefactor, one target on the same device; cp is synced, as a drain is."""
    size = 2 * env.file_bytes // FILES // MIB * FILES
    source = os.path.join(env.native, "set")
    shutil.rmtree(env.native, ignore_errors=True)
    make_set(env, source)
    with env.store(size=8 * env.file_bytes) as store:
        make_set(env, os.path.join(store.mnt, "set"))
        os.mkdir(os.path.join(store.mnt, "small"))
        with open(os.path.join(store.mnt, "small", "f"), "wb") as f:
            f.write(b"x")

        def ours(i):
            target = env.path(f"target{i}")
            shutil.rmtree(target, ignore_errors=True)
            os.mkdir(target)
            drained(env, store, "small", target)  # its marker, once for a target
            drop_caches()
            took = drained(env, store, "set", target)
            same = filecmp.cmpfiles(source, os.path.join(target, "set"), os.listdir(source), shallow=False)[0] if i == 0 else os.listdir(source)
            if len(same) != FILES:
                raise BenchError("what is drained is not what was written")
            shutil.rmtree(target)
            env.syncfs()
            return size / took

        def cp(i):
            target = env.path(f"copy{i}")
            drop_caches()
            begun = time.monotonic()
            subprocess.run(["cp", "-r", source, target], check=True, timeout=LIMIT_S)
            subprocess.run(["sync", "-f", target], check=True, timeout=LIMIT_S)
            took = time.monotonic() - begun
            shutil.rmtree(target)
            env.syncfs()
            return size / took
        a, b = alternate(env.runs, ours, cp)
        yield Result("drain", "MiB/s", a, b, ("ratio", 1.0), "cp -r, sync", paired=True)
    shutil.rmtree(env.native, ignore_errors=True)
