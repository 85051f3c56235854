"""On which CPUs threads may run: a script that a job runs on its nodes, and what its output says.

The script prints a line for each thread of the user on its node, with the name of its program; those that are fp-job, or that fp-job has started agents by, by what they do. It asks by sched_getaffinity, as programs do, so that it sees the CPUs of manycpus.c, too.
"""

import re

SCRIPT = r"""
import glob, os, re
def read(path):
    with open(path) as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
def name_of(pid, whole):
    with open("/proc/%s/cmdline" % pid) as f:
        words = f.read().split("\0")
    name = whole["Name"].replace(" ", "_")
    if name == "fp-job" and words[1:2] == ["node"]:
        above = read("/proc/%s/status" % whole["PPid"].strip())["Name"]
        return "fp-job-agent" if above == "fp-job-watch" else "fp-job-front"
    if name == "fp-job" and words[1:2] == ["run"]:
        return "fp-job-run"
    launches = name[:3] != "fp-" and re.search("/fp-job'? node( |$)", " ".join(words))
    return "fp-job-launcher" if launches else name
node = os.environ.get("SLURMD_NODENAME", os.uname().nodename)
for status in glob.glob("/proc/[0-9]*/task/*/status"):
    try:
        mine, whole = read(status), read("/proc/%s/status" % status.split("/")[2])
        if mine["State"][0] in "ZX":
            continue
        program = name_of(status.split("/")[2], whole)
        if int(mine["Uid"].split()[0]) == os.getuid():
            print("THREAD", node, program, ",".join(map(str, sorted(os.sched_getaffinity(int(mine["Pid"]))))))
    except OSError:
        pass
"""
SERVICES = {"fp-mount", "fp-benefactor", "fp-manager", "fp-auxhost", "fp-job-watch", "fp-job-agent"}  # on each node, the manager on the first
BESIDE = {"fp-job-run", "fp-job-guard", "fp-job-launcher", "fp-job-front", "fp-job-time"}  # ours as well, where they are needed
WAITING = ("slurm_script", "bash")  # the user's shell of the batch script, around fp-job run
BEGINNING = ("slurmstepd", "fp-task-prolog", "sh", "fp-job")  # of a task that is no program yet: what keeps it off service cores runs


def seen(out, node=None):
    """(program, CPUs) of each thread that was printed; of one node alone."""
    return [(program, cpus) for at, program, cpus in re.findall(r"^THREAD (\S+) (\S+) (\S+)$", out, re.M) if node in (None, at)]


def misplaced(threads, ours, others):
    """Threads that are neither services on exactly `ours` nor an application's on exactly `others`."""
    return [(name, cpus) for name, cpus in threads if cpus != (ours if name in SERVICES | BESIDE else others) and name not in WAITING + BEGINNING]
