"""fp-job on nodes that have addresses of IPv6 alone: agents by ssh, by mpirun and by Slurm."""

import pytest

SLURM = {"nodes": 3, "cpus": 2, "families": "6"}
SCRIPT = "#!/bin/bash\n#FP store size=256MiB pool=64MiB\n#FP auxapp drain to=/lustre/six\n"
# Each node writes, and reads what the others have written: chunks go from node to node.
APP = """#!/bin/bash
for n in {names}; do ssh $n "head -c 3000000 /dev/urandom > $FP_MOUNT/$n" || exit 9; done
for n in {names}; do ssh $n "cat $FP_MOUNT/* | md5sum" || exit 8; done
fp-job status
exit 3
"""
MPIRUN = ("OMPI_MCA_plm=rsh", "PRTE_MCA_plm=ssh", "OMPI_MCA_oob_tcp_if_include=eth0", "PRTE_MCA_prte_if_include=eth0")


@pytest.fixture(scope="module")
def nodes(by_ssh):
    return by_ssh


def run(nodes, how, hosts, *env):
    nodes.write("job.sh", SCRIPT)
    nodes.write("app", APP.format(names=" ".join(nodes.names[1:])))
    nodes.login("rm", "-rf", "/lustre/six")
    nodes.login("mkdir", "/lustre/six")
    r = nodes.on(1, "sh", "-c", f"exec 2>&1; fp-job run job.sh --hosts='{hosts}' --launcher={how} -- ./app", check=False, seconds=60, env=env)
    return r.returncode, r.stdout


def is_well(nodes, code, out, first):
    """Of a store whose manager is on the first node, as it is called."""
    assert code == 3 and "ERROR" not in out and "WARN" not in out, out
    assert f"3 of 3 nodes ready, mounted on /AggregateSSDstore, manager {first}:" in out, out
    sums = [line for line in out.splitlines() if line.endswith("  -")]
    assert len(sums) == 3 and len(set(sums)) == 1, out
    assert nodes.login("sh", "-c", "cat /lustre/six/* | md5sum").stdout.strip() == sums[0], out
    nodes.nothing_left()


@pytest.mark.parametrize("how", ["ssh", "ssh --fanout=1", "mpirun"])
def test_nodes_by_their_names(nodes, how):
    code, out = run(nodes, how, ",".join(nodes.names[1:]), *MPIRUN)
    is_well(nodes, code, out, nodes.names[1])


def test_nodes_by_their_addresses(nodes):
    """However they are written. A file may have them as a hostfile of mpirun does."""
    code, out = run(nodes, "ssh", "[FD78:0::0002],[fd78::3]:4,[fd78::2],[fd78::4]")
    is_well(nodes, code, out, "[fd78::2]")
    nodes.write("list", "[fd78::2]\nfd78::3 slots=2\nfd78::4 slots=2\n")
    code, out = run(nodes, "ssh --fanout=1", "@list")
    is_well(nodes, code, out, "[fd78::2]")
    code, out = run(nodes, "mpirun", "[fd78::2],[fd78::3]", *MPIRUN)
    assert code == 1 and "mpirun takes no addresses of IPv6 for nodes, as [fd78::2] is" in out, out
    nodes.nothing_left()


def test_a_node_that_lets_nobody_in_is_named_by_its_address(nodes):
    code, out = run(nodes, "ssh", "[fd78::2],[fd78::3],[fd78::99]")
    assert code == 1 and "[fd78::99] is not ready: no agent could be started by ssh" in out and "[fd78::3] is not" not in out, out
    nodes.nothing_left(30)


def test_a_job_of_slurm(nodes):
    head = "#!/bin/bash\n#SBATCH -N 3\n#FP store size=256MiB pool=64MiB\n"
    write = "srun sh -c 'hostname > $FP_MOUNT/$SLURM_NODEID'\nsrun sh -c 'cat $FP_MOUNT/* | md5sum'\nfp-job status\n"
    for text in ("eval \"$(fp-job start)\" || exit 9\n" + write + "fp-job stop\n", "fp-job run -- bash -c '" + write.replace("'", "'\\''") + "'\n",
                 "fp-job run --launcher=ssh -- bash -c '" + write.replace("'", "'\\''") + "'\n"):
        code, out = nodes.run(head + text)
        assert code == 0 and "ERROR" not in out and "WARN" not in out and "3 of 3 nodes ready" in out, out
        sums = [line for line in out.splitlines() if line.endswith("  -")]
        assert len(sums) == 3 and len(set(sums)) == 1, out
        nodes.nothing_left()
