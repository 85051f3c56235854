"""Starts of a job's store that something is in the way of, with a real Slurm: its controller, a directory that can't be made, other users of the nodes."""

import os
import re

import pytest

from harness.daemons import wait_until

SLURM = {"nodes": 2, "cpus": 2}
HEAD = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --exclusive\n#FP store size=256MiB pool=64MiB\n"
OFF = HEAD.replace("pool=", "required=off pool=")
START = 'eval "$(fp-job start)" || exit 5\n'


@pytest.mark.parametrize("how", ["start", "run"])
def test_a_store_that_is_not_required_and_has_no_directory(slurm, how):
    """The lines are read before anything is made: the job goes on without, whatever fails."""
    app = START + 'echo "with $FP_MOUNT."\nfp-job stop\n' if how == "start" else "fp-job run -- sh -c 'echo \"with $FP_MOUNT.\"'\n"
    slurm.on(1, "mount", "-o", "remount,ro", "/tmp", user="root")
    try:
        code, out = slurm.run(OFF + app)
        assert code == 0 and "Read-only file system" in out and "goes on without a store" in out and "with .\n" in out, out
        code, out = slurm.run(HEAD + app)
        assert code in (1, 5) and "Read-only file system" in out and "with" not in out.replace("without", ""), out
    finally:
        slurm.on(1, "mount", "-o", "remount,rw", "/tmp", user="root")
    slurm.nothing_left()


@pytest.mark.parametrize("code", [0, 1])
def test_a_controller_that_does_not_give_the_script(slurm, code):
    """It is on the node, where slurmd has put it for the shell that runs it. scontrol ends with 0 if it has waited in vain: no script is not a script without #FP lines."""
    slurm.on(0, "mkdir", "-p", "broken")
    slurm.write("broken/scontrol", '#!/bin/sh\n[ "$1" != write ] || { echo "scontrol: error: Unable to contact slurm controller" >&2; exit CODE; }\nexec /usr/bin/scontrol "$@"\n'.replace("CODE", str(code)))
    code, out = slurm.run(HEAD + f"PATH=$HOME/broken:$PATH\n{START}srun sh -c 'echo x > $FP_MOUNT/$(hostname)'\nls $FP_MOUNT\nfp-job stop\n")
    assert code == 0 and "does not give the batch script" in out and "\n".join(slurm.names[1:]) in out, out
    code, out = slurm.run(OFF.replace("size=256MiB", "size=4TiB") + f"PATH=$HOME/broken:$PATH\n{START}echo \"with $FP_MOUNT.\"\n")
    assert code == 0 and "goes on without a store" in out and "with .\n" in out, out
    slurm.nothing_left()


def planted(slurm, number):
    """What another user can make on the nodes before the job begins; its number is no secret."""
    for i in (1, 2):
        slurm.on(i, "sh", "-c", f"mkdir -m 777 /tmp/fpstore-5001-{number} /srv/fpstore-{number}; touch /srv/fpstore-{number}/x; ln -s /tmp /tmp/fpstore-5001-{number}+aaaaaa", user="root")


def removed(slurm, number):
    for i in (1, 2):
        slurm.on(i, "sh", "-c", f"rm -r /tmp/fpstore-5001-{number}* /srv/fpstore-{number}", user="root")


@pytest.mark.parametrize("how", ["start", "run"])
def test_names_that_somebody_else_has_taken(slurm, how):
    """The job takes others, and all that look for it find them: tasks, status, stop, clean."""
    app = "srun sh -c 'echo x > $FP_MOUNT/$(hostname)'; ls $FP_MOUNT; fp-job status"
    slurm.write("job.sh", HEAD + "#FP cores 1\n#FP stage-out x to=/lustre/planted\n" +
                (f"{START}echo y > $FP_MOUNT/x\n{app}\nfp-job stop\n" if how == "start" else f"fp-job run -- sh -c 'echo y > $FP_MOUNT/x; ls $FP_MOUNT; fp-job status'\n"))
    number = slurm.sbatch("job.sh", "--hold")
    planted(slurm, number)
    try:
        slurm.login("scontrol", "release", str(number))
        code, out = slurm.end_of(number)
        assert code == 0 and f"/tmp/fpstore-5001-{number} is not this job's (it belongs to user 0: " in out and "2 of 2 nodes ready, mounted on /AggregateSSDstore" in out, out
        assert how == "run" or "\n".join(slurm.names[1:]) in out, out
        assert slurm.login("cat", "/lustre/planted/x").stdout == "y\n"
        r = slurm.on(1, "fp-job", "clean", str(number))  # as an epilog does: if it failed the node would be drained
        assert "the job has nothing here" in r.stderr, r
    finally:
        removed(slurm, number)
    slurm.login("rm", "-r", "/lustre/planted")
    slurm.nothing_left()


def test_a_killed_job_whose_names_somebody_else_has_taken(slurm):
    """What it has left is found, too."""
    slurm.write("job.sh", HEAD + START + "touch up\nsleep 600\n")
    number = slurm.sbatch("job.sh", "--hold")
    planted(slurm, number)
    try:
        slurm.login("scontrol", "release", str(number))
        slurm.wait_file("up", number)
        slurm.login("scancel", str(number))
        for i in (1, 2):  # at once, before they have heard of it
            slurm.kill(i, *[p for name in ("fp-job-watch", "fp-job", "fp-mount", "fp-benefactor", "fp-manager") for p in slurm.processes(i, name)], check=False)
        slurm.wait_state(number, "CANCELLED")
        for i in (1, 2):
            slurm.on(i, "fp-job", "clean", str(number))
        slurm.nothing_left()
    finally:
        removed(slurm, number)


def test_a_link_of_a_job_that_was_lost_with_its_node(slurm):
    """By a power cut: its directory, in memory, is gone, and the link to it is not. The user's next job takes it away; what may be alive, or is another user's, it leaves and tells of."""
    script = HEAD.replace("pool=", "mount=/srv/mine/store pool=") + START + "fp-job stop\n"
    for i in (1, 2):
        slurm.on(i, "mkdir", "/srv/mine")

    def run(user, since):
        slurm.on(2, "sh", "-c", f"ln -s /tmp/fpstore-5001-999999/mnt /srv/mine/store; touch -h -d '{since}' /srv/mine/store; chown -h {user} /srv/mine/store", user="root")
        code, out = slurm.run(script)
        assert code == 0, out
        there = slurm.on(2, "sh", "-c", "readlink /srv/mine/store; rm -f /srv/mine/store", user="root").stdout
        return out, there

    out, there = run("ada", "2001-01-01")
    assert "mounted on /srv/mine/store\n" in out and there == "", out
    for user, since, why in (("ada", "now", "a link of another job of yours, whose directory is not on this node: remove the link if that job has ended"),
                             ("root", "2001-01-01", "a link of another user's job")):
        out, there = run(user, since)
        assert re.search(rf"mounted on /tmp/fpstore-5001-\d+/mnt, as /srv/mine/store can't be had on all nodes: {slurm.names[2]}: there is {why}.*\(\$FP_MOUNT says where; on this one it is a link to it\)", out), out
        assert there == "/tmp/fpstore-5001-999999/mnt\n", out
    for i in (1, 2):
        slurm.on(i, "rmdir", "/srv/mine")
    slurm.nothing_left()


@pytest.mark.parametrize("how", ["start", "run"])
def test_a_signal_while_input_comes_in(slurm, how):
    """All nodes are ready, and the application has not begun: the store ends, at once, and is not kept, since nobody has written to it."""
    slurm.login("sh", "-c", "mkdir -p /lustre/in; echo x > /lustre/in/x")
    lines = HEAD.replace("pool=", "on-failure=keep ssd=/srv pool=") + "#FP stage-in /lustre/in/x\n#FP stage-out none to=/lustre/out\n"
    app = "fp-job start > started" if how == "start" else "fp-job run -- touch ran"
    with slurm.stand_in(1, "fpctl", '[ "$1" != stage-in ] || { touch up; exec sleep 600; }\nexec /tmp/real "$@"'):
        number = slurm.up(lines + f"{app} &\njob=$!\nuntil [ -e go ]; do sleep 0.1; done\nkill -TERM $job\nwait $job\necho ended with $?\n")
        slurm.go()
        code, out = slurm.end_of(number)
    assert code == 0 and "ended with 1" in out and "interrupted before the application has begun: ending the store" in out and "stays on the SSDs" not in out, out
    assert how == "run" or slurm.read("started") == "false\n"
    assert not os.path.exists(slurm.home("ran"))
    slurm.login("rm", "-r", "/lustre/in")
    slurm.nothing_left()


@pytest.mark.limit(180)
@pytest.mark.parametrize("node, program, when", [(1, "fp-manager", ""), (2, "fp-benefactor", ""), (1, "fpctl", "stage-in")])
def test_start_is_killed(slurm, node, program, when):
    """By SIGKILL, with agents of which nobody knows, or with a store that has no input yet: the next start of the script has one, and nothing is left of the first."""
    slurm.login("sh", "-c", "rm -f go hung; mkdir -p /lustre/in; echo x > /lustre/in/x")
    wait = f'case "$* " in "{when} "*|"{when}"*) [ -e /home/ada/go ] || {{ touch /home/ada/hung; exec sleep 600; }};; esac\nexec /tmp/real "$@"'
    drain = "" if program == "fp-benefactor" else "#FP auxapp drain to=/lustre/out\n"  # the stand-in has no fp-drain beside it
    with slurm.stand_in(node, program, wait):
        code, out = slurm.run(HEAD + "#FP stage-in /lustre/in/x\n" + drain + "fp-job start > started &\njob=$!\nuntil [ -e hung ]; do sleep 0.1; done\nkill -9 $job\nwait $job\ntouch go\n"
                              f"{START}srun sh -c 'cat $FP_MOUNT/x > $FP_MOUNT/$(hostname)'\nls $FP_MOUNT\nfp-job stop\n", seconds=150)
    assert code == 0 and "was killed" in out and "\n".join([*slurm.names[1:], "x"]) in out, out
    assert not drain or not [name for name in os.listdir(slurm.lustre("out")) if name.startswith(".fp-job")]
    slurm.login("sh", "-c", "rm -rf /lustre/in /lustre/out; rm -f go hung")
    slurm.nothing_left()


@pytest.mark.limit(180)
def test_a_controller_that_is_stopped(slurm):
    """It answers nothing, and no step can begin: the start says so within its limits, and the job goes on without a store if it may. The node is Slurm's again afterwards."""
    slurm.login("rm", "-f", "done")
    number = slurm.up(OFF.replace("pool=", "ready=5s pool=") + "touch up\nuntil [ -e go ]; do sleep 0.1; done\n" + "trap 'touch done' EXIT\n" + START + "echo \"with $FP_MOUNT.\"\ntouch done\nuntil [ -e over ]; do sleep 0.1; done\n")
    signal_controller(slurm, "STOP")
    try:
        slurm.go()
        wait_until(lambda: f"the job to go on:\n{slurm.output(number)}", 120, lambda: os.path.exists(slurm.home("done")), 0.2)
    finally:
        signal_controller(slurm, "CONT")
        slurm.write("over", "")
    code, out = slurm.end_of(number)
    assert code == 0 and "does not give the batch script" in out and "are not ready: no word from its agent" in out and "goes on without a store" in out and "with .\n" in out, out
    slurm.login("rm", "over", "done")
    slurm.nothing_left(30)


def signal_controller(slurm, name):
    slurm.login("sh", "-c", f"kill -{name} $(cat {slurm.dir}/run/slurmctld.pid)", user="root")


@pytest.mark.parametrize("node", [1, 2])
def test_a_tmp_without_room(slurm, node):
    """Where fp-job start is, or another agent: what could not be written down is not left there either."""
    slurm.on(node, "sh", "-c", "mount -o remount,size=64k /tmp; head -c 1M /dev/zero > /tmp/fill 2>/dev/null; true", user="root")
    try:
        code, out = slurm.run(HEAD + START)
        assert code == 5 and "No space left on device" in out, out
        assert node == 1 or (f"{slurm.names[node]} is not ready: /tmp/" in out and "were ready within" not in out), out  # said at once, and not after ready=
        slurm.nothing_left()
    finally:
        slurm.on(node, "sh", "-c", "rm -f /tmp/fill; mount -o remount,size=50% /tmp", user="root")


NAMES = START + "srun sh -c 'echo x > /AggregateSSDstore/$(hostname)'\nls $FP_MOUNT\necho at $FP_MOUNT\nfp-job stop\n"
OTHER = ["setpriv", "--reuid=5002", "--regid=5002", "--clear-groups"]


def test_files_of_others_where_the_store_is_to_be(slurm):
    """Anybody can leave one there: it is hidden while the store is there, with a word of it, and stays. One of the user's own keeps the store away, and is named."""
    slurm.on(2, *OTHER, "touch", "/AggregateSSDstore/bait", user="root")
    code, out = slurm.run(HEAD + NAMES)
    assert code == 0 and "\nat /AggregateSSDstore\n" in out and not re.search("^bait", out, re.M) and slurm.names[2] in out, out
    assert len(re.findall(rf"WARN: {slurm.names[2]}: /AggregateSSDstore: others have left files in it, such as bait of user 5002,", out)) == 1, out
    assert slurm.on(2, "ls", "/AggregateSSDstore").stdout == "bait\n"
    slurm.nothing_left()
    slurm.on(2, "mkdir", "/AggregateSSDstore/my work")
    code, out = slurm.run(HEAD + NAMES)
    assert code == 5 and f"{slurm.names[2]} is not ready: line 6, column 22 of the script names /AggregateSSDstore" in out and "such as my?work of this user: move them away" in out, out
    slurm.on(2, "rmdir", "/AggregateSSDstore/my work")
    slurm.on(2, "sh", "-ec", "mkdir /srv/group; touch /srv/group/theirs; chown -R 5002:5001 /srv/group; chmod 770 /srv/group", user="root")
    code, out = slurm.run(HEAD.replace("pool=", "mount=/srv/group pool=") + START + "echo at $FP_MOUNT\nfp-job stop\n")  # which not anybody can put there
    assert code == 0 and "at /tmp/fpstore-5001-" in out and "such as theirs of user 5002: move them away" in out, out
    slurm.on(2, "rm", "-r", "/srv/group", "/AggregateSSDstore/bait", user="root")
    slurm.nothing_left()


SQUATTER = """import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("\\0fpstore-%x-/AggregateSSDstore" % os.stat("/proc/self/ns/mnt").st_ino)
print("here", flush=True)
time.sleep(1000)
"""


def test_somebody_holds_the_name_of_the_directory(slurm):
    """By which users keep from each other's directories: a script that names the directory has its store there all the same, any other has one."""
    squatter = slurm.begin(2, *OTHER, "python3", "-c", SQUATTER, user="root")
    try:
        assert squatter.stdout.readline() == "here\n"
        code, out = slurm.run(HEAD + NAMES)
        assert code == 0 and "\nat /AggregateSSDstore\n" in out and "another user seems to mount there, too" in out, out
        code, out = slurm.run(HEAD + START + "echo at $FP_MOUNT\nfp-job stop\n")
        assert code == 0 and "\nat /tmp/fpstore-5001-" in out and "another job's store is just being mounted there" in out, out
    finally:
        squatter.kill()
        squatter.wait(10)
    slurm.nothing_left()
