"""fp-job where there is no Slurm, or beside it: agents started by ssh and by mpirun, on nodes that a list, PBS or Slurm names. Real sshd, real mpirun."""

import re

import pytest

from harness import sshd, threads

SLURM = {"nodes": 4, "cpus": 2}
SCRIPT = "#!/bin/bash\n#FP store size=256MiB pool=64MiB\n"
MPIRUN = "mpirun --mca btl_tcp_if_include eth0"
# Of Open MPI 4, and of what came from 5 on.
BY_SSH = "export OMPI_MCA_plm=rsh PRTE_MCA_plm=ssh OMPI_MCA_oob_tcp_if_include=eth0 PRTE_MCA_prte_if_include=eth0\n"


@pytest.fixture(scope="module")
def nodes(by_ssh):
    return by_ssh


def hosts(nodes):
    return "--hosts=" + ",".join(nodes.names[1:])


def shell(nodes, text, *env, seconds=60, i=1):
    """A script on a node, as it would be without any batch system. Exit code and both outputs."""
    nodes.write("outer.sh", "exec 2>&1\n" + BY_SSH + text)
    r = nodes.on(i, "bash", "outer.sh", check=False, seconds=seconds, env=env)
    return r.returncode, r.stdout


@pytest.mark.parametrize("how", ["ssh", "ssh --fanout=1", "mpirun"])
def test_a_store_on_the_nodes_of_a_list(nodes, how):
    """All of them see it; the exit code is the application's; the key is in no command line. With one agent below each, they start each other in a row."""
    nodes.write("job.sh", SCRIPT)
    nodes.write("app", f"""#!/bin/bash
for n in {' '.join(nodes.names[1:])}; do ssh $n "hostname > $FP_MOUNT/$n; ps -o args= -u ada" || exit 9; done
[ $(ls $FP_MOUNT | wc -l) = 4 ] || exit 8
cat $FP_MOUNT/*
echo key $(cat /tmp/fpstore-*/key)
fp-job status
exit 3
""")
    code, out = shell(nodes, f"fp-job run job.sh {hosts(nodes)} --launcher={how} -- ./app\n")
    assert code == 3, out
    assert "4 of 4 nodes ready, mounted on /AggregateSSDstore" in out
    assert "ERROR" not in out and "WARN" not in out, out
    key, = [line.split()[1] for line in out.splitlines() if line.startswith("key ")]
    assert len(key) == 64 and out.count(key) == 1
    nodes.nothing_left()


def test_nodes_of_pbs(nodes):
    """$PBS_NODEFILE names a node once for each slot. start and stop, with what the directives need of the environment."""
    nodes.write("nodefile", "".join(f"{n}\n" * 2 for n in nodes.names[1:4]))
    nodes.write("job.sh", "#!/bin/bash\n#FP store size=256MiB pool=64MiB ssd=$WHERE\n#FP auxapp drain to=/lustre/pbs\n")
    nodes.login("mkdir", "-p", "/lustre/pbs")
    code, out = shell(nodes, """
unset TMPDIR
eval "$(fp-job start job.sh)" || exit 1
echo data > $FP_MOUNT/f
fp-job status
ssh NODE 'ls -d /srv/fpstore-*; cat /AggregateSSDstore/f'
fp-job stop
""".replace("NODE", nodes.names[3]), "PBS_NODEFILE=/home/ada/nodefile", "PBS_JOBID=12[3].server", "WHERE=/srv")
    assert code == 0, out
    assert "job 12_3_.server: 3 of 3 nodes ready" in out and "\n/srv/fpstore-12_3_.server\ndata\n" in out, out
    assert nodes.login("cat", "/lustre/pbs/f").stdout == "data\n"
    nodes.nothing_left()


def test_what_starts_nothing_says_why(nodes):
    nodes.write("job.sh", SCRIPT)
    nodes.on(1, "sh", "-c", "printf 'fd00::7 six\\nfe80::7 link\\n' >> /etc/hosts", user="root")
    for args, want in (("--hosts=fd00::7", "'fd00::7' is an address of IPv6, which has brackets: [fd00::7]"), ("--hosts=node[1-4]", "'node[1-4]' is a range"),
                       (f"--hosts={nodes.names[1]},{nodes.names[2]},{nodes.names[1]}.cluster", "are one node: it is to be called by one name"), ("--hosts=a,-b", "'-b' is no name of a node"), ("--hosts=a,,b", "no name before a comma"), ("--hosts=@/home/ada/none", "/home/ada/none: "),
                       (f"{hosts(nodes)} --nodes=7", "--nodes=7, but --hosts names "), ("--hosts=a,b --hosts=c", "--hosts is given twice"), ("--hosts=a --nodes=0", "--nodes")):
        code, out = shell(nodes, f"fp-job run job.sh {args} -- touch /srv/ran\n")
        assert code == 2 and want in out, out
    for args, want in (("--hosts=six,b", "the way to node six is not known (Network is unreachable)"), ("--hosts=link,b", "node link has addresses of one link alone"),
                       ("--hosts=[fd00::7]", "the way to node [fd00::7] is not known"), ("", "--hosts=a,b,c"),
                       ("--hosts=no-such-host.invalid", "the way to node no-such-host.invalid is not known"), (f"{hosts(nodes)} --launcher=srun", "it goes without --hosts")):
        code, out = shell(nodes, f"fp-job run job.sh {args} -- touch /srv/ran\n")
        assert code == 1 and want in out, out
    code, out = shell(nodes, f"fp-job run {hosts(nodes)} -- touch /srv/ran\n")
    assert code == 1 and "which script has the #FP lines?" in out, out
    nodes.nothing_left()


@pytest.mark.parametrize("how", ["ssh", "mpirun"])
def test_a_node_that_lets_nobody_in_is_named(nodes, how):
    nodes.on(3, "sh", "-c", "kill $(cat /run/sshd.pid)", user="root")
    try:
        nodes.write("job.sh", SCRIPT)
        code, out = shell(nodes, f"fp-job run job.sh {hosts(nodes)} --launcher={how} -- touch /srv/ran\n")
    finally:
        sshd.start_one(nodes, 3)
    assert code == 1 and nodes.names[3] in out and ("onnection refused" in out), out
    if how == "ssh":
        assert f"{nodes.names[3]} is not ready: no agent could be started by ssh" in out and nodes.names[2] not in out, out
    nodes.nothing_left(30)


def test_ranks_of_mpirun_over_ssh_stay_off_service_cores(nodes):
    """mpirun brings no variables to other nodes by ssh, and its daemons there have no mask."""
    nodes.write("threads.py", threads.SCRIPT)
    nodes.write("job.sh", SCRIPT + "#FP cores 1\n#FP auxapp dedup hash=xxh3\n")
    nodes.write("slots", "".join(f"{n} slots=2\n" for n in nodes.names[1:]))
    for how, words in ("ssh", "-npernode 1"), ("ssh", "--bind-to none -npernode 2"), ("mpirun", "-npernode 1"):
        code, out = shell(nodes, f"fp-job run job.sh {hosts(nodes)} --launcher={how} -- {MPIRUN} --hostfile slots --oversubscribe {words} python3 threads.py\n")
        assert code == 0, out
        seen = threads.seen(out)
        assert threads.SERVICES <= {name for name, _ in seen} and sum("python" in name for name, _ in seen) >= 4, out
        assert {"fp-job-run", "fp-job-guard", "fp-job-launcher" if how == "ssh" else "fp-job-front"} <= {name for name, _ in seen}, out
        wrong = [(name, cpus) for name, cpus in seen if (name in threads.SERVICES | threads.BESIDE and cpus != "1") or ("python" in name and cpus != "0")]
        assert not wrong, wrong
    nodes.nothing_left()


MASKS = "sh -c 'echo on $(hostname) $(grep Cpus_allowed_list /proc/self/status)'"


def masks(nodes, out):
    """By the number of the node."""
    seen = dict(line.split()[1::2] for line in out.splitlines() if line.startswith("on "))
    return [seen.get(name) for name in nodes.names[1:]]


def test_mpirun_on_other_nodes_too_and_after_the_store(nodes):
    """Where no store of the job is there is nothing to be kept off: a node that mpirun alone has, and all when the store has ended. /tmp lets nothing be executed."""
    nodes.write("job.sh", SCRIPT + "#FP cores 1\n")
    nodes.write("slots", "".join(f"{n} slots=2\n" for n in nodes.names[1:]))
    ranks = f"{MPIRUN} --hostfile slots --oversubscribe --bind-to none -npernode 1 {MASKS}\n"
    remount(nodes, "noexec")
    try:
        code, out = shell(nodes, f"""
eval "$(fp-job start job.sh --hosts={','.join(nodes.names[1:4])})" || exit 1
{ranks}echo end
fp-job stop || exit 2
{ranks}""")
    finally:
        remount(nodes, "exec")
    assert code == 0 and "ERROR" not in out and "WARN" not in out, out
    before, after = out.split("\nend\n")
    assert masks(nodes, before) == ["0", "0", "0", "0-1"], out
    assert masks(nodes, after) == ["0", "0-1", "0-1", "0-1"], out  # the shell keeps to its cores
    nodes.nothing_left()


def remount(nodes, how):
    for i in range(1, nodes.count + 1):
        nodes.on(i, "mount", "-o", f"remount,{how}", "/tmp", user="root")


def test_ssh_in_a_job_of_slurm(nodes):
    """The nodes are the job's, the script too."""
    head = "#!/bin/bash\n#SBATCH -N 3\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n"
    code, out = nodes.run(head + "fp-job run --launcher=ssh -- sh -c 'srun sh -c \"hostname > /AggregateSSDstore/\\$SLURM_NODEID\"; ls /AggregateSSDstore; fp-job status; exit 4'\n")
    assert code == 4 and "0\n1\n2\n" in out and "3 of 3 nodes ready" in out, out
    code, out = nodes.run(head + "#FP auxapp drain to=/lustre/ssh\n" + 'eval "$(fp-job start --launcher=ssh || echo false)" || exit 5\necho x > $FP_MOUNT/f\nfp-job stop\n')
    assert code == 0 and "agents that ssh has started do not look at the job's time" in out and nodes.login("cat", "/lustre/ssh/f").stdout == "x\n", out
    keeps = head.replace("pool=64MiB", "pool=64MiB ssd=/srv on-failure=keep") + "#FP stage-out none to=/lustre/none\n"
    code, out = nodes.run(keeps + "export SLURM_RESTART_COUNT=1\nfp-job run --launcher=ssh -- touch /AggregateSSDstore/f\nls -d /srv/*-named-* && rm -r /srv/*-named-*\n"
                          "srun rm -rf $(echo /srv/fpstore-5001-named-job-$SLURM_JOB_ID-run2)\n")
    path = re.search(r"as (/srv/fpstore-5001-named-job-\d+-run2):", out)  # of its second run, as it is called and as it is
    assert path and f"\n{path[1]}\n" in out, out
    code, out = nodes.run(head + "fp-job run --launcher=mpirun -- touch /srv/ran\n")
    assert code == 1 and "take ssh" in out, out
    nodes.nothing_left()
