"""fp-job doctor at a site with real mistakes, in its Slurm and on its nodes: each is found, and what is to be changed is said. A good site is in test_job_slurm.py."""

import contextlib
import json
import os
import re
import subprocess

from harness.daemons import SLOW, bin_path

SLURM = {"nodes": 2, "cpus": 2, "extra": "TaskPlugin=task/none\nKillWait=2\nMpiDefault=none"}


def ask(slurm, *args, prefix=("salloc", "-N2", "--exclusive", "--quiet"), env=()):
    """Its exit code, and what it says of each check: {check: [(status, found, change, nodes)]}."""
    r = slurm.login(*prefix, "fp-job", "doctor", "--json", *args, check=False, env=env, seconds=120)
    report = json.loads(r.stdout)
    said = {}
    for c in report["checks"]:
        said.setdefault(c["check"], []).append((c["status"], c["found"], c["change"], c["nodes"]))
    assert report["wrong"] == sum(a[0] == "wrong" for answers in said.values() for a in answers)
    return r.returncode, said


def of_node(said, check, name):
    """What is said of one node: it is said once."""
    answer, = (a for a in said[check] if name in a[3])
    return answer


@contextlib.contextmanager
def broken(slurm, node, how, mend):
    slurm.on(node, "sh", "-ec", how, user="root")
    try:
        yield
    finally:
        slurm.on(node, "sh", "-ec", mend, user="root")


def test_mistakes_in_slurm_conf(slurm):
    code, said = ask(slurm)
    assert code == 1
    (status, found, change, nodes), = said["TaskPlugin"]
    assert (status, nodes) == ("wrong", []) and found in ("task/none", "not set") and change.startswith("slurm.conf: TaskPlugin=task/affinity,task/cgroup, and ConstrainCores=yes in cgroup.conf"), said["TaskPlugin"]
    assert said["KillWait"][0][:2] == ("warning", "2 sec") and "KillWait=30" in said["KillWait"][0][2]
    assert said["MpiDefault"][0][0] == "warning" and "MpiDefault=pmix" in said["MpiDefault"][0][2]
    assert [c for c in said if any(a[0] == "wrong" for a in said[c])] == ["TaskPlugin"], said
    slurm.nothing_left()


def test_a_node_that_cannot_mount(slurm):
    """Without /dev/fuse, and without the bit that lets users mount."""
    with broken(slurm, 1, "mv /dev/fuse /dev/away", "mv /dev/away /dev/fuse"), \
         broken(slurm, 2, "chmod u-s /usr/bin/fusermount3", "chmod u+s /usr/bin/fusermount3"):
        code, said = ask(slurm)
        slurm.nothing_left()
    first, second = slurm.names[1:]
    assert code == 1
    assert of_node(said, "fuse", first)[0] == "wrong" and "modules-load.d" in of_node(said, "fuse", first)[2]
    assert of_node(said, "mount", first)[0] == "wrong" and "fuse device not found" in of_node(said, "mount", first)[1]
    assert of_node(said, "fusermount3", first)[0] == "ok"
    assert of_node(said, "fuse", second)[0] == "ok"
    assert of_node(said, "fusermount3", second)[0] == "warning" and "chmod u+s" in of_node(said, "fusermount3", second)[2]
    assert of_node(said, "mount", second)[0] == "warning" and of_node(said, "mount", second)[1].endswith("in a user namespace: it can"), said["mount"]
    code, said = ask(slurm)
    assert said["mount"] == [("ok", "a file system was mounted and unmounted", "", [first, second])]


def test_a_disk_that_is_full_and_one_that_is_not_the_users(slurm):
    with broken(slurm, 1, "mkdir /srv/full; mount -t tmpfs -o size=1M,mode=1777 none /srv/full", "umount /srv/full; rmdir /srv/full"), \
         broken(slurm, 2, "mkdir -m 700 /srv/full", "rmdir /srv/full"):
        code, said = ask(slurm, "--ssd=$HERE/full", env=("HERE=/srv",))
    first, second = slurm.names[1:]
    assert code == 1
    assert of_node(said, "ssd", first)[:2] == ("wrong", "/srv/full: 1 MiB free"), said["ssd"]
    assert of_node(said, "ssd", second)[:2] == ("wrong", "/srv/full: Permission denied"), said["ssd"]
    code, said = ask(slurm, "--ssd=$NO_SUCH_VARIABLE/x")
    assert said["ssd"][0][:2] == ("wrong", "$NO_SUCH_VARIABLE is not set on the node") and said["ssd"][0][3] == [first, second]


def test_names_and_mountpoints(slurm):
    """A node that does not know the first one, and one whose users can't mount on /AggregateSSDstore."""
    first, second = slurm.names[1:]
    with broken(slurm, 2, f"cp /etc/hosts /etc/hosts.good; sed '/{first}/d' /etc/hosts.good > /etc/hosts", "mv /etc/hosts.good /etc/hosts"), \
         broken(slurm, 1, "chmod 1777 /AggregateSSDstore", "chmod 777 /AggregateSSDstore"):
        code, said = ask(slurm, prefix=("srun", "-N1", "-w", first, "--input=none"))
        assert of_node(said, "mountpoint", first)[0] == "warning" and "chmod 777 /AggregateSSDstore" in of_node(said, "mountpoint", first)[2]
        slurm.write("job.sh", "#!/bin/bash\n#SBATCH -N 2\nfp-job doctor\n")
        code, out = slurm.end_of(slurm.sbatch("job.sh"))
    assert code == 1 and f"names             {second}: {first}, the first node of the job: its address is not found\n" in out, out


def test_a_node_without_fpstore(slurm):
    second = slurm.names[2]
    with broken(slurm, 2, "mount --bind /dev/null /opt/fpstore/bin/fp-job", "umount /opt/fpstore/bin/fp-job"):
        code, said = ask(slurm)
    (status, found, change, nodes), = said["node"]
    assert code == 1 and (status, found, nodes) == ("wrong", "fp-job doctor did not run there", [second])
    assert said["version"][0][3] == [slurm.names[1]]


def test_slurm_that_does_not_answer(slurm):
    """Its controller is stopped: within some seconds, and the machine is looked at all the same."""
    with broken(slurm, 0, "kill -STOP $(pidof slurmctld)", "kill -CONT $(pidof slurmctld)"):
        code, said = ask(slurm, prefix=())
    assert code == 1 and said["Slurm"][0][:2] == ("wrong", "its controller does not answer within some seconds")
    assert "TaskPlugin" not in said and of_node(said, "mount", slurm.names[0])[0] == "ok"
    slurm.wait_nodes()


def test_without_slurm(tmp_path):
    """This machine alone, for people."""
    for name in ("fusermount3", "getent", "sh"):
        for place in ("/bin", "/usr/bin"):
            if os.access(os.path.join(place, name), os.X_OK):
                os.symlink(os.path.join(place, name), tmp_path / name)
                break
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FP_", "SLURM_"))}
    r = subprocess.run([bin_path("fp-job"), "doctor", "--ssd=" + str(tmp_path)], capture_output=True, text=True, timeout=60 * SLOW, env={**clean, "PATH": str(tmp_path)})
    lines = r.stdout.splitlines()
    assert r.returncode == 0 and lines[0] == "warning  Slurm             scontrol is not in PATH", r.stdout + r.stderr
    assert lines[1].strip().startswith("change: if this is a site with Slurm: its commands into PATH") and "wrong  " not in r.stdout, r.stdout
    assert lines[-1].startswith("This machine alone was looked at.")
    assert sorted(os.listdir(tmp_path)) == ["fusermount3", "getent", "sh"]


def test_limits_and_memory():
    """Limits of this process, of which root has his own; and a directory in memory is called so."""
    r = subprocess.run(["prlimit", "--nofile=1000:2000", "--nproc=700:900", bin_path("fp-job"), "doctor", "--here", "--ssd=/dev/shm"], capture_output=True, text=True, timeout=60 * SLOW)
    assert "nofile            " in r.stdout and ": 2000 (hard limit)\n" in r.stdout and re.search(r"nproc +\S+: 700\n", r.stdout), r.stdout + r.stderr
    assert re.search(r"warning  ssd +\S+: /dev/shm: tmpfs, which is memory and no SSD, more than .*\n +change: a directory on an SSD: .* lost when the node restarts or loses power", r.stdout), r.stdout


def test_words_that_are_too_many():
    for command, want in (("doctor", "doctor takes no script"), ("stop", "stop ends the store of the job that it is called in")):
        r = subprocess.run([bin_path("fp-job"), command, "12"], capture_output=True, text=True, timeout=60 * SLOW)
        assert r.returncode == 2 and want in r.stderr, r.stderr
