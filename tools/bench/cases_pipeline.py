"""Benchmarks of aux-apps on a store. The service core is the last of the machine, the application's the first.

The application is appbench. With `hold` it has all its data in the mount before the first byte is worked on, so
that what is measured is the service cores alone: on two cores an application that writes meanwhile takes
a part of what is measured, and is often the slower of both. Data is unique, and dedup may not turn
itself off (pays=0%): what it costs where it finds nothing is the most it can cost.
"""

import json
import os
import statistics
import subprocess
import time

from cases import Result, alternate, case
from store import MIB, BenchError

DEDUP = "--auxapp=dedup pays=0%"
APP_CORE = 0


def service_core():
    cores = os.cpu_count()
    if cores < 2:
        raise BenchError("benchmarks of aux-apps need two cores: one for the application")
    return cores - 1


def on_service_core(*more):
    return [f"--cores={service_core()}", *more]


def run_json(argv):
    r = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    if r.returncode != 0:
        raise BenchError(r.stderr.strip() or f"{os.path.basename(argv[0])}: exit {r.returncode}")
    return json.loads(r.stdout)


class Side:
    """An application on one store, whose mount may change between runs."""

    def __init__(self, env, store, name):
        self.env, self.store, self.name = env, store, name
        self.free = store.free_bytes()
        self.seed = 0
        self.last = None

    def mount(self, args, app_core=True):
        """app_core: the application's core is set aside for it and what serves its calls; the rest stays off the service core."""
        self.store.mount_again(args)
        if app_core:
            self.store.keep_off(service_core())

    def run(self, profile=False, warm=False, version=False, **args):
        """version: it is the next one of a file, whose last one is there until this one is written. warm: a write of as much just before, that is not measured. A virtual machine gives memory that is free for seconds back to its host, and
        then the memory back end measures how it gets it again."""
        self.seed += 1
        path = os.path.join(self.store.mnt, f"v_{self.seed:04}" if version else "f")
        if warm:
            self.run(**{k: v for k, v in args.items() if k in ("size", "content")})
        argv = [self.env.app("appbench"), f"--path={path}", f"--cpu={APP_CORE}", f"--seed={self.seed}"]
        argv += [f"--{k}" if v is True else f"--{k}={v}" for k, v in args.items()]
        if profile:
            with self.env.profile(self.store, self.name):
                r = run_json(argv)
        else:
            r = run_json(argv)
        old, self.last = (self.last, path) if version else (path, self.last)
        if old:
            os.unlink(old)
        if not version:
            self.store.settle(self.free)
        return r

    def is_on(self):
        time.sleep(1.5)
        return self.store.auxapps()["dedup"]["counters"]["on"] != 0

    def busy(self, name):
        """Figures of one aux-app, the last run included: bytes in and out, and the speed while it works."""
        time.sleep(1.5)
        a = self.store.auxapps()[name]
        return {"mibs": a["bytes_in"] / max(a["busy_ns"], 1) * 1e9 / MIB, "in": a["bytes_in"], "out": a["bytes_out"]}


def aux_store(env, backend="memory"):
    """Room for the largest of these benchmarks in the pool."""
    return env.store(backend=backend, pool=5 * env.pool, size=16 * env.pool)


def worked(r):
    return r["bytes"] / r["work_s"] / MIB


# --- what dedup costs -----------------------------------------------------------


def openssl_sha1(core):
    """MiB/s on this core, by the clock on the wall as ours."""
    r = subprocess.run(["taskset", "-c", str(core), "openssl", "speed", "-elapsed", "-seconds", "1", "-bytes", "16384", "-evp", "sha1"],
                       capture_output=True, text=True, timeout=60, check=False)
    last = (r.stdout.split() or [""])[-1]
    if r.returncode != 0 or not last.endswith("k"):
        raise BenchError(f"openssl speed: {r.stderr.strip()}")
    return float(last[:-1]) * 1000 / MIB


def sha1_unique(env, name, backend, goal):
    with aux_store(env, backend) as store:
        side = Side(env, store, name)
        side.mount(on_service_core(DEDUP))
        args = {"size": 4 * env.pool, "hold": True, "fsync": True, "warm": True}
        a, b = alternate(env.runs, lambda i: worked(side.run(profile=True, **args)), lambda i: openssl_sha1(service_core()))
        stage = side.busy("dedup")["mibs"]
        side.mount(on_service_core())
        plain = worked(side.run(**args))
        yield Result(name, "MiB/s", a, b, goal, "openssl speed sha1",
                     {"stage_alone": round(stage), "store_alone": round(plain)})


@case("dedup-sha1-unique")
def dedup_sha1_unique(env):
    yield from sha1_unique(env, "dedup-sha1-unique", "memory", ("ratio", 0.85))


@case("dedup-sha1-dir")
def dedup_sha1_dir(env):
    """On a disk: no faster than that is (store_alone)."""
    yield from sha1_unique(env, "dedup-sha1-dir", "dir", None)


@case("dedup-visible")
def dedup_visible(env):
    with aux_store(env) as store:
        side = Side(env, store, "dedup-visible")
        size, closing = 2 * env.pool, {}

        def one(args, compute_ms):
            side.mount(on_service_core(*args))
            r = side.run(size=size, compute=compute_ms, warm=True)
            return size / (r["write_s"] + r["close_s"]) / MIB

        a, b = alternate(env.runs, lambda i: one([DEDUP], 500), lambda i: one([], 500))
        for key, args in (("dedup_close_at_once", [DEDUP]), ("plain_close_at_once", [])):
            closing[key] = round(statistics.median(one(args, 0) for _ in range(min(env.runs, 3))))
        yield Result("dedup-visible", "MiB/s", a, b, ("ratio", 0.95), "the same, no aux-app", closing)


@case("dedup-off")
def dedup_off(env):
    """Unique versions of one file, when dedup has seen enough of them: all that it goes on to sample, in a round of 16 versions."""
    args = {"size": 2 * env.pool, "hold": True, "fsync": True, "version": True}
    rates = {}
    with aux_store(env) as store:
        side = Side(env, store, "dedup-off")
        for name, app in (("on", [DEDUP]), ("off", ["--auxapp=dedup"]), ("none", [])):
            side.mount(on_service_core(*app))
            for _ in range(3):
                side.run(**args)
            if app and side.is_on() != (name == "on"):
                raise BenchError(f"dedup is not {name}")
            runs = [side.run(**args) for _ in range(16)]
            rates[name] = sum(r["bytes"] for r in runs) / sum(r["work_s"] for r in runs) / MIB
        yield Result("dedup-off", "MiB/s", [rates["off"]], [rates["none"]], None, "no aux-app", {"kept_on": round(rates["on"])})


@case("cdc")
def cdc(env):
    rates = {}
    for _ in range(env.runs):
        for path in range(4):
            r = run_json(["taskset", "-c", str(service_core()), env.app("cdcbench"), str(path)])
            if path == 0:
                rates.setdefault("in use", []).append(r["bytes"] / r["seconds"] / 1e6)
            rates.setdefault(r["path"], []).append(r["bytes"] / r["seconds"] / 1e6)
    extra = {p: round(statistics.median(rates[p])) for p in ("scalar", "avx2", "avx512") if p in rates}
    yield Result("cdc", "MB/s", rates["in use"], rates["scalar"], ("least", 2000), "scalar path", extra)


# --- the pipeline ---------------------------------------------------------------


@case("aux-2cores")
def aux_2cores(env):
    core = service_core()
    chain = [DEDUP, "--auxapp=compress cores=1-2"]
    with aux_store(env) as store:
        side = Side(env, store, "aux-2cores")

        def one(cores):
            side.mount([f"--cores={cores}", *chain], app_core=False)
            return worked(side.run(profile=cores != str(core), size=4 * env.pool, hold=True, fsync=True, warm=True, content="floats"))

        a, b = alternate(env.runs, lambda i: one(f"{APP_CORE},{core}"), lambda i: one(f"{core}"))
        stages = {f"{name}_alone": round(side.busy(name)["mibs"]) for name in ("dedup", "compress")}
        yield Result("aux-2cores", "MiB/s", a, b, ("ratio", 1.6), "one service core", stages)


@case("perturbation")
def perturbation(env):
    with aux_store(env) as store:
        side = Side(env, store, "perturbation")
        args = {"size": 4 * env.pool, "hold": True, "warm": True, "compute": 60}
        while_running = {True: [], False: []}

        def slowed(pinned):
            side.mount(on_service_core(DEDUP) if pinned else [DEDUP], app_core=False)
            for d in store.daemons():
                if d is not store.mount:  # on other nodes, where there are any
                    d.run_on({service_core()} if pinned else set(range(os.cpu_count())))
            r = side.run(**args)
            if pinned and r["wait_s"] < 0.005:
                raise BenchError("the pipeline had ended before the computing: --pool is too small")
            while_running[pinned].append(100 * (1 - r["busy_cpu_rate"] / r["idle_cpu_rate"]))
            return 100 * (1 - r["busy_rate"] / r["idle_rate"])

        a, b = alternate(env.runs, lambda i: slowed(True), lambda i: slowed(False))
        yield Result("perturbation", "%", a, b, ("most", 5.0), "no pinning",
                     {"of_cpu_time": round(statistics.median(while_running[True]), 2),
                      "of_cpu_time_no_pinning": round(statistics.median(while_running[False]), 2)})


@case("compress-floats")
def compress_floats(env):
    with aux_store(env) as store:
        side = Side(env, store, "compress-floats")
        side.mount(on_service_core("--auxapp=compress"))
        a = [worked(side.run(profile=True, size=2 * env.pool, hold=True, fsync=True, warm=True, content="floats")) for _ in range(env.runs)]
        busy = side.busy("compress")
        yield Result("compress-floats", "MiB/s", a, [], None, "",
                     {"ratio_in_out": round(busy["in"] / max(busy["out"], 1), 3), "stage_alone": round(busy["mibs"])})
