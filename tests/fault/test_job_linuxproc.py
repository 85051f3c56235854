"""A Slurm that knows a job's processes by their parents (proctrack/linuxproc), and so sends each signal to all of them, to programs of the store, too."""

from harness.daemons import wait_until

SLURM = {"nodes": 2, "cpus": 2, "kill_wait": 5, "extra": "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/affinity"}

HEAD = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n#FP auxapp dedup hash=xxh3\n"
WAIT = "touch up\nuntil [ -e go ]; do sleep 0.1; done\n"
MARKS = ("USR1", "USR2", "ALRM", "QUIT")
ASKED = ("HUP", "INT", "TERM")
TASK = "trap : HUP INT TERM\nfor s in " + " ".join(MARKS) + "; do trap \"echo $s >> marks\" $s; done\necho begun >> marks\nuntil [ -e go ]; do sleep 0.1; done\n"
SERVICES = ("fp-manager", "fp-benefactor", "fp-mount")


def services(slurm):
    return {(i, name): slurm.processes(i, name) for i in (1, 2) for name in SERVICES}


def test_a_signal_before_the_end_does_not_end_the_store(slurm):
    """As with #SBATCH --signal=USR1@300: the application is to write its last checkpoint."""
    slurm.write("task.sh", TASK)
    number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\necho before > $FP_MOUNT/f\nsrun -N1 -n1 bash task.sh &\nuntil [ -e marks ]; do sleep 0.1; done\n' + WAIT +
                      "wait %1 || exit 1\n"
                      "srun sh -c 'cat $FP_MOUNT/f; echo after > $FP_MOUNT/$(hostname)'\ncat $FP_MOUNT/q*\nfp-job status\nfp-job stop\n")
    before = services(slurm)
    assert len(before[1, "fp-mount"]) == len(before[2, "fp-mount"]) == len(before[1, "fp-manager"]) == 1, before

    def answers():
        return slurm.on(1, "cat", f"/tmp/fpstore-5001-{number}/agents.log", user="root").stdout.count("the job still runs")

    for sign in MARKS + ASKED:
        had = answers()
        slurm.login("scancel", "-s", sign, str(number))
        if sign in ASKED:
            wait_until(f"the agent to have asked what {sign} means", 20, lambda: answers() > had, 0.1)
        else:
            wait_until(f"{sign} to have come to the application", 20, lambda: sign in open(slurm.home("marks")).read().split(), 0.1)
        assert services(slurm) == before, sign
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
