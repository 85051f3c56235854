"""fp-job start where what starts its agents does not do it: an srun that is none. No Slurm is needed."""

import contextlib
import os
import shutil
import signal
import subprocess

import pytest

from harness.daemons import SLOW, bin_path, free_name

# Nobody reads what the agents were to be told.
GONE = """#!/bin/sh
exec 3<&0
sleep 30 %s >/dev/null 2>&1 &
echo $! > pid
echo "srun: error: no such thing" >&2
exit 1
"""


# It goes on, but its agents don't come.
MUTE = """#!/bin/sh
echo $$ > pid
echo "fp-job: ERROR: no port is free" >&2
cat >/dev/null
exec sleep 60 >/dev/null 2>&1
"""


@pytest.fixture
def folder():
    path = free_name("fp-test")
    yield path
    shutil.rmtree(path)


def start(folder, srun, lines):
    for name, text in (("srun", srun), ("job.sh", f"#!/bin/bash\n{lines}")):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
        os.chmod(os.path.join(folder, name), 0o755)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FP_", "SLURM_"))}
    job = f"test-{os.getpid()}"
    env = {**clean, "PATH": f"{folder}:{clean['PATH']}", "SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "n[1-3]", "SLURMD_NODENAME": "n1"}
    try:
        r = subprocess.run([bin_path("fp-job"), "start", "job.sh"], capture_output=True, text=True, timeout=60 * SLOW, cwd=folder, env=env)
    finally:
        with open(os.path.join(folder, "pid")) as f:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(f.read()), signal.SIGKILL)
    return r, job


@pytest.mark.parametrize("left", ["3<&-", "<&3 3<&-"], ids=["nobody", "a process with its input"])
def test_an_srun_that_ends_before_it_has_read_its_input(folder, left):
    """More than a pipe holds is still to be written then, with nobody on the other side, or somebody who does not read. The script is told all the same (false), and why; nothing is left."""
    r, job = start(folder, GONE % left, "".join(f"#FP stage-out f{i} to={folder} # {'x' * 8000}\n" for i in range(60)))
    assert r.returncode == 1 and r.stdout == "false\n", r
    assert "srun has ended with exit code 1:\nsrun: error: no such thing\n" in r.stderr, r.stderr
    assert not os.path.exists(f"/tmp/fpstore-{os.geteuid()}-{job}")


def test_agents_that_do_not_come_are_heard_all_the_same(folder):
    """What they have said is of the job's directory, which goes with the failed start."""
    r, job = start(folder, MUTE, "#FP store ready=2s\n")
    assert r.returncode == 1 and r.stdout == "false\n", r
    assert "n[1-3] are not ready: no word from its agent" in r.stderr, r.stderr
    assert "what agents and their launcher have said:\nfp-job: ERROR: no port is free\n" in r.stderr, r.stderr
    assert not os.path.exists(f"/tmp/fpstore-{os.geteuid()}-{job}")
