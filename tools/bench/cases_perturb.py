"""What draining costs the application: heat3d beside it. Imported by bench.py for its cases."""

import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import time

from cases import Result, case
from cases_pipeline import on_service_core, service_core
from store import MIB, BenchError

MPI = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "apps", "heat3d", "mpi.sh")
PFS = 85  # MB/s of the parallel file system
STEPS, GRID = 120, 192
SET_BYTES = 1024 * MIB  # drains for 12 s


def heat3d(env, cores):
    """Seconds of computing, by the clock and of the processor, of one rank per core. No checkpoint in between: the one before is in the store."""
    argv = ["bash", MPI, str(len(cores)), env.app("heat3d"), f"--n={GRID}", f"--steps={STEPS}", "--checkpoint-every=0", f"--dir={env.work}"]
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    found = re.search(r"compute: seconds=([\d.]+)", out)
    if p.returncode != 0 or not found:
        raise BenchError(f"heat3d: exit {p.returncode}: {out[-300:]}")
    return float(found[1]), usage.ru_utime


@contextlib.contextmanager
def slow_target(env):
    source, path = env.path("disk"), env.path("pfs")
    os.makedirs(source)
    os.makedirs(path)
    p = subprocess.Popen([os.path.join(env.bin, "fp-slowfs"), "--foreground", f"--emulate=write={PFS}MB/s,read={PFS}MB/s", source, path],
                         preexec_fn=lambda: os.sched_setaffinity(0, {service_core()}))
    try:
        until = time.monotonic() + 10
        while not os.path.ismount(path):
            if p.poll() is not None or time.monotonic() > until:
                raise BenchError("fp-slowfs does not mount")
            time.sleep(0.02)
        yield path
    finally:
        subprocess.run(["fusermount3", "-uz", path], stderr=subprocess.DEVNULL, check=False)
        p.terminate()
        p.wait(10)


class Drain:
    """Of the set in the store, into a directory that is new each time."""

    def __init__(self, store, path, pfs):
        self.store, self.path, self.pfs, self.n = store, path, pfs, 0

    def fpctl(self, *args, check=True):
        r = subprocess.run([self.store.program("fpctl"), *args, f"--manager={self.store.manager.ready}", f"--key={self.store.key}"],
                           capture_output=True, text=True, timeout=120, check=False)
        if check and r.returncode != 0:
            raise BenchError(f"fpctl {' '.join(args)}: {r.stderr.strip()}")
        return r.stdout

    def last(self):
        jobs = json.loads(self.fpctl("drain", "show", "--json"))["jobs"]
        return max(jobs, key=lambda j: j["job"])

    def done_bytes(self):
        return self.last()["bytes_done"]

    def beside(self, work):
        """What work returns, with the drain going on all the time."""
        self.n += 1
        to = os.path.join(self.pfs, str(self.n))
        os.makedirs(to)
        self.fpctl("drain", self.path, f"--to={to}")
        until = time.monotonic() + 30
        while self.done_bytes() == 0:
            if time.monotonic() > until:
                raise BenchError("the drain does not begin")
            time.sleep(0.05)
        before = self.done_bytes()
        result = work()
        after = self.done_bytes()
        if after <= before or after >= SET_BYTES:
            raise BenchError(f"the drain did not go on beside all of the computing: from {before} to {after} of {SET_BYTES} bytes")
        self.fpctl("drain", "cancel", str(self.last()["job"]))
        shutil.rmtree(to, ignore_errors=True)
        return result


@case("drain-perturbation")
def drain_perturbation(env):
    """By how many % heat3d computes longer on the application's cores while the set before drains to a file system of 85 MB/s from a service core."""
    cores = set(range(os.cpu_count())) - {service_core()}
    if not cores:
        raise BenchError("it takes two cores: one of them is the service core")
    with slow_target(env) as pfs, env.store(size=SET_BYTES + 512 * MIB, mount_args=on_service_core()) as store:
        for d in store.daemons():
            d.run_on({service_core()})
        path = os.path.join(store.mnt, "chk_0001")
        with open(path, "wb", buffering=0) as f:
            for _ in range(SET_BYTES // MIB):
                f.write(os.urandom(MIB))
            os.fsync(f.fileno())
        drain = Drain(store, path, pfs)
        heat3d(env, cores)
        slower, of_cpu = [], []
        for i in range(env.runs):  # in turn, and which is first in turn
            order = (True, False) if i % 2 == 0 else (False, True)
            took = {busy: drain.beside(lambda: heat3d(env, cores)) if busy else heat3d(env, cores) for busy in order}
            slower.append(100 * (took[True][0] / took[False][0] - 1))
            of_cpu.append(100 * (took[True][1] / took[False][1] - 1))
        yield Result("drain-perturbation", "%", slower, [], ("most", 2.0), "", {"of_cpu_time": round(statistics.median(of_cpu), 2)})
