"""fp-job check and explain, on batch scripts as users write them: those of jobscripts/examples, and some with mistakes."""

import glob
import os
import re
import shutil
import subprocess

import pytest

from harness.daemons import SLOW, bin_path, free_name

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
EXAMPLES = sorted(glob.glob(os.path.join(TOP, "jobscripts", "examples", "*.sh")))
DIRECTORIES = r"(?<![\w$])/lustre/[\w/.]*"


@pytest.fixture
def folder():
    path = free_name("fp-test")
    yield path
    shutil.rmtree(path)


def job(*args, cwd=None, env=None):
    """Without a Slurm: what nodes there are is said by the call."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FP_", "SLURM_"))}
    return subprocess.run([bin_path("fp-job"), *args], capture_output=True, text=True, timeout=30 * SLOW, cwd=cwd, env={**clean, **(env or {})})


def at_home(script, folder):
    """The script with its directories of the parallel file system below folder, where there is one; nothing else is changed."""
    with open(script) as f:
        text = f.read()
    for name in re.findall(DIRECTORIES, text):
        os.makedirs(folder + os.path.dirname(name.rstrip("/")), exist_ok=True)
    os.makedirs(folder + "/lustre/proj/in", exist_ok=True)
    open(folder + "/lustre/proj/in/a.h5", "w").close()
    here = os.path.join(folder, os.path.basename(script))
    with open(here, "w") as f:
        f.write(re.sub(DIRECTORIES, lambda m: folder + m[0], text))
    return here


def own_plugin(folder):
    """What own-plugin.sh declares: made as its comment says."""
    made = subprocess.run([bin_path("fpctl"), "auxapp", "new", "myapp"], cwd=folder, capture_output=True, text=True, timeout=30 * SLOW)
    assert made.returncode == 0, made.stderr
    include = os.path.join(TOP, "include")
    subprocess.run(["make", "-s", "-C", os.path.join(folder, "myapp"), f"CFLAGS=-O1 -I{include}", "myapp.so"], check=True, capture_output=True, timeout=60 * SLOW)


def test_there_are_examples():
    names = {os.path.basename(e) for e in EXAMPLES}
    assert {"minimal.sh", "dedup-drain.sh", "fp-2-8.sh", "own-plugin.sh", "stage.sh", "restart.sh", "mpi-hdf5.sh"} <= names


@pytest.mark.parametrize("script", EXAMPLES, ids=os.path.basename)
def test_examples_have_no_mistakes(script, folder):
    here = at_home(script, folder)
    if "myapp" in open(here).read():
        own_plugin(folder)
    r = job("check", here, "--node-cores=8", cwd=folder)
    told = [line for line in r.stdout.splitlines() if "is not there yet: fp-job start makes it" not in line]
    assert (r.returncode, told, r.stderr) == (0, [], ""), r.stdout
    r = job("explain", here, "--node-cores=8", cwd=folder)
    assert r.returncode == 0, r.stdout + r.stderr
    service = re.search(r"^#FP cores +(\d+)", open(here).read(), re.M)
    assert f"FP({service[1] if service else 0},8)" in r.stdout
    assert re.search(r"^store ", r.stdout, re.M)


def test_examples_are_shell():
    for script in EXAMPLES:
        subprocess.run(["bash", "-n", script], check=True, timeout=20 * SLOW)


def of_pages():
    """Of docs/COMING-FROM.md and README.md: scripts with #FP lines, and lines that stand alone, as scripts."""
    text = ""
    for name in ("docs/COMING-FROM.md", "README.md"):
        with open(os.path.join(TOP, name)) as f:
            text += f.read()
    blocks = [b for b in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) if "\n#FP " in b]
    lines = [f"#!/bin/bash\n{line}\n" for line in dict.fromkeys(re.findall(r"`(#FP [^`]+)`", text))]
    drain = "#FP auxapp drain to=/lustre/proj/run42\n"  # for stage-out without to=
    return blocks, [line + (drain if "#FP stage-out" in line and " to=" not in line else "") for line in lines]


def test_what_pages_show(folder):
    """Each has no mistake, and each script is one of the shell. What stands on the other side of the tables is not ours to check."""
    blocks, lines = of_pages()
    assert len(blocks) == 4 and len(lines) > 15
    for text in blocks + lines:
        script = os.path.join(folder, "shown.sh")
        with open(script, "w") as f:
            f.write(text)
        subprocess.run(["bash", "-n", script], check=True, timeout=20 * SLOW)
        r = job("check", at_home(script, folder), "--node-cores=8", cwd=folder)
        told = [line for line in r.stdout.splitlines() if "is not there yet: fp-job start makes it" not in line]
        assert (r.returncode, told, r.stderr) == (0, [], ""), text + r.stdout + r.stderr


def test_every_mistake_is_said_with_its_place(folder):
    script = os.path.join(folder, "job.sh")
    with open(script, "w") as f:
        f.write("#!/bin/bash\n#SBATCH -N 2\n#FP store size=32G\n#FP cores 8\n#FP auxapp dedup hash=sha9\n#FP auxap drain\n"
                f"#FP auxapp drain to={folder}/no/such\n#FP stage-in {folder}/in/*.none\n#FP auxapp encrypt nodes=3\nsrun ./app\n#FP cores 1\n")
    r = job("check", script, "--node-cores=8")
    places = re.findall(r"^(.*?):(\d+):(\d+): (error|warning): ", r.stdout, re.M)
    assert r.returncode == 1 and r.stderr == ""
    assert {p[0] for p in places} == {script} and {p[3] for p in places} == {"error"}
    assert [(int(p[1]), int(p[2])) for p in places] == [(3, 11), (4, 11), (5, 18), (6, 5), (7, 21), (8, 14), (9, 20), (11, 1)]
    r = job("explain", script, "--node-cores=8")
    assert r.returncode == 1 and "fp-job check says all of them" in r.stderr


def test_the_script_may_come_by_a_pipe():
    r = subprocess.run([bin_path("fp-job"), "check", "-", "--node-cores=4"], input="#FP cores 4\n", capture_output=True, text=True, timeout=30 * SLOW)
    assert r.returncode == 1 and r.stdout.startswith("-:1:11: error: "), r.stdout


def test_a_slurm_that_does_not_answer_is_not_waited_for(folder):
    """sinfo of a site without a controller tries for minutes."""
    with open(os.path.join(folder, "sinfo"), "w") as f:
        f.write("#!/bin/sh\nexec sleep 600\n")
    os.chmod(os.path.join(folder, "sinfo"), 0o755)
    script = at_home(os.path.join(TOP, "jobscripts", "examples", "minimal.sh"), folder)
    r = job("check", script, env={"PATH": folder + ":" + os.environ["PATH"]})
    assert r.returncode == 0, r.stdout + r.stderr


def test_what_slurm_says_of_the_nodes_is_believed(folder):
    with open(os.path.join(folder, "sinfo"), "w") as f:
        f.write('#!/bin/sh\n[ "$*" = "-h -N -o %N|%X|%Y|%Z -p fat" ] || exit 1\nprintf "n1|2|32|2\\nn2|2|32|2\\nold1|1|4|1\\n"\n')
    os.chmod(os.path.join(folder, "sinfo"), 0o755)
    script = os.path.join(folder, "job.sh")
    with open(script, "w") as f:
        f.write("#SBATCH -p fat\n#SBATCH -N 2\n#FP cores 4\n")
    env = {"PATH": folder + ":" + os.environ["PATH"]}
    r = job("check", script, env=env)
    assert r.returncode == 1 and ":3:11: error: 4 service cores leave none for the application: a node of the job has 4" in r.stdout, r.stdout
    r = job("explain", script, env=env)
    assert "FP(4,64)" in r.stdout and "n1, 2 in all" in r.stdout and r.returncode == 1, r.stdout


def test_nothing_is_left_of_a_check(folder):
    before = set(os.listdir("/tmp"))
    script = at_home(os.path.join(TOP, "jobscripts", "examples", "dedup-drain.sh"), folder)
    assert job("check", script, "--node-cores=8").returncode == 0
    assert not [n for n in set(os.listdir("/tmp")) - before if n.startswith("fp")]
