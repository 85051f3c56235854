"""Agents of a job that are killed, with a real Slurm: what they had begun is ended and removed by whoever comes next, without an administrator."""

import re

import pytest

from harness.daemons import wait_until

SLURM = {"nodes": 3, "cpus": 2, "kill_wait": 30}  # as Slurm has it

HEAD = "#!/bin/bash\n#SBATCH -N 3\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n"
WAIT = "touch up\nuntil [ -e go ]; do sleep 0.1; done\n"
START = 'eval "$(fp-job start)" || exit 1\necho data > $FP_MOUNT/f\n'


def agent(slurm, i):
    pid, = slurm.processes(i, "fp-job", "node")
    return pid


def kill_all(slurm, i):
    slurm.kill_ours(i)
    left = slurm.left_over(i)
    assert any(x.startswith("mount ") for x in left) and any("/srv/fpstore-" in x for x in left) and any("/tmp/fpstore-" in x for x in left), left


def status(slurm, number):
    return slurm.login("fp-job", "status", str(number), check=False).stdout


def test_an_agent_that_is_killed_leaves_nothing_on_its_node(slurm):
    """While the job goes on, on the other nodes."""
    number = slurm.up(HEAD + START + WAIT + "cat $FP_MOUNT/f\nfp-job stop --exit-code=3\n")
    slurm.kill(3, agent(slurm, 3))
    slurm.nothing_left(30, nodes=(3,))
    wait_until("it to be missed", 20, lambda: "2 of 3 nodes ready" in status(slurm, number) and f"\n{slurm.names[3]}: failed: its agent is gone" in status(slurm, number), 0.3)
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 3 and "data" in out, out
    slurm.nothing_left(30)


def test_what_all_killed_processes_of_a_node_have_left_is_removed_by_stop(slurm):
    number = slurm.up(HEAD + START + WAIT + "cat $FP_MOUNT/f\nfp-job stop\n")
    kill_all(slurm, 3)
    wait_until("it to be missed", 20, lambda: "2 of 3 nodes ready" in status(slurm, number), 0.3)
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0 and "data" in out, out
    slurm.nothing_left(10)


def test_what_a_killed_job_has_left_is_removed_by_the_next_one(slurm):
    number = slurm.up(HEAD + START + WAIT)
    kill_all(slurm, 2)
    slurm.kill(1, slurm.script(1))
    slurm.end_of(number)
    assert any("/srv/fpstore-" in x for x in slurm.left_over(2))
    slurm.nothing_left(30, nodes=(1, 3))
    code, out = slurm.run(HEAD + START + f"srun ls -d /srv/fpstore-{number} /tmp/fpstore-5001-{number} 2>&1\nsrun cat $FP_MOUNT/f\nfp-job stop\n")
    assert code == 0 and out.count("No such file") == 6 and out.splitlines().count("data") == 3, out
    slurm.nothing_left(10)


def test_what_a_killed_job_has_left_is_removed_by_clean(slurm):
    """By the user; and nothing else of his, whatever its name, nor what a job has that runs."""
    slurm.on(2, "sh", "-c", "mkdir -m 700 /srv/fpstore-mine /tmp/fpstore-5001-mine; echo x > /srv/fpstore-mine/results; echo x > /tmp/fpstore-5001-mine/results")
    number = slurm.up(HEAD + START + WAIT)
    kill_all(slurm, 2)
    slurm.kill(1, slurm.script(1))
    slurm.end_of(number)
    later = slurm.up(HEAD.replace("-N 3", f"-N 2 -w {slurm.names[1]},{slurm.names[3]}") + START + WAIT + "cat $FP_MOUNT/f\nfp-job stop\n")
    for i in (1, 2, 3):
        slurm.on(i, "fp-job", "clean", seconds=60)
    left = slurm.left_over(2)
    assert sorted(left) == ["file /srv/fpstore-mine", "file /srv/fpstore-mine/results", "file /tmp/fpstore-5001-mine", "file /tmp/fpstore-5001-mine/results"], left
    slurm.on(2, "rm", "-r", "/srv/fpstore-mine", "/tmp/fpstore-5001-mine")
    assert "2 of 2 nodes ready" in status(slurm, later)
    slurm.go()
    code, out = slurm.end_of(later)
    assert code == 0 and "data" in out, out
    slurm.nothing_left(10)


def test_a_dead_mount_of_which_nothing_else_tells_is_removed(slurm):
    """Its directory in /tmp is gone, too: by clean, and by the next job."""
    for by in ("clean", "job"):
        number = slurm.up(HEAD + START + WAIT)
        kill_all(slurm, 2)
        slurm.kill(1, slurm.script(1))
        slurm.end_of(number)
        slurm.nothing_left(30, nodes=(1, 3))
        slurm.on(2, "sh", "-c", "rm -rf /tmp/fpstore-5001-* /srv/fpstore-*")
        assert slurm.left_over(2) == ["mount /AggregateSSDstore"]
        r = slurm.on(2, "fp-job", "doctor", "--here", "--ssd=/srv", check=False)
        assert r.returncode == 1 and re.search(r"^wrong +mountpoint .*no program of it runs any more", r.stdout, re.M) and "fusermount3 -u /AggregateSSDstore" in r.stdout, r.stdout
        if by == "clean":
            r = slurm.on(2, "fp-job", "clean", seconds=60)
            assert "/AggregateSSDstore: a store is mounted there of which no program runs any more: unmounting it" in r.stdout + r.stderr, r.stdout + r.stderr
            assert slurm.left_over(2) == []
            assert "nothing is left here" in slurm.on(2, "fp-job", "clean", seconds=60).stderr
    code, out = slurm.run(HEAD + START + "echo at $FP_MOUNT\nsrun cat $FP_MOUNT/f\nfp-job stop\n")
    assert code == 0 and "at /AggregateSSDstore" in out.splitlines() and out.splitlines().count("data") == 3, out
    slurm.nothing_left(10)


def test_clean_of_a_job_ends_what_it_has_on_a_node(slurm):
    """Also of one that is alive, or hangs: what a site's epilog calls."""
    number = slurm.up(HEAD + START + WAIT)
    slurm.kill(2, *slurm.processes(2, "fp-mount"), agent(slurm, 2), signal=19)
    for i in (2, 3):
        r = slurm.on(i, "fp-job", "clean", str(number), user="root", check=False)
        assert r.returncode == 1 and f"ERROR: /tmp/fpstore-5001-{number} is another user's: runuser -u \"$(id -nu 5001)\" -- fp-job clean {number}\n" in r.stderr, r.stderr
        slurm.on(i, "runuser", "-u", "ada", "--", "fp-job", "clean", str(number), user="root", seconds=60)
        assert not slurm.left_over(i)
    slurm.on(2, "mkdir", "-m", "700", "/tmp/fpstore-5001-12.server")
    slurm.on(2, "fp-job", "clean", "12.server")
    assert not slurm.left_over(2)
    slurm.login("scancel", str(number))
    slurm.wait_state(number, "CANCELLED")
    slurm.nothing_left(30)


def test_two_starts_in_one_job_do_not_meet(slurm):
    code, out = slurm.run(HEAD + "fp-job start > one & fp-job start > two & wait\ncat one two\neval \"$(grep -h -v false one two)\"\nls -d $FP_MOUNT\nfp-job stop\n")
    assert code == 0 and out.splitlines().count("false") == 1 and "/AggregateSSDstore" in out.splitlines(), out
    assert "another fp-job is just starting" in out or "is up already" in out, out
    slurm.nothing_left(10)


@pytest.mark.limit(240)
@pytest.mark.parametrize("words", ["", " --no-kill"])
def test_a_job_whose_first_node_dies_leaves_nothing_on_the_others(slurm, words):
    """No epilog is there, and with --no-kill Slurm leaves them their step: they end by themselves when they have heard of no agent above for a while."""
    number = slurm.up(HEAD.replace("--exclusive", "--exclusive --no-requeue" + words) + START + WAIT)
    slurm.crash(1)
    try:
        slurm.nothing_left(60, nodes=(2, 3))
    finally:
        slurm.login("scancel", str(number), check=False)  # which has its nodes still, with --no-kill
        slurm.start_node(1)
        slurm.wait_nodes(60)
    slurm.nothing_left(30)
