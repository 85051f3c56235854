"""Levels of durability on real mounts: fpctl wait, user.fp.level, fpctl stat, checkpoints, checkpoint latest --level."""

import json
import os
import re
import signal
import time

import pytest

from harness.daemons import PACE, wait_until
from harness.files import content, level, write_file

MIB = 1 << 20


def wait(store, *args, seconds=60):
    return store.fpctl("wait", *args, check=False, seconds=seconds)


@pytest.fixture
def quick(new_store):
    return new_store().up(benefactors=2, mounts=2, manager_args=("--ckpt-quiet=500ms", "--ckpt-late=3s", "--stripe=2"))


@pytest.fixture
def target(quick):
    path = quick.make_dir("target")
    return path


def test_wait_makes_a_file_local(quick):
    a, b = (m.path for m in quick.mounts)
    write_file(f"{a}/file", content(1, 0, 5 * MIB))
    assert level(f"{a}/file") in ("pool", "local")
    r = wait(quick, f"{a}/file", "--timeout=30s")
    assert r.returncode == 0, r.stderr
    assert level(f"{a}/file") == level(f"{b}/file") == "local"
    assert quick.layout(f"{a}/file")["level"] == "local"
    assert "level" in quick.fpctl("stat", f"{a}/file").stdout


def test_an_idle_store_becomes_local(quick):
    a = quick.mounts[0].path
    write_file(f"{a}/file", content(1, 0, 3 * MIB))
    wait_until("local", 30, lambda: level(f"{a}/file") == "local")


def test_what_is_open_for_writing_or_changed_is_in_the_pool(quick):
    a, b = (m.path for m in quick.mounts)
    write_file(f"{a}/file", content(1, 0, 3 * MIB))
    assert wait(quick, f"{a}/file", "--timeout=30s").returncode == 0
    with open(f"{b}/file", "r+b") as f:
        assert level(f"{a}/file") == "pool"
        f.write(b"changed")
        late = wait(quick, f"{a}/file", "--timeout=1s")
        assert late.returncode == 3 and "open for writing" in late.stderr, late.stderr
    assert wait(quick, f"{a}/file", "--timeout=30s").returncode == 0
    assert level(f"{b}/file") == "local"


def test_memory_stays_in_the_pool(new_store):
    s = new_store().up(benefactors=1, mounts=1, backend="memory")
    path = s.mounts[0].at("file")
    write_file(path, content(1, 0, MIB))
    r = wait(s, path, "--timeout=30s")
    assert r.returncode == 4 and "keeps data in memory" in r.stderr, (r.returncode, r.stderr)
    time.sleep(5 * PACE)  # longer than an idle store needs
    assert level(path) == "pool"


def test_a_benefactor_that_dies_takes_its_level_with_it(quick):
    a = quick.mounts[0].path
    write_file(f"{a}/file", content(1, 0, 8 * MIB))
    assert wait(quick, f"{a}/file", "--timeout=30s").returncode == 0
    quick.expect(r"benefactor|connection")
    quick.benefactors[1].kill()
    wait_until("the loss", 20, lambda: level(f"{a}/file") == "pool")
    late = wait(quick, f"{a}/file", "--timeout=1s")
    assert late.returncode == 3 and "benefactor 2" in late.stderr, late.stderr
    quick.benefactors[1].start()
    assert wait(quick, f"{a}/file", "--timeout=30s").returncode == 0


def test_levels_outlast_a_restart_of_the_manager(quick):
    a = quick.mounts[0].path
    write_file(f"{a}/file", content(1, 0, 4 * MIB))
    assert wait(quick, f"{a}/file", "--timeout=30s").returncode == 0
    quick.expect(r"manager|connection")
    quick.manager.kill()
    quick.restart_manager()
    wait_until("all being back", 30, lambda: level(f"{a}/file") == "local")


def test_no_level_is_claimed_while_who_may_write_is_away(quick):
    """A mount that has not come back to a manager that was started anew may have the file open: nobody knows."""
    m, other = quick.mounts
    os.mkdir(other.at("chk_1"))
    path, in_set = other.at("file"), other.at("chk_1/rank_0")
    for p in (path, in_set):
        write_file(p, content(1, 0, MIB))
        assert wait(quick, p, "--timeout=30s").returncode == 0
    assert wait(quick, other.at("chk_1"), "--timeout=30s").returncode == 0
    quick.expect(r"manager|connection|silent|session")
    m.freeze()
    try:
        quick.manager.kill()
        quick.restart_manager()
        wait_until("the other mount to be back", 30, lambda: level(path) == "pool")
        for _ in range(20):
            assert (level(path), level(in_set), level(other.at("chk_1"))) == ("pool",) * 3
            row = json.loads(quick.fpctl("checkpoints", other.path, "--json").stdout)["checkpoints"][0]
            assert row["level"] == "pool"
            assert quick.fpctl("checkpoint", "latest", other.path, "--level=local", check=False).returncode == 3
            time.sleep(0.1 * PACE)
    finally:
        m.send(signal.SIGCONT)
    wait_until("all being back", 30, lambda: level(path) == level(other.at("chk_1")) == "local")


def test_a_set_has_the_least_level_of_its_files(quick):
    a = quick.mounts[0].path
    for step in (1, 2):
        os.mkdir(f"{a}/chk_{step}")
        for rank in range(3):
            write_file(f"{a}/chk_{step}/rank_{rank}", content(rank, step, MIB))
        r = wait(quick, f"{a}/chk_{step}", "--timeout=30s")
        assert r.returncode == 0, r.stderr
    assert level(f"{a}/chk_2") == "local"
    row = json.loads(quick.fpctl("checkpoints", a, "--json", "--files").stdout)["checkpoints"][0]
    assert (row["step"], row["level"]) == (2, "local")
    assert {f["level"] for f in row["files_of_it"]} == {"local"}
    assert quick.fpctl("checkpoint", "latest", a, "--level=local").stdout.strip() == f"{a}/chk_2"
    with open(f"{a}/chk_2/rank_1", "ab") as f:
        f.write(b"more")
        assert level(f"{a}/chk_2") == "pool"
        assert quick.fpctl("checkpoint", "latest", a, "--level=local").stdout.strip() == f"{a}/chk_1"
    assert quick.fpctl("checkpoint", "latest", a, "--level=drained", check=False).returncode == 3


def test_files_side_by_side_are_waited_for_by_their_step(quick):
    a = quick.mounts[0].path
    os.mkdir(f"{a}/run")
    for rank in range(2):
        write_file(f"{a}/run/restart.5000.{rank}", content(rank, 0, MIB))
    r = wait(quick, f"{a}/run", "--step=5000", "--timeout=30s")
    assert r.returncode == 0, r.stderr
    assert level(f"{a}/run/restart.5000.1") == "local"


def test_drained_needs_a_target_and_begins_the_job(quick, target):
    a = quick.mounts[0].path
    write_file(f"{a}/file", content(1, 0, 6 * MIB))
    r = wait(quick, f"{a}/file", "--level=drained", "--timeout=60s")
    assert r.returncode == 4 and "fpctl drain set" in r.stderr, (r.returncode, r.stderr)
    quick.fpctl("drain", "set", f"to={target}")
    for want in ("drained", "verified"):
        r = wait(quick, f"{a}/file", f"--level={want}", "--timeout=60s", "--json", seconds=90)
        assert r.returncode == 0, r.stderr
        one, = json.loads(r.stdout)["paths"]
        assert (one["level"], one["reached"]) == (want, True)
        assert level(f"{a}/file") == want
    with open(f"{target}/file", "rb") as f:
        assert f.read() == content(1, 0, 6 * MIB)
    with open(f"{a}/file", "ab") as f:
        f.write(b"more")
    assert level(f"{a}/file") in ("pool", "local")
    assert wait(quick, f"{a}/file", "--timeout=30s").returncode == 0
    assert level(f"{a}/file") == "local"


def test_a_set_is_drained_when_all_its_files_are(quick, target):
    a = quick.mounts[0].path
    quick.fpctl("drain", "set", f"to={target} every=1000")
    os.mkdir(f"{a}/chk_1")
    for rank in range(3):
        write_file(f"{a}/chk_1/rank_{rank}", content(rank, 1, MIB))
    r = wait(quick, f"{a}/chk_1", "--level=drained", "--timeout=60s", seconds=90)
    assert r.returncode == 0, r.stderr
    assert level(f"{a}/chk_1") == "drained"
    assert sorted(os.listdir(f"{target}/chk_1")) == ["rank_0", "rank_1", "rank_2"]
    assert quick.fpctl("checkpoint", "latest", a, "--level=drained").stdout.strip() == f"{a}/chk_1"
    write_file(f"{a}/chk_1/rank_3", b"late")
    assert level(f"{a}/chk_1") == "pool"
    assert wait(quick, f"{a}/chk_1", "--timeout=30s").returncode == 0
    assert level(f"{a}/chk_1") == "local"


def test_who_looks_after_fsync_is_told_that_it_is_on_the_devices(quick):
    path = quick.mounts[0].at("synced")
    with open(path, "wb") as f:
        f.write(content(2, 0, 5 * MIB))
        os.fsync(f.fileno())
    assert re.search(r"^level +local", quick.fpctl("stat", path).stdout, re.M)


@pytest.mark.expect_log(r"target")
def test_a_target_that_is_none_is_late_and_said(quick, target):
    """It may be mounted in a moment, so nothing fails; who waits is told why."""
    a = quick.mounts[0].path
    write_file(f"{a}/file", content(1, 0, MIB))
    quick.fpctl("drain", "set", f"to={target}/gone")
    r = wait(quick, f"{a}/file", "--level=drained", "--timeout=12s")
    assert r.returncode == 3 and f"{target}/gone" in r.stderr, (r.returncode, r.stderr)
    os.mkdir(f"{target}/gone")
    r = wait(quick, f"{a}/file", "--level=drained", "--timeout=40s")
    assert r.returncode == 0, (r.returncode, r.stderr)
    assert level(f"{a}/file") == "drained"


def test_mistakes_in_the_call(quick):
    a = quick.mounts[0].path
    os.mkdir(f"{a}/plain")
    write_file(f"{a}/file", b"x")
    assert wait(quick, f"{a}/file", "--level=safe").returncode == 2
    assert wait(quick).returncode == 2
    none = wait(quick, f"{a}/plain", "--timeout=5s")
    assert none.returncode == 1 and "neither a file nor a checkpoint set" in none.stderr
    assert wait(quick, f"{a}/missing", "--timeout=5s").returncode == 1
    with pytest.raises(OSError):
        os.setxattr(f"{a}/file", "user.fp.level", b"drained")
    with pytest.raises(OSError):
        os.getxattr(f"{a}/plain", "user.fp.level")
    assert "user.fp.level" not in os.listxattr(f"{a}/file")
