"""The SPANK plugin, as it is installed by the lines of fp-job(1), with a real Slurm: batch scripts without a word of fp-job in them."""

import os
import re
import signal
import subprocess

import pytest

from harness import threads
from harness.daemons import SLOW, wait_until

SLURM = {"nodes": 2, "cpus": 2, "extra": "PrologFlags=Alloc\nAllowSpecResourcesUsage=yes"}
TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
HEAD = "#!/bin/bash\n#SBATCH -N 2 --exclusive\n"
STORE = "#FP store size=256MiB pool=64MiB\n"
REFUSED = "sbatch: error: fpstore: this job can't be as it is declared: it is not submitted\n"


def lines_of_the_manual():
    with open(os.path.join(TOP, "docs/man/fp-job.1.in")) as f:
        text = f.read()
    return re.search(r"\.SS Installation.*?\.EX\n(.*?)\.EE", text, re.S)[1].splitlines()


@pytest.fixture(scope="module")
def cluster(slurm):
    """As an administrator has it after these lines."""
    lines = lines_of_the_manual()
    assert 0 < len(lines) <= 5
    slurm.machine()
    places = [f"{name}={os.path.relpath(os.environ[var], TOP)}" for name, var in (("B", "FP_BUILD"), ("DEPS", "FP_DEPS")) if var in os.environ]
    for line in lines:
        if line == "make install":
            r = subprocess.run([*line.split(), "-C", TOP, f"DESTDIR={slurm.dir}/root", *places], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW)
            assert r.returncode == 0, r.stdout[-2000:] + r.stderr[-2000:]
        elif line.startswith("systemctl"):
            for i in range(1, slurm.count + 1):
                slurm.on(i, "env", "PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", line, user="root")
        else:
            slurm.on(0, "sh", "-c", line, user="root")
    slurm.wait_nodes()
    return slurm


def submit(cluster, *args, script="job.sh"):
    return cluster.login("sbatch", "--parsable", "--output=job-%j.out", *args, script, check=False)


def test_a_script_finds_its_store(cluster):
    code, out = cluster.run(HEAD + "#SBATCH --fp\n" + STORE + """#FP auxapp drain to=/lustre/spank
echo "mounted on $FP_MOUNT"
srun sh -c 'hostname > $FP_MOUNT/$(hostname)'
ls $FP_MOUNT | wc -l
exit 3
""")
    assert code == 3 and "mounted on /AggregateSSDstore\n2\n" in out and "ERROR" not in out, out
    cluster.nothing_left()
    for name in cluster.names[1:]:
        assert cluster.login("cat", f"/lustre/spank/{name}").stdout == name + "\n"


def test_words_of_the_script_s_call_are_its_own(cluster):
    cluster.write("job.sh", HEAD + STORE + 'printf "<%s>" "$@"\n')
    r = cluster.login("sbatch", "--parsable", "--output=job-%j.out", "--fp", "job.sh", "--fp", "a b", "")
    code, out = cluster.end_of(int(r.stdout))
    assert code == 0 and "<--fp><a b><>" in out, out
    cluster.write("job.sh", HEAD + STORE + 'echo "$# words, ${!#}"\n')
    r = cluster.login("sbatch", "--parsable", "--output=job-%j.out", "--fp", "job.sh", *map(str, range(6000)))
    code, out = cluster.end_of(int(r.stdout))
    assert code == 0 and "6000 words, 5999\n" in out, out


def test_tasks_see_a_store_in_a_user_namespace(cluster):
    """Without fusermount3 the plugin takes tasks there, which know nothing of it."""
    every = range(1, cluster.count + 1)
    cluster.take_fusermount3(*every)
    try:
        code, out = cluster.run("#!/bin/bash\n#SBATCH -N 2 --exclusive\n#SBATCH --fp\n#FP store size=128MiB pool=64MiB\n#FP stage-out * to=/lustre/inside\ncd /tmp\n"
                                "srun -N2 sh -c 'hostname > $FP_MOUNT/$(hostname); ls -d /AggregateSSDstore/*; echo dir $PWD'\n")
    finally:
        cluster.give_fusermount3(*every)
    assert code == 0 and out.count("dir /tmp\n") == 2 and "FP_ENTER" not in out, out
    assert len(cluster.login("ls", "/lustre/inside").stdout.split()) == 2, out
    cluster.nothing_left()


def test_a_script_with_fp_job_in_it_uses_the_store_that_it_has(cluster):
    """One store, whatever the script calls; what is declared is brought out once, when the script has ended. A second start says the variables once more."""
    said = "the store that sbatch was told of (--fp) "
    code, out = cluster.run(HEAD + "#SBATCH --fp\n" + STORE + """#FP cores 1
#FP auxapp drain to=/lustre/both
#FP stage-out f to=/lustre/both-out
echo first > $FP_MOUNT/f
fp-job run -- srun -n2 -N2 sh -c 'cat $FP_MOUNT/f; exit 6'; echo run $?
bash -c 'unset FP_MOUNT FP_JOB; eval "$(fp-job start || echo false)" || exit 9; echo $$ $FP_JOB at $FP_MOUNT; cat $FP_MOUNT/f; fp-job stop --exit-code=5'; echo stop $?
fp-job run job.sh -- sh -c 'kill -USR1 $$'; echo signal $?
fp-job stop || echo STOPPED
mountpoint -q $FP_MOUNT && echo last > $FP_MOUNT/f
fp-job status | head -n1
exit 7
""")
    assert code == 7 and "ERROR" not in out and "STOPPED" not in out, out
    assert out.count("\nfirst\n") + out.count("\nfirst\nfirst\n") >= 2 and "run 6\n" in out and "stop 5\n" in out and "signal 138\n" in out, out
    assert out.count(said + "is used, mounted on /AggregateSSDstore; it ends with the batch script") == 3 and out.count(said + "ends with the batch script") == 2, out
    assert re.search(r"^\d+ \d+ at /AggregateSSDstore$", out, re.M) and "2 of 2 nodes ready" in out, out
    assert out.count("has ended\n") == 1 and out.count("2 nodes, mounted") == 1, out
    for there in ("both", "both-out"):
        assert cluster.login("cat", f"/lustre/{there}/f").stdout == "last\n"
    cluster.nothing_left()


MARKS = ("HUP", "INT", "QUIT", "ALRM", "USR1", "USR2", "URG", "CONT", "XCPU", "40")
HEARS = """import os, signal, sys
def heard(sig, frame):
    print("heard", sig, flush=True)
for sig in map(int, sys.argv[1:]):
    signal.signal(sig, heard)
signal.signal(signal.SIGTERM, lambda *a: sys.exit(9))
open("up", "w").close()
while True:
    signal.pause()
"""


def test_signals_to_the_batch_script_are_for_the_script(cluster):
    """All that scancel -b and sbatch --signal=B: take. The process that Slurm sends them to is fp-job run, and it ends by none."""
    numbers = [int(s) if s.isdigit() else int(signal.Signals["SIG" + s]) for s in MARKS]
    cluster.write("hears.py", HEARS)
    number = cluster.up(HEAD + "#SBATCH --fp\n" + STORE + "exec python3 hears.py " + " ".join(map(str, numbers)) + "\n")
    for name, n in zip(MARKS, numbers):
        cluster.login("scancel", "-b", "-s", name, str(number))
        wait_until(lambda: f"{name} to be heard: {cluster.output(number)}", 60, lambda: f"heard {n}\n" in cluster.output(number), 0.05)
    cluster.login("scancel", "-b", "-s", "TERM", str(number))
    code, out = cluster.end_of(number)
    assert code == 9 and out.count("heard ") == len(MARKS) and "ERROR" not in out, out
    cluster.nothing_left()


def test_without_an_option_a_job_has_no_store(cluster):
    code, out = cluster.run(HEAD + STORE + 'echo "mount $FP_MOUNT."; ls -d /tmp/fpstore-* | wc -l\n')
    assert code == 0 and "mount .\n" in out and out.endswith("\n0\n"), out


def test_service_cores_of_options(cluster):
    """Tasks are kept off them in each step, also where the environment of the job is not theirs, and nothing can be executed in /tmp."""
    for i in range(1, cluster.count + 1):
        cluster.on(i, "mount", "-o", "remount,noexec", "/tmp", user="root")
    cluster.write("threads.py", threads.SCRIPT)
    for step in ("srun --export=NONE", "srun --export=NONE --cpu-bind=none", "srun --cpu-bind=mask_cpu:0x3"):
        code, out = cluster.run(HEAD + f'#SBATCH --fp-cores=1 --fp-store="size=256MiB pool=64MiB" --fp-auxapps="dedup hash=xxh3,compress"\n{step} /usr/bin/python3 threads.py\n')
        seen = threads.seen(out)
        assert code == 0 and threads.SERVICES <= {name for name, _ in seen}, out
        assert {cpus for name, cpus in seen if name in threads.SERVICES} == {"1"}, f"{step}: {seen}"
        assert {cpus for name, cpus in seen if "python" in name} == {"0"}, f"{step}: {seen}"
    cluster.nothing_left()


def test_cores_that_slurm_leaves_out_of_the_job(cluster):
    """--core-spec: the kernel keeps the application off the service cores, and services run there all the same."""
    cluster.write("threads.py", threads.SCRIPT)
    enforced = "ConstrainCores=yes" in cluster.read_etc("cgroup.conf")
    for more in ("--fp --core-spec=1", "--fp-cores=1 -S 1"):
        code, out = cluster.run(HEAD + f"#SBATCH {more}\n{STORE}" + """#FP auxapp dedup hash=xxh3
srun sh -c 'hostname > $FP_MOUNT/$(hostname); taskset -c 1 true && echo UNBOUND'
srun -N2 /usr/bin/python3 threads.py
ls $FP_MOUNT
exit 4
""")
        seen = threads.seen(out)
        assert code == 4 and threads.SERVICES <= {name for name, _ in seen} and cluster.names[1] + "\n" + cluster.names[2] in out, out
        assert {cpus for name, cpus in seen if name in threads.SERVICES} == {"1"}, f"{more}: {seen}"
        assert {cpus for name, cpus in seen if "python" in name} == {"0"}, f"{more}: {seen}"
        assert not enforced or "UNBOUND" not in out, out
        cluster.nothing_left()
    assert cluster.login("sinfo", "-h", "-o", "%T").stdout.split() == ["idle"]


HELPERS = "ls -d /run/fpstore/*.$SLURM_JOB_ID /tmp/fpstore-*-$SLURM_JOB_ID/outside.pid 2>/dev/null\n"


def test_core_spec_makes_the_node_the_job_s(cluster):
    """Without a word of --exclusive: this is what running outside of the cpuset depends on."""
    code, out = cluster.run(f"#!/bin/bash\n#SBATCH -n 1 --fp --core-spec=1\n{STORE}{HELPERS}exit 3\n")
    assert code == 3 and "/run/fpstore/" in out and "/outside.pid\n" in out, out
    cluster.nothing_left()


@pytest.mark.parametrize("words", [("-J", "-S1"), ("--comment", "--core-spec=1")])
def test_words_like_core_spec_give_no_core_of_another_job(cluster, words):
    """fp-job check takes them for --core-spec, and root asks Slurm: the job has one CPU of a node that others are on."""
    cluster.write("job.sh", f"#!/bin/bash\n#SBATCH -n 1\n{STORE}{HELPERS}echo x > $FP_MOUNT/f && exit 3\n")
    number = cluster.sbatch("job.sh", "--fp", *words)
    code, out = cluster.end_of(number)
    assert code == 3 and "/run/fpstore/" not in out and "outside.pid" not in out, out
    assert f"job {number}: Slurm leaves no cores out of it: services run on cores of the job" in cluster.logs(400)
    cluster.nothing_left()


def test_core_spec_where_the_site_does_not_allow_it(cluster):
    """Slurm drops it with a warning, and the job shares its node."""
    conf = cluster.read_etc("slurm.conf")
    try:
        cluster.reconfigure(conf.replace("AllowSpecResourcesUsage=yes", "AllowSpecResourcesUsage=no"))
        code, out = cluster.run(f"#!/bin/bash\n#SBATCH -n 1 --fp --core-spec=1\n{STORE}{HELPERS}echo x > $FP_MOUNT/f && exit 3\n")
    finally:
        cluster.reconfigure(conf)
    assert code == 3 and "/run/fpstore/" not in out and "outside.pid" not in out, out
    cluster.nothing_left()


def test_more_service_cores_than_are_left_out(cluster):
    cluster.write("job.sh", HEAD + "#SBATCH --fp-cores=3 --core-spec=2\n")
    r = submit(cluster)
    assert r.returncode == 1 and "--fp-cores: error: 3 service cores, and --core-spec=2 leaves out fewer of each node" in r.stderr, r.stderr


BAD = HEAD + "#FP store size=32G\n#FP cores 1\n"


def test_what_check_refuses_is_not_submitted(cluster):
    cluster.write("bad.sh", BAD)
    said = cluster.login("fp-job", "check", "bad.sh", check=False).stdout
    assert "bad.sh:3:11: error: " in said
    r = submit(cluster, "--fp", script="bad.sh")
    assert r.returncode == 1 and r.stdout == "" and r.stderr == said + REFUSED, r.stderr
    cluster.write("job.sh", HEAD + "#SBATCH --fp-cores=2-1 --fp-auxapps=dedup,compres\n#FP auxapp dedup\n")
    r = submit(cluster)
    assert r.returncode == 1 and r.stderr == (
        "job.sh:4:12: error: 'dedup' is declared in --fp-auxapps already\n"
        "--fp-cores: error: '2-1' is no number of cores: write 1, or 1-3 for one to three (at most 1024)\n"
        "--fp-auxapps: error: there is no aux-app 'compres' in /usr/local/bin/../lib/fpstore/auxapps: did you mean 'compress'?\n" + REFUSED), r.stderr
    assert cluster.login("squeue", "-h").stdout == ""


@pytest.mark.parametrize("call, first", [
    ("sbatch --fp < bad.sh", "/dev/stdin:3:11: error: size '32G'"),
    ("cat bad.sh | sbatch --fp-cores=0", "--fp-cores: error: '0' is no number"),
    ("sbatch --fp-cores=2 --wrap=true", "--fp-cores: error: 2 service cores leave none for the application: a node of the job has 2"),
    ("PATH=$PATH:/home/ada; cd /; sbatch --fp bad.sh", "/home/ada/bad.sh:3:11: error: size '32G'"),
    ("sbatch --fp-auxapps='dedup nodes=3' -N 1-2 -J x good.sh", "--fp-auxapps: error: dedup is to run on 3 nodes, and the job has 1"),
    ("sbatch --fp-auxapps='dedup \"a,b\"' good.sh", "--fp-auxapps: error: dedup"),
    ("salloc --fp-store=size=1 true", "--fp-store: error: size '1'"),
    ("salloc --fp true", "salloc: error: fpstore: --fp is for batch jobs"),
    ("srun --fp-cores=x true", "--fp-cores: error: 'x' is no number"),
    ("srun --fp true", "srun: error: fpstore: --fp is for batch jobs"),
])
def test_wherever_it_is_said(cluster, call, first):
    cluster.write("bad.sh", BAD)
    cluster.write("good.sh", HEAD)
    r = cluster.login("bash", "-c", call, check=False)
    assert r.returncode == 1 and r.stdout == "" and r.stderr.startswith(first), r.stderr
    assert cluster.login("squeue", "-h").stdout == ""


def test_a_script_by_a_pipe_is_looked_at_when_the_job_begins(cluster):
    cluster.write("bad.sh", BAD)
    r = cluster.login("sh", "-c", "cat bad.sh | sbatch --parsable --output=job-%j.out --fp")
    code, out = cluster.end_of(int(r.stdout))
    assert code == 1 and "ERROR: the batch script:3:11: size '32G'" in out, out
    cluster.nothing_left()


def test_a_store_that_cannot_be(cluster):
    """More than is there: the job ends before its script begins, or goes on without, as declared."""
    code, out = cluster.run(HEAD + "#SBATCH --fp\n#FP store size=4TiB\necho ran\nexit 3\n")
    assert code == 1 and "are wanted" in out and "ran\n" not in out, out
    code, out = cluster.run(HEAD + '#SBATCH --fp\n#FP store size=4TiB required=off\necho "ran with $FP_MOUNT."\nexit 3\n')
    assert code == 3 and "are wanted" in out and "goes on without a store" in out and "ran with .\n" in out, out
    cluster.nothing_left()


def test_fp_job_start_of_a_store_that_is_not_required(cluster):
    code, out = cluster.run(HEAD + '#FP store size=4TiB required=off\neval "$(fp-job start)" || exit 9\necho "ran with $FP_MOUNT."\nfp-job stop --exit-code=4\n')
    assert code == 4 and "goes on without a store" in out and "ran with .\n" in out, out
    cluster.nothing_left()


def test_a_store_is_ended_though_another_job_had_none(cluster):
    """What says so comes with the environment of who submits, or of a start before this one that failed."""
    begin = 'export FP_NO_STORE=1\neval "$(fp-job start || echo false)" || exit 9\necho "has ${FP_NO_STORE-one}"\necho x > $FP_MOUNT/f\n'
    code, out = cluster.run(HEAD + STORE + begin + "export FP_NO_STORE=1\nfp-job stop || exit 8\nmountpoint -q $FP_MOUNT && exit 7\nexit 3\n")
    assert code == 3 and "has one\n" in out, out
    cluster.nothing_left()


def test_a_job_that_submits_another_one_does_not_give_it_its_options(cluster):
    """Nor variables of its store, with or without a store of its own: sbatch leaves them out."""
    show = "env | grep -E '^(FP_|HWLOC_|SLURM_TASK_PROLOG|OMPI_|PRTE_)' | sed 's/=.*//' | sort\nsrun -N1 -n1 echo task\n"
    for options, want in (("", "task\n"), ("#SBATCH --fp\n", "FP_JOB\nFP_MOUNT\ntask\n")):
        cluster.write("second.sh", f"#!/bin/bash\n#SBATCH -N 1\n{options}{STORE}{show}")
        code, out = cluster.run(HEAD + "#SBATCH --fp-cores=1 --fp\n" + STORE + "sbatch --parsable --output=job-%j.out second.sh\n" + show)
        assert code == 0 and "FP_JOB\nFP_MOUNT\nHWLOC_THISSYSTEM\nHWLOC_XMLFILE\nPRTE_MCA_hwloc_default_binding_policy\nSLURM_TASK_PROLOG\ntask\n" in out, out
        number = int(re.search(r"^(\d+)$", out, re.M)[1])
        code, out = cluster.end_of(number)
        assert code == 0 and "".join(line for line in out.splitlines(True) if "INFO" not in line and "has ended" not in line) == want, out
    cluster.nothing_left()


def test_the_rest_is_built_without_slurm_s_headers(tmp_path):
    """They are not found where the compiler looks nowhere."""
    r = subprocess.run(["make", "-n", "-C", TOP, f"B={tmp_path}/b", "SLURM_CFLAGS=-nostdinc", "spank"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW)
    assert r.returncode == 0 and "spank_fp" not in r.stdout, r.stdout + r.stderr
