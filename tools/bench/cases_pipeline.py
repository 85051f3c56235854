"""Benchmarks of aux-apps on a store. The service core is the last of the machine, the application's the first.

The application is appbench. With `hold` it has all its data in the mount before the first byte is worked on, so
that what is measured is the service cores alone: on two cores an application that writes meanwhile takes
a part of what is measured, and is often the slower of both. Data is unique, and dedup may not turn
itself off (pays=0%): what it costs where it finds nothing is the most it can cost.

What is compared takes turns by the second: two mounts of one store, and one application that writes to one and to the other. Before each turn as
much memory as it will need is taken and let go (`spare`), for the sake of virtual machines.
"""

import contextlib
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
    r = subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)
    if r.returncode != 0:
        raise BenchError(r.stderr.strip() or f"{os.path.basename(argv[0])}: exit {r.returncode}")
    return [json.loads(line) for line in r.stdout.splitlines()]


class Side:
    """An application on one store, which has one mount or two (beside)."""

    def __init__(self, env, store, name):
        self.env, self.store, self.name = env, store, name
        self.seed = 0

    def mount(self, args, beside=None, app_core=True):
        """app_core: the application's core is set aside for it and what serves its calls; the rest stays off the service core."""
        self.store.mount_again(args)
        if beside is not None:
            self.store.mount_beside(beside)
        if app_core:
            self.store.keep_off(service_core())

    def run(self, profile=False, only=None, **args):
        """Figures of each file that was written: those on the mount, and those on the one beside it (only: 0 or 1: one of them)."""
        self.seed += 1
        args.setdefault("spare", args["size"] + self.env.pool)
        mounts = [self.store.mnt] + ([self.store.mnt_beside] if self.store.beside else [])
        paths = [os.path.join(m, f"{'ab'[i]}{self.seed}") for i, m in enumerate(mounts) if only in (None, i)]
        argv = [self.env.app("appbench"), f"--cpu={APP_CORE}", f"--seed={self.seed}", *(f"--path={p}" for p in paths)]
        argv += [f"--{k}" if v is True else f"--{k}={v}" for k, v in args.items() if v is not False]
        with self.env.profile(self.store, self.name) if profile else contextlib.nullcontext():
            runs = run_json(argv)
        return [[r for r in runs if r["path"] == i] for i in range(len(paths))]

    def run_one(self, **args):
        return self.run(**args)[0][0]

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


def samples(env):
    """They are short: so there are more of them."""
    return 2 * env.runs - 1


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
        args = {"size": 4 * env.pool, "hold": True, "fsync": True}
        side.run(**args)
        a, b = alternate(samples(env), lambda i: worked(side.run_one(profile=True, **args)), lambda i: openssl_sha1(service_core()))
        stage = side.busy("dedup")["mibs"]
        side.mount(on_service_core())
        side.run(**args)
        plain = [worked(r) for r in side.run(rounds=3, **args)[0]]
        store.pool = env.pool
        side.mount(on_service_core(DEDUP))
        through = [r["bytes"] / (r["write_s"] + r["work_s"]) / MIB for r in side.run(size=8 * env.pool, fsync=True, rounds=5)[0]]
        yield Result(name, "MiB/s", a, b, goal, "openssl speed sha1",
                     {"stage_alone": round(stage), "store_alone": round(statistics.median(plain)),
                      "while_writing": round(statistics.median(through)), "while_writing_runs": [round(x) for x in through]}, paired=True)


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
        side.mount(on_service_core(DEDUP), beside=on_service_core())
        size, closing = 2 * env.pool, {}

        def seen(runs):
            return [r["bytes"] / (r["write_s"] + r["close_s"]) / MIB for r in runs]

        side.run(size=size)
        a, b = side.run(profile=True, size=size, compute=400, rounds=samples(env))
        for key, runs in zip(("dedup_close_at_once", "plain_close_at_once"), side.run(size=size, rounds=3)):
            closing[key] = round(statistics.median(seen(runs)))
        yield Result("dedup-visible", "MiB/s", seen(a), seen(b), ("ratio", 0.95), "the same, no aux-app", closing, paired=True)


@case("dedup-off")
def dedup_off(env):
    """Unique versions of one file, when dedup has seen enough of them: a whole round, of a pause in which it gets nothing and a look at two versions."""
    args = {"size": 2 * env.pool, "hold": True, "fsync": True, "keep": True}

    def median(runs):
        return statistics.median(worked(r) for r in runs)

    with aux_store(env) as store:
        side = Side(env, store, "dedup-off")
        side.mount(on_service_core("--auxapp=dedup"), beside=on_service_core())
        side.run(rounds=4, **args)
        if side.is_on():
            raise BenchError("dedup is on")
        # 256 MiB a version by default: the first pause is over, a look of 64 MiB comes, and a pause of 64 times that, which is 16 versions
        off, none = side.run(profile=True, rounds=20, **args)
        passed = store.auxapps()["dedup"]["passed_bytes"]
        if passed < 16 * args["size"]:
            raise BenchError(f"only {passed} bytes were passed over")
    # which versions were looked at is not told: the two slowest are taken for them, which is never too good
    pairs = sorted((worked(a) / worked(b), i) for i, (a, b) in enumerate(zip(off, none, strict=True)))
    looks, rest = [i for _, i in pairs[:2]], [i for _, i in pairs[2:]]
    time_off = 2 / median(off[i] for i in looks) + 16 / median(off[i] for i in rest)
    yield Result("dedup-off", "MiB/s", [18 / time_off], [median(none)], ("ratio", 0.95), "no aux-app",
                 {"passed_ratio": round(statistics.median(r for r, _ in pairs[2:]), 3), "looked_ratio": round(statistics.median(r for r, _ in pairs[:2]), 3),
                  "passed_p25": round(pairs[2 + len(rest) // 4][0], 3), "passed_p75": round(pairs[2 + 3 * len(rest) // 4][0], 3),
                  "versions": [round(worked(r)) for r in off], "versions_without": [round(worked(r)) for r in none]})


@case("cdc")
def cdc(env):
    rates = {}
    for _ in range(env.runs):
        for path in range(4):
            r = run_json(["taskset", "-c", str(service_core()), env.app("cdcbench"), str(path)])[0]
            if path == 0:
                rates.setdefault("in use", []).append(r["bytes"] / r["seconds"] / 1e6)
            rates.setdefault(r["path"], []).append(r["bytes"] / r["seconds"] / 1e6)
    extra = {p: round(statistics.median(rates[p])) for p in ("scalar", "avx2", "avx512") if p in rates}
    yield Result("cdc", "MB/s", rates["in use"], rates["scalar"], ("least", 2000), "scalar path", extra)


# --- the pipeline ---------------------------------------------------------------


@case("aux-2cores")
def aux_2cores(env):
    """Manager and benefactor run on the service cores too: with one of them they would else have the other core for themselves, and take a part of both
    with two."""
    chain = [DEDUP, "--auxapp=compress cores=1-2"]
    with aux_store(env) as store:
        side = Side(env, store, "aux-2cores")
        cores = ({APP_CORE, service_core()}, {service_core()})
        two, one = ([f"--cores={','.join(map(str, sorted(c)))}", *chain] for c in cores)
        side.mount(two, beside=one, app_core=False)

        def speed(which):
            for d in (store.manager, *store.benefactors):
                d.run_on(cores[which])
            return worked(side.run_one(profile=which == 0, only=which, size=2 * env.pool, hold=True, fsync=True, content="floats"))

        for which in (0, 1):
            speed(which)
        a, b = alternate(samples(env), lambda i: speed(0), lambda i: speed(1))
        more = {f"{name}_alone": round(side.busy(name)["mibs"]) for name in ("dedup", "compress")}
        cores = (cores[0], {APP_CORE})
        elsewhere = [speed(0) / speed(1) for _ in range(min(samples(env), 5))]
        more["store_beside_one_core_ratio"] = round(statistics.median(elsewhere), 3)
        yield Result("aux-2cores", "MiB/s", a, b, ("ratio", 1.6), "one service core", more, paired=True)


@case("perturbation")
def perturbation(env):
    with aux_store(env) as store:
        side = Side(env, store, "perturbation")
        args = {"size": 4 * env.pool, "hold": True, "compute": 60}
        while_running = {True: [], False: []}

        def slowed(pinned):
            side.mount(on_service_core(DEDUP) if pinned else [DEDUP], app_core=False)
            for d in store.daemons():
                if d is not store.mount:  # on other nodes, where there are any
                    d.run_on({service_core()} if pinned else set(range(os.cpu_count())))
            r = side.run_one(**args)
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
        args = {"size": 2 * env.pool, "hold": True, "fsync": True, "content": "floats"}
        side.run(**args)
        a = [worked(r) for r in side.run(profile=True, rounds=samples(env), **args)[0]]
        busy = side.busy("compress")
        yield Result("compress-floats", "MiB/s", a, [], None, "",
                     {"ratio_in_out": round(busy["in"] / max(busy["out"], 1), 3), "stage_alone": round(busy["mibs"])})
