#!/usr/bin/env python3
"""The comparisons of "Using IOR to Analyze the I/O Performance for HPC Platforms" (Shan, Shalf), by fpior.

    sweep.py DIR --fpior build/apps/fpior [--out FOLDER] [--only size,transfer,...] [--quick]

    size      POSIX, a file per task, growing files: where caches end (the paper's figures 2 and 3)
    transfer  the size of one call (figure 4)
    files     a shared file beside a file per task (figure 5)
    ranks     more and more tasks (figure 6)
    apis      POSIX, MPI-IO, HDF5, PnetCDF, netCDF-4 (figures 7 and 8)

Prints a table per comparison, writes it to FOLDER/NAME.csv, and a plot of it to FOLDER/NAME.svg (plot.py). Each figure is the best of
--repetitions. Words of the launcher are --mpirun's: "mpirun --oversubscribe -n" unless set. Exit: 0; 1: a run failed.
"""

import argparse
import csv
import json
import os
import shlex
import subprocess
import sys
import tempfile

import plot

APIS = ("POSIX", "MPIIO", "HDF5", "NCMPI", "NETCDF4")


def text(n):
    for unit in ("", "k", "m", "g"):
        if n < 1024 or n % 1024:
            return f"{n}{unit}"
        n //= 1024
    return f"{n}t"


def comparisons(o):
    """name: (what varies, [(its value, the line of the plot, tasks, options)])"""
    block, own = ["-b", text(o.block), "-t", "1m"], [("a file each", ["-F"]), ("one file", [])]
    sizes = [o.block >> k for k in ((4, 1) if o.quick else (4, 3, 2, 1, 0))] + [o.block * 2]
    calls = [1 << k for k in range(12, 25, 4 if o.quick else 2) if 1 << k <= o.block]
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= o.tasks]
    return {
        "size": ("bytes per task", [(b, "a file each", o.tasks, ["-F", "-b", text(b), "-t", text(min(b, 1 << 20))]) for b in sizes]),
        "transfer": ("bytes of a call", [(t, name, o.tasks, [*how, "-b", text(o.block), "-t", text(t)]) for name, how in own for t in calls]),
        "files": ("tasks", [(n, name, n, [*how, *block]) for name, how in own for n in counts]),
        "ranks": ("tasks", [(n, "one file", n, block) for n in counts]),
        "apis": ("tasks", [(n, api, n, ["-a", api, *block]) for api in APIS for n in counts]),
    }


def run(o, tasks, options):
    """Best MiB/s of writing and of reading; bytes are verified by other tasks."""
    with tempfile.TemporaryDirectory() as folder:
        summary = os.path.join(folder, "summary.json")
        argv = [*shlex.split(o.mpirun), str(tasks), o.fpior, "-w", "-r", "-R", "-C", "-e", "-i", str(o.repetitions), *options,
                "-o", os.path.join(o.dir, "fpior-sweep"), "-O", f"summaryFormat=JSON,summaryFile={summary}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=o.timeout, check=False)
        if done.returncode != 0:
            sys.exit(f"sweep: {shlex.join(argv)}: exit {done.returncode}\n{done.stderr[-2000:]}")
        with open(summary, encoding="utf-8") as f:
            best = json.load(f)["tests"][0]["max"]
    return best["writeMiB"], best["readMiB"]


def main():
    p = argparse.ArgumentParser(prog="sweep.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", metavar="DIR", help="where test files go, e.g. /AggregateSSDstore")
    p.add_argument("--fpior", default="fpior", help="the program (fpior)")
    p.add_argument("--out", default="sweep", help="folder of the results (sweep)")
    p.add_argument("--only", default="size,transfer,files,ranks,apis", help="comparisons, by comma")
    p.add_argument("--tasks", type=int, default=os.cpu_count(), help="at most (as many as processors)")
    p.add_argument("--block", type=int, default=256, metavar="MIB", help="of one task (256); several times the pool, to see past it")
    p.add_argument("--repetitions", type=int, default=3, help="of each run (3)")
    p.add_argument("--mpirun", default="mpirun --oversubscribe -n", help="launcher, up to the number of tasks")
    p.add_argument("--timeout", type=int, default=1800, help="seconds that a run may take (1800)")
    p.add_argument("--quick", action="store_true", help="small and once: to see that it runs")
    o = p.parse_args()
    o.block = (1 if o.quick else o.block) << 20
    o.repetitions = 1 if o.quick else o.repetitions
    known = comparisons(o)
    chosen = o.only.split(",")
    if set(chosen) - set(known):
        p.error(f"--only knows {', '.join(known)}")
    os.makedirs(o.out, exist_ok=True)
    for name in chosen:
        varies, runs = known[name]
        print(f"\n{name}\n{varies:>16}  {'':12} {'write MiB/s':>12} {'read MiB/s':>12}")
        rows = []
        for value, line, tasks, options in runs:
            rows.append((value, line, *run(o, tasks, options)))
            print(f"{value:>16}  {line:12} {rows[-1][2]:>12.1f} {rows[-1][3]:>12.1f}", flush=True)
        with open(os.path.join(o.out, f"{name}.csv"), "w", newline="", encoding="utf-8") as f:
            csv.writer(f).writerows([(varies, "line", "write MiB/s", "read MiB/s"), *rows])
        with open(os.path.join(o.out, f"{name}.svg"), "w", encoding="utf-8") as f:
            f.write(plot.svg(name, varies, rows, ("write MiB/s", "read MiB/s")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
