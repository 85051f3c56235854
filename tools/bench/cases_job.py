"""What a service core costs and gives a job, the paper's Figure 4 on two cores; and how long a job's store takes to start. Imported by bench.py for its cases.

job-fp: both sides are jobs of a real Slurm (tests/harness) that do the same work: heat3d, whose checkpoints end on an fp-slowfs of 85 MB/s, all of them synced
there before the job ends. FP(0,2): a rank on each of both cores, which write there themselves. FP(1,2): one rank, and a store on the other core that
takes the checkpoints and drains them while the rank computes.
"""

import contextlib
import os
import re
import shutil
import subprocess
import time

from cases import Result, alternate, case
from cases_mpi import harness
from store import BenchError

PFS = 85  # MB/s of the parallel file system
GRID, STEPS, EVERY = 192, 640, 40  # 16 checkpoints of 57 MB, each of which that file system takes in 0.67 s
LIMIT_S = 300
PARTS = ("total", "start", "compute", "checkpoint", "drain", "rest")

SCRIPT = """#!/bin/bash
#SBATCH --nodes=1 --exclusive
{lines}
now() {{ echo "$1 $(date +%s%N)"; }}
export PMIX_MCA_gds=hash
now begin
{start}
now up
srun -n{ranks} /opt/apps/heat3d --n={grid} --steps={steps} --checkpoint-every={every} --dir={to}
code=$?
now computed
{stop}
now end
exit $code
"""

FP_0_2 = {"ranks": 2, "lines": "", "start": "", "to": "/lustre/pfs/run", "stop": ""}
FP_1_2 = {"ranks": 1, "lines": "#FP store size=2GiB pool=256MiB\n#FP cores 1\n#FP auxapp drain to=/lustre/pfs quiet=200ms low=90%",
          "start": 'eval "$(fp-job start || echo false)" || exit 1', "to": '"$FP_MOUNT/run"', "stop": "fp-job stop || code=1"}


@contextlib.contextmanager
def cluster(env):
    """One node of two cores, and a parallel file system that takes 85 MB/s."""
    daemons, _, _ = harness(env)
    from harness import slurm
    lacks = slurm.missing()
    if lacks or os.cpu_count() < 2:
        raise BenchError(lacks or "it takes two cores: one of them is the service core")
    one = slurm.Slurm(nodes=1, cpus=2)
    try:
        one.login("mkdir", "-m", "777", "/lustre/disk", "/lustre/pfs")
        p = one.begin(1, "fp-slowfs", "--foreground", f"--emulate=write={PFS}MB/s,read={PFS}MB/s", "/lustre/disk", "/lustre/pfs")
        try:
            daemons.wait_until("fp-slowfs to be mounted", 10, lambda: one.on(1, "mountpoint", "-q", "/lustre/pfs", check=False).returncode == 0)
            yield one
        finally:
            one.on(1, "fusermount3", "-uz", "/lustre/pfs", check=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                p.wait(10)
    except (AssertionError, TimeoutError) as e:
        raise BenchError(str(e)) from e
    finally:
        one.stop()


def figures(out):
    """Seconds of each part, from what the job has printed."""
    at = {name: int(ns) / 1e9 for name, ns in re.findall(r"^(begin|up|computed|end) (\d+)$", out, re.M)}
    spent = {name: float(s) for name, s in re.findall(r"^heat3d: (compute|checkpoints): .*?seconds=([\d.]+)", out, re.M)}
    parts = {"total": at["end"] - at["begin"], "start": at["up"] - at["begin"], "compute": spent["compute"], "checkpoint": spent["checkpoints"],
             "drain": at["end"] - at["computed"]}
    parts["rest"] = parts["total"] - sum(seconds for name, seconds in parts.items() if name != "total")  # what starts and ends the ranks
    return parts


def run(one, how):
    """The parts of one job, whose checkpoints are all where they belong; the state that it has computed."""
    run_dir = one.lustre("disk", "run")
    code, out = one.run(SCRIPT.format(grid=GRID, steps=STEPS, every=EVERY, **how), seconds=LIMIT_S)
    final = re.search(r"^heat3d: final: .* sum=(\w+)", out, re.M)
    if code or not final or "ERROR" in out:
        raise BenchError(f"exit {code}: {out[-600:]}")
    sizes = {name: os.path.getsize(os.path.join(run_dir, name)) for name in os.listdir(run_dir) if name.startswith("chk_")}
    if len(sizes) != STEPS // EVERY or min(sizes.values()) < GRID ** 3 * 8:
        raise BenchError(f"not all checkpoints are on the parallel file system: {sizes}")
    shutil.rmtree(run_dir)
    time.sleep(0.5)
    return figures(out), final[1]


@case(*(f"job-fp-{part}" for part in PARTS))
def job_fp(env):
    """The same work on two cores, and on one with the other as service core."""
    with cluster(env) as one:
        ours, ref = alternate(min(env.runs, 3), lambda i: run(one, FP_1_2), lambda i: run(one, FP_0_2))
    if len({final for _, final in ours + ref}) != 1:
        raise BenchError("the jobs have not computed the same")
    for part in PARTS:
        yield Result(f"job-fp-{part}", "s", [p[part] for p, _ in ours], [p[part] for p, _ in ref] if part not in ("start", "drain") else [], None, "FP(0,2)", paired=True)


NODES = 4
START_LINES = "#FP store size=256MiB pool=64MiB\n#FP cores 1\n#FP auxapp dedup hash=xxh3"

# One start after the other, each in a shell of its own, with what Slurm alone takes for it.
STARTS = """#!/bin/bash
#SBATCH --nodes={nodes} --exclusive
{lines}
now() {{ echo "$1 $(date +%s%N)"; }}
for i in $(seq {runs}); do
    now begin
    scontrol write batch_script $SLURM_JOB_ID - > /dev/null && scontrol show hostnames > /dev/null || exit 1
    now asked
    srun --overlap --nodes={nodes} --ntasks={nodes} --cpu-bind=none --mem=0 --mpi=none true || exit 1
    now ran
    bash -c 'eval "$(fp-job start || echo false)" || exit 1; echo "up $(date +%s%N)"; fp-job stop' || exit 1
    now end
done
"""


@case(*(f"job-start-{part}" for part in ("total", "asking", "srun", "rest", "stop")))
def job_start(env):
    """fp-job start on four nodes, and what of it Slurm takes: its answers about the job, and a step of nothing."""
    harness(env)
    from harness import slurm
    if slurm.missing():
        raise BenchError(slurm.missing())
    one = slurm.Slurm(nodes=NODES, cpus=2)
    try:
        code, out = one.run(STARTS.format(nodes=NODES, lines=START_LINES, runs=env.runs), seconds=LIMIT_S)
    except (AssertionError, TimeoutError) as e:
        raise BenchError(str(e)) from e
    finally:
        one.stop()
    at = {name: [int(ns) / 1e9 for ns in re.findall(rf"^{name} (\d+)$", out, re.M)] for name in ("begin", "asked", "ran", "up", "end")}
    if code or {len(v) for v in at.values()} != {env.runs} or "ERROR" in out:
        raise BenchError(f"exit {code}: {out[-600:]}")

    def spans(a, b):
        return [y - x for x, y in zip(at[a], at[b])]
    start, asking, srun = spans("ran", "up"), spans("begin", "asked"), spans("asked", "ran")
    yield Result("job-start-total", "s", start, [], ("most", 3.0), "")
    yield Result("job-start-asking", "s", asking, [], None, "")
    yield Result("job-start-srun", "s", srun, [], None, "")
    yield Result("job-start-rest", "s", [t - a - b for t, a, b in zip(start, asking, srun)], [], None, "")
    yield Result("job-start-stop", "s", spans("up", "end"), [], None, "")
