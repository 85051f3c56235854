"""fp-job status, asked where users log in, of jobs whose nodes, or what runs on them, die or hang: it answers, soon, and names them."""

import json
import time

import pytest

from harness.daemons import SLOW, wait_until

SLURM = {"nodes": 4, "cpus": 2}
HEAD = "#!/bin/bash\n#SBATCH -N 4 --exclusive\n#FP store size=256MiB pool=64MiB\n"
START = 'eval "$(fp-job start)" || exit 1\n'
WAIT = "touch up\nuntil [ -e go ]; do sleep 0.1; done\n"


def status(slurm, number, *args):
    begun = time.monotonic()
    r = slurm.login("fp-job", "status", str(number), *args, check=False, seconds=60)
    return r.returncode, r.stdout + r.stderr, time.monotonic() - begun


@pytest.mark.limit(180)
def test_a_node_that_is_gone_is_named(slurm):
    number = slurm.up(HEAD.replace("--exclusive", "--exclusive --no-kill") + START + WAIT + "fp-job stop\n")
    try:
        slurm.kill_ours(4)
        want = f"\n{slurm.names[4]}: failed: its agent is gone"
        wait_until(lambda: f"it to be missed: {status(slurm, number)}", 60, lambda: want in status(slurm, number)[1], 0.3)
        code, out, took = status(slurm, number)
        assert code == 1 and f"job {number}: 3 of 4 nodes ready" in out and took < 5 * SLOW, (code, out, took)
        code, out, _ = status(slurm, number, "--json")
        got = json.loads(out)
        assert (code, got["state"], got["ready"], got["nodes"]) == (1, "degraded", 3, 4), got
        assert [(o["state"], o["nodes"]) for o in got["others"]] == [("failed", [slurm.names[4]])] and got["others"][0]["text"].startswith("its agent is gone"), got
    finally:
        slurm.go()
    slurm.end_of(number, 120)
    slurm.nothing_left(30)


def test_an_agent_that_hangs(slurm):
    number = slurm.up(HEAD + START + WAIT + "fp-job stop\n")
    agent, = slurm.processes(1, "fp-job", "node")
    slurm.kill(1, agent, signal=19)
    try:
        code, out, took = status(slurm, number)
        assert (code, out) == (1, f"job {number}: its store does not answer\n") and took < 12 * SLOW, (out, took)
    finally:
        slurm.kill(1, agent, signal=18)
        slurm.go()
    slurm.end_of(number, 120)
    slurm.nothing_left(30)


@pytest.mark.limit(180)
def test_its_first_node_crashes(slurm):
    """Until Slurm takes it for down, and then."""
    number = slurm.up(HEAD.replace("--exclusive", "--exclusive --no-requeue") + START + WAIT + "fp-job stop\n")
    slurm.crash(1)
    try:
        code, out, took = status(slurm, number)
        assert code == 1 and f"ERROR: job {number} runs, but its first node, {slurm.names[1]}, does not answer (srun: " in out or code == 5, (code, out)
        assert took < 20 * SLOW, took
        slurm.wait_state(number, "NODE_FAIL", seconds=120)
        assert status(slurm, number)[:2] == (5, f"job {number}: it does not run any more: NODE_FAIL\n")
    finally:
        slurm.start_node(1)
        slurm.wait_nodes(60)
    for i in (2, 3, 4):  # where Slurm has killed all at once
        slurm.on(i, "fp-job", "clean", seconds=60)
    slurm.nothing_left(30)
