"""Jobs with a store that go wrong, with a real Slurm: whatever happens, no process, mount or file is left on any node."""

import os
import re
import signal
import time

import pytest

from harness.daemons import wait_until

SLURM = {"nodes": 4, "cpus": 2, "kill_wait": 5}

HEAD = "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n"
WAIT = "touch up\nuntil [ -e go ]; do sleep 0.1; done\n"


def test_cancelled(slurm):
    number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\nsrun sh -c "echo x > $FP_MOUNT/\\$(hostname)"\n' + WAIT + "fp-job stop\n")
    slurm.login("scancel", str(number))
    slurm.wait_state(number, "CANCELLED")
    slurm.nothing_left(30)


def test_the_batch_script_is_killed(slurm):
    number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\n' + WAIT + "fp-job stop\n")
    pid = slurm.processes(1, "slurm_script")[0]
    slurm.kill(1, pid)
    slurm.end_of(number)
    slurm.nothing_left(30)


def test_run_is_killed(slurm):
    number = slurm.up(HEAD + "fp-job run -- sh -c 'touch up; sleep 600'\n")
    pid, = slurm.processes(1, "fp-job", "run")
    slurm.kill(1, pid)
    code, _ = slurm.end_of(number)
    assert code == 137
    slurm.nothing_left(30)


def test_start_is_interrupted(slurm):
    """Before all are ready: a benefactor that does not come up, since its program is stopped."""
    slurm.write("job.sh", HEAD + "fp-job start > started &\nstart=$!\nwhile [ ! -e /tmp/fpstore-*/agents.log ]; do sleep 0.02; done\nkill -TERM $start\nwait $start\necho ended with $?\n")
    code, out = slurm.end_of(slurm.sbatch("job.sh"))
    assert code == 0 and "ended with 1" in out and "interrupted" in out, out
    assert slurm.read("started") == "false\n"
    slurm.nothing_left(30)


def test_the_disk_of_one_node_is_full(slurm):
    slurm.on(3, "sh", "-c", "mount -t tmpfs -o size=100M,mode=1777 none /srv", user="root")
    try:
        code, out = slurm.run(HEAD + 'eval "$(fp-job start)" || exit 5\n')
    finally:
        slurm.on(3, "umount", "/srv", user="root")
    assert code == 5, out
    assert re.search(rf"ERROR: {slurm.names[3]} is not ready: .* are free in /srv/fpstore-\d+, and 256 MiB are wanted", out), out
    assert slurm.names[2] not in out
    slurm.nothing_left(30)


def test_a_node_that_is_late_is_named(slurm):
    """Its mount hangs: the limit of the script counts, and who it was is said."""
    slurm.on(2, "sh", "-c", "cp /opt/fpstore/bin/fp-benefactor /tmp/real; printf '#!/bin/sh\\nsleep 600\\n' > /tmp/slow; chmod 755 /tmp/slow; mount --bind /tmp/slow /opt/fpstore/bin/fp-benefactor",
             user="root")
    try:
        began = time.monotonic()
        code, out = slurm.run(HEAD.replace("pool=", "ready=5s pool=") + 'eval "$(fp-job start)" || exit 5\n')
        assert code == 5 and time.monotonic() - began < 60, out
    finally:
        slurm.on(2, "sh", "-c", "umount /opt/fpstore/bin/fp-benefactor; rm /tmp/real /tmp/slow", user="root")
    assert f"{slurm.names[2]} is not ready: its services are not ready" in out and slurm.names[3] not in out, out
    assert "3 of 4 nodes were ready within 5 s" in out, out
    slurm.nothing_left(30)


def test_the_time_limit(slurm):
    """The application does not end by itself; its tasks are told in time, and what they write then is drained, too."""
    code, out = slurm.run(HEAD + "#FP auxapp drain to=/lustre/limit\n"
                          "fp-job run -- srun -n1 -N1 sh -c 'trap \"echo last > /AggregateSSDstore/f; exit 7\" TERM; sleep 600 & wait'\n", "--time=1", seconds=120)
    assert code == 7 and "the application is told to end" in out, out
    assert slurm.login("cat", "/lustre/limit/f").stdout == "last\n"
    slurm.nothing_left(30)


def test_a_mount_that_crashes_is_started_again(slurm):
    number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\necho before > $FP_MOUNT/f; sync -f $FP_MOUNT/f\n' + WAIT + "srun cat $FP_MOUNT/f\nfp-job stop\n")
    pid = slurm.processes(2, "fp-mount")[0]
    slurm.kill(2, pid)
    wait_until("fp-mount to be there again", 30, lambda: [p for p in slurm.processes(2, "fp-mount") if p != pid], 0.1)
    wait_until("all nodes to be ready", 30, lambda: "4 of 4 nodes ready" in slurm.login("fp-job", "status", str(number), check=False).stdout, 0.2)
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0 and out.count("before") == 4, out
    slurm.nothing_left(30)


def test_a_node_dies_and_the_job_goes_on(slurm):
    number = slurm.up(HEAD.replace("--exclusive", "--exclusive --no-kill") + 'eval "$(fp-job start)" || exit 1\necho here > $FP_MOUNT/f\n' + WAIT + "cat $FP_MOUNT/f\necho more > $FP_MOUNT/g\nfp-job stop\n")
    slurm.crash(4)
    try:
        wait_until("the node to be missed", 60, lambda: "down" in slurm.login("sinfo", "-hN", "-n", slurm.names[4], "-o", "%T", user="root").stdout, 0.3)
        slurm.go()
        code, out = slurm.end_of(number, 120)
        assert code == 0 and "here" in out, out
        slurm.nothing_left(30, nodes=(1, 2, 3))
    finally:
        slurm.start_node(4)
        slurm.wait_nodes(60)


@pytest.mark.parametrize("what", ["fp-mount", "fp-benefactor", "fp-manager"])
def test_a_program_that_hangs_does_not_keep_the_node(slurm, what):
    """Stopped by SIGSTOP while the job is cancelled."""
    number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\n' + WAIT)
    slurm.kill(1, *slurm.processes(1, what), signal=signal.SIGSTOP)
    slurm.login("scancel", str(number))
    slurm.wait_state(number, "CANCELLED")
    slurm.nothing_left(60)
    assert slurm.login("sinfo", "-h", "-o", "%T").stdout.split() == ["idle"]


def test_two_jobs_on_one_node(slurm):
    """Each has a part of its cores, and a store of its own, mounted where the user said."""
    script = "#!/bin/bash\n#SBATCH -N 1 -n 1 -w NODE\n#FP store size=128MiB pool=64MiB mount=/tmp/mnt-$SLURM_JOB_ID\neval \"$(fp-job start)\" || exit 1\necho $SLURM_JOB_ID > $FP_MOUNT/f\n"
    script = script.replace("NODE", slurm.names[2])
    for name in ("up1", "up2", "go"):
        if os.path.exists(slurm.home(name)):
            os.unlink(slurm.home(name))
    jobs = []
    for i in (1, 2):
        slurm.write("job.sh", script + f"touch up{i}\nuntil [ -e go ]; do sleep 0.1; done\ncat $FP_MOUNT/f\nfp-job stop\n")
        jobs.append(slurm.sbatch("job.sh"))
    for i in (1, 2):
        slurm.wait_file(f"up{i}", jobs[i - 1])
    slurm.go()
    for number in jobs:
        code, out = slurm.end_of(number)
        assert code == 0 and f"\n{number}\n" in out, out
    slurm.nothing_left(30)


@pytest.mark.limit(180)
def test_a_target_that_hangs_does_not_hold_a_job_without_a_limit(slurm):
    """The parallel file system does not answer when the job ends: what could not be drained is said, within the time that --timeout gives."""
    slurm.on(2, "mkdir", "-p", "/lustre/hung", "/lustre/hung.source")
    fs = slurm.begin(2, "fp-slowfs", "--foreground", "/lustre/hung.source", "/lustre/hung")
    wait_until("fp-slowfs", 20, lambda: any("/lustre/hung" in x for x in slurm.left_over(2)), 0.05)
    pid, = slurm.processes(2, "fp-slowfs")
    try:
        number = slurm.up("#!/bin/bash\n#SBATCH -N 1 --exclusive -w %s\n#FP store size=256MiB pool=64MiB\n#FP auxapp drain to=/lustre/hung\n" % slurm.names[2] +
                          'eval "$(fp-job start)" || exit 9\n' + WAIT + "head -c 5000000 /dev/urandom > $FP_MOUNT/f\nSECONDS=0\nfp-job stop --timeout=4s\necho ended with $? after $SECONDS\ntouch up\n")
        slurm.kill(2, pid, signal=signal.SIGSTOP)
        slurm.go()
        slurm.wait_file("up", number, 90)
    finally:
        slurm.kill(2, pid, signal=signal.SIGCONT)
        fs.send_signal(signal.SIGCONT)  # nsenter stops with what it has started
    code, out = slurm.end_of(number)
    assert code == 0 and "not all is drained, and the time for it is over (--timeout of fp-job)" in out, out
    assert 4 <= int(re.search(r"ended with 1 after (\d+)", out)[1]) <= 60, out
    slurm.on(2, "fusermount3", "-u", "/lustre/hung")
    fs.communicate(timeout=20)
    slurm.nothing_left(30)
