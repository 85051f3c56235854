"""#FP store persistent=NAME and on-failure=keep: a store that outlives its jobs, with a real Slurm."""

import os
import re

from harness.daemons import wait_until

SLURM = {"nodes": 3, "cpus": 2}

HEAD = "#!/bin/bash\n#SBATCH --exclusive -w NODES\n#FP store size=256MiB pool=64MiB ssd=/srv persistent=set-1\n"
DIR = "/srv/fpstore-5001-named-set-1"


def run(slurm, nodes, text, more=""):
    return slurm.run(HEAD.replace("NODES", ",".join(slurm.names[i] for i in nodes)) + more + text)


def remove(slurm):
    for i in range(1, slurm.count + 1):
        slurm.on(i, "rm", "-rf", DIR)
    slurm.nothing_left(10)


def only_the_store_is_left(slurm, nodes):
    slurm.nothing_left(20, but=DIR)
    for i in nodes:
        assert f"file {DIR}" in slurm.left_over(i)


def test_the_next_job_finds_what_is_in_the_store(slurm):
    code, out = run(slurm, (1, 2), 'fp-job run -- srun sh -c \'mkdir -p $FP_MOUNT/d; head -c 3000000 /dev/urandom > $FP_MOUNT/d/$(hostname); sha1sum $FP_MOUNT/d/$(hostname) > sum.$(hostname)\'\n')
    assert code == 0, out
    only_the_store_is_left(slurm, (1, 2))
    want = sorted(slurm.read(f"sum.{slurm.names[i]}") for i in (1, 2))
    code, out = run(slurm, (1, 2), "fp-job run -- sh -c 'sha1sum $FP_MOUNT/d/*; echo more > $FP_MOUNT/d/more'\n")
    assert code == 0 and sorted(line + "\n" for line in out.splitlines() if "/d/" in line) == want, out
    only_the_store_is_left(slurm, (1, 2))
    code, out = run(slurm, (1, 2, 3), "fp-job run -- sh -c 'cat $FP_MOUNT/d/more; sha1sum $FP_MOUNT/d/q*'\n")  # a node more, which belongs to it from now on
    assert code == 0 and "more\n" in out and sorted(line + "\n" for line in out.splitlines() if "/d/" in line) == want, out
    only_the_store_is_left(slurm, (1, 2, 3))
    code, out = run(slurm, (1, 2), 'eval "$(fp-job start)" || exit 5\n')
    assert code == 5 and f"the store set-1 (persistent=) lies on nodes that this job does not have: {slurm.names[3]}; ask for them" in out, out
    code, out = run(slurm, (2, 3), 'eval "$(fp-job start)" || exit 5\n')
    assert code == 5 and f"does not have: {slurm.names[1]}; ask" in out, out
    only_the_store_is_left(slurm, (1, 2, 3))
    remove(slurm)


def test_what_was_closed_behind_is_in_the_store_when_it_ends(slurm):
    """On SSDs that are slower than the application: nothing is brought out of it, and all the same it is more than its own end waits for."""
    head = HEAD.replace("size=256MiB pool=64MiB ssd=/srv", "size=512MiB pool=300MiB ssd=/srv close=behind backend=emulated:write=20MB/s").replace("NODES", slurm.names[1])
    code, out = slurm.run(head + "head -c 260000000 /dev/urandom > f\nfp-job run -- sh -c 'cp f $FP_MOUNT/f'\n")
    assert code == 0, out
    code, out = slurm.run(head + "fp-job run -- sh -c 'cmp f $FP_MOUNT/f'\n")
    assert code == 0, out
    slurm.login("rm", "f")
    remove(slurm)


def shown():
    """What fp-job(1) says to call."""
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "man", "fp-job.1.in")) as f:
        lines, = re.findall(r'^\.\\" run by tests/e2e/test_job_named\.py\n\.EX\n(.*?)^\.EE', f.read(), re.M | re.S)
    return lines.replace("\\-", "-").splitlines()


def test_what_is_kept_is_told_and_removed_by_its_name(slurm):
    listing, removal = shown()
    code, out = run(slurm, (1, 2), "fp-job run -- sh -c 'head -c 3000000 /dev/urandom > $FP_MOUNT/f'\n")
    assert code == 0 and "has left" not in out, out
    other = f"#!/bin/bash\n#SBATCH --exclusive -w {','.join(slurm.names[1:4])}\n#FP store size=128MiB pool=64MiB ssd=/srv\n"
    code, out = slurm.run(other + "fp-job run -- true\n")  # says so itself, wherever its first node is
    told = re.findall(r"an earlier job of yours has left the store (\S+) on (\d) of this job's nodes \(([^,]+), [^)]+ old\): #FP store ssd=/srv persistent=set-1 finds it, fp-job clean --named=set-1 --ssd=/srv on each", out)
    assert code == 0 and [t[:2] for t in told] == [("set-1", "2")] and told[0][2].endswith("MiB"), out
    code, out = run(slurm, (1, 2), f"fp-job run -- {removal}\n")  # its own
    assert code != 0 and out.count(f"{DIR} is in use by a job of yours on this node: nothing was removed") == 2, out
    only_the_store_is_left(slurm, (1, 2))
    head = f"#!/bin/bash\n#SBATCH --exclusive -w {','.join(slurm.names[1:3])}\n"
    code, out = slurm.run(head + f"{listing}\n{removal.replace('set-1', 'set-2')} && exit 7\n{removal.replace('set-1', '../x')} && exit 8\n{removal} || exit 9\n{listing}\n")
    assert code == 0, out
    assert len(re.findall(rf"^set-1: [^,]+, [^,]+ old, of 2 nodes, {slurm.names[1]} the first: #FP store ssd=/srv persistent=set-1 finds it; fp-job clean --named=set-1 --ssd=/srv removes it$", out, re.M)) == 2, out
    assert out.count("no store set-2 of yours is kept in /srv on this node") == 2 and out.count("a name has letters, digits") == 2, out
    assert out.count(f"{DIR} is removed") == 2 and out.count("no store of yours is kept in /srv on this node") == 2, out
    slurm.nothing_left(20)


EVICTS = """eval "$(fp-job start || echo false)" || exit 5
head -c 3000000 /dev/urandom > $FP_MOUNT/f || exit 6
key=/tmp/fpstore-$(id -u)-$SLURM_JOB_ID/key
fpctl drain $FP_MOUNT/f --to=/lustre/TO --wait --timeout=60s --key=$key || exit 7
fpctl evict $FP_MOUNT/f --timeout=60s --key=$key || exit 8
fp-job stop || exit 9
ls /lustre/TO/.fp-drain
"""


def test_what_it_has_evicted_stays_its_own(slurm):
    """It relies on its copy in the target when the job has ended; a store that ends with its job does not, and the next one may replace what it has drained."""
    for to, persistent in (("named", True), ("once", False)):
        slurm.login("mkdir", f"/lustre/{to}")
        script = HEAD.replace("NODES", slurm.names[1]) + EVICTS.replace("TO", to)
        code, out = slurm.run(script if persistent else script.replace("persistent=set-1", ""))
        assert code == 0 and ("-needs-" in out) == persistent, out
    code, out = run(slurm, (1,), "fp-job run -- sh -c 'cmp $FP_MOUNT/f /lustre/named/f'\n")
    assert code == 0, out
    remove(slurm)


def test_a_node_that_comes_first_is_told(slurm):
    """Its names lie on the node that was the first."""
    code, out = run(slurm, (2, 3), "fp-job run -- true\n")
    assert code == 0, out
    code, out = run(slurm, (1, 2, 3), 'eval "$(fp-job start)" || exit 5\n')
    assert code == 5 and f"the names of the store set-1 (persistent=) lie on {slurm.names[2]}, and the first node of this job is {slurm.names[1]}" in out, out
    remove(slurm)


def test_it_outlives_a_job_that_is_killed(slurm):
    """What was closed is there: all processes of all nodes are killed at once."""
    head = HEAD.replace("NODES", ",".join(slurm.names[1:3]))
    number = slurm.up(head + 'eval "$(fp-job start)" || exit 1\nsrun sh -c "echo data > $FP_MOUNT/\\$(hostname); sync $FP_MOUNT/\\$(hostname)"\ntouch up\nsleep 600\n')
    slurm.login("scancel", "-s", "KILL", str(number))
    slurm.login("scancel", "-b", "-s", "KILL", str(number), check=False)
    slurm.end_of(number)
    code, out = run(slurm, (1, 2), "fp-job run -- sh -c 'cat $FP_MOUNT/*'\n")
    assert code == 0 and out.splitlines().count("data") == 2, out
    remove(slurm)


def test_two_jobs_at_the_same_time_are_told(slurm):
    script = "#!/bin/bash\n#SBATCH -N 1 -n 1 -w " + slurm.names[2] + "\n#FP store size=128MiB pool=64MiB ssd=/srv persistent=both mount=/tmp/mnt-$SLURM_JOB_ID\n"
    number = slurm.up(script + 'eval "$(fp-job start)" || exit 1\necho here > $FP_MOUNT/f\ntouch up\nuntil [ -e go ]; do sleep 0.1; done\nfp-job stop\n')
    code, out = slurm.run(script + 'eval "$(fp-job start)" || exit 5\n')
    assert code == 5 and "the store both (persistent=) is in use by another job of yours" in out, out
    slurm.go()
    code, out = slurm.end_of(number)
    assert code == 0, out
    code, out = slurm.run(script + "fp-job run -- sh -c 'cat $FP_MOUNT/f'\n")
    assert code == 0 and "here" in out.splitlines(), out
    slurm.on(2, "rm", "-rf", "/srv/fpstore-5001-named-both")
    slurm.nothing_left(20)


def test_a_start_that_fails_makes_no_node_part_of_it(slurm):
    """Neither a node that was to be one more, nor one that could not note it."""
    code, out = run(slurm, (1, 2), "fp-job run -- sh -c 'echo data > $FP_MOUNT/f'\n")
    assert code == 0, out
    slurm.on(3, "sh", "-c", "cp /bin/false /tmp/no; chmod 755 /tmp/no; mount --bind /tmp/no /opt/fpstore/bin/fp-benefactor", user="root")
    try:
        code, out = run(slurm, (1, 2, 3), 'eval "$(fp-job start)" || exit 5\n')
        assert code == 5 and f"{slurm.names[3]} is not ready: fp-benefactor ended with exit code 1" in out and f"{slurm.names[2]} is not ready" not in out, out
    finally:
        slurm.on(3, "sh", "-c", "umount /opt/fpstore/bin/fp-benefactor; rm /tmp/no", user="root")
    only_the_store_is_left(slurm, (1, 2))
    slurm.on(2, "mkdir", DIR + "/store.json.new")  # nothing can be written there
    code, out = run(slurm, (1, 2), 'eval "$(fp-job start)" || exit 5\n')
    assert code == 5 and f"{slurm.names[2]} is not ready: {DIR}: that this store outlives the job can't be noted: " in out, out
    slurm.on(2, "rmdir", DIR + "/store.json.new")
    code, out = run(slurm, (1, 2), "fp-job run -- sh -c 'cat $FP_MOUNT/f'\n")
    assert code == 0 and "data" in out.splitlines(), out
    remove(slurm)


KEEPS = "#!/bin/bash\n#SBATCH --exclusive -w NODES\n#FP store size=256MiB pool=64MiB ssd=/srv on-failure=keep\n#FP stage-out f* to=/lustre/TO\n"


def keeps(slurm, to):
    return KEEPS.replace("NODES", ",".join(slurm.names[1:3])).replace("TO", to)


def data_is_found(slurm, name):
    """By a job that gives its name; then it is removed."""
    path = f"/srv/fpstore-5001-named-{name}"
    slurm.nothing_left(20, but=path)
    assert all(f"file {path}" in slurm.left_over(i) for i in (1, 2))
    code, out = slurm.run(f"#!/bin/bash\n#SBATCH --exclusive -w {','.join(slurm.names[1:3])}\n#FP store size=256MiB pool=64MiB ssd=/srv persistent={name}\nfp-job run -- sh -c 'cat $FP_MOUNT/f*'\n")
    assert code == 0 and out.splitlines().count("data") == 2, out
    for i in (1, 2):
        slurm.on(i, "rm", "-rf", path)
    slurm.nothing_left(10)


WRITES = "srun sh -c 'echo data > $FP_MOUNT/f$(hostname)'"


def test_what_could_not_be_brought_out_is_kept(slurm):
    """And only that: once it is out, nothing stays."""
    slurm.login("mkdir", "/lustre/gone")
    code, out = slurm.run(keeps(slurm, "gone/to") + f'eval "$(fp-job start)" || exit 5\nrmdir /lustre/gone\n{WRITES}\nfp-job stop\n')
    told = re.search(r"stays on the SSDs of this job's nodes, as /srv/fpstore-5001-named-(job-\d+): a job on the same nodes, (\S+) as the first, finds it with #FP store ssd=/srv persistent=\1;", out)
    assert code == 1 and told and told[2] == slurm.names[1], out
    data_is_found(slurm, told[1])
    code, out = slurm.run(keeps(slurm, "there") + f"fp-job run -- {WRITES}\nls /lustre/there\n")
    assert code == 0 and f"f{slurm.names[2]}" in out.splitlines() and "WARN" not in out, out
    slurm.nothing_left(20)


def test_what_a_cancelled_job_had_is_kept(slurm):
    number = slurm.up(keeps(slurm, "there") + 'eval "$(fp-job start)" || exit 1\n' + WRITES.replace("f$(hostname)", "f$(hostname); sync $FP_MOUNT/f$(hostname)") + "\ntouch up\nsleep 600\n")
    slurm.login("scancel", str(number))
    slurm.wait_state(number, "CANCELLED")
    data_is_found(slurm, f"job-{number}")


def test_what_a_job_had_whose_run_was_killed_is_kept(slurm):
    slurm.write("app", "#!/bin/sh\n" + WRITES.replace("f$(hostname)'", "f$(hostname); sync $FP_MOUNT/f$(hostname)'") + "\ntouch up\nsleep 600\n")
    number = slurm.up(keeps(slurm, "there") + "fp-job run -- ./app\nuntil [ -e go ]; do sleep 0.1; done\nexit 9\n")
    run, = slurm.processes(1, "fp-job", "run")
    slurm.kill(1, run)
    wait_until("the store to end", 30, lambda: not any(slurm.processes(i, "fp-job") for i in (1, 2)))
    slurm.go()
    assert slurm.end_of(number)[0] == 9
    data_is_found(slurm, f"job-{number}")


def test_of_a_start_that_fails_nothing_is_kept(slurm):
    code, out = slurm.run(keeps(slurm, "there") + '#FP stage-in /lustre/none/*\neval "$(fp-job start)" || exit 5\n')
    assert code == 5, out
    slurm.nothing_left(20)
