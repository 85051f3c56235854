"""Service cores of nodes with more CPUs than the machine has (harness/manycpus.py): FP(2,8) as the paper has it, and nodes that are not alike."""

import os
import re
import shutil

import pytest

from harness import manycpus, threads

SLURM = {"nodes": 4, "cpus": 8, "extra": "TaskPlugin=task/none"}
EXAMPLE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "jobscripts", "examples", "fp-2-8.sh"))

# Says where it may run, and on each node where all threads of the user may, and becomes heat3d.
APP = f"""#!/bin/bash
export PMIX_MCA_gds=hash # as in test_job_examples.py
python3 -c 'import os; print("TASK", os.environ["SLURM_PROCID"], ",".join(map(str, sorted(os.sched_getaffinity(0)))))'
[ $SLURM_LOCALID != 0 ] || python3 threads.py
exec {manycpus.NONE} /opt/apps/heat3d --n 24 --steps 10 --checkpoint-every 5 --dir "$1" --final /home/ada/final.raw --verify
"""


def submit(slurm, script):
    r = slurm.login("sbatch", "--parsable", "--output=job-%j.out", script, env=manycpus.ENV)
    code, out = slurm.end_of(int(r.stdout.split(";")[0]), 180)
    assert code == 0 and "ERROR" not in out, out
    return out


def check(out, node, ours, others):
    seen = threads.seen(out, node)
    assert threads.SERVICES - {"fp-manager"} <= {name for name, _ in seen}, f"{node}: {seen}"
    assert not threads.misplaced(seen, ours, others), f"{node}: {threads.misplaced(seen, ours, others)}"


def check_first(out, node):
    """What fp-job run keeps on the node that it is on; check() says where."""
    assert {"fp-manager", "fp-job-run", "fp-job-guard", "fp-job-launcher"} <= {name for name, _ in threads.seen(out, node)}, out


@pytest.mark.limit(240)
def test_fp_2_8(slurm):
    """The example as it stands: of eight CPUs the last two are the services', and the six tasks of each node have the others."""
    slurm.take_directory(*range(slurm.count + 1))  # nobody has prepared the nodes
    manycpus.pretend(slurm, *["8 pack:1 core:8 pu:1"] * 4)
    slurm.write("app", APP)
    slurm.write("threads.py", threads.SCRIPT)
    shutil.copy(EXAMPLE, slurm.home("fp-2-8.sh"))
    out = slurm.login("fp-job", "check", "fp-2-8.sh").stdout + slurm.login("fp-job", "explain", "fp-2-8.sh").stdout
    assert "FP(2,8)" in out, out
    out = submit(slurm, "fp-2-8.sh")
    tasks = dict(re.findall(r"^TASK (\d+) (\S+)$", out, re.M))
    assert len(tasks) == 24 and set(tasks.values()) == {"0,1,2,3,4,5"}, tasks
    for node in slurm.names[1:]:
        check(out, node, "6,7", "0,1,2,3,4,5")
    check_first(out, slurm.names[1])
    slurm.nothing_left()
    os.rename(slurm.home("final.raw"), slurm.home("seen.raw"))
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 1\nexport PMIX_MCA_gds=hash\nmkdir plain\n"
                          f"srun -n1 {manycpus.NONE} /opt/apps/heat3d --n 24 --steps 10 --checkpoint-every 5 --dir plain --final /home/ada/final.raw\n")
    assert code == 0, out
    with open(slurm.home("seen.raw"), "rb") as seen, open(slurm.home("final.raw"), "rb") as plain:
        data = seen.read()
        assert len(data) == 24 ** 3 * 8 and data == plain.read()


def test_a_long_list_of_cpus_is_told_whole(slurm):
    """Of a node of 1024 CPUs every other one is a service core: the others' list, which the shell of the batch script is kept to, has 2 KB."""
    manycpus.pretend(slurm, "1024 pack:1 core:1024 pu:1")
    even, odd = (",".join(map(str, range(first, 1024, 2))) for first in (0, 1))
    slurm.write("job.sh", f"#!/bin/bash\n#SBATCH -N 1 -w {slurm.names[1]}\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n#FP cores list={even}\n"
                          "fp-job run -- sh -c 'fp-job status; python3 -c \"import os; print(*sorted(os.sched_getaffinity(0)), sep=chr(44))\"'\n")
    out = submit(slurm, "job.sh").splitlines()
    assert odd in out and f"CPUs of the application on the first node: {odd}" in out, out
    slurm.nothing_left()


@pytest.mark.limit(240)
def test_each_node_has_a_core_map_of_its_own(slurm):
    """Nodes with more and fewer cores than the first, and with two hardware threads to a core: services get the last core there is, whole."""
    manycpus.pretend(slurm, "8 pack:1 core:8 pu:1", "6 pack:2 core:3 pu:1", "8 pack:1 core:4 pu:2", "70 pack:1 core:70 pu:1")
    slurm.write("threads.py", threads.SCRIPT)
    slurm.write("job.sh", "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n#FP cores 1\n#FP auxapp dedup hash=xxh3\n"
                          "fp-job run -- srun -N4 -n4 python3 threads.py\n")
    out = submit(slurm, "job.sh")
    for node, cpus, first in zip(slurm.names[1:], (8, 6, 8, 70), (7, 5, 6, 69)):
        check(out, node, ",".join(map(str, range(first, cpus))), ",".join(map(str, range(first))))
    check_first(out, slurm.names[1])
    slurm.nothing_left()
