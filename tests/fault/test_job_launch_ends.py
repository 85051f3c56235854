"""A store whose agents no batch system keeps: whoever is killed, the store goes on or ends, and nothing is left. By ssh and by mpirun."""

import os
import sys

import pytest

from harness import sshd
from harness.daemons import SLOW, wait_until

SLURM = {"nodes": 4, "cpus": 2}
SCRIPT = "#!/bin/bash\n#FP store size=256MiB pool=64MiB\n"
LAUNCHERS = pytest.mark.parametrize("how", ["ssh", "mpirun"])


@pytest.fixture(scope="module")
def nodes(by_ssh):
    return by_ssh


def begin(nodes, how, app, what="run"):
    """fp-job run with this application, which makes a file `up`; or a script that calls start."""
    for name in ("up", "go"):
        if os.path.exists(nodes.home(name)):
            os.unlink(nodes.home(name))
    nodes.write("job.sh", SCRIPT)
    nodes.write("app", "#!/bin/bash\n" + app)
    words = f"job.sh --hosts={','.join(nodes.names[1:])} --launcher={how}"
    text = f"exec fp-job run {words} -- ./app\n" if what == "run" else f'eval "$(fp-job start {words})" || exit 1\n. ./app\n'
    nodes.write("outer.sh", text)
    proc = nodes.begin(1, "bash", "outer.sh")
    wait_until(lambda: f"the store: {proc.poll()}, {nodes.logs()}", 60, lambda: os.path.exists(nodes.home("up")) or proc.poll() is not None, 0.05)
    assert proc.poll() is None, proc.stdout.read()
    return proc


def end(proc, seconds=90):
    out = proc.communicate(timeout=seconds * SLOW)[0]
    return proc.returncode, out


def run_of(nodes):
    pid, = nodes.processes(1, "fp-job", "run")
    return pid


def guard_of(nodes):
    pid, = nodes.processes(1, "fp-job-guard")
    return pid


WAIT = "touch up\nuntil [ -e go ]; do sleep 0.1; done\n"


@LAUNCHERS
def test_run_is_killed(nodes, how):
    """What it has started is ended, the application too."""
    proc = begin(nodes, how, "touch up\nexec sleep 600\n")
    nodes.kill(1, run_of(nodes))
    assert end(proc)[0] != 0
    nodes.nothing_left(30)


@LAUNCHERS
def test_the_launcher_is_killed_and_the_store_goes_on(nodes, how):
    proc = begin(nodes, how, f"echo x > $FP_MOUNT/f\n{WAIT}ssh {nodes.names[4]} cat $FP_MOUNT/f\nexit 5\n")
    there = nodes.processes(1, how)
    assert there
    nodes.kill(1, *there)
    wait_until("it to be gone", 10, lambda: not nodes.processes(1, how))
    nodes.go()
    code, out = end(proc)
    assert code == 5 and "x\n" in out, out
    nodes.nothing_left(30)


def test_the_guard_is_killed(nodes):
    """The root misses it, and ends the store; fp-job run ends as the application does, and says that the store is gone."""
    proc = begin(nodes, "ssh", WAIT)
    nodes.kill(1, guard_of(nodes))
    nodes.nothing_left(60, nodes=(2, 3, 4))
    wait_until("the root to end", 60, lambda: nodes.on(1, "sh", "-c", "ls -d /tmp/fpstore-*", check=False).returncode, 0.2)
    nodes.go()
    code, out = end(proc)
    assert code == 0 and "the agent of the job's first node" in out and "does not answer" in out, out
    nodes.nothing_left(30)


@LAUNCHERS
def test_the_script_is_killed(nodes, how):
    """It has called start, which is long gone, and never comes to call stop."""
    proc = begin(nodes, how, "touch up\nwhile :; do sleep 0.1; done\n", "start")
    pid, = nodes.processes(1, "bash", "outer.sh")
    nodes.kill(1, pid)
    end(proc)
    nodes.nothing_left(30)


def test_what_a_killed_script_had_is_kept(nodes, monkeypatch):
    """With on-failure=keep: the next start that gives its name finds it."""
    monkeypatch.setattr(sys.modules[__name__], "SCRIPT", SCRIPT.rstrip() + " ssd=/srv on-failure=keep\n")
    proc = begin(nodes, "ssh", "echo data > $FP_MOUNT/f\nsync $FP_MOUNT/f\ntouch up\nwhile :; do sleep 0.1; done\n", "start")
    pid, = nodes.processes(1, "bash", "outer.sh")
    nodes.kill(1, pid)
    end(proc)
    path = nodes.on(1, "sh", "-c", "ls -d /srv/fpstore-*-named-*").stdout.strip()
    nodes.nothing_left(30, but=path)
    nodes.write("job.sh", SCRIPT.replace("on-failure=keep", f"persistent={path.split('-named-')[1]}"))
    out = nodes.on(1, "fp-job", "run", "job.sh", f"--hosts={','.join(nodes.names[1:])}", "--launcher=ssh", "--", "sh", "-c", "cat $FP_MOUNT/f", seconds=60).stdout
    assert out == "data\n", out
    for i in range(1, nodes.count + 1):
        nodes.on(i, "rm", "-r", path)
    nodes.nothing_left(30)


@LAUNCHERS
def test_start_is_interrupted(nodes, how):
    """A benefactor does not come up."""
    with nodes.stand_in(2, "fp-benefactor", "exec sleep 600"):
        nodes.write("job.sh", SCRIPT)
        nodes.write("outer.sh", f"fp-job start job.sh --hosts={','.join(nodes.names[1:])} --launcher={how} > started &\nstart=$!\n"
                    f"until ssh {nodes.names[2]} 'ls -d /tmp/fpstore-*/log' >/dev/null 2>&1; do sleep 0.1; done\nkill -TERM $start\nwait $start\necho ended with $?\n")
        out = nodes.on(1, "bash", "outer.sh", check=False, seconds=60)
    assert "ended with 1" in out.stdout and "interrupted" in out.stderr, out.stdout + out.stderr
    assert nodes.read("started") == "false\n"
    nodes.nothing_left(30)


def test_a_node_crashes_and_the_others_go_on(nodes):
    proc = begin(nodes, "ssh", f"echo here > $FP_MOUNT/f\n{WAIT}cat $FP_MOUNT/f\necho more > $FP_MOUNT/g\n")
    nodes.crash(4)
    try:
        nodes.go()
        code, out = end(proc)
        assert code == 0 and "here" in out, out
        nodes.nothing_left(60, nodes=(1, 2, 3))  # ssh hears nothing of that node for 30 s
    finally:
        nodes.start_node(4)
        sshd.start_one(nodes, 4)


@pytest.mark.limit(240)
def test_a_node_that_dies_takes_none_below_it_along(nodes):
    """Each agent is below the last one. What those below the dead node have to say reaches the first node, so they are in the tree again."""
    proc = begin(nodes, "ssh --fanout=1", "touch up\nuntil [ -e go ]; do fp-job status > status.new; mv status.new status; sleep 0.3; done\n")

    def are_gone(*which):
        some = nodes.names[which[0]] if len(which) == 1 else f"{nodes.names[0][:-1]}[{','.join(map(str, which))}]"
        return f"\n{some}: failed: its agent is gone" in nodes.read("status")
    wait_until("the first look", 60, lambda: os.path.exists(nodes.home("status")))
    nodes.crash(2)
    try:
        wait_until("the second node to be missed", 60, lambda: are_gone(2), 0.3)
        agent, = nodes.processes(4, "fp-job", "node")
        nodes.kill(4, agent)
        wait_until(lambda: f"the fourth node to be missed:\n{nodes.read('status')}", 60, lambda: are_gone(2, 4), 0.3)
        nodes.go()
        code, out = end(proc)
        assert code == 0, out
        wait_until("nothing to be left", 60, lambda: not [x for i in (1, 3, 4) for x in nodes.left_over(i) if "sshd: " not in x], 0.3)
    finally:
        nodes.kill(3, *nodes.processes(3, "sshd"), check=False)  # the site's, whose ssh was on the dead node
        nodes.start_node(2)
        sshd.start_one(nodes, 2)
