"""Nodes that let their user in by ssh, with a key, as the nodes of a cluster without Slurm do: a real sshd on each node of a Slurm (slurm.py), which is left alone."""

import os
import shutil
import subprocess

from .daemons import wait_until
from .slurm import UID

CONF = """
HostKey {dir}/etc/host_key
PidFile /run/sshd.pid
UsePAM no
PasswordAuthentication no
StrictModes no
MaxStartups 100
SetEnv PATH=/usr/bin:/bin
"""

CLIENT = """
Host *
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""


def missing():
    lacks = [t for t in ("sshd", "ssh", "ssh-keygen") if not shutil.which(t, path=os.environ.get("PATH", "") + ":/usr/sbin")]
    return f"not installed: {', '.join(lacks)}" if lacks else ""


def start(slurm):
    """On all nodes; they end with the nodes."""
    home = slurm.home(".ssh")
    os.mkdir(home, 0o700)
    for path in (os.path.join(home, "id_ed25519"), os.path.join(slurm.dir, "etc", "host_key")):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, stdin=subprocess.DEVNULL, timeout=30)
    shutil.copy(os.path.join(home, "id_ed25519.pub"), os.path.join(home, "authorized_keys"))
    with open(os.path.join(home, "config"), "w") as f:
        f.write(CLIENT)
    for path in [home] + [os.path.join(home, n) for n in os.listdir(home)]:
        os.chown(path, UID, UID)
    with open(os.path.join(slurm.dir, "etc", "sshd_config"), "w") as f:
        f.write(CONF.format(dir=slurm.dir))
    for i in range(1, slurm.count + 1):
        start_one(slurm, i)


def start_one(slurm, i):
    log = os.path.join(slurm.dir, "log", f"sshd.{i}.log")
    slurm.on(i, "sh", "-c", f"mkdir -p /run/sshd && exec /usr/sbin/sshd -f {slurm.dir}/etc/sshd_config -E {log}", user="root")
    wait_until(lambda: f"ssh to node {i}:\n{slurm.logs()}", 20, lambda: slurm.on(1, "ssh", slurm.names[i], "true", check=False).returncode == 0, 0.1)
