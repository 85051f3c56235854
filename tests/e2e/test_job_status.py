"""fp-job status, as a user asks where he logs in: of jobs in all states of Slurm's, with a store and without. What happens to nodes: fault/test_job_status.py."""

import contextlib
import json
import os
import re

import pytest

from harness.daemons import wait_until

SLURM = {"nodes": 2, "cpus": 2}
HEAD = "#!/bin/bash\n#SBATCH -N 2 --exclusive\n#FP store size=256MiB pool=64MiB\n"
WAIT = "touch up\nuntil [ -e go ]; do sleep 0.1; done\n"


def status(slurm, job, user="ada", env=()):
    r = slurm.login("fp-job", "status", str(job), user=user, check=False, env=env)
    return r.returncode, r.stdout + r.stderr


def status_json(slurm, job):
    r = slurm.login("fp-job", "status", str(job), "--json", check=False)
    return r.returncode, json.loads(r.stdout)


@contextlib.contextmanager
def cancelled(slurm, number):
    yield number
    slurm.login("scancel", str(number), user="root")
    slurm.wait_state(number, "CANCELLED", "COMPLETED")


def test_of_a_job_that_waits(slurm):
    slurm.write("job.sh", HEAD + "true\n")
    with cancelled(slurm, slurm.sbatch("job.sh", "--hold")) as number:
        assert status(slurm, number) == (3, f"job {number}: it does not run yet: PENDING (JobHeldUser)\n")
        assert status_json(slurm, number) == (3, {"job": str(number), "state": "waiting", "slurm": "PENDING", "text": "it does not run yet: PENDING (JobHeldUser)"})
    with cancelled(slurm, slurm.sbatch("job.sh", "--begin=2100-01-02T03:04:05")) as number:
        begin = slurm.login("squeue", "-ho", "%S", "-j", str(number)).stdout.strip()
        assert status(slurm, number) == (3, f"job {number}: it does not run yet: PENDING (BeginTime), expected to begin at {begin}\n") and begin != "N/A"


def test_of_a_job_without_a_store(slurm):
    number = slurm.up(HEAD + WAIT)
    assert status(slurm, number) == (4, f"job {number}: it runs, and has no store\n")
    assert status_json(slurm, number) == (4, {"job": str(number), "state": "none", "text": "it runs, and has no store"})
    slurm.go()
    assert slurm.end_of(number)[0] == 0


def test_of_a_store_that_starts(slurm):
    for name in ("go", "begun", "on"):
        if os.path.exists(slurm.home(name)):
            os.unlink(slurm.home(name))
    with slurm.stand_in(1, "fp-benefactor", 'touch /home/ada/begun; until [ -e /home/ada/on ]; do sleep 0.1; done; exec /tmp/real "$@"'):
        slurm.write("job.sh", HEAD + "fp-job run -- sh -c '" + WAIT.replace("\n", "; ").strip("; ") + "'\n")
        number = slurm.sbatch("job.sh")
        slurm.wait_file("begun", number)
        assert status(slurm, number) == (3, f"job {number}: its store is being started\n")
        assert status_json(slurm, number)[1]["state"] == "waiting"
        slurm.write("on", "")
        slurm.wait_file("up", number)
    code, out = status(slurm, number)
    assert code == 0 and re.match(rf"job {number}: 2 of 2 nodes ready, mounted on /AggregateSSDstore, manager \S+\n", out), out
    code, got = status_json(slurm, number)
    assert code == 0 and got["manager"] and {**got, "manager": "", "application": ""} == {
        "job": str(number), "state": "ready", "text": "", "nodes": 2, "ready": 2, "mount": "/AggregateSSDstore", "manager": "", "application": "", "others": []}, got
    slurm.go()
    assert slurm.end_of(number)[0] == 0
    assert status(slurm, number) == (5, f"job {number}: it does not run any more: COMPLETED\n")
    slurm.nothing_left()


def test_of_a_job_that_is_over(slurm):
    code, _ = slurm.run(HEAD + "exit 3\n")
    number = slurm.sbatch("job.sh", "--hold")
    slurm.login("scancel", str(number))
    assert code == 3 and status(slurm, number - 1) == (5, f"job {number - 1}: it does not run any more: FAILED\n")
    assert status_json(slurm, number) == (5, {"job": str(number), "state": "ended", "slurm": "CANCELLED", "text": "it does not run any more: CANCELLED"})


def test_of_a_job_that_slurm_does_not_know(slurm):
    """It may have forgotten it; accounting, where there is one, remembers."""
    assert status(slurm, 987654) == (6, "job 987654: Slurm does not know it, or not any more\n")
    assert status_json(slurm, "987654_3")[1]["state"] == "unknown"
    os.makedirs(slurm.home("bin"), exist_ok=True)
    slurm.write("bin/sacct", "#!/bin/sh\necho '987654|ada|TIMEOUT'\n")
    assert status(slurm, 987654, env=(f"PATH=/home/ada/bin:/opt/fpstore/bin:/usr/bin:/bin",)) == (5, "job 987654: it does not run any more: TIMEOUT\n")
    assert status(slurm, "n1-123-45")[0] == 6
    code, out = status(slurm, "job.sh/")
    assert code == 2 and "job.sh/ is none: of which job?" in out
    code, out = status(slurm, "")
    assert code == 2 and "of which job? fp-job status JOB" in out


def test_of_an_array(slurm):
    slurm.write("job.sh", "#!/bin/bash\nuntil [ -e go ]; do sleep 0.1; done\n")
    if os.path.exists(slurm.home("go")):
        os.unlink(slurm.home("go"))
    number = slurm.sbatch("job.sh", "--array=1-3%1", "-N1")
    wait_until("a task to run", 60, lambda: slurm.login("squeue", "-hrt", "R", "-o", "%i", "-j", str(number)).stdout.strip() == f"{number}_1", 0.1)
    code, out = status(slurm, number)
    assert code == 2 and f"job {number}: it is an array: of which of its tasks? fp-job status {number}_1; these run: {number}_1\n" in out, out
    assert status(slurm, f"{number}_1")[0] == 4
    assert status(slurm, f"{number}_2") == (3, f"job {number}_2: it does not run yet: PENDING (JobArrayTaskLimit)\n")
    slurm.login("scancel", str(number))
    wait_until("no task to run", 60, lambda: not slurm.login("squeue", "-hr", "-j", str(number)).stdout, 0.1)


def test_of_somebody_elses_job(slurm):
    number = slurm.up(HEAD + WAIT)
    code, out = status(slurm, number, user="root")
    assert code == 1 and f"ERROR: job {number} is ada's: runuser -u ada -- fp-job status {number}\n" in out, out
    slurm.go()
    slurm.end_of(number)
    number = int(slurm.login("sbatch", "--parsable", "-N1", "-o", "/dev/null", "--wrap", "sleep 1000", user="root").stdout)
    with cancelled(slurm, number):
        slurm.wait_state(number, "RUNNING")
        code, out = status(slurm, number)
        assert code == 1 and f"ERROR: job {number} is root's, who alone can ask how its store is\n" in out, out


def test_of_a_shell_of_salloc(slurm):
    """Its store was started where salloc was called, which is no node of the job."""
    slurm.write("job.sh", HEAD)
    slurm.write("in.sh", "eval \"$(fp-job start job.sh)\" || exit 1\nfp-job status; echo code $?\nssh_to() { srun -N1 -n1 --overlap \"$@\"; }\nssh_to fp-job status $SLURM_JOB_ID 2>&1; fp-job stop\n")
    r = slurm.login("salloc", "-N2", "--exclusive", "--quiet", "bash", "in.sh", check=False, seconds=90)
    assert "2 of 2 nodes ready" in r.stdout and "code 0\n" in r.stdout and f"was begun by salloc on {slurm.names[0]}: ask there" in r.stdout, r.stdout + r.stderr
    slurm.nothing_left()


@pytest.fixture
def stopped(slurm):
    """The controller, which takes connections and says nothing."""
    pid, = slurm.login("pgrep", "-x", "slurmctld", user="root").stdout.split()
    slurm.login("kill", "-STOP", pid, user="root")
    yield
    slurm.login("kill", "-CONT", pid, user="root")
    slurm.wait_nodes()


def test_without_an_answer_of_slurm(slurm, stopped):
    code, out = status(slurm, 1)
    assert code == 1 and "ERROR: job 1: Slurm does not answer: " in out, out


def test_without_slurm(slurm):
    slurm.login("sh", "-c", "mkdir -p only; ln -sf /bin/sh only/sh")
    code, out = status(slurm, 1, env=("PATH=/home/ada/only:/opt/fpstore/bin",))
    assert code == 6 and out == "job 1: no store of this job was started on this machine, and there is no Slurm that could be asked: ask where it was started\n", out
