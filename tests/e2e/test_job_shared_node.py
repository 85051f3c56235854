"""Jobs that share a node where Slurm confines them by masks alone (TaskPlugin=task/affinity, no control groups): the mask of a step is all that says which CPUs
are the job's. The node seems to have eight (harness/manycpus.py), to Slurm's daemon, too."""

import re

from harness import manycpus, threads

SLURM = {"nodes": 1, "cpus": 8, "extra": "TaskPlugin=task/affinity"}
JOB = r"""#!/bin/bash
#SBATCH -N 1 -n 1 -c 3
#FP store size=128MiB pool=64MiB mount=/tmp/mnt-$SLURM_JOB_ID
#FP cores 1
#FP auxapp dedup hash=xxh3
srun --overlap -n1 --cpu-bind=none python3 -c 'import os; print("BEFORE", ",".join(map(str, sorted(os.sched_getaffinity(0)))))'
sh -c 'exit 0' & gone=$!; wait $gone
python3 -c "import os; print('GONE', os.sched_getaffinity($gone))" 2>&1 | grep -o 'GONE.*\|ProcessLookupError'
eval "$(fp-job start)" || exit 1
python3 -c 'import os; print("OWN", ",".join(map(str, sorted(os.sched_getaffinity(os.getppid())))))'
[ -n "$SECOND" ] || SECOND=1 sbatch --parsable --output=job-%j.out job.sh > second
touch up$SLURM_JOB_ID
until [ -e go ]; do sleep 0.1; done
srun --overlap -n1 python3 threads.py
echo SECOND
srun --overlap -n1 --cpu-bind=none python3 threads.py
fp-job stop
"""


def test_jobs_of_one_node_have_service_cores_of_their_own(slurm):
    """Each takes the last core of its own three; nothing of one job runs on what the other has, and the second has been submitted by the first, with all of its
    variables."""
    manycpus.pretend(slurm, "8 pack:1 core:8 pu:1", daemons=True)
    slurm.write("threads.py", threads.SCRIPT)
    slurm.write("job.sh", JOB)
    jobs = [int(slurm.login("sbatch", "--parsable", "--output=job-%j.out", "job.sh", env=manycpus.ENV).stdout)]
    slurm.wait_file(f"up{jobs[0]}", jobs[0])
    jobs.append(int(slurm.read("second")))
    slurm.wait_file(f"up{jobs[1]}", jobs[1])
    slurm.go()
    for number, ours, others in zip(jobs, ("2", "5"), ("0,1", "3,4")):
        code, out = slurm.end_of(number)
        assert code == 0 and "ERROR" not in out, out
        assert re.search("^ProcessLookupError$", out, re.M), out  # what ends while it is looked at is not seen on all CPUs
        assert re.search("^BEFORE " + ("0,1,2" if ours == "2" else "3,4,5") + "$", out, re.M), out
        assert re.search(f"^OWN {others}$", out, re.M), out
        first, second = out.split("SECOND\n")
        for seen in (threads.seen(first), threads.seen(second)):  # of both jobs: they are the same user's
            assert threads.SERVICES <= {name for name, cpus in seen if cpus == ours}, f"{ours}: {seen}"
            assert ("python3", others) in seen, seen
            assert "fp-job-launcher" in {name for name, cpus in seen if cpus == ours}, f"{ours}: {seen}"
            misplaced = {(name, cpus) for name, cpus in seen if name in threads.SERVICES | threads.BESIDE and cpus not in ("2", "5")}
            assert not misplaced, misplaced
            wrong = [x for x in seen if x[0] not in threads.SERVICES | threads.BESIDE and x[0] not in threads.WAITING + threads.BEGINNING and x[1] not in ("0,1", "3,4")]
            assert not wrong, wrong
    slurm.nothing_left()
