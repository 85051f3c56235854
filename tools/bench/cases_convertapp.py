"""What conversion in transit saves the application: heat3d that dumps raw, beside heat3d that writes parallel HDF5 by itself. Imported by bench.py for its cases.

heat3d has the application's core, everything of the store (and of fp-slowfs) the service core. Held is what the program itself measures: from the first open to the last close, of all
checkpoints, HDF5 with the syncs that heat3d makes: only then a restart can rely on it. A dump has none, and is as safe as close makes it. convert-app-unsynced is what is left of the difference when the
syncs are taken off. convert-app-behind is convert-app-mount with --close behind, for both. convert-app-device is convert-app-mount beside a program that writes as many
bytes to the same device with O_DIRECT, two blocks at a time as the store does, and does nothing else: without --close behind the program waits for the device, too.
"""

import contextlib
import os
import re
import shutil
import subprocess
import time

from cases import Result, case
from cases_perturb import MPI, slow_target
from cases_pipeline import on_service_core, service_core
from store import MIB, BenchError

GRID, STEPS, EVERY = 192, 60, 20  # 3 of 57 MB
DUMPS = STEPS // EVERY
DUMP_BYTES = (GRID + 2) ** 3 * 8 // (2 * MIB) * 2 * MIB  # whole blocks, of two jobs
LIMIT_S = 300


def heat3d(env, cores, *args):
    argv = ["bash", MPI, str(len(cores)), env.app("heat3d"), f"--n={GRID}", f"--steps={STEPS}", *args]
    r = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    if r.returncode != 0:
        raise BenchError(f"heat3d {' '.join(args)}: exit {r.returncode}: {(r.stdout + r.stderr)[-300:]}")
    return r.stdout


def held(out, what):
    """Seconds, and of these in syncs."""
    found = re.search(rf"^heat3d: {what}: .*?seconds=([\d.]+) MB/s=[\d.]+(?: sync_seconds=([\d.]+))?", out, re.M)
    if not found:
        raise BenchError(f"heat3d says nothing of its {what}: {out[-300:]}")
    return float(found[1]), float(found[2] or 0)


def wait_converted(store, dumps):
    until = time.monotonic() + LIMIT_S
    while not all(os.path.exists(f"{d}.h5") for d in dumps):
        if time.monotonic() > until:
            raise BenchError(f"not all of {', '.join(dumps)} is converted after {LIMIT_S} s")
        time.sleep(0.05)


class Held:
    """heat3d on the application's core and a store on the service core, which converts what is dumped: figures of each run."""

    def __init__(self, env):
        self.env, self.cores = env, set(range(os.cpu_count())) - {service_core()}
        if not self.cores:
            raise BenchError("it takes two cores: one of them is the service core")
        self.dumped, self.direct, self.unsynced, self.slow, self.device, self.after = [], [], [], [], [], []
        self.schema = env.path("heat3d.yaml")
        with open(self.schema, "w", encoding="utf-8") as f:
            f.write(heat3d(env, self.cores, "--schema"))

    @contextlib.contextmanager
    def store(self, *more):
        aux = f"--auxapp=convert from=raw to=hdf5 schema={self.schema} pattern=*/dump_*/rank_*.raw"
        with self.env.store(size=4096 * MIB, pool=256 * MIB, mount_args=on_service_core(aux, *more)) as store:
            for d in store.daemons():
                d.run_on({service_core()})
            yield store

    def checkpoints(self, at):
        return held(heat3d(self.env, self.cores, f"--checkpoint-every={EVERY}", f"--dir={at}"), "checkpoints")

    def run(self, store, i):
        """Dumps, then HDF5 by the program when these are converted."""
        at = os.path.join(store.mnt, f"run{i}")
        self.dumped.append(held(heat3d(self.env, self.cores, "--checkpoint-every=0", f"--dump-every={EVERY}", f"--dir={at}"), "dumps")[0])
        began = time.monotonic()
        wait_converted(store, [os.path.join(at, f"dump_{n:04d}") for n in range(EVERY, STEPS + 1, EVERY)])
        self.after.append(time.monotonic() - began)
        seconds, syncs = self.checkpoints(f"{at}/direct")
        self.direct.append(seconds)
        self.unsynced.append(seconds - syncs)
        shutil.rmtree(at)

    def run_device(self, store, free):
        store.settle(free)
        self.env.syncfs()
        os.makedirs(self.env.native, exist_ok=True)
        took = [self.env.io("write", path=os.path.join(self.env.native, f"dump_{i}"), size=DUMP_BYTES // 2, jobs=2, direct=True) for i in range(DUMPS)]
        self.device.append(sum(r["seconds"] for r in took))
        shutil.rmtree(self.env.native)
        self.env.syncfs()

    def more(self):
        return {"converted_s_after_the_end": round(sorted(self.after)[len(self.after) // 2], 3)}


@case("convert-app-mount", "convert-app-unsynced", "convert-app-device", "convert-app-pfs")
def convert_app(env):
    """Seconds that the application is held: dumps that are converted in transit, beside HDF5 written by it on the same mount, and on a file system of 85 MB/s."""
    h = Held(env)
    with slow_target(env) as pfs, h.store() as store:
        for i in range(env.runs):
            free = store.free_bytes()
            h.run(store, i)
            h.run_device(store, free)
            h.slow.append(h.checkpoints(f"{pfs}/run{i}")[0])
    yield Result("convert-app-mount", "s", h.dumped, h.direct, ("share", 0.5), "HDF5 by the program", h.more())
    yield Result("convert-app-unsynced", "s", h.dumped, h.unsynced, None, "HDF5, no syncs", h.more())
    yield Result("convert-app-device", "s", h.dumped, h.device, None, "O_DIRECT, device", h.more())
    yield Result("convert-app-pfs", "s", h.dumped, h.slow, ("share", 0.1), "HDF5 at 85 MB/s", h.more())


@case("convert-app-behind")
def convert_app_behind(env):
    """The same where close waits for nothing."""
    h = Held(env)
    with h.store("--close=behind") as store:
        for i in range(env.runs):
            h.run(store, i)
    yield Result("convert-app-behind", "s", h.dumped, h.direct, ("share", 0.5), "HDF5 by the program", h.more())
