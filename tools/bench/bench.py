#!/usr/bin/env python3
"""make bench: fpstore beside the native file system of the same device, in the same run.

    make bench                           all of it, under ten minutes
    make bench BENCH=create-8p,rss-mount a choice
    make bench BENCH_ARGS='--runs 9 --profile'

Prints a line per benchmark as it ends and writes build/bench.json, one object per line. README.md beside
this file says what each one does and how to read it. Exit: 0, also when a target was missed (--strict: 1);
1 when a benchmark could not be run; 2 for a mistake in the call.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import cases  # noqa: E402
import cases_aux  # noqa: E402,F401  (adds to cases.CASES)
import cases_convert  # noqa: E402,F401  (too)
import cases_convertapp  # noqa: E402,F401  (too)
import cases_device  # noqa: E402,F401  (too)
import cases_drain  # noqa: E402,F401  (too)
import cases_job  # noqa: E402,F401  (too)
import cases_mpi  # noqa: E402,F401  (too)
import cases_perturb  # noqa: E402,F401  (too)
import cases_pipeline  # noqa: E402,F401  (too)
from profiler import Profiler  # noqa: E402
from store import MIB, BenchError, Store, be_nice  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Env:
    """What the cases share: programs, places, how often, how much."""

    def __init__(self, options):
        build = os.path.abspath(os.environ.get("FP_BUILD", os.path.join(TOP, "build")))
        self.build = build
        self.bin = os.path.abspath(os.environ.get("FP_BIN", os.path.join(build, "bin")))
        self.apps = os.environ.get("FP_APPS", os.path.join(build, "apps"))
        self.iobench = self.app("iobench")
        self.work = os.path.abspath(options.dir or os.path.join(build, "bench"))
        self.native = os.path.join(self.work, "native")
        self.runs = options.runs
        self.pool = options.pool * MIB
        self.file_bytes = 4 * self.pool
        self.names_each = options.names
        self.nice = options.nice
        self.profiler = Profiler(os.path.join(build, "profile")) if options.profile else None

    def path(self, name):
        return os.path.join(self.work, name)

    def app(self, name):
        return os.path.join(self.apps, name)

    def store(self, **args):
        args.setdefault("pool", self.pool)
        args.setdefault("nice", self.nice)
        args.setdefault("size", 4 * max(self.file_bytes, 512 * MIB))
        return Store(self.bin, self.path("store"), **args)

    def io(self, work, **args):
        argv = [self.iobench, work]
        for key, value in args.items():
            if value is True:
                argv.append(f"--{key}")
            elif value is not False:
                argv.append(f"--{key}={value}")
        r = subprocess.run(argv, capture_output=True, text=True, check=False)
        if r.returncode != 0:
            raise BenchError(r.stderr.strip() or f"iobench {work}: exit {r.returncode}")
        return json.loads(r.stdout)

    def syncfs(self):
        subprocess.run(["sync", "-f", self.work], check=False)

    def profile(self, store, name):
        return self.profiler.of(store, name) if self.profiler else contextlib.nullcontext()


# --- the table ------------------------------------------------------------------

HEAD = ("benchmark", "ours", "min", "max", "reference", "", "unit", "ratio", "target", "")
WIDTHS = (18, 9, 9, 9, 9, 21, 6, 6, 9, 6)


def row(cells):
    left = (0, 5, 6, 8, 9)
    return " ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, WIDTHS))).rstrip()


def figure(x):
    if x is None:
        return "-"
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def goal_text(goal):
    if not goal:
        return "report"
    kind, bound = goal
    if kind == "ratio":
        return f">= x{bound:g}"
    if kind == "share":
        return f"<= x{bound:g}"
    return f"{'>=' if kind == 'least' else '<='} {bound:,g}"


def result_row(r):
    verdict = {True: "ok", False: "short", None: ""}[r.passed]
    return row((r.name, figure(r.value), figure(min(r.ours)), figure(max(r.ours)), figure(r.ref_value),
                r.ref_name, r.unit, "-" if r.ratio is None else f"{r.ratio:.2f}", goal_text(r.goal), verdict))


def load_now():
    with open("/proc/loadavg") as f:
        return float(f.read().split()[0])


# --- running --------------------------------------------------------------------


def parse():
    p = argparse.ArgumentParser(prog="bench.py", description="Benchmarks of fpstore: see tools/bench/README.md.")
    p.add_argument("names", nargs="*", help="which benchmarks, or how their names begin; all by default (or those in $BENCH, comma-separated)")
    p.add_argument("--list", action="store_true", help="names, and nothing else")
    p.add_argument("--runs", type=int, default=7, help="how often each is run; median of these (7)")
    p.add_argument("--pool", type=int, default=128, metavar="MIB", help="pool of the mount; files are 4 x that (128)")
    p.add_argument("--names", dest="names_each_", type=int, default=1500, metavar="N",
                   help="names of each of the 8 processes of create-8p (1500)")
    p.add_argument("--dir", help="where data goes, store's and native (build/bench); emptied")
    p.add_argument("--profile", action="store_true", help="perf record of the daemons, one run of each: build/profile")
    p.add_argument("--nice", type=int, default=0, metavar="N",
                   help="-20: on a machine that others use, so that they take little of both sides (0)")
    p.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    options = p.parse_args(sys.argv[1:] + os.environ.get("BENCH_ARGS", "").split())
    options.chosen = options.names or [n for n in os.environ.get("BENCH", "").split(",") if n]
    options.names = options.names_each_
    known = cases.all_names()
    chosen = []
    for name in options.chosen:  # aux-overhead is aux-overhead-1, -2 and -4
        meant = [n for n in known if n == name] or [n for n in known if n.startswith(name + "-")]
        if not meant:
            p.error(f"no benchmark {name}: there are {', '.join(known)}")
        chosen += meant
    options.chosen = chosen
    if options.runs < 1 or options.pool < 16:
        p.error("--runs is at least 1, --pool at least 16")
    return options


def run_case(env, function, wanted, out):
    """Number of results short of their target, or None when it could not be run."""
    short = 0
    try:
        for r in function(env):
            if r.name not in wanted:
                continue
            print(result_row(r), flush=True)
            out.write(json.dumps({**r.as_json(), "load": load_now()}) + "\n")
            out.flush()
            short += r.passed is False
    except (BenchError, OSError, subprocess.SubprocessError) as e:
        print(f"{' '.join(n for n in wanted)}: FAILED: {e}", flush=True)
        return None
    return short


def main():
    options = parse()
    if options.list:
        print("\n".join(cases.all_names()))
        return 0
    env = Env(options)
    be_nice(os.getpid(), options.nice)
    if not os.access(env.iobench, os.X_OK):
        print(f"bench: {env.iobench} is not built: make all", file=sys.stderr)
        return 1
    shutil.rmtree(env.work, ignore_errors=True)
    os.makedirs(env.work)
    load, cores, start = load_now(), os.cpu_count(), time.monotonic()
    print(f"{os.uname().release}, {cores} cores, pool {env.pool // MIB} MiB, files {env.file_bytes // MIB} MiB, "
          f"median of {env.runs}, load {load:.2f}")
    if load > 0.3 * cores:
        print("other programs are running: figures are low and vary, look at the ratios")
    print(row(HEAD))
    chosen = options.chosen or cases.all_names()
    short, broken = 0, 0
    try:
        with open(os.path.join(env.build, "bench.json"), "w") as out:
            for names, function in cases.CASES:
                wanted = [n for n in names if n in chosen]
                if wanted:
                    rc = run_case(env, function, wanted, out)
                    short, broken = (short + rc, broken) if rc is not None else (short, broken + 1)
    finally:
        shutil.rmtree(env.work, ignore_errors=True)
    print(f"bench: {len(chosen)} benchmarks, {short} short of their target, {broken} failed, "
          f"{time.monotonic() - start:.0f} s; figures in {os.path.relpath(env.build)}/bench.json")
    return 1 if broken or (options.strict and short) else 0


def ended(signum, _):
    # An exception, so that stores are taken down on the way out; further signals must not disturb that.
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, signal.SIG_IGN)
    sys.exit(128 + signum)


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, ended)
    sys.exit(main())
