"""Nodes of a Slurm that seem to have other CPUs than the machine (manycpus.c): for jobs that are submitted with ENV."""

import os
import subprocess

DIR = "/mnt/cpus"
SO = "/home/ada/manycpus.so"
ENV = (f"LD_PRELOAD={SO}",)
NONE = "env -u LD_PRELOAD -u HWLOC_SYNTHETIC"  # before a program that is to see the machine as it is


def pretend(slurm, *topologies):
    """One for each node, "8 pack:1 core:4 pu:2": how many CPUs, and their topology in hwloc's words. Threads of earlier jobs are forgotten."""
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", slurm.home("manycpus.so"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "manycpus.c")], check=True, timeout=60)
    for i, topology in enumerate(topologies, 1):
        slurm.on(i, "sh", "-c", f"rm -rf {DIR} && mkdir -m 1777 {DIR} && echo '{topology}' > {DIR}/topology", user="root")
