"""Benchmarks of aux-apps that need no store. Imported by bench.py for its cases."""

import json
import os
import statistics
import subprocess

from cases import Result, case
from store import BenchError

CHUNKS = 4000
ON_THE_WAY = 8


def auxchain(env, cores, stages, on_the_way=ON_THE_WAY, chunks=CHUNKS):
    program = os.path.join(os.path.dirname(env.iobench), "auxchain")
    r = subprocess.run([program, cores, str(stages), str(on_the_way), str(chunks)], capture_output=True, text=True,
                       timeout=120, check=False)
    if r.returncode != 0:
        raise BenchError(r.stderr.strip() or f"auxchain: exit {r.returncode}")
    return json.loads(r.stdout)


@case("aux-overhead-1", "aux-overhead-2", "aux-overhead-4")
def aux_overhead(env):
    """A chunk of 1 MiB through stages that do nothing: all that the host and its messages cost."""
    core = str(max(os.sched_getaffinity(0)))
    for stages in (1, 2, 4):
        runs = [auxchain(env, core, stages) for _ in range(env.runs)]
        bare = [auxchain(env, core, 0)["us"] for _ in range(env.runs)]
        alone = [auxchain(env, core, stages, on_the_way=1, chunks=CHUNKS // 4)["us"] for _ in range(env.runs)]
        yield Result(f"aux-overhead-{stages}", "us", [r["us"] for r in runs], [], ("most", 20.0), "",
                     {"messages_alone_us": round(statistics.median(bare), 2),
                      "host_cpu_us": round(statistics.median(r["cpu_us"] for r in runs), 2),
                      "one_at_a_time_us": round(statistics.median(alone), 2)})
