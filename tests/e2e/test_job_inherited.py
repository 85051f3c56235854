"""Jobs that a job with a store submits: sbatch gives them all of its variables (--export=ALL), and none of them does harm there."""

import re

import pytest

SLURM = {"nodes": 2, "cpus": 2}
NAMES = "FP_MOUNT|FP_JOB|FP_ENTER|FP_NO_STORE|SLURM_TASK_PROLOG|FP_TASK_PROLOG|HWLOC_XMLFILE|HWLOC_THISSYSTEM|OMPI_MCA_orte_launch_agent|PRTE_MCA_prte_launch_agent|PRTE_MCA_hwloc_default_binding_policy"
SHOW = f"env | grep -E '^({NAMES})=' | sed 's/^/VAR /'\n"
TASK = "sh -c 'echo task on $(grep Cpus_allowed_list /proc/self/status | cut -f2)'"
MPIRUN = "OMPI_MCA_plm_slurm_args=--mpi=none PMIX_MCA_gds=hash mpirun --oversubscribe -np 2 sh -c 'echo rank $OMPI_COMM_WORLD_RANK' 2>&1\n"
STORE = "#FP store size=128MiB pool=64MiB\n"
FIRST = "#!/bin/bash\n#SBATCH -N 1 --exclusive -w NODE\n" + STORE + "#FP cores 1\n"
CORES = "FP_TASK_PROLOG|HWLOC_THISSYSTEM|HWLOC_XMLFILE|PRTE_MCA_hwloc_default_binding_policy|SLURM_TASK_PROLOG"
HERE = "FP_ENTER|FP_JOB|FP_MOUNT|OMPI_MCA_orte_launch_agent|PRTE_MCA_prte_launch_agent"  # of a store in a user namespace
AGAIN = "[ -n \"$IN\" ] || IN=1 exec fp-job run -- $0\n"
BEGIN = 'eval "$(fp-job start || echo false)" || exit 9\n'
NONE = "#FP store size=4TiB required=off\n"

SECOND = {  # what it says of a store, how it begins and ends; what variables it has on the first's node, and on another
    "nothing": ("", "", "", f"{HERE}|{CORES}", f"{HERE}|{CORES}"),
    "start": (STORE, BEGIN, "fp-job stop\n", f"{HERE}|SLURM_TASK_PROLOG", "FP_ENTER|FP_JOB|FP_MOUNT|SLURM_TASK_PROLOG"),
    "run": (STORE, AGAIN, "", f"{HERE}|SLURM_TASK_PROLOG", "FP_JOB|FP_MOUNT|SLURM_TASK_PROLOG"),
    "start without": (NONE, BEGIN, "fp-job stop\n", "FP_NO_STORE|SLURM_TASK_PROLOG", "FP_NO_STORE|SLURM_TASK_PROLOG"),
    "run without": (NONE, AGAIN, "", "SLURM_TASK_PROLOG", "SLURM_TASK_PROLOG"),
}


@pytest.fixture(scope="module", autouse=True)
def prepared(slurm):
    """A store in a user namespace on the first node: its job has all variables that there are, and its user has a task prolog of his own."""
    slurm.take_fusermount3(1)
    slurm.write("own-prolog", "#!/bin/sh\necho print own prolog\n")


def submit(slurm, how, end, *args):
    """The first job submits the second; then it waits for a file `go`, or ends at once."""
    store, begin, stop, *_ = SECOND[how]
    slurm.write("second.sh", f"#!/bin/bash\n{store}{begin}{SHOW}srun -n1 {TASK}\nsrun -n1 {'$FP_ENTER' if store else ''} true || echo NO TASK\n{MPIRUN}{stop}echo at the end\n")
    text = FIRST.replace("NODE", slurm.names[1]) + "export SLURM_TASK_PROLOG=$HOME/own-prolog\n" + BEGIN + SHOW
    text += f"sbatch --parsable --output=job-%j.out {' '.join(args)} second.sh > second\n{end}fp-job stop\n"
    first = slurm.up(text)
    return first, int(slurm.read("second"))


def variables(out):
    return dict(re.findall(r"^VAR (\w+)=(.*)$", out, re.M))


def judge(slurm, how, first, second, place):
    code, out = slurm.end_of(second, 120)
    found = variables(out)
    assert code == 0 and "at the end\n" in out and "NO TASK" not in out and set(re.findall("ERROR: .*", out)) == set(re.findall("ERROR: .* are wanted", out)), out
    assert out.count("own prolog\n") == 2 and "task on 0-1\n" in out, out
    assert sorted(re.findall("^rank (.)$", out, re.M)) == ["0", "1"], out
    assert set(found) == set(SECOND[how][3 + place].split("|")), out
    if how != "nothing":
        assert found["SLURM_TASK_PROLOG"] == "/home/ada/own-prolog", out
        assert found.get("FP_JOB", str(second)) == str(second) and str(second) in found.get("OMPI_MCA_orte_launch_agent", str(second)), out


@pytest.mark.parametrize("how", SECOND)
def test_when_the_first_has_ended(slurm, how):
    """On the same node: files that variables of the first name are gone."""
    first, second = submit(slurm, how, "touch up\n", "--dependency=afterany:$SLURM_JOB_ID", "--exclusive", "-w", slurm.names[1])
    code, out = slurm.end_of(first)
    assert code == 0 and set(variables(out)) == set(f"{HERE}|{CORES}".split("|")), out
    judge(slurm, how, first, second, 0)
    slurm.nothing_left()


@pytest.mark.parametrize("how", SECOND)
def test_while_the_first_runs(slurm, how):
    """On another node, while the first's store is up."""
    first, second = submit(slurm, how, "touch up\nuntil [ -e go ]; do sleep 0.1; done\n", "--exclusive", "-w", slurm.names[2])
    try:
        judge(slurm, how, first, second, 1)
    finally:
        slurm.go()
    code, out = slurm.end_of(first)
    assert code == 0, out
    slurm.nothing_left()
