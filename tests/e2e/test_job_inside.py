"""Jobs whose user may not mount for all processes to see: no fusermount3, and the store in a user namespace (docs/man/fp-job.1.in, A MOUNT WITHOUT PRIVILEGES)."""

import os
import re

import pytest

SLURM = {"nodes": 2, "cpus": 2}
HEAD = "#!/bin/bash\n#SBATCH -N 2 --exclusive\n#FP store size=256MiB pool=64MiB\n"
MPI = "--export=ALL,OMPI_MCA_plm_slurm_args=--mpi=none,PMIX_MCA_gds=hash"


@pytest.fixture(scope="module", autouse=True)
def taken_away(slurm):
    slurm.take_fusermount3(1, 2)


def test_tasks_of_srun_see_the_store(slurm):
    """Wherever they are, with options of srun in all forms; what comes in is there, and what is to go out gets there."""
    slurm.login("sh", "-c", "mkdir -p /lustre/in && echo input > /lustre/in/a")
    for options in ("-N2 -n 2", "-lN 2 --ntasks=2 --cpu-bind=none -D /tmp", "--nodes 2 --ntasks-per-n 1 --kill-on-bad-exit --export ALL --"):
        code, out = slurm.run(HEAD + "#FP stage-in /lustre/in/a to=in\n#FP stage-out /AggregateSSDstore/out to=/lustre/good\n#FP auxapp drain to=/lustre/run\n"
                              f"fp-job run -- srun {options} sh -c 'mkdir -p $FP_MOUNT/out; cat $FP_MOUNT/in/a > $FP_MOUNT/out/$(hostname); ls /AggregateSSDstore; echo as $(id -un); echo dir $PWD'\n")
        assert code == 0 and "mounted on /AggregateSSDstore" in out, out
        assert out.count("as ada") == 2 and out.count("dir /tmp" if "-D" in options else "dir /home/ada") == 2, out
        for name in slurm.names[1:]:
            for there in ("good", "run"):
                assert slurm.login("cat", f"/lustre/{there}/out/{name}").stdout == "input\n"
        slurm.login("rm", "-r", "/lustre/good", "/lustre/run")
        slurm.nothing_left()
    assert slurm.on(1, "ls", "-A", "/AggregateSSDstore").stdout == ""


def test_mpirun_and_programs_of_the_shell_see_the_store(slurm):
    """Its daemons on other nodes enter; so does what is no launcher, on its node, and says how tasks elsewhere do."""
    code, out = slurm.run(HEAD + "#FP cores 1\nfp-job run -- mpirun --oversubscribe -npernode 2 sh -c 'echo x > $FP_MOUNT/rank$OMPI_COMM_WORLD_RANK; ls -d /AggregateSSDstore/rank$OMPI_COMM_WORLD_RANK'\n", MPI)
    assert code == 0 and all(f"/AggregateSSDstore/rank{i}\n" in out for i in range(4)), out
    code, out = slurm.run(HEAD + "fp-job run -- sh -c 'echo x > $FP_MOUNT/f; srun -N2 $FP_ENTER cat $FP_MOUNT/f; srun -N2 ls -A $FP_MOUNT'; echo end $?\n")
    assert out.count("x\n") == 2 and out.endswith("end 0\n") and "started with fp-enter (srun $FP_ENTER ./app)" in out, out
    slurm.nothing_left()


def test_a_shell_is_told_how_commands_see_the_store(slurm):
    """Where the directory is nobody's to see, the store is in the job's own, in which others can't write by mistake; when the store has ended, nothing is run in its place."""
    code, out = slurm.run(HEAD.replace("pool", "mount=/srv/none/such pool") + """
eval "$(fp-job start)" || exit 5
srun $FP_ENTER sh -c 'hostname > $FP_MOUNT/$(hostname)'
$FP_ENTER $FP_ENTER ls $FP_MOUNT
srun sh -c 'echo x > $FP_MOUNT/lost'
echo outside $?
fp-job status
fp-job stop
$FP_ENTER touch /home/ada/ran
echo after $?
""")
    assert code == 0 and re.search(r"WARN: fusermount3 can't be used on all nodes, and commands see the store if they are started with fp-enter: srun \$FP_ENTER ./app", out), out
    assert "\n" + "\n".join(slurm.names[1:]) + "\n" in out and "Permission denied" in out and "outside 2\n" in out, out
    assert "2 of 2 nodes ready, mounted on /tmp/fpstore-5001-" in out and "has no store on this node, or it has ended: touch is not run" in out and "after 1\n" in out, out
    assert not os.path.exists(slurm.home("ran"))
    slurm.nothing_left()


def test_a_directory_that_everybody_may_write_to(slurm):
    """As sites make it for fusermount3: what has not entered would write to it, below the store, and nobody would see that. Where all enter the store is there."""
    for i in (1, 2):
        slurm.on(i, "chmod", "777", "/AggregateSSDstore", user="root")
    try:
        code, out = slurm.run(HEAD + 'eval "$(fp-job start)" || exit 5\nsrun touch /AggregateSSDstore/lost\nfp-job stop\n')
        assert code == 5 and "line 5, column 12 of the script names /AggregateSSDstore" in out and "what has not entered could write to the directory below the store" in out, out
        code, out = slurm.run(HEAD + 'eval "$(fp-job start)" || exit 5\nsrun sh -c "touch $FP_MOUNT/lost" || echo refused\nsrun $FP_ENTER touch $FP_MOUNT/f && $FP_ENTER ls $FP_MOUNT\nfp-job stop\n')
        assert code == 0 and "refused\n" in out and "\nf\n" in out and "\nlost\n" not in out, out
        code, out = slurm.run(HEAD + "fp-job run -- srun sh -c 'echo x > /AggregateSSDstore/$(hostname); ls $FP_MOUNT'\n")
        assert code == 0 and "mounted on /AggregateSSDstore\n" in out and slurm.names[2] + "\n" in out, out
        for i in (1, 2):
            assert slurm.on(i, "ls", "-A", "/AggregateSSDstore").stdout == ""
    finally:
        for i in (1, 2):
            slurm.on(i, "chmod", "755", "/AggregateSSDstore", user="root")
    slurm.nothing_left()


def test_nodes_that_nobody_has_prepared(slurm):
    """No /AggregateSSDstore either: the least script as it stands, on two nodes; and a program that has a path in it, with a directory that the user can make."""
    slurm.write("app", '#!/bin/sh\necho x > "$1-$(hostname)"; ls "$FP_MOUNT"\n')
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "jobscripts", "examples", "minimal.sh")) as f:
        least = f.read().replace("--nodes=4", "--nodes=2")
    slurm.take_directory(1, 2)
    try:
        code, out = slurm.run(least)
        assert code == 0 and "mounted on /tmp/fpstore-" in out and all(f"checkpoint-{name}\n" in out for name in slurm.names[1:]), out
        code, out = slurm.run(HEAD.replace("pool=", "mount=/tmp/$USER-store pool=") + "fp-job run -- srun sh -c 'echo x > /tmp/ada-store/$(hostname); ls $FP_MOUNT'\n")
        assert code == 0 and "mounted on /tmp/ada-store" in out and all(f"{name}\n" in out for name in slurm.names[1:]), out
    finally:
        for i in (1, 2):
            slurm.on(i, "mkdir", "/AggregateSSDstore", user="root")
    slurm.nothing_left()


def test_two_jobs_of_a_node_at_the_same_place(slurm):
    """Each sees its own store there."""
    head = f"#!/bin/bash\n#SBATCH -N 1 -n 1 -w {slurm.names[1]}\n#FP store size=128MiB pool=64MiB\n"
    first = slurm.up(head + "fp-job run -- sh -c 'echo first > $FP_MOUNT/f; touch up; until [ -e go ]; do sleep 0.1; done; cat /AggregateSSDstore/f; ls $FP_MOUNT'\n")
    code, out = slurm.run(head + "fp-job run -- sh -c 'ls $FP_MOUNT; echo second > /AggregateSSDstore/g; cat $FP_MOUNT/g'\n")
    assert code == 0 and "mounted on /AggregateSSDstore\n" in out and "second\n" in out and "\nf\n" not in out, out
    slurm.go()
    code, out = slurm.end_of(first)
    assert code == 0 and "first\n" in out and "\ng\n" not in out, out
    slurm.nothing_left()


def test_what_can_not_be_told_is_not_guessed(slurm):
    """A call of srun in which the command is not certain; what is written instead is run."""
    code, out = slurm.run(HEAD + "fp-job run -- srun --no-such-option x touch /home/ada/ran\n")
    assert code == 1 and "srun --help does not tell of --no-such-option): write srun [OPTION]... /opt/fpstore/bin/fp-enter COMMAND" in out, out
    assert not os.path.exists(slurm.home("ran"))
    slurm.nothing_left()


def test_a_node_that_has_fusermount3(slurm):
    """Nodes may differ: the store is at the same place on all."""
    slurm.give_fusermount3(2)
    try:
        code, out = slurm.run(HEAD + "fp-job run -- srun -N2 sh -c 'hostname > $FP_MOUNT/$(hostname); ls -d $FP_MOUNT/*'\n")
        assert code == 0 and all(f"/AggregateSSDstore/{name}\n" in out for name in slurm.names[1:]), out
    finally:
        slurm.take_fusermount3(2)
    slurm.nothing_left()


def test_neither_way(slurm):
    """No user namespaces either: the start fails, and says what to change."""
    slurm.on(1, "sh", "-c", "mv /dev/fuse /dev/away", user="root")
    try:
        code, out = slurm.run(HEAD + "fp-job run -- touch /home/ada/ran\n")
    finally:
        slurm.on(1, "sh", "-c", "mv /dev/away /dev/fuse", user="root")
    assert code == 1 and f"{slurm.names[1]} is not ready: this user can mount nothing here: by fusermount3: it is not root's with its setuid bit; in a user namespace: no /dev/fuse" in out, out
    assert not os.path.exists(slurm.home("ran"))
    slurm.nothing_left()
