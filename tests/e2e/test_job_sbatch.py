"""What fp-job check takes for a mistake in #SBATCH lines, and what a real sbatch refuses: the same."""

import subprocess

from harness.daemons import SLOW, bin_path

SLURM = {"nodes": 1, "cpus": 2}
GOOD = ["-N 1", "--nodes=1-2", "-N1", "--time=1", "-t 0:30", "-t 00:10:00", "--time=0-1", "--time=0-1:30", "--time=0-0:1:30", "-c 1", "--cpus-per-task 2", "--ntasks-per-node=2", "-J 'a # b' -N 1", "-N 1 # -N x"]
BAD = ["-N x", "-N 1x", "-N 2-", "-N 4-2", "-N=1", "--nodes=", "-N", "--time=abc", "--time=1h", "--time=1:2:3:4", "-t 5:", "-t 1-2-3", "-c 0", "-c x", "--cpus-per-task=64", "--ntasks-per-node=0",
       "--ntasks-per-node=x", "--ntasks-per-node=2 -c 2", "--core-spec=x"]


def test_what_sbatch_refuses_is_a_mistake(slurm):
    differ = []
    for words in GOOD + BAD:
        script = f"#!/bin/bash\n  # what it is\n#SBATCH {words}\n#FP store\nsrun ./app\n"
        slurm.write("job.sh", script)
        r = slurm.login("sbatch", "--test-only", "job.sh", check=False)
        c = subprocess.run([bin_path("fp-job"), "check", "-", "--node-cores=2"], input=script, capture_output=True, text=True, timeout=30 * SLOW)
        if not (r.returncode == 0) == (c.returncode == 0) == (words in GOOD) or c.stdout.count("error: ") != (words in BAD):
            differ.append((words, r.returncode, r.stderr, c.returncode, c.stdout + c.stderr))
        assert all(line.startswith("-:3:") for line in c.stdout.splitlines() if "error: " in line), c.stdout
    assert not differ, "\n".join(map(str, differ))
