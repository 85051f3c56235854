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
                f"#FP auxapp drain to={folder}/no/such\n#FP stage-in {folder}/in/*.none\n#FP auxapp encrypt nodes=3\nfp-job run -- srun ./app\n#FP cores 1\n")
    r = job("check", script, "--node-cores=8")
    places = re.findall(r"^(.*?):(\d+):(\d+): (error|warning): ", r.stdout, re.M)
    assert r.returncode == 1 and r.stderr == ""
    assert {p[0] for p in places} == {script} and {p[3] for p in places} == {"error"}
    assert [(int(p[1]), int(p[2])) for p in places] == [(3, 11), (4, 11), (5, 18), (6, 5), (7, 21), (8, 14), (9, 20), (11, 1)]
    r = job("explain", script, "--node-cores=8")
    assert r.returncode == 1 and "fp-job check says all of them" in r.stderr


# What users write, where check sees it (line:column), whether it is an error, and a part of what it says. HERE is a directory, with a file in it.
MISTAKES = [
    ("#FP stor size=1GiB", "1:5", 1, "did you mean 'store'?"),
    ("#FP Store", "1:5", 1, "did you mean 'store'?"),
    ("#FP stage_in /etc", "1:5", 1, "did you mean 'stage-in'?"),
    ("#FP cores=2", "1:5", 1, "write #FP cores, and a blank behind it"),
    ("# FP store", "1:1", 0, "only a comment"),
    ("#fp store", "1:1", 0, "only a comment"),
    (" #FP store", "1:1", 0, "only a comment"),
    ("#FP: store", "1:1", 0, "only a comment"),
    ("#FPstore", "1:1", 0, "only a comment"),
    ("#FP\u00a0store", "1:1", 0, "only a comment"),
    ("#FP", "1:1", 1, "nothing is declared here"),
    ("#FP\tstore\tsize=32G", "1:11", 1, "unknown unit"),
    ("#FP store\u00a0size=1GiB", "1:10", 1, "no-break space"),
    ("#FP store\x0bsize=1GiB", "1:10", 1, "control character"),
    ("\ufeff#FP store", "1:1", 1, "byte order mark"),
    ("#!/bin/bash\r\n#FP store\r", "1", 1, "lines end with CR LF"),
    ("#FP store " + "x" * 100000, "1:8193", 1, "longer than 8192 bytes"),
    ("#FP store\n#FP store", "2:5", 1, "in line 1 already"),
    ("#FP auxapp dedup\n#FP auxapp dedup", "2:12", 1, "in line 1 already"),
    ("echo\n#FP store", "2:1", 1, "behind the first command"),
    ("#FP store\necho\n#SBATCH -N 2", "3:1", 0, "behind the first command"),
    ("#SBATCH --nodes=0\n#FP store", "1:17", 1, "from 1 on"),
    ("#SBATCH --time=abc\n#FP store", "1:16", 1, "hours:minutes:seconds"),
    ("#SBATCH -c 9\n#FP store", "1:12", 1, "no node of the job has more than 8"),
    ("#SBATCH --ntasks-per-node=8\n#FP cores 1", "1:27", 0, "beside the service cores it has 7"),
    ("#FP store size=-1", "1:11", 1, "not a size"),
    ("#FP store size=32gib", "1:11", 1, "unknown unit"),
    ("#FP store size=1GiB,", "1:11", 1, "unknown unit"),
    ("#FP store size", "1:11", 1, "write size=VALUE"),
    ("#FP store --size=1GiB", "1:11", 1, "did you mean 'size'?"),
    ("#FP store ready=5", "1:11", 1, "500ms, 2s, 1h"),
    ("#FP store chunk-size=96KiB", "1:11", 1, "a power of two"),
    ("#FP store on-failure=kepp", "1:11", 1, "did you mean 'keep'?"),
    ("#FP store size=1GiB close=behnd", "1:21", 1, "must be publish, sync or behind: did you mean 'behind'?"),
    ("#FP store colse=sync", "1:11", 1, "did you mean 'close'?"),
    ("#FP store mount=mnt", "1:11", 1, "from / on"),
    ("#FP store mount=/", "1:11", 1, "a directory below /"),
    ("#FP store ssd=~/x", "1:11", 1, "write $HOME"),
    ("#FP store ssd=/x/${USER", "1:11", 1, "begins no variable"),
    ('#FP store ssd="/x', "1:15", 1, "this quote is not closed"),
    ("#FP cores -1", "1:11", 1, "write 1, or 1-3"),
    ("#FP cores 3-1", "1:11", 1, "write 1, or 1-3"),
    ("#FP store mount=/", "1:11", 1, "a directory below / is needed"),
    ("#FP store mount=/usr/local", "1:11", 1, "which the store would hide"),
    ("#FP store mount=/tmp/", "1:11", 1, "which the store would hide"),
    ("#FP store mount=$HOME", "1:11", 1, "hide your home directory"),
    ("#SBATCH --time=1:00:00\n#FP store reserve=2h", "2:19", 1, "60 min in all (--time), which leaves none"),
    ("#FP cores share=0%", "1:11", 1, "from 1% to 50%"),
    ("#FP cores share=100%", "1:11", 1, "from 1% to 50%"),
    ("#FP cores 8", "1:11", 1, "leave none for the application"),
    ("#FP cores list=8", "1:11", 1, "there is no CPU 8"),
    ("#FP cores list=0-7", "1:11", 1, "leave none for the application"),
    ("#FP auxapp encrypt\n#FP auxapp dedup", "2:12", 1, "declare it before"),
    ("#FP auxapp dedup hsh=sha1", "1:18", 1, "did you mean 'hash'?"),
    ("#FP auxapp dedupe", "1:12", 1, "did you mean 'dedup'?"),
    ("#FP auxapp HERE/file", "1:12", 1, "file too short"),
    ("#FP auxapp PROBES/stillborn.so", "1:12", 1, "its plugin crashed"),
    ("#FP auxapp ./none.so", "1:12", 1, "No such file"),
    ("#FP auxapp drain to=HERE/file", "1:21", 1, "is no directory"),
    ("#FP auxapp drain to=HERE evry=4", "1:%d", 1, "did you mean 'every'?"),
    ("#FP auxapp drain to=HERE\n#FP stage-out x to=HERE/in/it", "2:20", 1, "lie one in the other"),
    ("#FP stage-in HERE/*.none", "1:14", 1, "there is no "),
    ("#FP stage-in in.h5", "1:14", 1, "from / on"),
    ("#FP stage-in HERE/file HERE/in/file", "1:%d", 1, "would have the same name in the store"),
    ("#FP stage-in HERE/file HERE/file", "1:%d", 1, "is named twice"),
    ("#FP store\nsrun ./app", "1:5", 0, "no command of the script is fp-job"),
    ("#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N1\n#FP store\nfp-job run -- srun ./app", "2:1", 1, "on the nodes of the first one alone"),
    ("#FP store\nfp-job start || exit 1\nsrun ./app\nfp-job stop", "2:1", 0, "which does not read it here"),
    ("#FP store\nsrun -l fp-job run -- ./app", "2:9", 0, "write fp-job run -- srun ./app"),
    ('#FP auxapp drain to=HERE\neval "$(fp-job start || echo false)" || exit 1\nsrun ./app', "2:9", 0, "no fp-job stop follows"),
    ("#FP store\nfp-job run -- srun ./app $FP_MOUNT/run", "2:26", 1, "in single quotes, or use fp-job start"),
    ("#FP stage-in HERE/file to=../x", "1:%d", 1, "relative to its top"),
    ("#FP stage-out ../x to=HERE", "1:15", 1, "relative to its top"),
    ("#FP stage-out x", "1:5", 1, "where to"),
    ("#FP stage-out x on=ok to=HERE", "1:17", 1, "success, failure or always"),
    *[(f"#FP auxapp convert from=npy pattern={pattern} {more}".rstrip(), "1:%d" if more else "1:29", 1, part) for pattern, more, part in (
        ("a/*.npy", "into=../x", "a directory of the store"), ("a/*.npy", "into=/x", "a directory of the store"), ("a/../*.npy", "", "two slashes"), ("a//*.npy", "", "two slashes"), ("", "", "does not say which files"),
        ("a/*.npy", "compress=gzip", "--compress 'gzip': it is none, deflate"), ("a/*.npy", "compress=zstd:99", "zstd:1 to zstd:19"), ("a/*.npy", "chunk=0x4", "64x64x64"),
        ("a/*.npy", "to=netcdf3 compress=zstd", "compress= is for to=hdf5 and to=netcdf"), ("a/*.npy", "xdmf=on join=vds", "does not go with join=vds"))],
    ("#FP auxapp convert from=hdf5 pattern=a/*.h5 into=b keep=none", "1:%d", 1, "keep=none is not for from=hdf5"),
]


def test_what_users_write(folder):
    with open(os.path.join(folder, "file"), "w") as f:
        f.write("no plugin\n")
    probes = os.path.join(os.path.dirname(bin_path("fp-job")), "..", "tests", "plugins")
    wrong = []
    for text, place, error, part in MISTAKES:
        if "PROBES" in text and not os.path.isdir(probes):
            continue
        text = text.replace("HERE", folder).replace("PROBES", probes) + "\n"
        if "%d" in place:
            place %= len(text.rsplit(" ", 1)[0]) + 2
        script = os.path.join(folder, "job.sh")
        with open(script, "w", newline="", encoding="utf-8") as f:
            f.write(text)
        r = job("check", script, "--node-cores=8")
        line = f"{script}:{place}: {'error' if error else 'warning'}: "
        if r.returncode != error or r.stderr or not any(x.startswith(line) and part in x for x in r.stdout.splitlines()):
            wrong.append((text[:200], place, part, r.returncode, r.stdout + r.stderr))
    assert not wrong, "\n".join(map(str, wrong))


def test_variables_of_convert_have_their_values_on_the_nodes(folder):
    script = os.path.join(folder, "job.sh")
    with open(script, "w") as f:
        f.write("#FP auxapp convert from=npy pattern=a/*.npy compress=$CODEC chunk=$SHAPE into=$OUT\n")
    r = job("check", script, "--node-cores=8")
    assert r.returncode == 0, r.stdout + r.stderr


def test_explain_says_where_results_go(folder):
    """Also where the line leaves it to the drain."""
    script = os.path.join(folder, "job.sh")
    with open(script, "w") as f:
        f.write("#FP auxapp drain to=/lustre/run every=2\n#FP stage-out a b\n#FP stage-out c to=/lustre/other on=success\n")
    r = job("explain", script, "--node-cores=8")
    assert r.returncode == 0 and " a b to /lustre/run, however the application ends\n" in r.stdout and " c to /lustre/other, if the application ends with 0\n" in r.stdout, r.stdout + r.stderr


def test_explain_says_what_close_waits_for(folder):
    """Where the script says it: else it may be in the environment of the job."""
    script = os.path.join(folder, "job.sh")
    for words, line in (("close=behind", "for nothing: what was closed is lost with its node, until it is stored"), ("close=sync", "until the data is on the SSD"),
                        ("close=publish", "until other nodes can see the data"), ("", None)):
        with open(script, "w") as f:
            f.write(f"#FP store {words}\nfp-job run -- srun ./app\n")
        r = job("explain", script, "--node-cores=8")
        assert r.returncode == 0 and re.findall(r"^  close waits  (.*)$", r.stdout, re.M) == ([line] if line else []), r.stdout + r.stderr


def test_words_in_the_manual_are_as_they_are_written():
    """Without dashes, which are of options."""
    r = job("--print-man-commands")
    assert r.returncode == 0 and "\\fBrequired\\fR=\\fIon|off" in r.stdout and "\\-\\-required" not in r.stdout and "\\-\\-optional" not in r.stdout, r.stdout


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


def test_nodes_of_a_list_are_counted(folder):
    """As fp-job run will be told them, outside of Slurm: a node that is there twice is one."""
    script = os.path.join(folder, "job.sh")
    with open(script, "w") as f:
        f.write("#!/bin/bash\n#FP store\n#FP auxapp checksum nodes=3\nfp-job run -- ./app\n")
    with open(os.path.join(folder, "hosts"), "w") as f:
        f.write("".join(f"n{i} slots=4\n" for i in (1, 2, 1)))
    for hosts in ("a,b", f"@{folder}/hosts"):
        r = job("check", script, f"--hosts={hosts}")
        assert r.returncode == 1 and "to run on 3 nodes, and the job has 2" in r.stdout, r.stdout
    assert "on 3 nodes, and the job has 2: see fp-job check" in job("explain", script, "--hosts=a,b").stdout
    assert "and the job has" not in job("check", script, "--hosts=a,b,c").stdout
    assert "and the job has" not in job("check", script, "--hosts=a:4,b:4,c:4", "--nodes=3").stdout


def test_what_nodes_are_meant_is_a_mistake_in_the_call(folder):
    """Before anything is begun: neither of two options that contradict each other counts more, and no node is left out of a list without a word."""
    script, ran = os.path.join(folder, "job.sh"), os.path.join(folder, "ran")
    with open(script, "w") as f:
        f.write("#!/bin/bash\n#FP store required=off\nfp-job run -- ./app\n")
    for words, want in ((["--hosts=a,b,c", "--nodes=4"], "--nodes=4, but --hosts names 3 nodes"), (["--hosts=a,,b"], "--hosts: there is no name before a comma"),
                        (["--hosts=a,b,"], "there is no name behind the last comma"), (["--hosts=a:ssh"], "'a:ssh' has no number of slots"),
                        (["--hosts="], "--hosts: there is no name of a node"), ([f"--hosts=@{folder}/none"], f"--hosts: {folder}/none: ")):
        for command, more in (("check", []), ("explain", []), ("start", []), ("run", ["--", "touch", ran])):
            r = job(command, script, *words, *more)
            assert r.returncode == 2 and want in r.stderr and len(r.stderr.splitlines()) == 1, (command, words, r.stderr)
            assert r.stdout == ("false\n" if command == "start" else ""), r.stdout
    for command, more in (("start", []), ("run", ["--", "touch", ran])):
        r = job(command, script, "--nodes=3", *more)
        assert r.returncode == 2 and "--nodes is for check and explain" in r.stderr, r.stderr
    for command in ("doctor", "clean"):
        r = job(command, "--hosts=a,b")
        assert r.returncode == 2 and "--hosts is for check, explain, start and run" in r.stderr, r.stderr
    assert not os.path.exists(ran)
