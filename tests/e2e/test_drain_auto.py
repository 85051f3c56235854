"""Draining by itself: each so many-th checkpoint set goes to the target, once, without anybody asking for it."""

import json
import os
import re
import time

import pytest

from harness.daemons import PACE, wait_until
from harness.files import assert_same, content, write_file

RANK = 300_000
RANKS = 4


@pytest.fixture
def quick(new_store):
    """A store whose sets are complete half a second after their last change; two mounts, two benefactors, and a target."""
    s = new_store()
    s.up(benefactors=2, mounts=2, manager_args=("--ckpt-quiet=500ms", "--ckpt-late=3s"))
    s.target = s.make_dir("target")
    return s


def show(store):
    return json.loads(store.fpctl("drain", "show", "--json").stdout)


def checkpoint(store, step):
    """Ranks of two mounts write one step; waits until it is complete."""
    top = f"run/chk_{step:04}"
    os.makedirs(store.mounts[0].at(top))
    for r in range(RANKS):
        write_file(store.mounts[r % 2].at(f"{top}/rank_{r}"), content(step * 100 + r, 0, RANK + r))
    path = store.mounts[0].at(top)
    wait_until("the set", 30, lambda: store.fpctl("checkpoint", "latest", store.mounts[0].at("run"), check=False).stdout.strip() == path)


def files_below(path):
    """Name -> (inode, size) of all files that are not fpstore's own."""
    found = {}
    for at, dirs, files in os.walk(path):
        dirs[:] = [d for d in dirs if d != ".fp-drain"]
        for f in files:
            if f != ".fp-target":
                s = os.stat(os.path.join(at, f))
                found[os.path.relpath(os.path.join(at, f), path)] = (s.st_ino, s.st_size)
    return found


def is_idle(store):
    return all(j["state"] == "done" for j in show(store)["jobs"])


def test_without_a_target_all_policies_targets_get_it(quick):
    """The end of a job script: it names none, whatever policies there are."""
    other = quick.make_dir("other")
    for to in (quick.target, other):
        quick.fpctl("drain", "set", f"to={to} every=none results=nothing")
    checkpoint(quick, 1)
    write_file(quick.mounts[0].at("result"), content(7, 0, RANK))
    for args, there in ((("--last",), "run/chk_0001/rank_0"), (("--all",), "result")):
        r = quick.fpctl("drain", *args, "--wait", "--timeout=60s", seconds=80)
        lines = r.stdout.splitlines()
        assert len(lines) == 2 and all(": done: " in line for line in lines), r
        for to in (quick.target, other):
            assert sum(f" to {to}" in line for line in lines) == 1, r
            assert os.path.exists(os.path.join(to, there)), to
    # one that takes nothing does not keep the other from getting it, and is what the exit code says
    quick.expect("target")
    write_file(quick.mounts[0].at("result"), content(8, 0, RANK))
    os.rename(other, other + ".aside")
    r = quick.fpctl("drain", quick.mounts[0].at("result"), "--wait", "--timeout=5s", check=False, seconds=30)
    lines = r.stdout.splitlines()
    assert r.returncode == 3 and len(lines) == 2 and ": done: " in lines[0] and ": running: " in lines[1], r
    with open(os.path.join(quick.target, "result"), "rb") as f:
        assert_same(f.read(), content(8, 0, RANK))


@pytest.mark.limit(150)
def test_every_fourth_set_is_a_quarter_of_the_data_once(quick):
    """The bytes in the target are those of each fourth set, each written once: a second writing would be another inode."""
    quick.fpctl("drain", "set", f"to={quick.target} every=4")
    seen = {}
    for step in range(1, 9):
        checkpoint(quick, step)
        now = files_below(quick.target)
        assert all(now[n] == seen[n] for n in seen), "written again"
        seen = now
    wait_until("the end of the jobs", 60, lambda: len(show(quick)["jobs"]) == 2 and is_idle(quick))
    there = files_below(quick.target)
    assert all(there[n] == seen[n] for n in seen), "written again"
    assert set(there) == {f"run/chk_{step:04}/rank_{r}" for step in (4, 8) for r in range(RANKS)}
    all_bytes = sum(size for _, size in files_below(quick.mounts[0].path).values())
    assert sum(size for _, size in there.values()) * 4 == all_bytes
    for step in (4, 8):
        for r in range(RANKS):
            with open(os.path.join(quick.target, f"run/chk_{step:04}/rank_{r}"), "rb") as f:
                assert_same(f.read(), content(step * 100 + r, 0, RANK + r))
    policy, = show(quick)["policies"]
    assert (policy["sets_seen"], policy["sets_chosen"]) == (8, 2)
    assert {(j["kind"], j["path"], j["bytes_done"]) for j in show(quick)["jobs"]} == {
        ("set", f"run/chk_{step:04}", sum(RANK + r for r in range(RANKS))) for step in (4, 8)}
    assert not os.listdir(os.path.join(quick.target, ".fp-drain"))


def test_a_pattern_says_which_files_are_checkpoints(quick):
    """Names without a word become sets, of two mounts, and only what matches is drained; also when the manager is started anew."""
    a, b = quick.mounts
    quick.fpctl("drain", "set", f"to={quick.target} pattern=out/{{step}}/*.h5,state_{{step}}.*")
    wrong = quick.fpctl("drain", "set", f"to={quick.target} pattern=out/*.h5", check=False)
    assert wrong.returncode == 1 and "write {step} where the number of the step stands" in wrong.stderr, wrong.stderr
    for d in ("out/00100", "out/plots_7", "run/chk_0001"):
        os.makedirs(a.at(d))
    files = {"out/00100/rank_0.h5": 1, "out/00100/notes": 2, "state_7.a": 3, "state_7.b": 4}
    others = {"out/plots_7/p.h5": 5, "run/chk_0001/rank_0": 6}
    for name, seed in {**files, **others}.items():
        write_file((a, b)[seed % 2].at(name), content(seed, 0, RANK))

    def states():
        return {(s["path"], s["step"]): s["state"] for s in json.loads(quick.fpctl("checkpoints", "--json", a.path).stdout)["checkpoints"]}

    want = {(a.at("out/00100"), 100): "complete", (a.at("state_7"), 7): "complete", (a.at("run/chk_0001"), 1): "complete"}
    wait_until("the sets", 30, lambda: states() == want)
    wait_until("the end of the jobs", 60, lambda: len(show(quick)["jobs"]) == 2 and is_idle(quick))
    assert set(files_below(quick.target)) == set(files)
    for name, seed in files.items():
        with open(os.path.join(quick.target, name), "rb") as f:
            assert_same(f.read(), content(seed, 0, RANK))
    quick.manager.kill()
    quick.restart_manager()
    os.makedirs(a.at("out/00200.tmp"))
    write_file(a.at("out/00200.tmp/rank_0.h5"), content(8, 0, RANK))
    os.rename(a.at("out/00200.tmp"), a.at("out/00200"))
    wait_until("the third job", 60, lambda: len(show(quick)["jobs"]) == 3 and is_idle(quick))
    assert set(files_below(quick.target)) == {*files, "out/00200/rank_0.h5"}
    assert states()[(a.at("out/00200"), 200)] == "complete"


def test_a_policy_says_when_a_set_is_complete(quick):
    """No pause completes a set of a policy with complete=told, and nothing of it is drained before its marker is closed; others are complete as ever."""
    a, b = quick.mounts
    quick.fpctl("drain", "set", f"to={quick.target} pattern=run/chk_{{step}}/* complete=told marker=ok")
    for d in ("run/chk_1", "run/step_5"):
        os.makedirs(a.at(d))
        write_file(a.at(f"{d}/rank_0"), content(1, 0, RANK))

    def one(step):
        return next(s for s in json.loads(quick.fpctl("checkpoints", "--json", a.path).stdout)["checkpoints"] if s["step"] == step)

    wait_until("the other set", 30, lambda: one(5)["state"] == "complete")
    write_file(b.at("run/chk_1/DONE"), b"")  # not the name that was agreed upon
    time.sleep(4 * PACE)
    assert one(1)["state"] == "open" and "complete=told" in one(1)["why"], one(1)
    assert files_below(quick.target) == {}
    with open(b.at("run/chk_1/ok"), "wb") as f:
        f.write(b"1")
        time.sleep(2 * PACE)
        assert one(1)["state"] == "open"
    wait_until("the set", 30, lambda: one(1)["state"] == "complete")
    wait_until("the copy", 60, lambda: len(show(quick)["jobs"]) == 1 and is_idle(quick))
    assert set(files_below(quick.target)) == {"run/chk_1/rank_0", "run/chk_1/DONE", "run/chk_1/ok"}
    # the same names in the next run: what is rewritten is open until the marker is closed again
    write_file(a.at("run/chk_1/rank_0"), content(2, 0, RANK))
    time.sleep(3 * PACE)
    assert one(1)["state"] == "open"
    write_file(b.at("run/chk_1/ok"), b"2")
    wait_until("the second copy", 60, lambda: len(show(quick)["jobs"]) == 2 and is_idle(quick))
    with open(os.path.join(quick.target, "run/chk_1/rank_0"), "rb") as f:
        assert_same(f.read(), content(2, 0, RANK))


def test_a_set_that_grows_late_is_copied_once(quick):
    """A rank that comes late opens the set again: what it adds is drained, what is there is not written again."""
    quick.fpctl("drain", "set", f"to={quick.target}")
    checkpoint(quick, 1)
    wait_until("the first copy", 30, lambda: len(files_below(quick.target)) == RANKS and is_idle(quick))
    before = files_below(quick.target)
    write_file(quick.mounts[1].at("run/chk_0001/rank_late"), content(77, 0, RANK))
    wait_until("the late file", 30, lambda: len(files_below(quick.target)) == RANKS + 1 and is_idle(quick))
    after = files_below(quick.target)
    assert {n: after[n] for n in before} == before
    assert [j["state"] for j in show(quick)["jobs"]] == ["done", "done"]


def test_a_set_written_anew_is_drained_anew(quick):
    """Two names in turn, as programs do that keep two checkpoints: each time that one is rewritten is a checkpoint."""
    quick.fpctl("drain", "set", f"to={quick.target} every=2")
    checkpoint(quick, 1)
    checkpoint(quick, 2)
    wait_until("the first copy", 30, lambda: len(files_below(quick.target)) == RANKS and is_idle(quick))
    for step in (1, 2):
        for r in range(RANKS):
            write_file(quick.mounts[r % 2].at(f"run/chk_{step:04}/rank_{r}"), content(9000 + step * 100 + r, 0, RANK))
        wait_until("the count", 30, lambda: show(quick)["policies"][0]["sets_seen"] == 2 + step)
    wait_until("the second copy", 30, lambda: len(show(quick)["jobs"]) == 2 and is_idle(quick))
    assert {n.split("/")[1] for n in files_below(quick.target)} == {"chk_0002"}
    for r in range(RANKS):
        with open(os.path.join(quick.target, f"run/chk_0002/rank_{r}"), "rb") as f:
            assert_same(f.read(), content(9200 + r, 0, RANK))


def test_sets_of_before_a_policy_are_not_its(quick):
    checkpoint(quick, 1)
    quick.fpctl("drain", "set", f"to={quick.target}")
    checkpoint(quick, 2)
    wait_until("the copy", 30, lambda: len(files_below(quick.target)) == RANKS and is_idle(quick))
    assert {n.split("/")[1] for n in files_below(quick.target)} == {"chk_0002"}
    quick.fpctl("drain", "remove", "1")
    checkpoint(quick, 3)
    assert len(show(quick)["jobs"]) == 1


@pytest.mark.limit(240)
def test_auto_drains_as_many_sets_as_a_slow_target_takes(quick, targets):
    """Sets come several times as fast as the target takes them: some are drained, whole, and never do more than two wait; fpctl says how many and why."""
    disk, size, most = targets.slow(emulate="write=1MB/s"), 1 << 20, 0
    quick.fpctl("drain", "set", f"to={disk.path} every=auto")
    for step in range(1, 13):
        time.sleep(2.5)  # as a program computes
        top = f"run/chk_{step:04}"
        os.makedirs(quick.mounts[0].at(top))
        for r in range(RANKS):
            write_file(quick.mounts[r % 2].at(f"{top}/rank_{r}"), content(step * 100 + r, 0, size + r))
        quick.fpctl("checkpoint", "commit", quick.mounts[0].at(top), "--timeout=30s", seconds=40)
        most = max(most, sum(j["state"] not in ("done", "cancelled", "failed") for j in show(quick)["jobs"]))
    shown = show(quick)
    policy, = shown["policies"]
    found = re.fullmatch(r"every=auto: (\d+) \(a set each .+ of 4(?:\.\d+)? MiB, the target takes .+B/s(?:; [12] sets? waits? for it)?\)", policy["chosen"])
    assert found and int(found[1]) > 1, policy["chosen"]
    assert policy["chosen"].split("(")[0] in quick.fpctl("drain", "show").stdout
    assert policy["sets_seen"] == 12 and 2 <= policy["sets_chosen"] <= 9, policy
    assert most <= 2, "the target does not keep up"
    wait_until("the end of the jobs", 90, lambda: is_idle(quick))
    there = files_below(disk.source)
    steps = {int(n.split("/")[1][4:]) for n in there}
    assert len(steps) == policy["sets_chosen"] and set(there) == {f"run/chk_{s:04}/rank_{r}" for s in steps for r in range(RANKS)}
    for s in steps:
        with open(os.path.join(disk.source, f"run/chk_{s:04}/rank_3"), "rb") as f:
            assert_same(f.read(), content(s * 100 + 3, 0, size + 3))


def test_auto_drains_each_set_where_the_target_keeps_up(quick):
    """However slow the machine is: the program computes for as long as the copy of its checkpoint has taken, so the target has half of the time to spare."""
    quick.fpctl("drain", "set", f"to={quick.target} every=auto")
    for step in range(1, 5):
        began = time.monotonic()
        checkpoint(quick, step)
        wait_until("the copy", 60, lambda: len(files_below(quick.target)) == step * RANKS and is_idle(quick))
        policy, = show(quick)["policies"]
        assert (policy["sets_seen"], policy["sets_chosen"]) == (step, step), policy
        assert policy["chosen"].startswith("every=auto: 1 ("), policy
        time.sleep(max(2, time.monotonic() - began))
    assert re.fullmatch(r"every=auto: 1 \(a set each .+ of .+, the target(?: takes .+B/s|'s speed is not known yet)\)", policy["chosen"]), policy


@pytest.mark.limit(150)
def test_keep_says_how_many_sets_stay(quick):
    """What is drained gives way up to the newest sets, as many as the policy says; a changed number holds for sets that are there."""
    quick.fpctl("drain", "set", f"to={quick.target} keep=3")
    for step in range(1, 6):
        checkpoint(quick, step)
    wait_until("the copies", 60, lambda: len(files_below(quick.target)) == 5 * RANKS and is_idle(quick))

    def stays():
        r = quick.fpctl("evict", quick.mounts[0].at("run"), "--timeout=60s", check=False, seconds=80)
        assert r.returncode == 0 and "newest complete sets" in r.stdout, r
        return [step for step in range(1, 6) if all(
            json.loads(quick.fpctl("stat", quick.mounts[0].at(f"run/chk_{step:04}/rank_{r}"), "--json").stdout)["evicted_bytes"] == 0 for r in range(RANKS))]
    assert stays() == [3, 4, 5]
    quick.fpctl("drain", "remove", "1")
    quick.fpctl("drain", "set", f"to={quick.target} keep=1")
    assert stays() == [5]
    for step in range(1, 6):
        for r in range(RANKS):
            with open(quick.mounts[r % 2].at(f"run/chk_{step:04}/rank_{r}"), "rb") as f:
                assert_same(f.read(), content(step * 100 + r, 0, RANK + r))


def test_the_aux_app_makes_the_policy(quick):
    """Mounts that declare drain make it, all of them one, and it stays when they end."""
    declared = f"--auxapp=drain to={quick.target} every=2 verify=on"
    for _ in range(2):
        quick.add_mount(declared, wait=False)
    for m in quick.mounts[2:]:
        m.wait_ready()
    policy, = show(quick)["policies"]
    assert policy["text"] == f"to={quick.target} every=2 verify=on"
    assert "drain" in quick.fpctl("auxapps", quick.mounts[2].path).stdout
    quick.mounts[2].unmount()
    quick.mounts[3].unmount()
    checkpoint(quick, 1)
    checkpoint(quick, 2)
    wait_until("the copy", 30, lambda: len(files_below(quick.target)) == RANKS and is_idle(quick))
    assert {n.split("/")[1] for n in files_below(quick.target)} == {"chk_0002"}


@pytest.mark.parametrize("words, part", [("every=2", "to=DIRECTORY"), ("to=/x evry=2", "did you mean 'every'"), ("to=/x verify=maybe", "verify"),
                                         ("to=relative", "whole path"), ("to=/x layout=log keep=1", "never frees space")])
def test_a_mistake_ends_the_mount_with_a_line(quick, words, part):
    """Else a user would take his checkpoints for safe."""
    quick.expect("drain|aux")
    m = quick.add_mount(f"--auxapp=drain {words}", wait=False)
    quick.mounts.remove(m)  # its end is no mishap
    m.proc.wait(30)
    assert m.proc.returncode != 0
    assert part in m.text(), m.text()
    assert show(quick)["policies"] == []


def test_results_and_the_end_of_a_job(quick):
    """Single files when they are closed; at the end of a job the newest checkpoint, and everything, waited for."""
    quick.fpctl("drain", "set", f"to={quick.target} every=none results=out/*.h5")
    m = quick.mounts[0]
    os.mkdir(m.at("out"))
    with open(m.at("out/a.h5"), "wb") as f:
        f.write(content(1, 0, RANK))
        write_file(m.at("out/b.h5.tmp"), content(2, 0, RANK))
        os.rename(m.at("out/b.h5.tmp"), m.at("out/b.h5"))
        write_file(m.at("out/log"), b"not meant")
        wait_until("the file that is closed", 30, lambda: set(files_below(quick.target)) == {"out/b.h5"})
    wait_until("the other one", 30, lambda: set(files_below(quick.target)) == {"out/a.h5", "out/b.h5"})
    checkpoint(quick, 1)
    checkpoint(quick, 2)
    r = quick.fpctl("drain", m.at("run"), "--last", "--wait", "--timeout=60s", seconds=80)
    assert "done: 4 of 4 files" in r.stdout
    assert {n.split("/")[1] for n in files_below(quick.target) if n.startswith("run/")} == {"chk_0002"}
    before = files_below(quick.target)
    r = quick.fpctl("drain", "--all", "--wait", "--timeout=60s", m.path, seconds=80)
    assert f"done: {2 * RANKS + 3} of {2 * RANKS + 3} files" in r.stdout
    after = files_below(quick.target)
    assert set(after) == set(files_below(m.path)) and {n: after[n] for n in before} == before, "written again"
    for args in (["--all", "--last", m.path], []):
        assert quick.fpctl("drain", *args, check=False).returncode == 1
    assert quick.fpctl("drain", "--last", m.at("out"), check=False).returncode == 1


def test_max_is_kept_and_preferences_change(quick):
    """max-job= of the policy for both benefactors together; then one of them is told to stop, and to go on."""
    mib = 1 << 20
    m = quick.mounts[0]
    quick.fpctl("drain", "set", f"to={quick.target} every=none results=none max-job=4MB/s")
    os.mkdir(m.at("d"))
    for i in range(8):
        write_file(m.at(f"d/{i}"), content(i, 0, 2 * mib), sync=True)
    began = time.monotonic()
    quick.fpctl("drain", m.at("d"), "--wait", "--timeout=60s", seconds=80)
    assert time.monotonic() - began > 2, "16 MiB at 4 MB/s, of which half a second may be sent at once"
    r = quick.fpctl("benefactor", "set", "all", "drain=off", m.path)
    assert "2 told" in r.stdout

    def prefs():
        return [b["draining"] for b in json.loads(quick.fpctl("status", "--json").stdout)["benefactors"]]
    wait_until("the word of the benefactors", 20, lambda: [p["drain"] for p in prefs()] == [False, False])
    write_file(m.at("d/new"), content(99, 0, mib))
    assert quick.fpctl("drain", m.at("d/new"), "--wait", "--timeout=2s", check=False).returncode == 3
    quick.fpctl("benefactor", "set", "1", "drain=on", m.path)
    quick.fpctl("benefactor", "set", "2", "drain=on", m.path)
    assert quick.fpctl("drain", m.at("d/new"), "--wait", "--timeout=60s", seconds=80).returncode == 0
    for args, part in ((("all", "speed=1"), "there are drain, hold, max and threads"), (("all", "max=quick"), "rate"), (("nowhere", "drain=on"), "no such benefactor")):
        r = quick.fpctl("benefactor", "set", *args, m.path, check=False)
        assert r.returncode == 1 and part in r.stderr, r.stderr
