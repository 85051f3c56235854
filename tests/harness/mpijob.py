"""MPI jobs: on this machine, or with ranks on the nodes of a store (nodes.py), as on a cluster.

On nodes, mpirun runs on node 0 and starts a daemon of its own on each node, as it does by ssh: an agent script takes
the place of ssh and enters the node. A node is its network namespace, a host name, and a mount namespace in which the
mount of that node is seen at the same path as on all others. So ranks of different nodes share no memory, talk over the
nodes' network, and open one name. The whole job has a process namespace: it ends with the process that is waited for.

Both Open MPI 4 and 5 are told by the environment, where names that a version does not know are no error.
"""

import os
import re
import shutil
import signal
import subprocess

from .daemons import SLOW

APPS = os.environ.get("FP_APPS") or os.path.join(os.path.dirname(__file__), "..", "..", "build", "apps")
APPS = os.path.abspath(APPS)

AGENT = r"""#!/bin/bash
# In place of ssh: AGENT [OPTION...] HOST COMMAND...
while [[ $1 == -* ]]; do shift; done
host=$1
shift
. "$(dirname "$0")/$host"
exec nsenter "--net=/run/netns/$netns" unshare --uts --mount --propagation private bash -c '
mount -t tmpfs none /dev/shm && hostname "$0" && mount --bind "$1" "$2" && cd / && exec bash -c "$3"' "$host" "$from" "$to" "$*"
"""


def app(name):
    return os.path.join(APPS, name)


def environment(more=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FP_", "OMPI_", "PRTE_", "PMIX_"))}
    env.update({
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_mpi_yield_when_idle": "1",
        # Reading each other's memory directly needs ptrace rights that containers lack.
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_smsc": "^cma,knem,xpmem",
        "OMPI_MCA_orte_tmpdir_base": os.environ["TEST_MPI_TMP"], "PRTE_MCA_prte_tmpdir_base": os.environ["TEST_MPI_TMP"]})
    env.update(more or {})
    return env


def version():
    out = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=20 * SLOW).stdout
    return int(re.search(r"(\d+)\.\d", out)[1])


def io_components():
    """What --mca io can be told: OMPIO, and the ROMIO that this Open MPI brings."""
    out = subprocess.run(["ompi_info", "--param", "io", "all", "--parsable"], capture_output=True, text=True, timeout=20 * SLOW).stdout
    return sorted(set(re.findall(r"^mca:io:(\w+):version", out, re.M)) - {"base"})


def launch(argv, env, seconds, before=()):
    """Runs to its end, or is killed with all its processes. Returns CompletedProcess; both outputs in stdout."""
    proc = subprocess.Popen([*before, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", env=env, cwd="/", start_new_session=True)
    try:
        out = proc.communicate(timeout=seconds * SLOW)[0]
    except subprocess.TimeoutExpired:
        os.killpg(proc.pid, signal.SIGKILL)
        out = proc.communicate()[0]
        raise AssertionError(f"{argv}: no end within {seconds} s:\n{out[-3000:]}") from None
    return subprocess.CompletedProcess(argv, proc.returncode, out)


def here(ranks, *argv, env=None, seconds=30):
    """All ranks on this machine, over shared memory."""
    more = {"OMPI_MCA_btl": "self,vader" if version() < 5 else "self,sm"}
    words = ["--oversubscribe"] if version() < 5 else ["--map-by", ":OVERSUBSCRIBE"]
    return launch(["mpirun", "-n", str(ranks), *words, "--bind-to", "none", *argv], environment({**more, **(env or {})}), seconds)


class Cluster:
    """The nodes of a store that have a mount, as hosts of MPI jobs. at() is a path that all ranks have, on their node's mount."""

    def __init__(self, store):
        self.mounts = store.mounts
        self.dir = os.path.join(store.dir, "cluster")
        self.common = os.path.join(store.dir, "common")
        for path in (self.dir, self.common):
            os.makedirs(path, exist_ok=True)
        self.agent = os.path.join(self.dir, "agent")
        with open(self.agent, "w", encoding="ascii") as f:
            f.write(AGENT)
        os.chmod(self.agent, 0o755)
        for i, m in enumerate(self.mounts):
            with open(os.path.join(self.dir, f"node{i}"), "w", encoding="ascii") as f:
                f.write(f"netns={store.nodes.netns(m.node)} from={m.path} to={self.common}\n")

    def at(self, *names):
        return os.path.join(self.common, *names)

    def seen_by(self, i, *names):
        """The same file, for this process, which is on no node."""
        return self.mounts[i].at(*names)

    def run(self, *argv, per_node=2, env=None, seconds=60):
        """per_node ranks on each node: the first ones on node 0, and so on."""
        hosts = ",".join(f"node{i}:{per_node}" for i in range(len(self.mounts)))
        more = {}
        for prefix in ("OMPI_MCA_", "PRTE_MCA_"):
            for key in ("plm_rsh_agent", "plm_ssh_agent"):
                more[prefix + key] = self.agent
        more.update({
            "OMPI_MCA_plm": "rsh", "PRTE_MCA_plm": "ssh", "OMPI_MCA_btl": "self,tcp" if per_node == 1 else
            "self,vader,tcp" if version() < 5 else "self,sm,tcp",
            "OMPI_MCA_oob_tcp_if_include": "eth0", "OMPI_MCA_btl_tcp_if_include": "eth0", "PRTE_MCA_prte_if_include": "eth0",
            "PMIX_MCA_ptl_tcp_if_include": "eth0", "OMPI_MCA_orte_tmpdir_base": "/dev/shm", "PRTE_MCA_prte_tmpdir_base": "/dev/shm"})
        words = ["--oversubscribe"] if version() < 5 else ["--map-by", ":OVERSUBSCRIBE"]
        netns = open(os.path.join(self.dir, "node0"), encoding="ascii").read().split()[0].split("=")[1]
        # mpirun has a host name of its own: to it node0 is a host like the others, reached by the agent.
        before = ["nsenter", f"--net=/run/netns/{netns}", "unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                  "--propagation", "private", "bash", "-c", 'mount -t tmpfs none /dev/shm && hostname head && exec "$0" "$@"']
        return launch(["mpirun", "--host", hosts, "-n", str(per_node * len(self.mounts)), *words, "--bind-to", "none", *argv],
                      environment({**more, **(env or {})}), seconds, before)


def good(done, *wanted):
    """The job ended well, and said each of these (regular expressions)."""
    assert done.returncode == 0, f"{' '.join(done.args)}: exit {done.returncode}:\n{done.stdout[-4000:]}"
    for pattern in wanted:
        assert re.search(pattern, done.stdout), f"no /{pattern}/ in:\n{done.stdout[-4000:]}"
    return done.stdout


def installed(program):
    return shutil.which(program) is not None
