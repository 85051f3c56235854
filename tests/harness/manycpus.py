"""Nodes of a Slurm that seem to have other CPUs than the machine (manycpus.c): for jobs that are submitted with ENV."""

import os
import subprocess

DIR = "/mnt/cpus"
SO = "/home/ada/manycpus.so"
ENV = (f"LD_PRELOAD={SO}",)
NONE = "env -u LD_PRELOAD -u HWLOC_SYNTHETIC"  # before a program that is to see the machine as it is


def pretend(slurm, *topologies, daemons=False):
    """One for each node, "8 pack:1 core:4 pu:2": how many CPUs, and their topology in hwloc's words. Threads of earlier jobs are forgotten. daemons: also for
    those of Slurm, which then bind tasks as they do on such nodes."""
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", slurm.home("manycpus.so"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "manycpus.c")], check=True, timeout=60)
    for i, topology in enumerate(topologies, 1):
        slurm.on(i, "sh", "-c", f"rm -rf {DIR} && mkdir {DIR} && chmod 777 {DIR} && echo '{topology}' > {DIR}/topology", user="root")
        if daemons:
            slurm.restart_slurmd(i, *ENV)
    slurm.wait_nodes()
