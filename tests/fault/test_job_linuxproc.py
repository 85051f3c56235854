"""A Slurm that knows a job's processes by their parents (proctrack/linuxproc), and so sends each signal to all of them, to programs of the store, too."""

from harness.daemons import wait_until

SLURM = {"nodes": 2, "cpus": 2, "kill_wait": 5, "extra": "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/affinity"}

HEAD = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n#FP auxapp dedup hash=xxh3\n"
WAIT = "touch up\nuntil [ -e go ]; do sleep 0.1; done\n"
SERVICES = ("fp-manager", "fp-benefactor", "fp-mount")


def services(slurm):
    return {(i, name): slurm.processes(i, name) for i in (1, 2) for name in SERVICES}


def test_a_signal_before_the_end_does_not_end_the_store(slurm):
    """As with #SBATCH --signal=TERM@300: the application is to write its last checkpoint."""
    number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\necho before > $FP_MOUNT/f\n' + WAIT +
                      "srun sh -c 'cat $FP_MOUNT/f; echo after > $FP_MOUNT/$(hostname)'\ncat $FP_MOUNT/q*\nfp-job status\nfp-job stop\n")
    before = services(slurm)
    assert len(before[1, "fp-mount"]) == len(before[2, "fp-mount"]) == len(before[1, "fp-manager"]) == 1, before
    slurm.login("scancel", "-s", "TERM", str(number))
    wait_until("the agent to have asked what that means", 20, lambda: "the job still runs" in slurm.on(1, "cat", f"/tmp/fpstore-5001-{number}/agents.log", user="root").stdout, 0.1)
    assert services(slurm) == before
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0 and out.splitlines().count("before") == 2 and out.splitlines().count("after") == 2 and "2 of 2 nodes ready" in out, out
    slurm.nothing_left(20)


def test_cancelled(slurm):
    number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\necho x > $FP_MOUNT/f\n' + WAIT)
    slurm.login("scancel", str(number))
    slurm.wait_state(number, "CANCELLED")
    slurm.nothing_left(30)


def test_stopped(slurm):
    code, out = slurm.run(HEAD + "fp-job run -- srun sh -c 'echo x > $FP_MOUNT/$(hostname)'\nexit $?\n")
    assert code == 0 and "ERROR" not in out and "WARN" not in out, out
    slurm.nothing_left(10)
