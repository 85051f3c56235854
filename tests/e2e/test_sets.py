"""Checkpoint sets on real mounts: fpctl checkpoints, checkpoint latest, commit, forget."""

import errno
import json
import os
import re
import shutil
import subprocess
import time

import pytest

from harness.daemons import PACE, SLOW, bin_path, wait_until
from harness.files import content, write_file

NAMES = {  # as the programs write them: files of one step, and what latest is to print
    "flash": (["flash_hdf5_chk_0007"], "flash_hdf5_chk_0007", 7),
    "pytorch": (["step-1200/__0_0.distcp", "step-1200/__1_0.distcp", "step-1200/.metadata"], "step-1200", 1200),
    "heat3d": (["chk_0007/rank_0", "chk_0007/rank_1"], "chk_0007", 7),
    "lammps": (["restart.5000.0", "restart.5000.1"], "restart.5000", 5000),
    "amrex": (["chk00100/Header", "chk00100/Level_0/Cell_D_00000"], "chk00100", 100),
    "deepspeed": (["checkpoint-500/global_step500/mp_rank_00.pt", "checkpoint-500/config.json"], "checkpoint-500", 500),
}


def sets(store, *args):
    return json.loads(store.fpctl("checkpoints", "--json", *args).stdout)["checkpoints"]


def latest(store, path):
    r = store.fpctl("checkpoint", "latest", path, check=False)
    return r.stdout.strip() if r.returncode == 0 else r.returncode


def put(base, name, data=b"x" * 1000):
    path = os.path.join(base, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_file(path, data)
    return path


@pytest.fixture
def quick(new_store):
    """A store whose sets are complete half a second after their last change; two mounts."""
    s = new_store()
    return s.up(benefactors=1, mounts=2, manager_args=("--ckpt-quiet=500ms", "--ckpt-late=3s"))


def test_the_latest_is_waited_for_while_it_settles(quick):
    """A job that begins anew in the moment in which the last one has ended."""
    a = quick.mounts[0].path
    put(f"{a}/run/chk_1", "data")
    assert latest(quick, f"{a}/run") == f"{a}/run/chk_1"
    with open(f"{a}/run/chk_1/more", "wb") as f:  # while somebody writes it, it is not: that may take hours
        f.write(b"x")
        f.flush()
        begun = time.monotonic()
        assert latest(quick, f"{a}/run") == 3
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize("app", NAMES)
def test_sets_of_real_programs(quick, app):
    files, path, step = NAMES[app]
    a, b = (m.path for m in quick.mounts)
    os.mkdir(f"{a}/run")
    for i, name in enumerate(files):
        put(f"{(a, b)[i % 2]}/run", name)
    wait_until("the set", 20, lambda: latest(quick, f"{a}/run") == f"{a}/run/{path}")
    assert latest(quick, f"{b}/run") == f"{b}/run/{path}"
    one, = sets(quick, f"{a}/run")
    assert (one["step"], one["files"], one["bytes"], one["state"]) == (step, len(files), 1000 * len(files), "complete")
    text = quick.fpctl("checkpoints", a, "--files").stdout
    assert all(f"{a}/run/{name}" in text for name in files)


@pytest.mark.parametrize("form,path", [("{:05}/rank_0", "{:05}"), ("{}.dat", "{}.dat"), ("out/{}/a", "out/{}")])
def test_numbers_without_a_word_that_grow(quick, form, path):
    """Three are known by their steps; those before come with them. Two mounts take turns, and the manager is started anew between them."""
    mounts = [m.path for m in quick.mounts]
    os.mkdir(f"{mounts[0]}/run")
    steps = []
    while not sets(quick, mounts[0]):
        steps.append(100 * (len(steps) + 1))
        put(f"{mounts[len(steps) % 2]}/run", form.format(steps[-1]))
        if len(steps) == 2:
            quick.manager.kill()
            quick.restart_manager()
        time.sleep(1)  # a pause: twice --ckpt-quiet since it was closed, or less where that is told late: then it takes more of them
        assert len(steps) < 30
    assert len(steps) >= 3
    steps.append(steps[-1] + 50)  # known by now: no pause, and another interval
    put(f"{mounts[0]}/run", form.format(steps[-1]))
    wait_until("all of them", 30, lambda: [s["state"] for s in sets(quick, mounts[0])] == ["complete"] * len(steps))
    found = sets(quick, mounts[0])
    assert [s["step"] for s in found] == steps[::-1] and all(s["how"] == "growth" and s["files"] == 1 for s in found), found
    assert latest(quick, f"{mounts[1]}/run") == f"{mounts[1]}/run/{path.format(steps[-1])}"


def test_times_with_decimals(quick):
    """As OpenFOAM names its directories."""
    a = quick.mounts[0].path
    n = 0
    while not sets(quick, a):
        n += 1
        put(f"{a}", f"{n // 4}.{25 * (n % 4):02}/U")
        time.sleep(1)  # a pause, as above
        assert n < 30
    put(a, "100/U")
    wait_until("the set", 30, lambda: latest(quick, a) == f"{a}/100")
    steps = [line.split()[1] for line in quick.fpctl("checkpoints", a).stdout.splitlines()[1:]]
    assert len(steps) == n + 1 and "100" in steps and "0.25" in steps and "0.5" in steps, steps
    assert max(s["step"] for s in sets(quick, a)) == 100_000_000


def test_numbers_of_ranks_are_no_steps(quick):
    """All are open before the first is closed, however long that takes; and what is in a directory with a number belongs to that."""
    a, b = (m.path for m in quick.mounts)
    files = []
    for rank in range(4):
        files.append(open(f"{(a, b)[rank % 2]}/out.{rank}", "wb"))
        files[-1].write(b"x" * 1000)
        put(a, f"2019/{rank + 1:02}")
        time.sleep(0.6)
    for f in files:
        f.close()
    assert sets(quick, a) == []


def test_a_set_is_open_as_long_as_another_mount_writes(quick):
    a, b = (m.path for m in quick.mounts)
    put(a, "chk_1/rank_0")
    wait_until("the set", 20, lambda: latest(quick, a) == f"{a}/chk_1")
    put(a, "chk_2/rank_0")
    with open(f"{b}/chk_2/rank_1", "wb") as f:
        f.write(b"y" * 5000)
        time.sleep(2 * PACE)
        assert latest(quick, a) == f"{a}/chk_1"
        newest = sets(quick, a)[0]
        assert (newest["step"], newest["state"], newest["writers"]) == (2, "open", 1)
    wait_until("the set", 20, lambda: latest(quick, a) == f"{a}/chk_2")


def test_commit_waits_for_writers_and_names_them(quick):
    a, b = (m.path for m in quick.mounts)
    put(a, "chk_1/rank_0")
    with open(f"{b}/chk_1/rank_1", "wb"):
        late = quick.fpctl("checkpoint", "commit", f"{a}/chk_1", "--timeout=700ms", check=False)
        assert late.returncode == 3 and "/chk_1/rank_1 is open on" in late.stderr, late.stderr
    quick.fpctl("checkpoint", "commit", f"{a}/chk_1", "--timeout=20s")
    assert latest(quick, a) == f"{a}/chk_1"
    put(a, "anything/else")
    quick.fpctl("checkpoint", "commit", f"{a}/anything")  # no name of a set
    assert latest(quick, a) == f"{a}/anything"
    quick.fpctl("checkpoint", "forget", f"{a}/anything")
    assert latest(quick, a) == f"{a}/chk_1"
    assert quick.fpctl("checkpoint", "commit", a, "--step=99", check=False).returncode == 1
    os.mkdir(f"{a}/empty")
    r = quick.fpctl("checkpoint", "commit", f"{a}/empty", check=False)
    assert r.returncode == 1 and "there is no file in" in r.stderr, (r.returncode, r.stderr)


def test_commit_says_what_name_it_waits_for(quick):
    a = quick.mounts[0].path
    put(a, "chk_1/rank_0")
    put(a, "chk_1/rank_1.tmp")
    late = quick.fpctl("checkpoint", "commit", f"{a}/chk_1", "--timeout=700ms", check=False)
    assert late.returncode == 3 and "not complete yet: 1 of its files has a temporary name still" in late.stderr, late.stderr
    os.rename(f"{a}/chk_1/rank_1.tmp", f"{a}/chk_1/rank_1")
    quick.fpctl("checkpoint", "commit", f"{a}/chk_1", "--timeout=20s")


def test_there_is_no_set(quick):
    a = quick.mounts[0].path
    assert latest(quick, a) == 3
    put(a, "README")
    assert sets(quick, a) == [] and "No checkpoint set" in quick.fpctl("checkpoints", a).stdout
    r = quick.fpctl("checkpoints", f"{a}/nothing", check=False)
    assert r.returncode == 1


def test_sets_outlast_a_restart_of_the_manager(quick):
    a, b = (m.path for m in quick.mounts)
    put(a, "chk_1/rank_0")
    wait_until("the set", 20, lambda: latest(quick, a) == f"{a}/chk_1")
    with open(f"{b}/chk_2", "wb") as f:
        f.write(b"z" * 100)
        quick.manager.kill()
        quick.restart_manager()
        wait_until("the set", 30, lambda: any(s["step"] == 2 and s["writers"] == 1 for s in sets(quick, a)))
        time.sleep(3 * PACE)
        assert latest(quick, a) == f"{a}/chk_1"
    wait_until("the set", 30, lambda: latest(quick, a) == f"{a}/chk_2")


def test_a_mount_that_is_killed_tears_its_set(new_store):
    s = new_store()
    s.up(benefactors=1, mounts=2, manager_args=("--ckpt-quiet=500ms", "--session-timeout=2s", "--orphan-grace=1s"))
    a, b = (m.path for m in s.mounts)
    put(a, "chk_1/rank_0")
    f = open(f"{b}/chk_1/rank_1", "wb")
    f.write(b"y" * 5000)
    f.flush()
    s.mounts[1].kill()
    wait_until("the set", 30, lambda: sets(s, a)[0]["state"] == "torn")
    assert latest(s, a) == 3
    [torn] = json.loads(s.fpctl("checkpoints", a, "--files", "--json").stdout)["checkpoints"]
    assert torn["torn"] == {"files": 1, "or_more": False, "first": f"{a}/chk_1/rank_1"} and torn["level"] == "none"
    assert {os.path.basename(x["path"]): x["torn"] for x in torn["files_of_it"]} == {"rank_0": False, "rank_1": True}
    assert re.search(rf"torn +none .*{a}/chk_1/rank_1: a mount or a program that was writing a file of it is gone", s.fpctl("checkpoints", a).stdout)
    assert os.getxattr(f"{a}/chk_1", "user.fp.level") == b"none"
    try:
        f.close()
    except OSError:
        pass
    s.manager.kill()
    s.manager.start()
    put(a, "chk_1/rank_2")  # another file of it does not make it whole
    wait_until("the set", 30, lambda: sets(s, a)[0]["state"] == "torn")
    put(a, "chk_1/rank_1")
    wait_until("the set", 30, lambda: sets(s, a)[0]["state"] == "complete")
    assert latest(s, a) == f"{a}/chk_1" and sets(s, a)[0]["torn"] is None


def test_a_directory_of_sets_is_not_taken_for_one(quick):
    a = quick.mounts[0].path
    put(a, "run/chk_1/rank_0")
    r = quick.fpctl("checkpoint", "commit", f"{a}/run", check=False)
    assert r.returncode != 0 and "give the directory" in r.stderr
    wait_until("the set", 30, lambda: sets(quick, a)[0]["state"] == "complete")
    assert latest(quick, a) == f"{a}/run/chk_1"
    quick.fpctl("checkpoint", "forget", f"{a}/run/chk_1")
    r = quick.fpctl("checkpoint", "commit", f"{a}/run/chk_1", check=False)
    assert r.returncode != 0 and "forget" in r.stderr


def test_half_of_a_set_is_not_the_latest(quick):
    """A job that is killed between two files of a step: nobody writes any more, and time completes what is there."""
    a = quick.mounts[0].path
    for step in (1, 2):
        for rank in range(3):
            put(a, f"run/chk_{step}/rank_{rank}")
        wait_until("the set", 30, lambda: latest(quick, a) == f"{a}/run/chk_{step}")
    put(a, "run/chk_3/rank_0")
    wait_until("the half", 30, lambda: sets(quick, a)[0]["state"] == "complete")
    half = sets(quick, a)[0]
    assert (half["step"], half["files"], half["files_before"]) == (3, 1, 3) and "those before have 3 files" in half["why"]
    assert latest(quick, a) == f"{a}/run/chk_2"
    assert quick.fpctl("checkpoint", "latest", "--complete", a).stdout.strip() == f"{a}/run/chk_2"
    for step in (1, 2):
        shutil.rmtree(f"{a}/run/chk_{step}")
    wait_until("the others to be gone", 30, lambda: latest(quick, a) == f"{a}/run/chk_3")
    r = quick.fpctl("checkpoint", "latest", "--complete", a, check=False)
    assert r.returncode == 3 and not r.stdout, r.stdout + r.stderr
    quick.fpctl("checkpoint", "commit", f"{a}/run/chk_3")  # who says so knows
    assert latest(quick, a) == f"{a}/run/chk_3" and sets(quick, a)[0]["files_before"] == 0


def test_what_a_set_takes_alone(quick):
    """A file that another set has a copy of without a byte being copied is no longer its own, and it is again when that one goes."""
    mib = 1 << 20
    a, b = (m.path for m in quick.mounts)
    for rank, seed in ((0, 1), (1, 2)):
        put(a, f"chk_1/rank_{rank}", content(seed, 0, 4 * mib))

    def unique(step):
        return next(s for s in sets(quick, a) if s["step"] == step)["unique_bytes"]

    wait_until("the set", 30, lambda: sets(quick, a)[0]["state"] == "complete")
    wait_until("its size", 30, lambda: unique(1) is not None)
    assert unique(1) == 8 * mib
    head, line = quick.fpctl("checkpoints", a).stdout.splitlines()[:2]
    assert "unique" in head and line.count(" 8 MiB ") == 2, line
    os.mkdir(f"{b}/chk_2")
    with open(f"{b}/chk_1/rank_0", "rb") as src, open(f"{b}/chk_2/rank_0", "wb") as dst:
        left = 4 * mib
        while left:
            left -= os.copy_file_range(src.fileno(), dst.fileno(), left)
        dst.write(b"more")
    put(b, "chk_2/rank_1", content(3, 0, mib))
    assert unique(2) is None
    wait_until("the second set", 30, lambda: sets(quick, a)[0]["state"] == "complete")
    wait_until("what is shared", 60, lambda: unique(1) == 4 * mib)
    assert unique(2) == mib + 4
    shutil.rmtree(f"{a}/chk_2")
    wait_until("all of it again", 60, lambda: unique(1) == 8 * mib)


def test_watch(quick):
    a = quick.mounts[0].path
    put(a, "chk_1/rank_0")
    p = subprocess.Popen([bin_path("fpctl"), "checkpoints", a, "--watch", "--all"], stdout=subprocess.PIPE, text=True)
    lines = 0
    for line in p.stdout:
        lines += f"{a}/chk_1" in line
        if lines == 3:
            break
    p.terminate()
    p.wait(20 * SLOW)


def convert(base, name, main, data):
    """As a converter makes a result: under a name of its own, marked, renamed."""
    tmp = put(base, ".fp-convert-abcXYZ", data)
    os.setxattr(tmp, "user.fp.converted", main.encode())
    os.rename(tmp, os.path.join(base, name))


def test_results_of_conversions_are_sets_of_their_own(quick):
    """The raw set is not opened again, and a policy drains only the result."""
    a, b = (m.path for m in quick.mounts)
    target = quick.make_dir("target")
    quick.fpctl("drain", "set", f"to={target} pattern=run/dump_{{step}}.h5 every=1")
    for i in range(2):
        put(f"{(a, b)[i]}/run", f"dump_0007.{i}")
    put(f"{a}/run", "dump_0008/rank_0")
    wait_until("the raw sets", 20, lambda: [s["state"] for s in sets(quick, f"{a}/run")] == ["complete"] * 2)
    raw = {s["path"]: s for s in sets(quick, f"{a}/run")}
    convert(f"{b}/run", "dump_0007.h5", "dump_0007.h5", content(1, 0, 50_000))
    convert(f"{a}/run", "dump_0007.xmf", "dump_0007.h5", b"about it")
    convert(f"{a}/run/dump_0008", "all.nc", "all.nc", b"without a step")  # in a directory that is a set
    wait_until("the result", 30, lambda: [s["state"] for s in sets(quick, f"{a}/run") if s["how"] == "converted"] == ["complete"])
    now = {s["path"]: s for s in sets(quick, f"{a}/run")}
    own = now.pop(f"{a}/run/dump_0007.h5")
    assert (own["step"], own["files"], own["how"], own["series"]) == (7, 2, "converted", "/run/dump_#.h5"), own
    assert {p: (s["generation"], s["files"], s["state"]) for p, s in now.items()} == {p: (s["generation"], s["files"], "complete") for p, s in raw.items()}
    assert f"{a}/run/dump_0007.h5" in quick.fpctl("checkpoints", a).stdout
    assert latest(quick, f"{a}/run") == f"{a}/run/dump_0008"
    wait_until("the drain", 60, lambda: os.path.exists(f"{target}/run/dump_0007.h5"))
    wait_until("its end", 60, lambda: all(j["state"] == "done" for j in json.loads(quick.fpctl("drain", "show", "--json").stdout)["jobs"]))
    assert sorted(os.listdir(f"{target}/run")) == ["dump_0007.h5", "dump_0007.xmf"]
    with open(f"{target}/run/dump_0007.h5", "rb") as f:
        assert f.read() == content(1, 0, 50_000)


def test_files_and_directories_say_of_which_set_they_are(quick):
    a, b = (m.path for m in quick.mounts)

    def of(path):
        return os.getxattr(path, "user.fp.set").decode().split()

    rank, main = put(a, "run/chk_0007/rank_0"), put(b, "run/restart.5000")
    with open(rank, "ab") as f:
        f.write(b"more")
        state, series, step = of(f"{b}/run/chk_0007")
        assert (state, step) == ("open", "7") and of(rank) == [state, series, step]
    wait_until("the set", 20, lambda: of(rank)[0] == "complete")
    assert of(f"{a}/run/chk_0007") == of(rank) == ["complete", series, "7"]
    put(a, "run/chk_0008/rank_0")
    assert of(f"{a}/run/chk_0008")[1:] == [series, "8"]
    wait_until("the file", 20, lambda: of(main)[0] == "complete")
    assert of(main)[1] != series and of(main)[2] == "5000"
    quick.fpctl("checkpoint", "forget", f"{a}/run/chk_0007")
    assert of(rank) == of(f"{b}/run/chk_0007") == ["forgotten", series, "7"]
    for path in (a, f"{a}/run", put(a, "anything")):
        with pytest.raises(OSError) as e:
            of(path)
        assert e.value.errno == errno.ENODATA
    with pytest.raises(OSError) as e:
        os.setxattr(rank, "user.fp.set", b"complete")
    assert e.value.errno == errno.EPERM and "user.fp.set" not in os.listxattr(rank)


def test_conversions_are_shown_and_waited_for(quick):
    """What a converter says of itself: in fpctl checkpoints with the whole reason, in fpctl conversions, and by the exit code of --wait."""
    a, b = (m.path for m in quick.mounts)

    def conversions(*args, code=0):
        r = quick.fpctl("conversions", *args, "--json", check=False, seconds=30)
        assert r.returncode == code, r
        return {c["path"]: c for c in json.loads(r.stdout)["conversions"]}

    def say(path, text):
        os.setxattr(path, "user.fp.convert", text.encode())

    for step in (1, 2, 3):
        put(a, f"run/chk_{step}/rank_0")
    lone = put(b, "lone")
    assert conversions("--wait") == {} and "convert" not in quick.fpctl("checkpoints", a).stdout.splitlines()[0]
    assert "No conversion here" in quick.fpctl("conversions", a).stdout
    wait_until("the sets", 20, lambda: [s["state"] for s in sets(quick, a)] == ["complete"] * 3)
    reason = "run/chk_2/rank_0: dataset u: byte 800: it ends before the last value: write it anew"
    for path, text in ((f"{a}/run/chk_1", "running 10 %"), (f"{b}/run/chk_2", f"failed: {reason}"), (f"{a}/run/chk_3", "waiting"), (lone, "done lone.h5")):
        say(path, text)
    assert [s["state"] for s in sets(quick, a)] == ["complete"] * 3
    assert {s["step"]: s["convert"] for s in sets(quick, a)} == {1: "running 10 %", 2: f"failed: {reason}", 3: "waiting"}
    text = quick.fpctl("checkpoints", a).stdout
    assert "convert" in text.splitlines()[0] and reason in text, text
    now = conversions(a)
    assert {p: (c["state"], c["set"]) for p, c in now.items()} == {
        f"{a}/run/chk_1": ("running", "complete"), f"{a}/run/chk_2": ("failed", "complete"), f"{a}/run/chk_3": ("waiting", "complete"), f"{a}/lone": ("done", "none")}
    assert now[f"{a}/run/chk_2"]["reason"] == reason and now[f"{a}/lone"]["result"] == "lone.h5"
    assert set(conversions(f"{a}/run/chk_2")) == {f"{a}/run/chk_2"} and set(conversions(f"{a}/run")) == set(now) - {f"{a}/lone"}
    assert reason in quick.fpctl("conversions", a).stdout
    late = quick.fpctl("conversions", a, "--wait", "--timeout=700ms", check=False)
    assert late.returncode == 3 and "2 of 4 conversions have not ended" in late.stderr, late
    wait = subprocess.Popen([bin_path("fpctl"), "conversions", f"{a}/run", "--wait", "--timeout=60s", "--json"], stdout=subprocess.PIPE, text=True)
    time.sleep(1 * PACE)
    say(f"{a}/run/chk_1", "done chk_1.h5")
    shutil.rmtree(f"{a}/run/chk_3")
    out = json.loads(wait.communicate(timeout=60 * SLOW)[0])["conversions"]
    assert wait.returncode == 4 and [c["state"] for c in out] == ["done", "failed", "gone"], out
    say(f"{a}/run/chk_2", "waiting")
    quick.fpctl("checkpoint", "forget", f"{a}/run/chk_2")  # is not waited for
    assert {c["path"]: (c["state"], c["set"]) for c in conversions(a, "--wait").values()} == {
        f"{a}/run/chk_1": ("done", "complete"), f"{a}/run/chk_2": ("waiting", "forgotten"), f"{a}/lone": ("done", "none")}
