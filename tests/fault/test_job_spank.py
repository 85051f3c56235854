"""The SPANK plugin when things go wrong, with a real Slurm: nodes stay in use, whatever hangs, and nothing is left on them.

What the prolog starts is held by a control group on the first node; the second has none that it could use, so a process of root's holds it there.
"""

import os
import shutil
import signal

import pytest

from harness.aux import probe
from harness.daemons import wait_until

# What root calls can be made to fail or hang by a file on the node.
FP_JOB = """#!/bin/sh
[ ! -e /run/fp-job.$1 ] || { . /run/fp-job.$1; }
exec /opt/fpstore/bin/fp-job "$@"
"""
SLURM = {"nodes": 2, "cpus": 2, "kill_wait": 3, "extra": "PrologFlags=Alloc\nSelectTypeParameters=CR_Core_Memory\nAllowSpecResourcesUsage=yes",
         "files": {"plugstack.conf": "optional /opt/fpstore/lib/spank_fp.so fp-job=/home/ada/fp-job\n"}}

HEAD = "#!/bin/bash\n#SBATCH -N 2 --exclusive --fp\n"
STORE = "#FP store size=256MiB pool=64MiB\n"
WAIT = "touch up\nuntil [ -e go ]; do sleep 0.1; done\n"
PROGRAMS = ("fp-mount", "fp-benefactor", "fp-manager", "fp-job", "fp-job-watch")


@pytest.fixture(scope="module")
def cluster(slurm):
    slurm.write("fp-job", FP_JOB)
    shutil.copy(probe(), slurm.home("probe.so"))
    slurm.on(2, "sh", "-c", "grep -qv cgroup2 /proc/mounts && umount $(awk '$3 == \"cgroup2\" {print $2}' /proc/mounts)", user="root")
    return slurm


@pytest.fixture(autouse=True)
def no_job_after_it(cluster):
    """A test that fails does not take the nodes from the next one."""
    yield
    cluster.login("scancel", "-u", "ada", check=False)


def held(cluster):
    """Notes, control groups and processes of root's of what prologs have started, on all nodes."""
    script = "ls -d /run/fpstore/* 2>/dev/null; find /sys/fs/cgroup -maxdepth 6 -type d -name fpstore.$(hostname).'*' 2>/dev/null; ps -o pid=,comm= -u root | grep fp-job-reaper"
    return [f"{i} {line}" for i in (1, 2) for line in cluster.on(i, "sh", "-c", script, user="root", check=False).stdout.splitlines()]


def all_is_well(cluster, seconds=60):
    cluster.nothing_left(seconds)
    wait_until(lambda: "nothing to be held any more: " + "\n".join(held(cluster)), 30, lambda: not held(cluster), 0.2)
    wait_until("nodes to be free again", 30, lambda: cluster.login("sinfo", "-h", "-o", "%T").stdout.split() == ["idle"], 0.2)


@pytest.mark.parametrize("more", ["", "#SBATCH --core-spec=1\n"], ids=["of the job", "outside of the job"])
def test_hung_processes_do_not_keep_a_node(cluster, more):
    """All that belongs to the store on one node is stopped while the job is cancelled."""
    number = cluster.up(HEAD + more + STORE + "srun sh -c 'echo x > $FP_MOUNT/$(hostname)'\n" + WAIT)
    stopped = [pid for name in PROGRAMS for pid in cluster.processes(2, name)]
    assert len(stopped) >= 4, stopped
    cluster.kill(2, *stopped, signal=signal.SIGSTOP)
    cluster.login("scancel", str(number))
    cluster.wait_state(number, "CANCELLED")
    all_is_well(cluster)


@pytest.mark.parametrize("more", ["", "#SBATCH --core-spec=1\n"], ids=["of the job", "outside of the job"])
def test_what_is_killed_leaves_nothing(cluster, more):
    """Whatever could clean up, on one node, with the batch script."""
    number = cluster.up(HEAD + more + STORE + WAIT)
    killed = [pid for name in ("fp-job-watch", "fp-job", "fp-mount") for pid in cluster.processes(1, name)]
    cluster.kill(1, *killed, check=False)
    assert cluster.end_of(number)[0] != 0
    all_is_well(cluster)


def test_cancelled_outside_of_the_job(cluster):
    number = cluster.up(HEAD + "#SBATCH --core-spec=1\n" + STORE + WAIT)
    cluster.login("scancel", str(number))
    cluster.wait_state(number, "CANCELLED")
    all_is_well(cluster)


@pytest.mark.parametrize("wait, clean", [("exit 1", "exit 1"), ("sleep 600", "kill -9 $$")])
def test_a_prolog_and_an_epilog_that_fail_or_hang(cluster, wait, clean):
    """Services run on cores of the job then, and the node is there for the next one."""
    for name, text in (("wait", wait), ("clean", clean)):
        cluster.on(2, "sh", "-c", f"echo '{text}' > /run/fp-job.{name}", user="root")
    try:
        code, out = cluster.run(HEAD + "#SBATCH --core-spec=1\n" + STORE + "srun sh -c 'echo x > $FP_MOUNT/$(hostname)'\nls $FP_MOUNT\nexit 3\n")
        assert code == 3 and cluster.names[1] + "\n" + cluster.names[2] in out, out
        all_is_well(cluster)
    finally:
        cluster.on(2, "rm", "/run/fp-job.wait", "/run/fp-job.clean", user="root")


def test_a_node_without_fpstore_fails_the_job_and_not_the_node(cluster):
    """The plugin is there, the program is not."""
    os.rename(cluster.home("fp-job"), cluster.home("gone"))
    try:
        code, out = cluster.run("#!/bin/bash\n#SBATCH -N 1 --fp\necho ran\n")
    finally:
        os.rename(cluster.home("gone"), cluster.home("fp-job"))
    assert code == 1 and "is fpstore installed on this node?" in out and "ran\n" not in out, out
    all_is_well(cluster)


FLEE = "#FP auxapp /home/ada/probe.so do=flee\nsrun sh -c 'head -c 2M /dev/zero > $FP_MOUNT/$(hostname)'\n"


@pytest.mark.parametrize("stopped", [False, True])
def test_what_has_fled_from_its_parents_ends_with_the_job(cluster, stopped):
    """An aux-app of the user, outside of the job's CPUs, leaves a process with a session of its own and without a parent, that ignores signals."""
    number = cluster.up(HEAD + "#SBATCH --core-spec=1\n" + STORE + FLEE + WAIT + "exit 3\n")
    fled = {i: cluster.processes(i, "fled") for i in (1, 2)}
    assert len(fled[1]) == 1 and len(fled[2]) == 1, f"{fled}\n{cluster.output(number)}"
    assert any(f"fpstore.{cluster.names[1]}.{number}" in line for line in held(cluster)) and any("2 " in line and "fp-job-reaper" in line for line in held(cluster)), held(cluster)
    if stopped:
        for i in (1, 2):
            cluster.kill(i, *fled[i], signal=signal.SIGSTOP)
    cluster.go()
    assert cluster.end_of(number)[0] == 3, cluster.output(number)
    all_is_well(cluster)


def test_what_holds_the_store_is_not_the_user_s(cluster):
    """He can neither end it, nor leave it, nor write what is killed and removed by root."""
    number = cluster.up(HEAD + "#SBATCH --core-spec=1\n" + STORE + FLEE + WAIT)
    reaper = [line.split()[1] for line in held(cluster) if line.startswith("2 ") and "fp-job-reaper" in line]
    assert len(reaper) == 1 and cluster.on(2, "kill", "-9", *reaper, check=False).returncode != 0, held(cluster)
    groups = [line.split()[1] for line in held(cluster) if line.startswith("1 /sys")]
    assert groups
    for group in groups:
        fled = cluster.processes(1, "fled")[0]
        assert str(fled) in cluster.on(1, "cat", f"{group}/cgroup.procs").stdout.split(), group
        assert cluster.on(1, "sh", "-c", f"echo {fled} > {os.path.dirname(group)}/cgroup.procs", check=False).returncode != 0
    assert cluster.on(1, "sh", "-c", f"echo > /run/fpstore/$(hostname).{number}", check=False).returncode != 0
    cluster.go()
    assert cluster.end_of(number)[0] == 0, cluster.output(number)
    all_is_well(cluster)


def test_what_is_outside_has_no_more_memory_than_the_job(cluster):
    number = cluster.up(HEAD + "#SBATCH --core-spec=1 --mem=700M\n" + STORE + WAIT)
    script = f"cd $(sed -n 's/^memory //p' /run/fpstore/$(hostname).{number}) && grep -H . memory.max memory.limit_in_bytes memory.swap.max memory.memsw.limit_in_bytes 2>/dev/null"
    all_of_it, none = str(700 << 20), {"memory.swap.max": "0"}
    for i in (1, 2):
        limits = dict(line.split(":") for line in cluster.on(i, "sh", "-c", script, user="root", check=False).stdout.split())
        assert limits and all(value == none.get(name, all_of_it) for name, value in limits.items()), limits
    cluster.go()
    assert cluster.end_of(number)[0] == 0, cluster.output(number)
    all_is_well(cluster)


def test_a_hold_that_cannot_be_noted_is_not_kept(cluster):
    """Nothing could be found again by the epilog: so nothing is started, and what was made is removed."""
    for i in (1, 2):
        cluster.on(i, "sh", "-c", "mkdir -p /run/fpstore && mount -t tmpfs -o mode=755,nr_inodes=1 none /run/fpstore", user="root")
    try:
        code, out = cluster.run(HEAD + "#SBATCH --core-spec=1\n" + STORE + "ls -d /tmp/fpstore-*-$SLURM_JOB_ID/outside.pid 2>/dev/null\nexit 3\n")
        assert code == 3 and "outside.pid" not in out, out
        all_is_well(cluster)
    finally:
        for i in (1, 2):
            cluster.on(i, "umount", "/run/fpstore", user="root")


def test_nodes_that_have_one_run_hold_what_is_theirs(cluster):
    for i in (1, 2):
        cluster.on(i, "sh", "-c", "mkdir -p /run/fpstore && mkdir -m 755 -p /home/notes && mount --bind /home/notes /run/fpstore", user="root")
    try:
        number = cluster.up(HEAD + "#SBATCH --core-spec=1\n" + STORE + FLEE + WAIT + "exit 3\n")
        assert len(cluster.on(1, "ls", "/run/fpstore").stdout.split()) == 2, held(cluster)
        cluster.go()
        assert cluster.end_of(number)[0] == 3, cluster.output(number)
        all_is_well(cluster)
    finally:
        for i in (1, 2):
            cluster.on(i, "umount", "/run/fpstore", user="root")


def test_a_job_without_options_leaves_nothing(cluster):
    """It has started its store itself, and all that could clean up is killed with the batch script, but for services: the epilog does."""
    number = cluster.up("#!/bin/bash\n#SBATCH -N 2 --exclusive\n" + STORE + 'eval "$(fp-job start || echo false)" || exit 9\n' + WAIT)
    killed = [pid for name in ("fp-job-watch", "fp-job", "fp-mount") for pid in cluster.processes(1, name)]
    cluster.kill(1, *killed, check=False)
    cluster.login("scancel", str(number))
    cluster.wait_state(number, "CANCELLED")
    all_is_well(cluster)


def test_another_user_s_directory_is_not_the_job_s(cluster):
    """Names below /tmp are known to all: what root has made there, the epilog leaves alone, and the node stays in use."""
    number = cluster.up("#!/bin/bash\n#SBATCH -N 1\n" + WAIT)
    cluster.on(1, "mkdir", f"/tmp/fpstore-5001-{number}", user="root")
    cluster.go()
    assert cluster.end_of(number)[0] == 0
    all_is_well(cluster)
    cluster.on(1, "rmdir", f"/tmp/fpstore-5001-{number}", user="root")
