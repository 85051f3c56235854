"""fp-job where there is a Slurm: a real one, of four nodes (tests/harness/slurm.py)."""

import json
import os
import re
import subprocess

import pytest

from harness import threads

SLURM = {"nodes": 4, "cpus": 2}
TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def test_nodes_are_machines_of_their_own(slurm):
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 4\nsrun sh -c 'hostname > /srv/name; hostname; ls /srv; cat /srv/name'\nid -un\n")
    assert code == 0
    for name in slurm.names[1:]:
        assert out.count(name) == 2, out
    assert out.splitlines()[-1] == "ada"
    assert slurm.left_over(1) == ["file /srv/name"]
    slurm.login("srun", "-N4", "rm", "/srv/name")
    slurm.nothing_left()


def test_check_knows_the_nodes_of_the_partition(slurm):
    slurm.write("job.sh", "#!/bin/bash\n#SBATCH -N 4 -p main\n#FP cores 2\n")
    r = slurm.login("fp-job", "check", "job.sh", check=False)
    assert r.returncode == 1
    assert r.stdout == "job.sh:3:11: error: 2 service cores leave none for the application: a node of the job has 2\n"
    slurm.write("job.sh", "#!/bin/bash\n#SBATCH -N 4 -p main\n#FP cores 1\n")
    assert slurm.login("fp-job", "check", "job.sh").stdout == ""
    out = slurm.login("fp-job", "explain", "job.sh").stdout
    assert f"{slurm.names[1]}, 4 in all" in out and "FP(1,2)" in out


def test_in_a_job_check_and_explain_take_its_script(slurm):
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 1\n#FP store sise=1GiB\nfp-job check\necho code $?\n")
    assert code == 0 and re.search(r"^script of job \d+:3:11: error: .*did you mean 'size'\?\ncode 1$", out, re.M), out
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 1\n#FP store size=1GiB\nfp-job explain\n")
    assert code == 0 and re.search(r"^store +1 GiB ", out, re.M), out
    r = slurm.login("fp-job", "check", check=False)
    assert r.returncode == 2 and "which script?" in r.stderr, r


HEAD = "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n"


@pytest.mark.short
def test_a_store_is_up_on_all_nodes_from_start_to_stop(slurm):
    code, out = slurm.run(HEAD + """
eval "$(fp-job start)" || exit 1
srun sh -c 'hostname > $FP_MOUNT/$(hostname)'
srun sh -c 'ls $FP_MOUNT | wc -l'
fp-job status
fp-job stop
""")
    assert code == 0, out
    assert out.splitlines().count("4") == 4, out
    assert "4 of 4 nodes ready, mounted on /AggregateSSDstore" in out
    assert "ERROR" not in out and "WARN" not in out, out
    slurm.nothing_left()


def test_a_job_that_takes_no_environment_along(slurm):
    """Its steps neither, by Slurm's rule; agents have what the script has, for the paths of directives. What one of them was told names no node: Slurm does."""
    code, out = slurm.run(HEAD.replace("#FP store", "#SBATCH --export=NONE\n#FP store ssd=$WHERE") + """
export PATH=/opt/fpstore/bin:/usr/bin:/bin WHERE=/srv/here SLURM_LABELIO=1 SLURM_THREADS_PER_CORE=1
srun -l --export=ALL mkdir /srv/here
fp-job run -- srun --export=ALL sh -c 'ls -d /srv/here/*; ls $FP_MOUNT > /dev/null && hostname'
srun --export=ALL sh -c 'rmdir /srv/here'
""")
    assert code == 0 and out.count(": /srv/here/fpstore-") == 4, out
    assert all(f": {name}\n" in out for name in slurm.names[1:]), out
    slurm.nothing_left()


def test_a_tmp_that_nothing_can_be_executed_in(slurm):
    """Tasks are kept off the service cores all the same."""
    for how in ("noexec", "exec"):
        for i in range(1, 5):
            slurm.on(i, "mount", "-o", f"remount,{how}", "/tmp", user="root")
        if how == "noexec":
            code, out = slurm.run(HEAD + "#FP cores 1\nfp-job run -- srun -N4 -n8 --cpu-bind=none grep Cpus_allowed_list /proc/self/status\n")
    assert code == 0 and out.count("Cpus_allowed_list:\t0\n") == 8, out
    slurm.nothing_left()


@pytest.mark.short
def test_run_ends_as_the_application_does(slurm):
    for end, want in (("true", 0), ("exit 7", 7)):
        code, out = slurm.run(HEAD + f"fp-job run -- srun -n1 -N1 sh -c 'echo $FP_MOUNT; echo x > $FP_MOUNT/f; {end}'\n")
        assert code == want, out
        assert "/AggregateSSDstore\n" in out
        slurm.nothing_left()


def test_what_cannot_be_started_is_no_store(slurm):
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 2\n#FP store size=32G\nfp-job run -- touch /srv/ran\nexit 9\n")
    assert code == 9 and "ERROR: the batch script:3:11: " in out, out
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 2\n#FP store size=4TiB\neval \"$(fp-job start)\" || exit 5\ntouch /srv/ran\n")
    assert code == 5 and f"{slurm.names[1][:-1]}[1-2] are not ready: " in out and "are wanted" in out, out
    slurm.nothing_left()


@pytest.mark.short
def test_all_is_drained_before_the_job_ends(slurm):
    code, out = slurm.run(HEAD + f"#FP auxapp drain to=/lustre/run\n" + """
eval "$(fp-job start)" || exit 1
srun sh -c 'mkdir -p $FP_MOUNT/out; head -c 3000000 /dev/urandom > $FP_MOUNT/out/$(hostname); sha1sum $FP_MOUNT/out/$(hostname) > /home/ada/sum.$(hostname)' || exit 1
fp-job stop
""")
    assert code == 0, out
    for name in slurm.names[1:]:
        want = slurm.read(f"sum.{name}").split()[0]
        assert slurm.login("sha1sum", f"/lustre/run/out/{name}").stdout.split()[0] == want
    slurm.nothing_left()


def test_what_every_does_not_choose_and_results_name(slurm):
    """Written last, when the newest checkpoint has long been in the target: what is declared is there when the job ends."""
    script = HEAD.replace("-N 4", "-N 2") + """#FP auxapp drain to=/lustre/chosen every=2 results=out/*.txt,"last one"
eval "$(fp-job start || echo false)" || exit 1
for i in 1 2 3; do
    mkdir $FP_MOUNT/chk_000$i && head -c 4000000 /dev/urandom > $FP_MOUNT/chk_000$i/rank_0 && touch $FP_MOUNT/chk_000$i/.complete
done
until ls /lustre/chosen/chk_000?/rank_0 > /dev/null 2>&1; do sleep 0.1; done
srun sh -c 'mkdir -p $FP_MOUNT/out/deep; echo sum of $(hostname) > $FP_MOUNT/out/$(hostname).txt; echo no > $FP_MOUNT/out/deep/x.txt'
echo last > "$FP_MOUNT/last one"
echo no > $FP_MOUNT/scratch
fp-job stop
"""
    code, out = slurm.run(script)
    assert code == 0, out
    for name in slurm.names[1:3]:
        with open(slurm.lustre("chosen", "out", f"{name}.txt")) as f:
            assert f.read() == f"sum of {name}\n"
    with open(slurm.lustre("chosen", "last one")) as f:
        assert f.read() == "last\n"
    assert not os.path.exists(slurm.lustre("chosen", "scratch")) and not os.path.exists(slurm.lustre("chosen", "out", "deep")), out
    assert os.path.exists(slurm.lustre("chosen", "chk_0003", "rank_0")), out
    slurm.nothing_left()


def test_what_every_has_chosen_and_could_not_be_drained(slurm):
    """A file of the target lies where the directory of a checkpoint is to be. It is tried once more at the end; what can't be drained then is missing, and a store that may be kept is."""
    script = HEAD.replace("-N 4", "-N 1").replace("pool=", "ssd=/srv on-failure=keep pool=") + """#FP auxapp drain to=/lustre/TO every=2
eval "$(fp-job start || echo false)" || exit 9
echo mine > /lustre/TO/chk_0002
for i in 1 2 3; do
    mkdir $FP_MOUNT/chk_000$i && echo $i > $FP_MOUNT/chk_000$i/rank_0 && fpctl checkpoint commit $FP_MOUNT/chk_000$i || exit 8
done
until fpctl drain show --json $FP_MOUNT | grep -q '"failed"'; do sleep 0.1; done
THEN
fp-job stop
"""
    code, out = slurm.run(script.replace("TO", "once").replace("THEN", "rm /lustre/once/chk_0002"))
    assert code == 0, out
    for i in (2, 3):
        with open(slurm.lustre("once", f"chk_000{i}", "rank_0")) as f:
            assert f.read() == f"{i}\n"
    assert not os.path.exists(slurm.lustre("once", "chk_0001"))
    slurm.nothing_left()
    code, out = slurm.run(script.replace("TO", "twice").replace("THEN", ""))
    assert code == 1 and "ERROR: not all that every= has chosen is drained: fpctl drain has ended with 4" in out, out
    named = re.search(r"the store stays on the SSDs of this job's nodes, as /srv/fpstore-\d+-named-(\S+):", out)
    assert named and os.path.exists(slurm.lustre("twice", "chk_0003", "rank_0")), out
    slurm.login("srun", "-N1", "-w", slurm.names[1], "fp-job", "clean", f"--named={named[1]}", "--ssd=/srv")
    slurm.nothing_left()


def test_what_is_drained_as_logs_is_so_at_the_end(slurm):
    """Not once more, as files: a set, what every= has not chosen, and a result. Each is complete before the next begins: every= counts them in that order."""
    code, out = slurm.run(HEAD.replace("-N 4", "-N 1") + """#FP auxapp drain to=/lustre/logs every=2 results=*.txt layout=log
eval "$(fp-job start || echo false)" || exit 9
for i in 1 2 3; do
    mkdir $FP_MOUNT/chk_000$i && echo $i > $FP_MOUNT/chk_000$i/rank_0 && fpctl checkpoint commit $FP_MOUNT/chk_000$i || exit 7
done
echo last > $FP_MOUNT/r.txt
fp-job stop
""")
    assert code == 0, out
    for name in ("chk_0002/rank_0", "chk_0003/rank_0", "r.txt"):
        assert os.path.isdir(slurm.lustre("logs", name + ".fplog")) and not os.path.exists(slurm.lustre("logs", name)), out
    slurm.nothing_left()


def test_a_checkpoint_that_is_not_complete_when_the_time_is_over(slurm):
    """One with fewer files than those before waits for more. It is not drained, which is said and is no success; a store that may be kept is."""
    code, out = slurm.run(HEAD.replace("-N 4", "-N 1").replace("pool=", "ssd=/srv on-failure=keep pool=") + """#FP auxapp drain to=/lustre/open every=9
eval "$(fp-job start || echo false)" || exit 9
for i in 1 2 3; do
    mkdir $FP_MOUNT/chk_000$i && echo $i > $FP_MOUNT/chk_000$i/rank_0
    [ $i = 3 ] || { echo $i > $FP_MOUNT/chk_000$i/rank_1; touch $FP_MOUNT/chk_000$i/.complete; }
done
fp-job stop --timeout=3s
""")
    assert code == 1, out
    assert re.search(r"ERROR: the checkpoint /chk_0003/? is not drained: it has not become complete, and the time for it is over \(--timeout of fp-job\);", out), out
    assert os.path.exists(slurm.lustre("open", "chk_0002", "rank_1")) and not os.path.exists(slurm.lustre("open", "chk_0003")), out
    named = re.search(r"the store stays on the SSDs of this job's nodes, as /srv/fpstore-\d+-named-(\S+):", out)
    assert named, out
    slurm.login("srun", "-N1", "-w", slurm.names[1], "fp-job", "clean", f"--named={named[1]}", "--ssd=/srv")
    slurm.nothing_left()


def test_a_step_that_still_runs_when_the_store_ends(slurm):
    """It is said: what it writes from then on is nowhere where it is looked for."""
    code, out = slurm.run(HEAD.replace("-N 4", "-N 2") + 'eval "$(fp-job start || echo false)" || exit 1\nsrun -N1 -n1 sh -c "touch began; sleep 600" &\nuntil [ -e began ]; do sleep 0.1; done\n'
                          "fp-job stop\necho stopped $?\nkill -9 $!\nrm began\n")
    assert "stopped 0" in out.splitlines() and re.search(r"WARN: 1 step of the job still runs \(\d+\.\d+\): what it writes from now on is not in the store", out), out
    slurm.nothing_left(30)


def test_called_in_each_task_of_a_step(slurm):
    """Each would start a store, in the way of the others: none is started, and it is said what was meant."""
    code, out = slurm.run(HEAD.replace("-N 4", "-N 2") + "srun fp-job run -- touch ran\necho ended $?\n")
    assert code == 0 and "ended 1" in out.splitlines() and out.count("this is one of 2 tasks, and each of them would start a store") == 2 and not os.path.exists(slurm.home("ran")), out
    slurm.nothing_left()


def test_a_heterogeneous_job(slurm):
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 1\n#SBATCH hetjob\n#SBATCH -N 1\n#FP store size=256MiB pool=64MiB\nfp-job run -- touch ran\necho ended $?\n")
    assert "ended 1" in out.splitlines() and "this is a heterogeneous job of 2 components" in out and not os.path.exists(slurm.home("ran")), out
    slurm.nothing_left()


def test_start_and_stop_in_one_task(slurm):
    """Whose own step is none that still runs when the store ends; with variables that all have to be set."""
    slurm.write("task.sh", 'set -eu\neval "$(fp-job start || echo false)"\n$FP_ENTER touch $FP_MOUNT/f\nfp-job stop\n')
    code, out = slurm.run(HEAD.replace("-N 4", "-N 1") + "srun -n1 bash task.sh\n")
    assert code == 0 and "still runs" not in out, out
    slurm.nothing_left()


def test_a_directory_whose_name_is_no_utf8(slurm):
    """srun is in it without us; agents that others start can't be told, and it is named."""
    slurm.write("job.sh", HEAD)
    for more, code, want in (("", 0, "done"), (" --launcher=ssh", 1, "is no UTF-8")):
        got, out = slurm.run(HEAD.replace("-N 4", "-N 1") + "mkdir -p $'caf\\xe9'; cd $'caf\\xe9'\nfp-job run" + more + " ../job.sh -- sh -c 'echo x > $FP_MOUNT/f && echo done'\n")
        assert got == code and want in out, out
    slurm.nothing_left()


def test_a_target_that_is_not_the_same_on_all_nodes(slurm):
    """What a node has on its SSD could never be brought to it: nothing is begun, and such nodes are named, in one line."""
    for i in (1, 3):
        slurm.on(i, "sh", "-c", "mkdir -p /part && mount --bind /lustre /part", user="root")
    for i in (2, 4):
        slurm.on(i, "sh", "-c", "mkdir -p -m 777 /part/some", user="root")
    try:
        code, out = slurm.run(HEAD + "#FP auxapp drain to=/part/some\n" + 'eval "$(fp-job start)" || exit 3\necho begun\n')
    finally:
        for i in (1, 3):
            slurm.on(i, "umount", "/part", user="root")
        for i in (2, 4):
            slurm.on(i, "rm", "-r", "/part", user="root")
    assert code == 3 and "begun" not in out, out
    assert re.findall(r"ERROR: (\S+) are not ready: /part/some is not the directory that it is on the first node: #FP auxapp drain needs one on a file system that all nodes share", out) == [f"{slurm.names[2][:-1]}[2,4]"], out
    assert os.listdir(slurm.lustre("some")) == []
    slurm.nothing_left()


def test_input_comes_in_and_results_go_out(slurm):
    slurm.login("sh", "-c", "mkdir -p /lustre/in && head -c 2000000 /dev/urandom > /lustre/in/a.h5 && echo no > /lustre/in/b.txt")
    script = HEAD + """#FP stage-in /lustre/in/*.h5 to=$TO/in
#FP stage-out result/*.h5 to=/lustre/good on=success
#FP stage-out result to=/lustre/bad on=failure
export TO=run
eval "$(fp-job start)" || exit 1
ls $FP_MOUNT/run/in
mkdir $FP_MOUNT/result
srun -N1 -n1 cp $FP_MOUNT/run/in/a.h5 $FP_MOUNT/result/out.h5
fp-job stop --exit-code=CODE
"""
    code, out = slurm.run(script.replace("CODE", "0"))
    assert code == 0 and "\na.h5\n" in out and "b.txt" not in out, out
    slurm.login("cmp", "/lustre/in/a.h5", "/lustre/good/result/out.h5")
    assert slurm.login("test", "-e", "/lustre/bad", check=False).returncode == 1
    code, out = slurm.run(script.replace("CODE", "3"))
    assert code == 3, out
    slurm.login("cmp", "/lustre/in/a.h5", "/lustre/bad/result/out.h5")
    slurm.nothing_left()


def test_results_of_a_mount_with_signs_of_patterns_in_its_path(slurm):
    code, out = slurm.run(HEAD.replace("pool=", "mount=/tmp/m[a]? pool=") + """#FP stage-out *.h5 to=/lustre/signs
fp-job run -- sh -c 'echo $FP_MOUNT; echo x > "$FP_MOUNT/a.h5"'
""")
    assert code == 0 and "\n/tmp/m[a]?\n" in f"\n{out}", out
    assert slurm.login("cat", "/lustre/signs/a.h5").stdout == "x\n"
    slurm.login("rm", "-r", "/lustre/signs")
    slurm.nothing_left()


@pytest.mark.short
def test_input_that_others_keep(slurm):
    """A data set that the user can read and no more, by a pattern with directories in it, of which nothing is to be written to, either. check names what he can't read."""
    for name in ("a", "b"):
        slurm.login("sh", "-c", f"umask 022; mkdir -p /lustre/set/{name}/in && echo {name} > /lustre/set/{name}/in/{name}.h5", user="root")
    slurm.write("job.sh", HEAD + "#FP stage-in /lustre/set/*/in/*.h5 /lustre/set/a to=in\nfp-job run -- sh -c 'cat $FP_MOUNT/in/*.h5 $FP_MOUNT/in/a/in/a.h5'\n")
    assert slurm.login("fp-job", "check", "job.sh").stdout == ""
    code, out = slurm.end_of(slurm.sbatch("job.sh"))
    assert code == 0 and "a\nb\na\n" in out, out
    slurm.login("chmod", "600", "/lustre/set/b/in/b.h5", user="root")
    r = slurm.login("fp-job", "check", "job.sh", check=False)
    assert r.returncode == 1 and r.stdout == "job.sh:5:14: error: /lustre/set/b/in/b.h5: you can't read it: Permission denied\n", r.stdout
    slurm.login("rm", "-rf", "/lustre/set", user="root")
    slurm.nothing_left()


def test_input_of_one_name_is_refused(slurm):
    """Of files of the same size and time the store would have the first alone. Before anything is started, and by what patterns stand for; one file that two patterns have is none of that."""
    slurm.login("sh", "-c", "mkdir -p /lustre/p /lustre/q && echo one > /lustre/p/x1 && echo two > /lustre/q/x1 && touch -d @1700000000 /lustre/p/x1 /lustre/q/x1")
    run = "fp-job run -- sh -c 'cat $FP_MOUNT/*'\n"
    code, out = slurm.run(HEAD + "#FP stage-in /lustre/p/x? /lustre/q/*\n" + run)
    assert code != 0 and "/lustre/p/x1 and /lustre/q/x1 would have the same name in the store" in out and "one\n" not in out, out
    code, out = slurm.run(HEAD + "#FP stage-in /lustre/p/x? /lustre/p/*1\n#FP stage-in /lustre/q/* to=q\n" + run.replace("*", "x1 $FP_MOUNT/q/x1"))
    assert code == 0 and "one\ntwo\n" in out, out
    slurm.login("rm", "-r", "/lustre/p", "/lustre/q")
    slurm.nothing_left()


def test_a_script_goes_on_after_its_store(slurm):
    """What start has set in its shell does no harm then, and it may start another one; the user's own prolog is run for each task."""
    slurm.write("prolog", "#!/bin/sh\necho print prolog $SLURM_STEP_ID\n")
    task = "srun -N1 -n1 echo task\n"
    store = 'eval "$(fp-job start)" || exit 5\n' + task + "fp-job stop || exit 6\n" + task
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 2 --exclusive\n#FP store size=128MiB pool=64MiB\n#FP cores 1\nexport SLURM_TASK_PROLOG=$HOME/prolog\n" + store + store)
    assert code == 0, out
    assert len([line for line in out.splitlines() if line.startswith("prolog ")]) == 4 and out.count("task\n") == 4, out
    slurm.nothing_left()


def test_what_the_shell_has_is_the_applications_alone(slurm):
    """Variables that srun takes are not for our own steps, and stay set; a lock is not held by what stays behind."""
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 2 -n 2 -c 2 --exclusive\n#FP store size=128MiB pool=64MiB\n#FP cores 1\nexec 7>lock; flock 7\n"
                          "fp-job run -- sh -c 'echo cpus $SLURM_CPUS_PER_TASK; flock -n 7 && echo mine'\neval \"$(fp-job start)\" || exit 5\nexec 7>&-\n"
                          "flock -n lock echo free\necho still $SLURM_CPUS_PER_TASK\nfp-job stop\n")
    assert code == 0, out
    assert {"cpus 2", "mine", "free", "still 2"} <= set(out.splitlines()), out
    slurm.nothing_left()


def test_what_run_is_told_the_tasks_are(slurm):
    """SIGTERM, at which srun would kill them; of a command that is not srun, the command."""
    app = "'trap \"echo last word; exit 7\" TERM; touch up$SLURM_PROCID; sleep 600 & wait'"
    part = "fp-job run -- LAUNCH sh -c " + app + " &\nuntil [ -e up1 ]; do sleep 0.05; done\nkill -TERM $!\nwait $!\necho code $?\nrm -f up*\n"
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 2 --exclusive\n#FP store size=128MiB pool=64MiB\n" + part.replace("LAUNCH", "srun -N2") + part.replace("LAUNCH", "env SLURM_PROCID=1"))
    assert code == 0, out
    assert out.count("last word") == 3 and out.count("\ncode 7\n") == 2 and "Killed" not in out, out
    slurm.nothing_left()


def test_more_results_than_one_call_takes(slurm):
    """fpctl takes 256 paths; one that is not there is said, and keeps no other one."""
    slurm.login("sh", "-c", "mkdir -p /lustre/more && cd /lustre/more && seq 300 | xargs touch")
    code, out = slurm.run("#!/bin/bash\n#SBATCH -N 1\n#FP store size=256MiB pool=64MiB\n#FP stage-in /lustre/more/* to=in\n#FP stage-out none many/* to=/lustre/many\n"
                          "fp-job run -- sh -c 'echo files: $(ls $FP_MOUNT/in | wc -l); mkdir $FP_MOUNT/many && cd $FP_MOUNT/many && seq 600 | xargs touch'\n", seconds=120)
    assert code == 1 and "#FP stage-out none: there is nothing of that name in the store" in out and "not all of it" not in out and "files: 300\n" in out, out
    assert len(slurm.login("ls", "/lustre/many/many").stdout.split()) == 600
    slurm.nothing_left()


def test_a_job_whose_results_are_not_out_has_failed(slurm):
    code, out = slurm.run(HEAD + "#FP stage-out nothing to=/lustre/none\nfp-job run -- true\n")
    assert code == 1 and "there is nothing of that name in the store" in out, out
    slurm.nothing_left()


def test_no_thread_is_where_it_does_not_belong(slurm):
    """FP(1,2): CPU 1 is the services', CPU 0 the application's, by srun, by srun with masks of its own, and by mpirun."""
    slurm.write("threads.py", threads.SCRIPT)
    for launch in ("srun -N4", "srun -N4 --ntasks-per-node=2", "srun -N4 --cpu-bind=none", "mpirun --bind-to none -npernode 1", "mpirun --oversubscribe -npernode 2", "mpirun -npernode 1"):
        code, out = slurm.run(HEAD + f"#FP cores 1\n#FP auxapp dedup hash=xxh3\nfp-job run -- {launch} python3 threads.py\n", "--export=ALL,OMPI_MCA_plm_slurm_args=--mpi=none")
        assert code == 0, f"{launch}:\n{out}"
        seen = threads.seen(out)
        programs = {name for name, _ in seen}
        assert threads.SERVICES <= programs and any("python" in p for p in programs), f"{launch}: {programs}"
        wrong = threads.misplaced(seen, "1", "0")
        assert not wrong, f"{launch}: {wrong}"
    slurm.nothing_left()


# MPI and OpenMP: while two threads of each rank compute, the first one looks at all threads of its node.
HYBRID = r"""
#include <mpi.h>
#include <omp.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    volatile int over = 0;
    int rank, rc = 0, threads = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    #pragma omp parallel num_threads(2)
    {
        #pragma omp atomic
        threads++;
        #pragma omp barrier
        if (omp_get_thread_num() == 0) {
            rc = system("python3 threads.py");
            over = 1;
        } else
            while (!over)
                ;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return rc || threads != 2;
}
"""


def check_hybrid(out, ours, others):
    """Both threads of each rank, and all of MPI's own, are on `others`, the services on `ours`."""
    seen = threads.seen(out)
    assert threads.SERVICES <= {name for name, _ in seen} and sum(name == "hybrid" for name, _ in seen) >= 8, out
    wrong = threads.misplaced(seen, ours, others)
    assert not wrong, wrong


def test_hybrid_programs_and_other_ways_to_choose_cores(slurm):
    """MPI ranks with OpenMP threads, by srun --mpi=pmix and mpirun --bind-to none; cores of a list, of a share, of a range; and from a shell of salloc, which is on no node."""
    slurm.write("threads.py", threads.SCRIPT)
    slurm.write("hybrid.c", HYBRID)
    slurm.login("mpicc", "-O1", "-fopenmp", "-o", "hybrid", "hybrid.c", env=("OMPI_CC=gcc",))
    head = HEAD + "#FP auxapp dedup hash=xxh3\nexport PMIX_MCA_gds=hash\n"
    export = "--export=ALL,OMPI_MCA_plm_slurm_args=--mpi=none"
    for cores, launch, ours, others in (("list=0", "srun --mpi=pmix -N4 -n4", "0", "1"), ("share=5%", "mpirun --bind-to none -npernode 1", "1", "0")):
        code, out = slurm.run(head.replace("#FP auxapp", f"#FP cores {cores}\n#FP auxapp") + f"fp-job run -- {launch} ./hybrid\n", export)
        assert code == 0, f"{cores}, {launch}:\n{out}"
        check_hybrid(out, ours, others)
    slurm.write("job.sh", head.replace("#FP auxapp", "#FP cores 1-3\n#FP auxapp"))
    slurm.write("shell", 'eval "$(fp-job start job.sh)" || exit 1\nexport PMIX_MCA_gds=hash\nsrun --mpi=pmix -N4 -n4 --cpu-bind=none ./hybrid\ncode=$?\nfp-job stop || code=9\nexit $code\n')
    r = slurm.login("salloc", "-N4", "--exclusive", "--quiet", "bash", "shell", check=False, seconds=60)
    assert r.returncode == 0, r.stdout + r.stderr
    check_hybrid(r.stdout, "1", "0")
    slurm.nothing_left()


def test_variables_in_what_an_auxapp_is_told(slurm):
    """They have their values on the nodes, blanks and all."""
    plugin = """export WHERE="$PWD/my plugins"
mkdir -p "$WHERE"
cp "$(find -L /opt/fpstore/lib -name checksum.so | head -1)" "$WHERE/"
"""
    head = HEAD + "#FP auxapp $WHERE/checksum.so\n" + plugin
    code, out = slurm.run(head + "fp-job run -- sh -c 'echo x > $FP_MOUNT/f; fpctl auxapps --json'\n")
    told = [a["name"] for a in json.loads(out[out.index("{\n"):out.rindex("}") + 1])["auxapps"]] if code == 0 else out
    assert told and set(told) == {"checksum"}, out
    code, out = slurm.run(head + "unset WHERE\nfp-job run -- true\n")
    assert code == 1 and "aux-app $WHERE/checksum.so: WHERE is not set on this node" in out, out


def test_an_aux_app_on_some_of_the_nodes(slurm):
    """nodes=: the last ones. It sees what is written there and nothing else, which is read everywhere, though it is stored in another form."""
    slurm.login("fpctl", "auxapp", "new", "myapp")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I" + os.path.join(TOP, "include"), "-o", slurm.home("myapp.so"), slurm.home("myapp", "myapp.c")], check=True, timeout=60)
    head = HEAD + "#FP cores 1\n#FP auxapp ./myapp.so level=3 nodes=1\n#FP auxapp compress nodes=2\n"
    sizes = [sum(len(str(n)) + 1 for n in range(i, 300001)) for i in range(4)]
    slurm.write("job.sh", head + """
eval "$(fp-job start)" || exit 1
srun -N4 -n4 sh -c 'seq $SLURM_NODEID 300000 > $FP_MOUNT/$SLURM_NODEID; sync $FP_MOUNT/$SLURM_NODEID'
srun -N4 -n4 sh -c 'echo hosts $SLURM_NODEID $(ps -C fp-auxhost -o pid= | wc -l)'
for i in $(seq 100); do fpctl auxapps --json > auxapps.json; [ "$(grep -cE '"bytes_in": (WANTED),' auxapps.json)" = 3 ] && break; sleep 0.2; done # mounts report once a second, and a part of a file, too
srun -N4 -n4 sh -c 'for i in 0 1 2 3; do seq $i 300000 | cmp - $FP_MOUNT/$i || exit 1; done; echo read all'
fp-job stop
""".replace("WANTED", f"{sizes[2]}|{sizes[3]}"))
    assert slurm.login("fp-job", "check", "job.sh").stdout == ""
    out = slurm.login("fp-job", "explain", "job.sh").stdout
    assert "./myapp.so level=3 nodes=1: on the last 1 of 4 nodes\n" in out and "compress nodes=2: on the last 2 of 4 nodes\n" in out, out
    code, out = slurm.end_of(slurm.sbatch("job.sh"))
    assert code == 0 and out.count("read all\n") == 4 and "ERROR" not in out and "WARN" not in out, out
    assert {f"hosts {i} {int(i > 1)}" for i in range(4)} <= set(out.splitlines()), out
    seen = {(a["name"], a["node"]): a["bytes_in"] for a in json.loads(slurm.read("auxapps.json"))["auxapps"]}
    assert seen == {("myapp", slurm.names[4]): sizes[3], ("compress", slurm.names[3]): sizes[2], ("compress", slurm.names[4]): sizes[3]}, seen
    code, out = slurm.run(HEAD + "#FP auxapp compress nodes=2 required\nfp-job run -- touch /srv/ran\n")
    assert code == 1 and "compress is to run on 2 of 4 nodes, but it is required" in out, out
    slurm.nothing_left()


def test_status_from_where_users_log_in(slurm):
    slurm.write("job.sh", HEAD + "eval \"$(fp-job start)\" || exit 1\ntouch up\nuntil [ -e go ]; do sleep 0.1; done\nfp-job stop\n")
    number = slurm.sbatch("job.sh")
    slurm.wait_file("up", number)
    out = slurm.login("fp-job", "status", str(number)).stdout
    assert f"job {number}: 4 of 4 nodes ready" in out
    slurm.write("go", "")
    assert slurm.end_of(number)[0] == 0
    r = slurm.login("fp-job", "status", str(number), check=False)
    assert r.returncode == 5 and r.stdout == f"job {number}: it does not run any more: COMPLETED\n", r.stdout + r.stderr
    slurm.nothing_left()


def test_status_of_a_task_of_an_array(slurm):
    slurm.write("job.sh", "#!/bin/bash\n#SBATCH -N 1 --exclusive --array=1-2\n#FP store size=256MiB pool=64MiB\n"
                "eval \"$(fp-job start)\" || exit 1\ntouch up$SLURM_ARRAY_TASK_ID\nuntil [ -e go ]; do sleep 0.1; done\nfp-job stop\n")
    if os.path.exists(slurm.home("go")):
        os.unlink(slurm.home("go"))
    number = slurm.sbatch("job.sh")
    for task in (1, 2):
        slurm.wait_file(f"up{task}", f"{number}_{task}")
    seen = [slurm.login("fp-job", "status", f"{number}_{task}").stdout for task in (1, 2)]
    jobs = [re.search(r"^job (\d+): 1 of 1 nodes ready", out)[1] for out in seen]
    assert jobs[0] != jobs[1] and str(number) in jobs, seen
    assert slurm.login("fp-job", "status", str(number)).stdout == seen[jobs.index(str(number))]
    slurm.write("go", "")
    for task in (1, 2):
        slurm.end_of(f"{number}_{task}")
    slurm.nothing_left()


def test_doctor_finds_nothing_wrong(slurm):
    r = slurm.login("salloc", "-N4", "--exclusive", "--quiet", "fp-job", "doctor")
    lines = r.stdout.splitlines()
    names = ",".join(slurm.names[1:])
    assert f"ok       mount             {names}: a file system was mounted and unmounted" in lines, r.stdout
    assert f"ok       clock             {names}: within a second, as near as can be seen" in lines, r.stdout
    assert f"ok       cores             {names}: 2 cores (2 of the {os.cpu_count()} CPUs); #FP cores 1 takes CPU 1" in lines, r.stdout
    assert lines[-1].startswith("0 wrong, ")
    assert r.stderr == "" and slurm.login("sh", "-c", "ls -A /tmp").stdout == ""
    code, out = slurm.run(HEAD + "fp-job run -- fp-job doctor\n")
    assert code == 0 and f"ok       mountpoint        {names}: /AggregateSSDstore: a store is mounted there" in out, out
    slurm.nothing_left()
