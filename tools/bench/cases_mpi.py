"""Benchmarks of MPI jobs: one file of all ranks on four nodes, and the APIs of parallel I/O. Imported by bench.py for its cases.

The I/O is fpior's (tools/fpior), which verifies every byte after each write, by a rank of another node where there are several; a run with
wrong bytes fails. Stores, nodes and jobs are those of the tests (tests/harness).
"""

import contextlib
import json
import os
import sys

from cases import Result, alternate, case
from store import MIB, BenchError

RECORD = 47001
APIS = ("mpiio", "hdf5", "ncmpi", "netcdf4")


def harness(env):
    """What tests/harness has, told where programs are and data goes: it looks at the environment when it is imported."""
    os.environ.update(FP_BIN=env.bin, FP_APPS=env.apps, FP_SCRATCH=env.work)
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests")
    if top not in sys.path:
        sys.path.append(top)
    from harness import daemons, mpijob, nodes
    return daemons, mpijob, nodes


@contextlib.contextmanager
def cluster(env, count):
    """A store on nodes: each has a benefactor and a mount."""
    daemons, mpijob, nodes = harness(env)
    try:
        made = nodes.Nodes(count)
    except OSError as e:
        raise BenchError(f"network namespaces: {e}") from e
    try:
        s = daemons.Store(made)
        try:
            s.start_manager(node=0)
            for i in range(count):
                s.add_benefactor(node=i, size="2GiB", wait=False)
                s.add_mount(node=i, pool=f"{env.pool // MIB}MiB", wait=False)
            for d in s.benefactors + s.mounts:
                d.wait_ready(20)
            yield mpijob.Cluster(s)
        finally:
            s.remove()
    finally:
        made.remove()


@contextlib.contextmanager
def one_mount(env):
    daemons, _, _ = harness(env)
    s = daemons.Store()
    try:
        yield s.up(benefactors=1, size="4GiB", pool=f"{env.pool // MIB}MiB")
    finally:
        s.remove()


def bandwidth(env, run, file, *options):
    """MiB/s of writing, open to close. run: as mpijob's, all but the words of the command."""
    summary = env.path("fpior.json")
    done = run(os.path.join(env.apps, "fpior"), "-w", "-W", "-C", *options, "-o", file, "-O", f"summaryFormat=JSON,summaryFile={summary}")
    if done.returncode != 0:
        raise BenchError(f"fpior {' '.join(options)}: exit {done.returncode}: {done.stdout[-400:]}")
    with open(summary, encoding="utf-8") as f:
        (result,) = json.load(f)["tests"][0]["Results"]
    return result["bwMiB"]


@case("n1-4nodes-1m", "n1-4nodes-47001")
def n1_4nodes(env):
    """A rank on each of four nodes: records of all in turn in one file, beside the same records in a file each."""
    with cluster(env, 4) as c:
        def once(size, count, *more):
            return bandwidth(env, lambda *argv: c.run(*argv, per_node=1, seconds=120), c.at("f"), "-b", size, "-t", size, "-s", str(count), *more)
        for name, size, count, goal in (("1m", "1m", 128, 0.8), (str(RECORD), str(RECORD), 1500, 0.5)):
            once(size, count)
            ours, ref = alternate(env.runs, lambda i: once(size, count), lambda i: once(size, count, "-F"))
            yield Result(f"n1-4nodes-{name}", "MiB/s", ours, ref, ("ratio", goal), "a file each (N-N)")


@case(*(f"apis-{a}" for a in APIS))
def apis(env):
    """Two ranks on one mount, one file, blocks of 64 MiB by 1 MiB: what an API costs beside POSIX."""
    mpijob = harness(env)[1]
    with one_mount(env) as s:
        def once(api):
            return bandwidth(env, lambda *argv: mpijob.here(2, *argv, seconds=120), s.mounts[0].at("f"), "-a", api, "-b", "64m", "-t", "1m", "-s", "4")
        once("POSIX")
        for api in APIS:
            ours, ref = alternate(env.runs, lambda i: once(api.upper()), lambda i: once("POSIX"))
            goal = ("ratio", 0.9) if api in ("mpiio", "hdf5") else None
            yield Result(f"apis-{api}", "MiB/s", ours, ref, goal, "POSIX, same file")
