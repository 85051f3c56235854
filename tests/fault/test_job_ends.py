"""Jobs with a store that go wrong, with a real Slurm: whatever happens, no process, mount or file is left on any node."""

import contextlib
import glob
import os
import re
import signal
import subprocess
import time

import pytest

from harness.daemons import SLOW, wait_until

SLURM = {"nodes": 4, "cpus": 2, "kill_wait": 30}  # as Slurm has it
TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

HEAD = "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n"
WAIT = "touch up\nuntil [ -e go ]; do sleep 0.1; done\n"


def test_cancelled(slurm):
    number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\nsrun sh -c "echo x > $FP_MOUNT/\\$(hostname)"\n' + WAIT + "fp-job stop\n")
    slurm.login("scancel", str(number))
    slurm.wait_state(number, "CANCELLED")
    slurm.nothing_left(30)


def test_the_batch_script_is_killed(slurm):
    number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\n' + WAIT + "fp-job stop\n")
    pid = slurm.script(1)
    slurm.kill(1, pid)
    slurm.end_of(number)
    slurm.nothing_left(30)


@pytest.mark.parametrize("fails", [False, True])
def test_the_launcher_is_killed(slurm, fails):
    """Agents live without it, and nothing kills them for it; stop ends them all the same, also where the store could not be stopped before."""
    with slurm.stand_in(1, "fpctl", f'[ "$1" != stop ] || {"exit 1" if fails else ":"}\nexec /tmp/real "$@"'):
        number = slurm.up(HEAD + 'eval "$(fp-job start)" || exit 1\n' + WAIT + "echo last > $FP_MOUNT/f && cat $FP_MOUNT/f && fp-job status; fp-job stop\n"
                          "srun -N4 --ntasks-per-node=1 sh -c 'ls -d /tmp/fpstore-* 2> /dev/null || echo gone'\n")
        launcher = slurm.processes(1, "srun")[0]  # the others are its children, and would be quick enough to kill the agents
        slurm.kill(1, launcher)
        wait_until("srun to be gone", 20, lambda: not slurm.processes(1, "srun"))
        slurm.go()
        code, out = slurm.end_of(number)
    lines = out.splitlines()
    assert code == 0 and "last" in lines and "4 of 4 nodes ready" in out and lines.count("gone") == 4, out
    slurm.nothing_left(30)


def test_a_signal_before_the_end_is_for_the_application(slurm):
    """Where Slurm sends it to a step's own processes, one of which is above the agent; tests/fault/test_job_linuxproc.py has the other way."""
    task = """sh -c 'trap "" INT; trap "echo last > $FP_MOUNT/f; touch came" USR1; touch begun; until [ -e go ]; do sleep 0.1; done'"""
    number = slurm.up(HEAD + "rm -f begun came\n" + 'eval "$(fp-job start)" || exit 1\n' + f"srun -n1 -N1 {task} &\nuntil [ -e begun ]; do sleep 0.1; done\ntouch up\n"
                      "wait %1\ncat $FP_MOUNT/f\nfp-job status\nfp-job stop\n")
    slurm.login("scancel", "-s", "USR1", str(number))
    slurm.wait_file("came", number)
    slurm.login("scancel", "-s", "INT", str(number))
    wait_until("the agent to have asked what that means", 20, lambda: "the job still runs" in slurm.on(1, "cat", f"/tmp/fpstore-5001-{number}/agents.log", user="root").stdout, 0.1)
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0 and "last" in out.splitlines() and "4 of 4 nodes ready" in out and "killed" not in out, out
    slurm.nothing_left(20)


def test_run_is_killed(slurm):
    number = slurm.up(HEAD + "fp-job run -- sh -c 'touch up; sleep 600'\n")
    pid, = slurm.processes(1, "fp-job", "run")
    slurm.kill(1, pid)
    code, _ = slurm.end_of(number)
    assert code == 137
    slurm.nothing_left(30)


@pytest.mark.parametrize("careless", [False, True])
def test_what_a_shell_leaves_has_its_time(slurm, careless):
    """SIGTERM ends a shell alone, or it does not wait: its srun is neither killed nor forgotten, and what its tasks write then is drained."""
    slurm.write("task", "#!/bin/bash\ntrap 'sleep 2; hostname > $FP_MOUNT/last.$(hostname); exit 0' TERM\ntouch began.$(hostname)\nwhile :; do sleep 0.1; done\n")
    wait = "until [ -e began.$(hostname) ]; do sleep 0.1; done; touch up" if careless else "touch up; wait; exit 5"
    number = slurm.up(HEAD.replace("-N 4", "-N 2") + f"#FP auxapp drain to=/lustre/left{int(careless)}\nfp-job run -- bash -c 'srun bash ./task & {wait}'\n")
    wait_until("the tasks", 60, lambda: all(os.path.exists(slurm.home(f"began.{name}")) for name in slurm.names[1:3]))
    if not careless:
        slurm.kill(1, *slurm.processes(1, "fp-job", "run"), signal=signal.SIGTERM)
    code, out = slurm.end_of(number, 120)
    assert code == (0 if careless else 143) and "that it has started" in out, out
    for name in slurm.names[1:3]:
        with open(slurm.lustre(f"left{int(careless)}", f"last.{name}")) as f:
            assert f.read() == name + "\n"
        os.unlink(slurm.home(f"began.{name}"))
    slurm.nothing_left(30)


def test_a_controller_that_is_slow(slurm):
    """To give the script, and to say that the job still runs whose steps get SIGTERM some time before its end."""
    slurm.on(0, "mkdir", "-p", "slow")
    slurm.write("slow/scontrol", '#!/bin/sh\n[ "$1" != write ] || sleep 6\nexec /usr/bin/scontrol "$@"\n')
    slurm.write("slow/squeue", '#!/bin/sh\nsleep 3\nexec /usr/bin/squeue "$@"\n')
    number = slurm.up(HEAD + "PATH=$HOME/slow:$PATH\n" + 'eval "$(fp-job start)" || exit 1\necho data > $FP_MOUNT/f\n' + WAIT + "cat $FP_MOUNT/f\nfp-job status\nfp-job stop\n")
    slurm.login("scancel", "-s", "TERM", str(number))
    wait_until("the agent to have asked what that means", 20, lambda: "the job still runs" in slurm.on(1, "cat", f"/tmp/fpstore-5001-{number}/agents.log", user="root").stdout, 0.1)
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0 and "data" in out.splitlines() and "4 of 4 nodes ready" in out, out
    slurm.nothing_left(30)


def test_a_controller_that_is_away_has_not_ended_the_job(slurm):
    """As while it restarts, just when steps get SIGTERM some time before the job's end."""
    slurm.on(0, "mkdir", "-p", "away")
    slurm.write("away/squeue", '#!/bin/sh\n[ ! -e $HOME/away/now ] || { echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1; }\n'
                'exec /usr/bin/squeue "$@"\n')
    number = slurm.up(HEAD + "PATH=$HOME/away:$PATH\n" + 'eval "$(fp-job start)" || exit 1\necho data > $FP_MOUNT/f\n' + WAIT + "cat $FP_MOUNT/f\nfp-job status\nfp-job stop\n")
    slurm.write("away/now", "")
    slurm.login("scancel", "-s", "TERM", str(number))
    wait_until("the agent to have given up", 60, lambda: "Slurm does not say whether the job is over (slurm_load_jobs error" in
               slurm.on(1, "cat", f"/tmp/fpstore-5001-{number}/agents.log", user="root").stdout, 0.1)
    slurm.login("rm", "away/now")
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0 and "data" in out.splitlines() and "4 of 4 nodes ready" in out, out
    slurm.nothing_left(30)


@pytest.mark.limit(150)
@pytest.mark.parametrize("guard", [False, True])
def test_run_is_killed_and_the_script_goes_on(slurm, guard):
    """Its store ends soon, also if who looks after it is killed with it, and the next fp-job run of the script has one of its own."""
    number = slurm.up(HEAD + "fp-job run -- sh -c 'echo old > $FP_MOUNT/f; touch up; exec sleep 600' &\nwait $!\necho killed: $?\n"
                      "fp-job run -- sh -c 'ls $FP_MOUNT | wc -l; echo new > $FP_MOUNT/f; srun cat $FP_MOUNT/f; exit 3'\necho ended: $?\ntouch up\nuntil [ -e go ]; do sleep 0.1; done\nexit 5\n")
    slurm.kill(1, *slurm.processes(1, "fp-job", "run"), *(slurm.processes(1, "fp-job-guard") if guard else ()))
    slurm.wait_file("up", number, 100)
    for i in range(1, 5):
        assert not [x for x in slurm.left_over(i) if "fpstore" in x or "fp-" in x], slurm.left_over(i)
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 5 and "killed: 137" in out and "ended: 3" in out and out.splitlines().count("new") == 4 and "0" in out.splitlines(), out
    assert "waiting for the end of that store" in out, out
    slurm.nothing_left(30)


def test_start_is_interrupted(slurm):
    """Before all are ready: a benefactor does not come up."""
    with slurm.stand_in(2, "fp-benefactor", "exec sleep 600"):
        number = slurm.up(HEAD + "fp-job start > started &\nstart=$!\n" + WAIT + "kill -TERM $start\nwait $start\necho ended with $?\n")
        wait_until("the benefactor to be started", 30, lambda: slurm.processes(2, "sleep", "600"), 0.1)
        slurm.go()
        code, out = slurm.end_of(number)
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
    """Its benefactor hangs: the limit of the script counts, and who it was is said."""
    with slurm.stand_in(2, "fp-benefactor", "sleep 600"):
        began = time.monotonic()
        code, out = slurm.run(HEAD.replace("pool=", "ready=5s pool=") + 'eval "$(fp-job start)" || exit 5\n')
        assert code == 5 and time.monotonic() - began < 60 * SLOW, out
    assert f"{slurm.names[2]} is not ready: its services are not ready" in out and slurm.names[3] not in out, out
    assert "3 of 4 nodes were ready within 5 s" in out, out
    slurm.nothing_left(30)


@pytest.mark.limit(180)
@pytest.mark.parametrize("squeue", ["", "fails at first"])
def test_the_time_limit(slurm, squeue):
    """The application does not end by itself; its tasks are told in time, and what they write then is drained, too. Slurm, which is slow and does not say the job's
    time at first, is asked again."""
    path = ""
    if squeue:
        slurm.on(0, "mkdir", "-p", "deaf")
        slurm.write("deaf/squeue", '#!/bin/sh\ncase "$*" in *%L*) sleep 1; [ -e $HOME/deaf/once ] || { touch $HOME/deaf/once; exit 1; };; esac\nexec /usr/bin/squeue "$@"\n')
        path = "PATH=$HOME/deaf:$PATH\n"
    code, out = slurm.run(HEAD + "#FP auxapp drain to=/lustre/limit\n" + path +
                          "fp-job run -- srun -n1 -N1 sh -c 'trap \"echo last > /AggregateSSDstore/f; exit 7\" TERM; sleep 600 & wait'\n", "--time=1", seconds=120)
    assert code == 7 and "the application is told to end" in out, out
    assert slurm.login("cat", "/lustre/limit/f").stdout == "last\n"
    slurm.login("rm", "-r", "/lustre/limit")
    assert not squeue or os.path.exists(slurm.home("deaf/once"))
    slurm.nothing_left(30)


@pytest.mark.limit(180)
def test_the_time_limit_between_start_and_stop(slurm):
    """The agent of the first node tells the tasks of a step, and what the script runs itself; what they write then is drained before the limit."""
    task = "trap 'echo last > $FP_MOUNT/NAME; exit 7' TERM; while :; do sleep 0.2; done"
    slurm.write("task.sh", "#!/bin/sh\n" + task.replace("NAME", "task") + "\n")
    slurm.write("alone.sh", "#!/bin/sh\n" + task.replace("NAME", "alone") + "\n")
    code, out = slurm.run(HEAD + "#FP auxapp drain to=/lustre/between\n" + 'eval "$(fp-job start)" || exit 1\n./alone.sh &\nsrun -n1 -N1 ./task.sh\necho step: $?\nwait $!\necho alone: $?\n'
                          "fp-job stop\necho stopped: $?\nexit 3\n", "--time=1", seconds=120)
    assert code == 3 and "step: 7" in out and "alone: 7" in out and "stopped: 0" in out, out
    assert "the application was told to end" in out, out
    assert slurm.login("cat", "/lustre/between/task", "/lustre/between/alone").stdout == "last\nlast\n"
    slurm.nothing_left(30)


@pytest.mark.limit(180)
def test_the_time_limit_where_the_script_is_a_step_itself(slurm):
    """srun -n1 bash script: scancel would end the script, and its fp-job stop would never come. What it runs is told."""
    task = "trap 'echo last > $FP_MOUNT/NAME; exit 7' TERM; while :; do sleep 0.2; done"
    slurm.write("task.sh", "#!/bin/sh\n" + task.replace("NAME", "task") + "\n")
    slurm.write("alone.sh", "#!/bin/sh\n" + task.replace("NAME", "alone") + "\n")
    slurm.write("script.sh", HEAD + "#FP auxapp drain to=/lustre/inner\n" + 'eval "$(fp-job start script.sh)" || exit 1\n./alone.sh &\nsrun --overlap -n1 -N1 ./task.sh\necho step: $?\nwait $!\necho alone: $?\n'
                "fp-job stop\necho stopped: $?\nexit 3\n")
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 1 --exclusive\nsrun --overlap -n1 bash script.sh\necho script: $?\n", "--time=1", seconds=120)
    assert code == 0 and "step: 7" in out and "alone: 7" in out and "stopped: 0" in out and "script: 3" in out, out
    assert slurm.login("cat", "/lustre/inner/task", "/lustre/inner/alone").stdout == "last\nlast\n"
    slurm.nothing_left(30)


def test_a_task_of_an_array_that_is_told_to_end_tells_no_other(slurm):
    """The last one, whose number is that of the array."""
    for name in ("up1", "up2", "end1", "end2", "go"):
        if os.path.exists(slurm.home(name)):
            os.unlink(slurm.home(name))
    slurm.write("job.sh", HEAD.replace("-N 4", "-N 1\n#SBATCH --array=1-2") + "fp-job run -- srun sh -c 'trap \"exit 7\" TERM; touch up$SLURM_ARRAY_TASK_ID; until [ -e go ]; do sleep 0.1; done' &\n"
                "if [ $SLURM_JOB_ID = $SLURM_ARRAY_JOB_ID ]; then\nuntil [ -e up1 ] && [ -e up2 ]; do sleep 0.1; done\nkill -TERM $!\nfi\nwait $!\ncode=$?\n"
                "[ $SLURM_JOB_ID = $SLURM_ARRAY_JOB_ID ] && touch go\necho $SLURM_JOB_ID $code > end$SLURM_ARRAY_TASK_ID\n")
    number = slurm.sbatch("job.sh")
    ends = slurm.home("end1"), slurm.home("end2")
    wait_until(lambda: f"both tasks to end: {slurm.output(number)}", 60, lambda: all(os.path.exists(path) for path in ends) and not slurm.login("squeue", "-h").stdout, 0.1)
    codes = {int(number): int(code) for number, code in (slurm.read(f"end{i}").split() for i in (1, 2))}
    assert codes.pop(number) == 7 and list(codes.values()) == [0], slurm.output(number)
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


@pytest.mark.limit(180)
@pytest.mark.parametrize("mount", ["", " mount=/tmp/mine"])
def test_nothing_is_written_below_a_mount_that_is_started_again(slurm, mount):
    """It takes long, as its manager does not answer: until it is mounted programs get errors, and do not write what it would hide."""
    number = slurm.up(HEAD.replace("pool=64MiB", f"pool=64MiB{mount}") + 'eval "$(fp-job start)" || exit 1\necho $FP_MOUNT > where\necho before > $FP_MOUNT/f; sync -f $FP_MOUNT/f\n' +
                      WAIT + "srun cat $FP_MOUNT/f $FP_MOUNT/g\nfp-job stop\n")
    path, manager, pid = slurm.read("where").strip(), slurm.processes(1, "fp-manager"), slurm.processes(2, "fp-mount")[0]

    def asks():
        """It has threads, of which one talks to the manager."""
        again = [p for p in slurm.processes(2, "fp-mount") if p != pid]
        return again and slurm.on(2, "ls", f"/proc/{again[0]}/task", user="root", check=False).stdout.count("\n") > 1

    slurm.kill(1, *manager, signal=signal.SIGSTOP)
    try:
        slurm.kill(2, pid)
        wait_until("fp-mount to ask the manager", 60, asks, 0.1)
        r = slurm.on(2, "sh", "-c", f"echo lost > {path}/g", check=False)
        assert r.returncode and "not connected" in r.stderr, r.stderr
    finally:
        slurm.kill(1, *manager, signal=signal.SIGCONT)
    wait_until("all nodes to be ready", 60, lambda: "4 of 4 nodes ready" in slurm.login("fp-job", "status", str(number), check=False).stdout, 0.2)
    slurm.on(2, "sh", "-c", f"echo after > {path}/g")
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0 and out.count("before") == out.count("after") == 4, out
    slurm.nothing_left(30)


@pytest.mark.limit(180)
def test_a_mount_that_is_taken_away_is_mounted_again(slurm):
    """Until then nothing can be written to the directory below, which the job has made."""
    number = slurm.up(HEAD.replace("pool=64MiB", "pool=64MiB mount=/tmp/mine") + 'eval "$(fp-job start)" || exit 1\necho before > $FP_MOUNT/f; sync -f $FP_MOUNT/f\n' + WAIT +
                      "srun cat /tmp/mine/f\nfp-job status\nfp-job stop\n")
    pid = slurm.processes(2, "fp-mount")[0]
    slurm.kill(2, pid, signal=signal.SIGSTOP)
    try:
        slurm.on(2, "fusermount3", "-u", "/tmp/mine")
        r = slurm.on(2, "sh", "-c", "echo lost > /tmp/mine/g", check=False)
        assert r.returncode and "ermission denied" in r.stderr, r.stderr
    finally:
        slurm.kill(2, pid, signal=signal.SIGCONT)
    wait_until("fp-mount to be there again", 60, lambda: [p for p in slurm.processes(2, "fp-mount") if p != pid], 0.1)
    wait_until("all nodes to be ready", 60, lambda: "4 of 4 nodes ready" in slurm.login("fp-job", "status", str(number), check=False).stdout, 0.2)
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0 and out.count("before") == 4 and "4 of 4 nodes ready" in out, out
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
    """Each has a store of its own, mounted where the user said. Service cores: tests/e2e/test_job_shared_node.py."""
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


def test_two_jobs_of_one_node_with_the_same_mount(slurm):
    """The second store is mounted elsewhere, and says so; the end of one takes nothing from the other."""
    script = f"#!/bin/bash\n#SBATCH -N 1 -n 1 -w {slurm.names[2]}\n#FP store size=128MiB pool=64MiB\neval \"$(fp-job start)\" || exit 1\necho $SLURM_JOB_ID > $FP_MOUNT/f\n"
    first = slurm.up(script + WAIT + "cat /AggregateSSDstore/f\nfp-job stop\n")
    code, out = slurm.run(script + "echo at $FP_MOUNT\ncat $FP_MOUNT/f\nfp-job stop\n")
    second = max(int(n) for n in re.findall(r"/tmp/fpstore-5001-(\d+)/mnt", out) or [0])
    assert code == 0 and second > first and f"mounted on /tmp/fpstore-5001-{second}/mnt, as /AggregateSSDstore can't be had" in out, out
    assert f"at /tmp/fpstore-5001-{second}/mnt\n{second}\n" in out, out
    script = script.replace("-N 1 -n 1", "-N 2 -n 2").replace(slurm.names[2], f"{slurm.names[1]},{slurm.names[2]}")
    code, out = slurm.run(script + "srun -N2 -n2 cat $FP_MOUNT/f\nfp-job stop\n")  # its first node could mount there
    assert code == 0 and re.search(r"mounted on /tmp/fpstore-5001-(\d+)/mnt, as /AggregateSSDstore can't be had on all nodes(?s:.*)^\1\n\1\n", out, re.M), out
    slurm.go()
    code, out = slurm.end_of(first)
    assert code == 0 and f"\n{first}\n" in f"\n{out}", out
    slurm.nothing_left(30)


def test_jobs_of_an_array_on_one_node(slurm):
    """They begin at the same moment, and both find the directory free: the second mounts elsewhere before the first has."""
    with slurm.stand_in(2, "fp-mount", 'echo $* > /home/ada/mounts.$$\nuntil [ -e /home/ada/go ]; do sleep 0.05; done\nexec /tmp/real "$@"'):
        if os.path.exists(slurm.home("go")):
            os.unlink(slurm.home("go"))
        slurm.write("job.sh", f"#!/bin/bash\n#SBATCH -N 1 -n 1 -w {slurm.names[2]} --array=1-2\n#FP store size=128MiB pool=64MiB mount=//AggregateSSDstore/\n"
                    "eval \"$(fp-job start)\" || exit 1\necho $SLURM_JOB_ID > $FP_MOUNT/f\necho at $FP_MOUNT $(cat $FP_MOUNT/f)\nfp-job stop\n")
        slurm.login("sbatch", "--parsable", "--output=array-%a.out", "job.sh")
        wait_until("both to mount", 60, lambda: len(glob.glob(slurm.home("mounts.*"))) == 2, 0.05)
        slurm.go()
        wait_until("both to end", 60, lambda: not slurm.login("squeue", "-h").stdout, 0.2)
    for name in glob.glob(slurm.home("mounts.*")):
        os.unlink(name)
    both = slurm.read("array-1.out") + slurm.read("array-2.out")
    at = dict(re.findall(r"^at (\S+) (\d+)$", both, re.M))
    assert len(at) == 2 and "/AggregateSSDstore" in at, both
    job, = (at[path] for path in at if path != "/AggregateSSDstore")
    assert f"/tmp/fpstore-5001-{job}/mnt" in at, both
    slurm.nothing_left(30)


def test_a_link_where_the_store_can_not_be_mounted(slurm):
    """On one of two nodes mount= can't be: the store is elsewhere on both, and where the user may make a link, there is one until the end, but nobody else's is removed."""
    slurm.on(2, "mkdir", "/srv/here")
    head = f"#!/bin/bash\n#SBATCH -N 2 -n 2 -w {slurm.names[1]},{slurm.names[2]}\n#FP store size=128MiB pool=64MiB mount=/srv/here/store\n#FP stage-out /srv/here/store/f to=/lustre/link\n"
    slurm.write("write-there", "#!/bin/sh\necho x > /srv/here/store/f && readlink /srv/here/store\n")  # as a program does, in which nobody looks for names
    slurm.write("unlink-there", "#!/bin/sh\nln -sfn /tmp /srv/here/store\n")
    two = f"srun -N1 -n1 -w {slurm.names[2]} "
    code, out = slurm.run(head + 'eval "$(fp-job start)" || exit 5\n' + two + './write-there\ncat $FP_MOUNT/f\nsrun sh -c "ls -d /srv/*/store"\nfp-job stop\n')
    assert code == 0 and re.search(r"^(/tmp/fpstore-5001-\d+/mnt)\nx\n", out, re.M) and out.count("\n/srv/here/store\n") == 1, out
    assert slurm.login("cat", "/lustre/link/f").stdout == "x\n"
    assert slurm.on(2, "ls", "-A", "/srv/here").stdout == ""
    code, out = slurm.run(head.replace("#FP stage-out", "# ") + f"fp-job run -- {two} ./unlink-there\n")
    assert code == 0 and slurm.on(2, "readlink", "/srv/here/store").stdout == "/tmp\n", out
    for i in (1, 2):
        slurm.on(i, "mkdir", "-p", "/srv/here/full")
    slurm.on(2, "touch", "/srv/here/full/x")
    code, out = slurm.run(head.replace("#FP stage-out", "# ").replace("here/store", "here/full") + 'eval "$(fp-job start || echo false)" || exit 5\necho at $FP_MOUNT\nfp-job stop\n')
    assert code == 0 and "\nat /tmp/fpstore-" in out and f"all nodes: {slurm.names[2]}: there are files in it" in out, out
    for i in (1, 2):
        slurm.on(i, "rm", "-r", "/srv/here")
    slurm.nothing_left(30)


def test_a_directory_that_is_named_is_the_store_or_the_job_does_not_start(slurm):
    """On a node where the user may not mount, and there is no link: a script, or the command of run, that names it would write to another place."""
    head = f"#!/bin/bash\n#SBATCH -N 2 -n 2 -w {slurm.names[1]},{slurm.names[2]}\n#FP store size=128MiB pool=64MiB\n# not to /AggregateSSDstore/run\n"
    slurm.on(2, "sh", "-c", "chmod 755 /AggregateSSDstore", user="root")
    try:
        code, out = slurm.run(head + 'eval "$(fp-job start)" || exit 5\nsrun touch /AggregateSSDstore/run\nfp-job stop\n')
        assert code == 5 and "is not ready: line 6, column 12 of the script names /AggregateSSDstore, and the store can't be mounted there (" in out and "write $FP_MOUNT instead" in out, out
        code, out = slurm.run(head + "there=/Aggregate*\nset -- $there\nfp-job run -- srun touch $1/run\n")
        assert code == 1 and "word 3 of the command behind -- names /AggregateSSDstore" in out, out
        slurm.nothing_left(30)
        code, out = slurm.run(head + 'eval "$(fp-job start)" || exit 5\nsrun touch ${FP_MOUNT:-/AggregateSSDstore}/run && ls $FP_MOUNT\nfp-job stop\n')
        assert code == 0 and "\nrun\n" in out and "can't be had on all nodes" in out, out
        code, out = slurm.run(head.replace("pool=", "required=off pool=") + 'eval "$(fp-job start)" || exit 5\n[ -n "$FP_MOUNT" ] || exit 0\nsrun touch /AggregateSSDstore/run\n')
        assert code == 0 and "line 7, column 12 of the script names /AggregateSSDstore, which is not the store now" in out, out
    finally:
        slurm.on(2, "sh", "-c", "chmod 777 /AggregateSSDstore", user="root")
    code, out = slurm.run(head + 'eval "$(fp-job start)" || exit 5\nsrun -N1 -n1 touch /AggregateSSDstore/run && ls $FP_MOUNT\nfp-job stop\n')
    assert code == 0 and "\nrun\n" in out, out
    slurm.nothing_left(30)


def test_a_benefactor_that_is_slow_to_start_is_waited_for(slurm):
    with slurm.stand_in(2, "fp-benefactor", 'sleep 4\nexec /tmp/real "$@"'):
        code, out = slurm.run(HEAD + 'eval "$(fp-job start)" || exit 5\necho after $SECONDS\nsrun sh -c "echo x > $FP_MOUNT/\\$(hostname)"\nls $FP_MOUNT | wc -l\nfp-job stop\n')
    assert code == 0 and int(re.search(r"after (\d+)", out)[1]) >= 4 and "\n4\n" in out and "ERROR" not in out, out
    slurm.nothing_left(30)


SLOW_LOAD = """#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void load(void)
{
    char host[256] = "", name[64] = "";
    FILE *f = fopen("/proc/self/comm", "r");

    if (f && fgets(name, sizeof name, f) && gethostname(host, sizeof host - 1) == 0 && strncmp(name, "fp-job", 6) == 0 && strcmp(host, "FIRST") != 0)
        sleep(12);
}
"""


@pytest.mark.limit(150)
def test_a_plugin_that_is_slow_to_load_is_waited_for(slurm):
    """Longer than an agent may be silent: it is not taken for gone meanwhile."""
    slurm.login("fpctl", "auxapp", "new", "myapp")
    slurm.write("slow.c", SLOW_LOAD.replace("FIRST", slurm.names[1]))
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I" + os.path.join(TOP, "include"), "-o", slurm.home("myapp.so"), slurm.home("myapp", "myapp.c"), slurm.home("slow.c")], check=True, timeout=60)
    code, out = slurm.run(HEAD + "#FP auxapp ./myapp.so\n" + 'eval "$(fp-job start)" || exit 5\necho after $SECONDS\nfp-job status\nfp-job stop\n', seconds=120)
    assert code == 0 and int(re.search(r"after (\d+)", out)[1]) >= 11 and "4 of 4 nodes ready" in out and "ERROR" not in out, out
    slurm.nothing_left(30)


@contextlib.contextmanager
def slowfs(slurm, i, path, *options):
    """The user's fp-slowfs on node i, with these options: a function that makes its operations fail, and its pid."""
    slurm.on(i, "mkdir", "-p", path, path + ".source")
    fs = slurm.begin(i, "fp-slowfs", "--foreground", *options, path + ".source", path)
    wait_until("fp-slowfs", 20, lambda: f"mount {path}" in slurm.left_over(i), 0.05)

    def fail(how):
        slurm.on(i, "python3", "-c", "import os, sys; os.setxattr(sys.argv[1], 'user.slowfs.fail', sys.argv[2].encode())", path, how)
    pid, = slurm.processes(i, "fp-slowfs")
    try:
        yield fail, pid
    finally:
        slurm.kill(i, pid, signal=signal.SIGCONT)
        fs.send_signal(signal.SIGCONT)  # nsenter stops with what it has started
        slurm.on(i, "sh", "-c", f"until fusermount3 -u {path} || ! mountpoint -q {path}; do sleep 0.1; done 2>/dev/null", seconds=60)
        fs.communicate(timeout=30 * SLOW)
        slurm.on(i, "rm", "-rf", path, path + ".source")


@pytest.mark.limit(180)
@pytest.mark.parametrize("code", [0, 7])
def test_a_target_over_quota(slurm, code):
    """The job has failed, and says why; of one that has failed itself, its own exit code stays."""
    with slowfs(slurm, 2, "/lustre/full") as (fail, _):
        fail("write=EDQUOT")
        got, out = slurm.run(f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store size=256MiB pool=64MiB\n#FP stage-out f to=/lustre/full timeout=5s\n"
                             f"fp-job run -- sh -c 'head -c 3000000 /dev/urandom > $FP_MOUNT/f; exit {code}'\n", seconds=120)
        assert got == (code or 1) and "quota" in out and re.search(r"ERROR: #FP stage-out .*: not all of it was copied, and its time is over \(timeout=\)", out), out
    slurm.nothing_left(30)


@pytest.mark.limit(180)
def test_an_ssd_over_quota(slurm):
    """Only what is written tells: the application has the error, and its own exit code."""
    with slowfs(slurm, 2, "/srv/full") as (fail, _):
        number = slurm.up(f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store ssd=/srv/full size=256MiB pool=64MiB\n" + 'eval "$(fp-job start)" || exit 9\n' + WAIT +
                          "dd if=/dev/urandom of=$FP_MOUNT/f bs=1M count=100 conv=fsync\nfp-job stop --exit-code=$?\n")
        fail("write=EDQUOT,create=EDQUOT")
        slurm.go()
        code, out = slurm.end_of(number, 120)
        assert code == 1 and re.search(r"dd: .*: (No space left on device|Input/output error)$", out, re.M), out  # the names are there, too
        fail("")
        wait_until(lambda: f"nothing of the store to be left: {slurm.left_over(2)}", 30, lambda: not [x for x in slurm.left_over(2) if "fpstore-" in x], 0.1)
    slurm.nothing_left(30)


@pytest.mark.limit(180)
@pytest.mark.parametrize("how, says", [("auxapp drain to=/lustre/hung", "not all is drained, and the time for it is over (--timeout of fp-job)"),
                                       ("stage-out f to=/lustre/hung/made", "the directory /lustre/hung/made can't be made: its file system has not answered for")])
def test_a_target_that_hangs_does_not_hold_a_job_without_a_limit(slurm, how, says):
    """The parallel file system does not answer when the job ends: what could not be drained is said, within the time that --timeout gives."""
    with slowfs(slurm, 2, "/lustre/hung") as (_, pid):
        number = slurm.up(f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store size=256MiB pool=64MiB\n#FP {how}\n" +
                          'eval "$(fp-job start)" || exit 9\n' + WAIT + "head -c 5000000 /dev/urandom > $FP_MOUNT/f\nSECONDS=0\nfp-job stop --timeout=4s\necho ended with $? after $SECONDS\ntouch up\n")
        slurm.kill(2, pid, signal=signal.SIGSTOP)
        slurm.go()
        slurm.wait_file("up", number, 90)
    code, out = slurm.end_of(number)
    assert code == 0 and says in out, out
    assert 4 <= int(re.search(r"ended with 1 after (\d+)", out)[1]) <= 60 * SLOW, out
    slurm.nothing_left(30)


LOST = {"full": ("head -c 100000000 /dev/zero > /lustre/lost/others || true", "No space left on device"),
        "gone": ("umount /lustre/lost", "is the file system mounted on this node"),
        "closed": ("chmod 700 /lustre/lost", "Permission denied")}


@pytest.mark.limit(180)
@pytest.mark.parametrize("how", LOST)
def test_a_target_that_takes_nothing_any_more(slurm, how):
    """Others have filled it, it is not mounted any more, the user may not write to it: the end of the job says which and why, does not wait for its whole time, and loses nothing."""
    node = f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store ssd=/srv size=256MiB pool=64MiB "
    slurm.login("mkdir", "-p", "/lustre/lost")
    slurm.on(2, "mount", "-t", "tmpfs", "-o", "size=24M,mode=1777", "none", "/lustre/lost", user="root")
    try:
        number = slurm.up(node + "on-failure=keep\n#FP auxapp drain to=/lustre/lost\n" + 'eval "$(fp-job start || echo false)" || exit 9\n' + WAIT +
                          "head -c 40000000 /dev/urandom | tee $FP_MOUNT/f | md5sum\nSECONDS=0\nfp-job stop --stall=3s\necho ended with $? after $SECONDS\n")
        slurm.on(2, "sh", "-c", LOST[how][0], user="root")
        slurm.go()
        code, out = slurm.end_of(number, 120)
    finally:
        slurm.on(2, "umount", "/lustre/lost", user="root", check=how != "gone")
    assert code == 0 and re.search(rf"job \d+: to /lustre/lost: .*{slurm.names[2]}: .*{LOST[how][1]}", out), out
    assert "ERROR: not all is drained: nothing moves any more" in out and int(re.search(r"ended with 1 after (\d+)", out)[1]) < 60, out
    assert f"job-{number}" in slurm.on(2, "fp-job", "clean", "--kept", "--ssd=/srv").stdout, out
    code, again = slurm.run(node + f"persistent=job-{number}\n" + 'eval "$(fp-job start || echo false)" || exit 9\nmd5sum < $FP_MOUNT/f\nfp-job stop\n')
    assert code == 0 and re.search(r"^[0-9a-f]{32}", out, re.M)[0] in again, again
    slurm.on(2, "fp-job", "clean", f"--named=job-{number}", "--ssd=/srv")
    slurm.nothing_left(30)


@pytest.mark.limit(180)
def test_a_target_that_is_slow_is_no_dead_one(slurm):
    """Nothing is heard of it for longer than it may stand still, until it has taken a whole part."""
    with slowfs(slurm, 2, "/lustre/slow", "--emulate=write=1MB/s"):
        code, out = slurm.run(f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store size=256MiB pool=64MiB\n#FP auxapp drain to=/lustre/slow\n"
                              'eval "$(fp-job start || echo false)" || exit 9\nhead -c 12000000 /dev/urandom | tee $FP_MOUNT/f | md5sum\nfp-job stop --stall=2s\n', seconds=120)
        assert code == 0 and slurm.on(2, "sh", "-c", "md5sum < /lustre/slow/f").stdout in out, out
    slurm.nothing_left(30)


@pytest.mark.limit(180)
def test_a_mount_that_hangs_does_not_hold_stop(slurm):
    """Nobody can say what there is to be staged out: the store ends all the same, and the exit code says that not all is where it is to be."""
    number = slurm.up(f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store size=256MiB pool=64MiB\n#FP stage-out *.h5 more/* to=/lustre/unseen\n" +
                      'eval "$(fp-job start)" || exit 9\necho x > $FP_MOUNT/a.h5\n' + WAIT + "fp-job stop --timeout=4s\necho ended with $?\n")
    slurm.kill(2, *slurm.processes(2, "fp-mount"), signal=signal.SIGSTOP)
    slurm.go()
    code, out = slurm.end_of(number, 120)
    assert code == 0 and "ended with 1" in out and re.search(r"#FP stage-out \*\.h5: the store, on \S+, has not answered for \d s", out), out
    slurm.nothing_left(60)


@pytest.mark.limit(180)
def test_an_ssd_that_hangs_with_files_closed_behind(slurm):
    """The application was told that they are well, and they can't be stored: how many there are is said, they are not waited for for ever, and the job has failed."""
    number = slurm.up(f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store size=256MiB pool=64MiB close=behind\n#FP stage-out f* to=/lustre/behind\n" +
                      'eval "$(fp-job start)" || exit 9\nhead -c 16000000 /dev/zero | dd of=$FP_MOUNT/first bs=1M conv=fsync status=none\n' + WAIT +  # the mount has space from now on
                      "for i in 1 2 3; do head -c 1000000 /dev/urandom > $FP_MOUNT/f$i || exit 8; done\n"
                      "SECONDS=0\nfp-job stop --stall=4s\necho ended with $? after $SECONDS\n")
    slurm.kill(2, *slurm.processes(2, "fp-benefactor"), signal=signal.SIGSTOP)
    slurm.go()
    code, out = slurm.end_of(number, 150)
    assert code == 0 and re.search(r"ERROR: 3 files, such as /f[123], are closed and not stored yet, and it is waited for no longer \(--stall of fp-job\)", out), out
    assert 4 <= int(re.search(r"ended with 1 after (\d+)", out)[1]) < 90 * SLOW, out
    slurm.nothing_left(60)


@pytest.mark.limit(180)
def test_a_mount_that_takes_closed_files_to_its_grave(slurm):
    """It is started again, and all goes on; but what is staged out is not what the application was told is there."""
    number = slurm.up(f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store size=512MiB pool=256MiB close=behind backend=emulated:write=20MB/s\n#FP stage-out f* to=/lustre/grave\n" +
                      'eval "$(fp-job start)" || exit 9\nfor i in 1 2; do head -c 80000000 /dev/urandom > $FP_MOUNT/f$i || exit 8; done\n' + WAIT + "fp-job stop\necho ended with $?\n")
    pid, = slurm.processes(2, "fp-mount")
    slurm.kill(2, pid)
    wait_until("fp-mount to be there again", 30, lambda: [p for p in slurm.processes(2, "fp-mount") if p != pid], 0.1)
    wait_until("the node to be ready", 60, lambda: "1 of 1 nodes ready" in slurm.login("fp-job", "status", str(number), check=False).stdout, 0.2)
    slurm.go()
    code, out = slurm.end_of(number, 120)
    assert code == 0 and "ended with 1" in out, out
    # The first one may have been stored by then.
    assert re.search(r"ERROR: (2 files, such as /f[12], are|1 file, such as /f2, is) not what was closed: it was lost before it was stored \(close=behind\)", out), out
    assert "80000000" not in slurm.on(2, "sh", "-c", "ls -l /lustre/grave/f2 2>&1 || true").stdout, out
    slurm.nothing_left(60)


@pytest.mark.limit(180)
def test_what_is_staged_out_while_a_mount_is_started_again_is_found(slurm):
    """The application has ended, and in that moment its mount: what it wrote is in the store."""
    slurm.login("rm", "-f", "pid", check=False)
    number = slurm.up(f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store size=256MiB pool=64MiB\n#FP stage-out f* to=/lustre/again\n#FP stage-out g to=/lustre/again\n" +
                      'eval "$(fp-job start)" || exit 9\necho x > $FP_MOUNT/f1\necho y > $FP_MOUNT/g\n' + WAIT +
                      "kill -9 $(cat pid)\nSECONDS=0\nfp-job stop\necho ended with $? after $SECONDS\n")
    with slurm.stand_in(2, "fp-mount", 'sleep 4; exec /tmp/real "$@"'):
        slurm.write("pid", str(slurm.processes(2, "fp-mount")[0]))
        slurm.go()
        code, out = slurm.end_of(number, 120)
    assert code == 0 and int(re.search(r"ended with 0 after (\d+)", out)[1]) >= 3, out
    assert slurm.on(2, "cat", "/lustre/again/f1", "/lustre/again/g").stdout == "x\ny\n", out
    slurm.nothing_left(60)


@pytest.mark.limit(180)
def test_results_below_a_dead_mount_are_not_taken_for_none(slurm):
    """The mount of the first node has died, and can't be started again: nobody sees what results= and stage-out name, and the exit code says so."""
    number = slurm.up(f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store size=256MiB pool=64MiB\n#FP auxapp drain to=/lustre/hidden every=none results=*.txt,out/*\n" +
                      'eval "$(fp-job start)" || exit 9\necho x > $FP_MOUNT/a.txt\n' + WAIT + "SECONDS=0\nfp-job stop\necho ended with $? after $SECONDS\n")
    with slurm.stand_in(2, "fp-mount", "exit 1"):
        slurm.kill(2, *slurm.processes(2, "fp-mount"))
        wait_until("it to be given up", 60, lambda: "0 of 1 nodes ready" in slurm.login("fp-job", "status", str(number), check=False).stdout and not slurm.processes(2, "fp-mount"), 0.2)
        slurm.go()
        code, out = slurm.end_of(number, 120)
    assert code == 0 and "ended with 1" in out and re.search(r"of the name \*\.txt \(results= of #FP auxapp drain\) can't be seen in the store, on \S+: ", out), out
    assert int(re.search(r"after (\d+)", out)[1]) < 55 * SLOW, out  # 30 s, once: there are two patterns
    slurm.login("rm", "-rf", "/lustre/hidden")
    slurm.nothing_left(30)


@pytest.mark.limit(180)
def test_stop_goes_on_when_it_is_told_to_end(slurm):
    """As Slurm does at the end of the job's time, and somebody by one ^C; a second one is meant."""
    with slowfs(slurm, 2, "/lustre/slow", "--emulate=write=1MB/s"):
        head = f"#!/bin/bash\n#SBATCH -N 1 --exclusive -w {slurm.names[2]}\n#FP store size=256MiB pool=64MiB\n#FP auxapp drain to=/lustre/slow\n" + 'eval "$(fp-job start)" || exit 9\n'
        stop = "SECONDS=0\nenv --default-signal=INT fp-job stop &\nstop=$!\n" + WAIT
        number = slurm.up(head + "head -c 4000000 /dev/urandom > $FP_MOUNT/f\nmd5sum < $FP_MOUNT/f\n" + stop + "kill -TERM $stop; kill -INT $stop; wait $stop\n")
        wait_until("it to drain", 60, lambda: slurm.processes(2, "fpctl", "drain"), 0.05)
        slurm.go()
        code, out = slurm.end_of(number, 120)
        assert code == 0 and slurm.on(2, "sh", "-c", "md5sum < /lustre/slow/f").stdout in out, out
        number = slurm.up(head + "head -c 120000000 /dev/urandom > $FP_MOUNT/f\n" + stop + "while kill -INT $stop; do sleep 0.2; done 2>/dev/null\nwait $stop\necho ended with $? after $SECONDS\n")
        wait_until("it to drain", 60, lambda: slurm.processes(2, "fpctl", "drain"), 0.05)
        slurm.go()
        code, out = slurm.end_of(number, 120)
        assert code == 0 and "not all is drained: interrupted" in out, out
        assert int(re.search(r"ended with 1 after (\d+)", out)[1]) < 60 * SLOW, out  # of two minutes
    slurm.nothing_left(30)


@pytest.mark.limit(180)
@pytest.mark.parametrize("when", ["drain --all", "stop --config="])
def test_stop_is_killed(slurm, when):
    """By SIGKILL, while it drains or ends the store: the next stop brings out what the first has not, and ends it."""
    slurm.login("rm", "-rf", "go", "hung", "/lustre/out")
    wait = f'case "$*" in "{when}"*) [ -e /home/ada/go ] || {{ touch /home/ada/hung; exec sleep 600; }};; esac\nexec /tmp/real "$@"'
    with slurm.stand_in(1, "fpctl", wait):
        code, out = slurm.run(HEAD.replace("-N 4", "-N 2") + "#FP auxapp drain to=/lustre/out\n" + 'eval "$(fp-job start || echo false)" || exit 9\n'
                              "srun sh -c 'hostname > $FP_MOUNT/$(hostname)'\nfp-job stop &\nuntil [ -e hung ]; do sleep 0.1; done\nkill -9 $!\nwait $!\ntouch go\nfp-job stop\necho \"second: $?\"\n", seconds=120)
    assert code == 0 and "second: 0" in out.splitlines(), out
    for name in slurm.names[1:3]:
        assert slurm.login("cat", f"/lustre/out/{name}").stdout == name + "\n"
    slurm.login("rm", "-rf", "go", "hung", "/lustre/out")
    slurm.nothing_left(30)
