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


def begin(slurm, text, *args):
    """A job that is up, and waits for a file `go`."""
    for name in ("up", "go"):
        if os.path.exists(slurm.home(name)):
            os.unlink(slurm.home(name))
    slurm.write("job.sh", text)
    number = slurm.sbatch("job.sh", *args)
    slurm.wait_file("up", number)
    return number


def processes(slurm, i, name, word=""):
    """Pids of the user's processes of this name on node i, as that node counts; with this word in their call."""
    out = slurm.on(i, "ps", "-o", "pid=,comm=,args=", "-u", "5001", user="root", check=False).stdout
    return [int(line.split()[0]) for line in out.splitlines() if line.split()[1] == name and word in line.split(None, 2)[2].split() + [""]]


def test_cancelled(slurm):
    number = begin(slurm, HEAD + 'eval "$(fp-job start)" || exit 1\nsrun sh -c "echo x > $FP_MOUNT/\\$(hostname)"\n' + WAIT + "fp-job stop\n")
    slurm.login("scancel", str(number))
    slurm.wait_state(number, "CANCELLED")
    slurm.nothing_left(30)


def test_the_batch_script_is_killed(slurm):
    number = begin(slurm, HEAD + 'eval "$(fp-job start)" || exit 1\n' + WAIT + "fp-job stop\n")
    pid = processes(slurm, 1, "slurm_script")[0]
    slurm.on(1, "kill", "-9", str(pid), user="root")
    slurm.end_of(number)
    slurm.nothing_left(30)


def test_run_is_killed(slurm):
    number = begin(slurm, HEAD + "fp-job run -- sh -c 'touch up; sleep 600'\n")
    pid, = processes(slurm, 1, "fp-job", "run")
    slurm.on(1, "kill", "-9", str(pid), user="root")
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
    """The application does not end by itself; what is in the store is drained all the same."""
    code, out = slurm.run(HEAD + "#FP auxapp drain to=/lustre/limit\nfp-job run -- sh -c 'echo data > /AggregateSSDstore/f; sleep 600'\n", "--time=1", seconds=120)
    assert code == 143 and "the application is told to end" in out, out
    assert slurm.login("cat", "/lustre/limit/f").stdout == "data\n"
    slurm.nothing_left(30)


def test_a_mount_that_crashes_is_started_again(slurm):
    number = begin(slurm, HEAD + 'eval "$(fp-job start)" || exit 1\necho before > $FP_MOUNT/f; sync -f $FP_MOUNT/f\n' + WAIT + "srun cat $FP_MOUNT/f\nfp-job stop\n")
    pid = processes(slurm, 2, "fp-mount")[0]
    slurm.on(2, "kill", "-9", str(pid), user="root")
    wait_until("fp-mount to be there again", 30, lambda: [p for p in processes(slurm, 2, "fp-mount") if p != pid], 0.1)
    wait_until("all nodes to be ready", 30, lambda: "4 of 4 nodes ready" in slurm.login("fp-job", "status", str(number), check=False).stdout, 0.2)
    slurm.write("go", "")
    code, out = slurm.end_of(number)
    assert code == 0 and out.count("before") == 4, out
    slurm.nothing_left(30)


def test_a_node_dies_and_the_job_goes_on(slurm):
    number = begin(slurm, HEAD.replace("--exclusive", "--exclusive --no-kill") + 'eval "$(fp-job start)" || exit 1\necho here > $FP_MOUNT/f\n' + WAIT + "cat $FP_MOUNT/f\necho more > $FP_MOUNT/g\nfp-job stop\n")
    slurm.crash(4)
    try:
        wait_until("the node to be missed", 60, lambda: "down" in slurm.login("sinfo", "-hN", "-n", slurm.names[4], "-o", "%T", user="root").stdout, 0.3)
        slurm.write("go", "")
        code, out = slurm.end_of(number, 120)
        assert code == 0 and "here" in out, out
        slurm.nothing_left(30, nodes=(1, 2, 3))
    finally:
        slurm.start_node(4)
        slurm.wait_nodes(60)


@pytest.mark.parametrize("what", ["fp-mount", "fp-benefactor", "fp-manager"])
def test_a_program_that_hangs_does_not_keep_the_node(slurm, what):
    """Stopped by SIGSTOP while the job is cancelled."""
    number = begin(slurm, HEAD + 'eval "$(fp-job start)" || exit 1\n' + WAIT)
    for pid in processes(slurm, 1, what):
        slurm.on(1, "kill", f"-{int(signal.SIGSTOP)}", str(pid), user="root")
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
    slurm.write("go", "")
    for number in jobs:
        code, out = slurm.end_of(number)
        assert code == 0 and f"\n{number}\n" in out, out
    slurm.nothing_left(30)
