"""fpctl wait: which target is meant, a manager that is away, and advice that can be followed."""

import errno
import os
import signal
import time

import pytest

from harness.daemons import PACE, SLOW, wait_until
from harness.files import assert_same, content, level, read_file, write_file

MIB = 1 << 20


def wait(store, *args, seconds=60):
    return store.fpctl("wait", *args, check=False, seconds=seconds)


def test_the_target_that_is_meant_is_the_one_that_counts(store, two_targets):
    m, (first, second) = store.mounts[0], two_targets
    os.mkdir(m.at("chk_1"))
    for rank in range(2):
        write_file(m.at(f"chk_1/rank_{rank}"), content(rank, 0, 2 * MIB))
    wait_until("the set", 20, lambda: "complete" in store.fpctl("checkpoints", m.path).stdout)
    for path in (m.at("chk_1"), m.at("chk_1/rank_0")):
        r = wait(store, path, "--level=drained", f"--to={first}", "--timeout=60s", seconds=80)
        assert r.returncode == 0, r.stderr
    assert sorted(os.listdir(os.path.join(first, "chk_1"))) == ["rank_0", "rank_1"]
    assert not os.path.exists(os.path.join(second, "chk_1")) and level(m.at("chk_1")) == "drained"
    for path in (m.at("chk_1/rank_0"), m.at("chk_1")):  # it is drained, and not there
        r = wait(store, path, "--level=verified", f"--to={second}", "--timeout=60s", seconds=80)
        assert r.returncode == 0, r.stderr
    assert sorted(os.listdir(os.path.join(second, "chk_1"))) == ["rank_0", "rank_1"] and level(m.at("chk_1")) == "verified"
    r = wait(store, m.at("chk_1"), "--level=verified", f"--to={first}", "--timeout=60s", seconds=80)
    assert r.returncode == 0, r.stderr


def test_with_several_targets_it_goes_to_all_of_them(store, two_targets):
    """And any of them will do; with --to it goes to that one only."""
    m, (first, second) = store.mounts[0], two_targets
    for target in two_targets:
        store.fpctl("drain", "set", f"to={target} every=1000")
    for name in ("one", "both"):
        write_file(m.at(name), content(1, 0, MIB))
    r = wait(store, m.at("one"), "--level=drained", f"--to={second}", "--timeout=30s")
    assert r.returncode == 0, r.stderr
    assert os.path.exists(os.path.join(second, "one")) and not os.path.exists(os.path.join(first, "one"))
    assert wait(store, m.at("one"), "--level=drained", "--timeout=30s").returncode == 0 and not os.path.exists(os.path.join(first, "one"))
    r = wait(store, m.at("both"), "--level=drained", "--timeout=30s")
    assert r.returncode == 0, r.stderr
    wait_until("both to have it", 30, lambda: all(os.path.exists(os.path.join(t, "both")) for t in two_targets))


def test_a_manager_that_is_away_is_waited_for(store):
    m = store.mounts[0]
    write_file(m.at("file"), content(1, 0, MIB))
    store.expect(r"manager|connection")
    store.manager.kill()
    began = time.monotonic()
    late = wait(store, m.at("file"), "--timeout=2s", seconds=20)
    assert late.returncode == 3 and late.stderr.strip(), (late.returncode, late.stderr)
    assert time.monotonic() - began >= 2
    p = store.begin_fpctl("wait", m.at("file"), "--timeout=60s")
    time.sleep(8 * PACE)  # longer than an answer may take
    assert p.poll() is None, p.communicate()
    store.restart_manager()
    out, err = p.communicate(timeout=60 * SLOW)
    assert p.returncode == 0 and "ERROR" not in err, (p.returncode, out, err)
    assert level(m.at("file")) == "local"


@pytest.fixture
def all_to_do(store):
    """Commands that have something to do each, and what is to be in the target, or in the store, when they have done it."""
    m, target, inputs = store.mounts[0], store.make_dir("target"), store.make_dir("inputs")
    data = {name: content(i, 0, MIB + i) for i, name in enumerate(("drained", "out", "gone", "back", "log", "input"))}
    for name in data:
        write_file(m.at(name) if name != "input" else os.path.join(inputs, name), data[name])
    store.fpctl("drain", m.at("gone"), m.at("back"), f"--to={target}", "--now", "--wait", "--timeout=60s", seconds=80)
    store.fpctl("drain", m.at("log"), f"--to={target}", "--layout=log", "--now", "--wait", "--timeout=60s", seconds=80)
    store.fpctl("evict", m.at("back"), "--timeout=60s", seconds=80)
    os.mkdir(m.at("set"))
    data["set"] = content(9, 0, MIB)
    write_file(m.at("set/file"), data["set"])
    return {
        ("checkpoint", "commit", m.at("set")): (m.at("set/file"), data["set"]),
        ("drain", m.at("drained"), f"--to={target}", "--now", "--wait"): (os.path.join(target, "drained"), data["drained"]),
        ("stage-out", m.at("out"), f"--to={target}"): (os.path.join(target, "out"), data["out"]),
        ("evict", m.at("gone")): (m.at("gone"), data["gone"]),
        ("stage-in", m.at("back")): (m.at("back"), data["back"]),
        ("stage-in", os.path.join(inputs, "input"), f"--to={m.path}", f"--target={inputs}"): (m.at("input"), data["input"]),
        ("merge", os.path.join(target, "log.fplog")): (os.path.join(target, "log"), data["log"]),
    }


def test_every_command_with_a_timeout_waits_for_a_manager_that_is_away(store, all_to_do):
    store.expect(r"manager|connection")
    store.manager.kill()
    running = {command: store.begin_fpctl(*command, "--timeout=60s") for command in all_to_do}
    time.sleep(8 * PACE)  # longer than an answer may take
    assert [c for c, p in running.items() if p.poll() is not None] == []
    store.restart_manager()
    for command, p in running.items():
        out, err = p.communicate(timeout=80 * SLOW)
        assert p.returncode == 0 and "ERROR" not in err and err.count("no manager at") <= 1, (command, p.returncode, out, err)
    for path, data in all_to_do.values():
        assert_same(read_file(path), data, path)


def test_a_manager_that_does_not_come_ends_every_command_in_time(store, all_to_do):
    store.expect(r"manager|connection")
    store.manager.kill()
    began = time.monotonic()
    running = {command: store.begin_fpctl(*command, "--timeout=2s") for command in all_to_do}
    for command, p in running.items():
        out, err = p.communicate(timeout=20 * SLOW)
        assert p.returncode == 3 and "manager" in err, (command, p.returncode, out, err)
    assert 1 < time.monotonic() - began < 6 * SLOW
    began = time.monotonic()
    path = next(c for c in all_to_do if c[0] == "merge")[1]
    r = store.fpctl("merge", path, check=False, seconds=20)  # without a limit it does not wait
    assert r.returncode == 1 and "is the store up" in r.stderr, (r.returncode, r.stderr)
    store.restart_manager()
    assert not os.path.exists(path.removesuffix(".fplog"))


def test_commit_is_late_when_the_manager_stands_still(store):
    """3, as where it is not complete in time, whether the connection was there or not; a script that gets 1 is told that it never will be."""
    m = store.mounts[0]
    os.mkdir(m.at("set"))
    write_file(m.at("set/file"), b"1")
    store.expect(r"manager|connection|answer")
    store.manager.freeze()
    r = store.fpctl("checkpoint", "commit", m.at("set"), "--timeout=2s", check=False, seconds=20)
    assert r.returncode == 3 and "manager" in r.stderr, (r.returncode, r.stderr)
    store.manager.send(signal.SIGCONT)
    store.fpctl("checkpoint", "commit", m.at("set"), "--timeout=60s", seconds=80)
    with open(m.at("set/late"), "wb") as f:
        f.write(b"1")
        p = store.begin_fpctl("checkpoint", "commit", m.at("set"), "--timeout=4s")
        time.sleep(8 * PACE)
        store.manager.freeze()
        out, err = p.communicate(timeout=40 * SLOW)
        store.manager.send(signal.SIGCONT)
        assert p.returncode == 3 and err, (p.returncode, out, err)


def test_who_waits_for_a_drain_waits_for_a_manager_that_is_away(new_store, targets):
    s = new_store().up(benefactors=1, mounts=1)
    m, disk = s.mounts[0], targets.slow(emulate="write=1MB/s")
    write_file(m.at("file"), content(1, 0, 6 * MIB))
    p = s.begin_fpctl("drain", m.at("file"), f"--to={disk.path}", "--now", "--wait", "--timeout=120s")
    wait_until("the job", 20, lambda: "running" in s.fpctl("drain", "show").stdout)
    s.expect(r"manager|connection")
    s.manager.kill()
    time.sleep(10 * PACE)
    assert p.poll() is None, p.communicate()
    s.restart_manager()
    out, err = p.communicate(timeout=130 * SLOW)
    assert p.returncode == 0 and "done: 1 of 1 files" in out, (p.returncode, out, err)
    assert err.count("no manager at") <= 1, err


def test_a_step_that_is_not_there_is_said(store):
    m = store.mounts[0]
    os.mkdir(m.at("run"))
    write_file(m.at("run/restart.5000"), content(1, 0, 1000))
    r = wait(store, m.at("run"), "--step=6000", "--timeout=5s")
    assert r.returncode == 1 and "no checkpoint set with step 6000" in r.stderr, (r.returncode, r.stderr)
    assert wait(store, m.at("run"), "--step=5000", "--timeout=30s").returncode == 0
    os.mkdir(m.at("run/chk_7"))
    write_file(m.at("run/chk_7/rank_0"), content(1, 0, 1000))
    assert wait(store, m.at("run"), "--step=7", "--timeout=30s").returncode == 0


def test_a_word_that_says_nothing_is_refused(store):
    m = store.mounts[0]
    os.mkdir(m.at("any"))
    write_file(m.at("any/file"), b"x")
    for word in (b"nonsense", b"Complete", b"complete ", b""):
        with pytest.raises(OSError) as e:
            os.setxattr(m.at("any"), "user.fp.checkpoint", word)
        assert e.value.errno == errno.EINVAL, word
    with pytest.raises(OSError):
        os.getxattr(m.at("any"), "user.fp.checkpoint")
    os.setxattr(m.at("any"), "user.fp.checkpoint", b"complete")
    wait_until("the set", 20, lambda: "complete" in store.fpctl("checkpoints", m.path).stdout)
