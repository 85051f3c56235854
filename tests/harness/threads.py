"""On which CPUs threads may run: a script that a job runs on its nodes, and what its output says.

The script prints a line for each thread of the user on its node. It asks by sched_getaffinity, as programs do, so that it sees the CPUs of manycpus.c, too.
"""

import re

SCRIPT = r"""
import glob, os
def read(path):
    with open(path) as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
node = os.environ.get("SLURMD_NODENAME", os.uname().nodename)
for status in glob.glob("/proc/[0-9]*/task/*/status"):
    try:
        mine, whole = read(status), read("/proc/%s/status" % status.split("/")[2])
        program = whole["Name"].replace(" ", "_")
        if program == "fp-job" and read("/proc/%s/status" % whole["PPid"].strip())["Name"] == "fp-job-watch":
            program = "fp-job-agent"
        if int(mine["Uid"].split()[0]) == os.getuid():
            print("THREAD", node, program, ",".join(map(str, sorted(os.sched_getaffinity(int(mine["Pid"]))))))
    except OSError:
        pass
"""
SERVICES = {"fp-mount", "fp-benefactor", "fp-manager", "fp-auxhost", "fp-job-watch", "fp-job-agent"}
WAITING = ("slurm_script", "fp-job", "fp-job-guard", "srun", "bash")  # they wait, and look for a moment now and then
BEGINNING = ("slurmstepd", "fp-task-prolog", "sh")  # of a task that is no program yet: what keeps it off service cores runs


def seen(out, node=None):
    """(program, CPUs) of each thread that was printed; of one node alone."""
    return [(program, cpus) for at, program, cpus in re.findall(r"^THREAD (\S+) (\S+) (\S+)$", out, re.M) if node in (None, at)]


def misplaced(threads, ours, others):
    """Threads that are neither services on exactly `ours` nor an application's on exactly `others`."""
    return [(name, cpus) for name, cpus in threads if cpus != (ours if name in SERVICES else others) and name not in WAITING + BEGINNING]
