"""What goes wrong with a store that is mounted in a user namespace (tests/e2e/test_job_inside.py)."""

import pytest

from harness.daemons import wait_until

SLURM = {"nodes": 2, "cpus": 2}
HEAD = "#!/bin/bash\n#SBATCH -N 2 --exclusive\n#FP store size=256MiB pool=64MiB\n"
APP = "echo before > $FP_MOUNT/$(hostname); touch up.$SLURM_PROCID; until [ -e go ]; do sleep 0.1; done; until cat $FP_MOUNT/$(hostname); do sleep 0.1; done"
WAIT = "until [ -e up.0 ] && [ -e up.1 ]; do sleep 0.1; done; rm up.0 up.1; touch up; wait $!\n"


@pytest.fixture(scope="module", autouse=True)
def taken_away(slurm):
    slurm.take_fusermount3(1, 2)


def test_the_mount_is_killed(slurm):
    """It is started again, in the place where the application is, which sees its files again."""
    number = slurm.up(HEAD + f"#FP stage-out * to=/lustre/good\nfp-job run -- srun -N2 sh -c '{APP}' &\n" + WAIT)
    old, = slurm.processes(2, "fp-mount")
    slurm.kill(2, old)
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0 and out.count("before\n") == 2, out
    for name in slurm.names[1:]:
        assert slurm.login("cat", f"/lustre/good/{name}").stdout == "before\n"
    slurm.nothing_left(30)


def test_the_job_is_cancelled(slurm):
    number = slurm.up(HEAD + "fp-job run -- sh -c 'touch up; sleep 600'\n")
    slurm.login("scancel", str(number))
    slurm.wait_state(number, "CANCELLED")
    slurm.nothing_left(60)


def test_start_is_interrupted_while_it_stages_in(slurm):
    """By fpctl in a process that has entered, which is told, too."""
    slurm.write("in", "data\n")
    with slurm.stand_in(1, "fpctl", 'case $1 in stage-in) exec sleep 600;; esac\nexec /tmp/real "$@"'):
        number = slurm.up(HEAD + "#FP stage-in $HOME/in\nfp-job start > started &\nstart=$!\ntouch up\nuntil [ -e go ]; do sleep 0.1; done\nkill -TERM $start\nwait $start\necho ended with $?\n")
        wait_until("fpctl to work", 60, lambda: slurm.processes(1, "sleep", "600"), 0.1)
        slurm.go()
        code, out = slurm.end_of(number)
    assert code == 0 and "ended with 1" in out and "interrupted before the application has begun: ending the store" in out, out
    slurm.nothing_left(60)
