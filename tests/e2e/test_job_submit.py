"""#FP lines checked by Slurm's controller at submit (jobscripts/slurm/burst_buffer.lua), by sbatch of a real Slurm."""

import contextlib
import os
import re
import time

from harness.daemons import SLOW

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
with open(os.path.join(TOP, "jobscripts", "slurm", "burst_buffer.lua")) as f:
    SCRIPT = f.read().replace('FP_JOB = "fp-job"', 'FP_JOB = "/opt/fpstore/bin/fp-job"')  # as make install does
with open(os.path.join(TOP, "docs", "man", "fp-job.1.in")) as f:
    LINES = {name: line for line, name in re.findall(r"^echo '(.*)' >+ /etc/slurm/(\S+)$", f.read(), re.M)}  # what administrators are told
SLURM = {"nodes": 2, "cpus": 2, "extra": LINES["slurm.conf"], "files": {"burst_buffer.conf": LINES["burst_buffer.conf"] + "\n", "burst_buffer.lua": SCRIPT}}
REFUSED = "the #FP lines of the script have mistakes (line:column):"


def submit(slurm, text, *args):
    slurm.write("job.sh", text)
    return slurm.login("sbatch", "--parsable", "--output=job-%j.out", *args, "job.sh", check=False)


def log(slurm):
    with open(os.path.join(slurm.dir, "log", "slurmctld.log"), errors="replace") as f:
        return f.read()


@contextlib.contextmanager
def another_fp_job(slurm, text):
    """The controller finds this in its place."""
    with open(slurm.home("other"), "w") as f:
        f.write(text)
    os.chmod(slurm.home("other"), 0o755)
    slurm.login("mount", "--bind", "/home/ada/other", "/opt/fpstore/bin/fp-job", user="root")
    try:
        yield
    finally:
        slurm.login("umount", "/opt/fpstore/bin/fp-job", user="root")


def test_mistakes_are_said_by_sbatch(slurm):
    r = submit(slurm, "#!/bin/bash\n#SBATCH -N 2\n#FP store size=32G\n#FP cores 1\n#FP auxapp dedup hash=sha9\ntrue\n")
    assert r.returncode == 1 and r.stdout == "", r.stdout
    assert REFUSED in r.stderr, r.stderr
    assert "3:11: error: size '32G'" in r.stderr and "5:18: error: dedup: hash=sha9: did you mean 'sha1'?" in r.stderr, r.stderr
    assert "job.sh" not in r.stderr and slurm.login("squeue", "-h").stdout == ""


def test_good_scripts_run(slurm):
    for text in ("#FP store size=64MiB\n#FP cores 1\n#FP auxapp drain to=/lustre/of/users\n#FP auxapp ./mine.so level=3\n#FP stage-in /lustre/no/such to=in\n", "#FPstore is no such line\n", ""):
        r = submit(slurm, "#!/bin/bash\n" + text + "echo ran\n")
        assert r.returncode == 0, r.stderr
        code, out = slurm.end_of(int(r.stdout))
        assert (code, out) == (0, "ran\n")
    assert not re.search(r"not checked at submit|problem parsing|Problem parsing", log(slurm))


def test_a_job_with_a_store_runs_as_without(slurm):
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 2 --exclusive\n#FP store size=128MiB pool=64MiB\nfp-job run -- sh -c 'echo data > $FP_MOUNT/f; cat $FP_MOUNT/f'\nexit 5\n")
    assert code == 5 and "data\n" in out, out
    slurm.nothing_left()


def test_plugins_of_users_are_not_loaded(slurm):
    """By the controller, which is root here; their files are not looked for either."""
    slurm.write("mine.so", "no plugin")
    r = submit(slurm, "#!/bin/bash\n#FP store size=32G\n#FP auxapp /home/ada/mine.so\n#FP auxapp drain to=/no/such/place\n")
    assert r.returncode == 1 and re.findall(r"(\d+:\d+): error: ", r.stderr) == ["2:11"], r.stderr
    r = slurm.login("fp-job", "check", "job.sh", check=False)
    assert r.stdout.count(": error: ") == 3, r.stdout


def test_nothing_that_ails_fp_job_holds_a_job_back(slurm):
    """It hangs, it crashes, it can't be executed, it says something else: the job comes in, and the log of the controller says it."""
    for text, code in (("#!/bin/sh\nexec sleep 600\n", 137), ("#!/bin/sh\nkill -SEGV $$\n", 139), ("", 127), ("#!/bin/sh\necho no lines with mistakes; exit 1\n", 1)):
        with another_fp_job(slurm, text or "#!/no/such/program\n"):
            before, began = len(log(slurm)), time.monotonic()
            r = submit(slurm, "#!/bin/bash\n#FP store size=32G\necho ran\n")
            assert time.monotonic() - began < 30 * SLOW
        assert r.returncode == 0, r.stderr
        assert slurm.end_of(int(r.stdout)) == (0, "ran\n")
        assert f"fp-job check ended with {code}: #FP lines are not checked at submit" in log(slurm)[before:]
