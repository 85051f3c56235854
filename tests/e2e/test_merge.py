"""fpctl merge in a store: the benefactors make the files of logs, share the work out, and what has the name is whole; without a store it ends with --timeout."""

import json
import os
import subprocess

import pytest

from harness.daemons import bin_path, wait_until
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20


@pytest.fixture
def two(new_store):
    """Two benefactors, a file of which each has about half, as a log, and a small one."""
    store = new_store()
    store.start_manager()
    for _ in range(2):
        store.add_benefactor()
    m = store.add_mount()
    store.target = os.path.join(store.dir, "target")
    os.mkdir(store.target)
    os.mkdir(m.at("run"))
    store.data = content(1, 0, 70 * MIB + 4321)
    write_file(m.at("run/f"), store.data, sync=True)
    write_file(m.at("run/small"), b"small", sync=True)
    os.chmod(m.at("run/small"), 0o640)
    os.utime(m.at("run/small"), ns=(1_000_000_005, 2_000_000_007))
    os.setxattr(m.at("run/small"), "user.step", b"7")
    with open(m.at("run/holes"), "wb") as f:
        f.truncate(40 * MIB)
        f.seek(7 * MIB + 5)
        f.write(b"middle")
    write_file(m.at("run/empty"), b"")
    drain(store, m.at("run"))
    return store


def drain(store, *paths, layout="log", to=None):
    store.fpctl("drain", *paths, f"--layout={layout}", f"--to={to or store.target}", "--wait", "--now", "--timeout=60s", seconds=80)


def at(store, *names):
    return os.path.join(store.target, *names)


def log(store, name="run/f"):
    return at(store, name + ".fplog")


def merge(store, *args, check=True, timeout="60s"):
    return store.fpctl("merge", *args, f"--timeout={timeout}", check=check, seconds=80)


def last_job(store):
    return json.loads(store.fpctl("drain", "show", "--json").stdout)["jobs"][0]


@pytest.mark.short
@pytest.mark.parametrize("verify", [False, True])
def test_benefactors_make_the_files(two, verify):
    m = two.mounts[0]
    names = ["run/f", "run/small", "run/holes", "run/empty"]
    r = merge(two, *[log(two, n) for n in names], *["--verify"] if verify else [])
    assert "merged here" not in r.stderr
    for name in names:
        assert_same(read_file(at(two, name)), read_file(m.at(name)), name)
        s, t = os.stat(m.at(name)), os.stat(at(two, name))
        assert (s.st_size, s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns) == (t.st_size, t.st_mode, t.st_uid, t.st_gid, t.st_mtime_ns), name
    assert os.getxattr(at(two, "run/small"), "user.step") == b"7"
    assert os.stat(at(two, "run/holes")).st_blocks * 512 < 2 * MIB
    assert not os.listdir(at(two, ".fp-drain"))
    j = last_job(two)
    assert (j["kind"], j["state"], j["files_done"]) == ("merge", "done", 4)
    assert j["bytes_done"] == j["bytes"] == len(two.data) + 5 + 6
    assert os.path.isdir(log(two))  # it stays


def test_what_is_there_is_replaced_only_by_force(two):
    two.expect("drain job")
    write_file(at(two, "run/f"), b"mine")
    r = merge(two, log(two), check=False)
    assert r.returncode == 4 and "--force" in r.stdout
    assert read_file(at(two, "run/f")) == b"mine"
    assert not [n for n in os.listdir(at(two, ".fp-drain")) if "stream" in n]
    merge(two, log(two), "--force")
    assert_same(read_file(at(two, "run/f")), two.data)
    os.mkdir(at(two, "new"))
    merge(two, log(two), f"--to={at(two, 'new/g')}")
    assert_same(read_file(at(two, "new/g")), two.data)


def test_what_another_store_needs_is_replaced_only_by_overwrite(two):
    """As that store marks it (drain/needed.c)."""
    two.expect("drain job")
    write_file(at(two, ".fp-drain/01020304-needs-5"), b"")
    write_file(at(two, "run/f"), b"theirs")
    os.setxattr(at(two, "run/f"), "user.fp.needed", b"01020304-needs-5")
    r = merge(two, log(two), "--force", check=False)
    assert r.returncode == 4 and "another store" in r.stdout and "--overwrite" in r.stdout, (r.returncode, r.stdout, r.stderr)
    assert read_file(at(two, "run/f")) == b"theirs"
    r = merge(two, log(two), "--offline", "--force", check=False)  # whoever the store is
    assert r.returncode == 1 and "a store has evicted" in r.stderr and "--overwrite" in r.stderr, (r.returncode, r.stdout, r.stderr)
    assert read_file(at(two, "run/f")) == b"theirs"
    merge(two, log(two), "--offline", "--overwrite")
    assert_same(read_file(at(two, "run/f")), two.data)
    write_file(at(two, "run/f"), b"theirs")
    os.setxattr(at(two, "run/f"), "user.fp.needed", b"01020304-needs-5")
    merge(two, log(two), "--overwrite")
    assert_same(read_file(at(two, "run/f")), two.data)


def test_a_directory_is_all_logs_below_it(two):
    m = two.mounts[0]
    os.makedirs(at(two, ".fp-drain/x.fplog"), exist_ok=True)  # not whole yet
    r = merge(two, two.target)
    assert "4 of 4 files" in r.stdout, r.stdout
    for name in ("run/f", "run/small", "run/holes", "run/empty"):
        assert_same(read_file(at(two, name)), read_file(m.at(name)), name)
    os.mkdir(at(two, "nothing"))
    r = merge(two, at(two, "nothing"), check=False)
    assert r.returncode == 1 and "no log below it" in r.stderr, (r.returncode, r.stderr)
    for name in ("f", "small", "holes", "empty"):
        os.unlink(at(two, "run", name))
    os.symlink(at(two, "run"), at(two, "link"))
    r = merge(two, at(two, "link"), "--offline")
    assert len(r.stdout.splitlines()) == 4
    assert_same(read_file(at(two, "run/f")), two.data)


def test_logs_of_several_targets_and_of_none_in_one_command(two):
    m, other, away = two.mounts[0], two.make_dir("other"), two.make_dir("away")
    drain(two, m.at("run/small"), m.at("run/holes"), to=other)
    os.rename(log(two, "run/empty"), os.path.join(away, "empty.fplog"))
    r = merge(two, log(two), os.path.join(other, "run/small.fplog"), os.path.join(away, "empty.fplog"), os.path.join(other, "run/holes.fplog"), log(two, "run/small"))
    assert r.stderr.count("merged here") == 1 and "empty.fplog is merged here" in r.stderr, r.stderr
    for name in ("run/f", "run/small"):
        assert_same(read_file(at(two, name)), read_file(m.at(name)), name)
    for name in ("run/small", "run/holes"):
        assert_same(read_file(os.path.join(other, name)), read_file(m.at(name)), name)
    assert read_file(os.path.join(away, "empty")) == b""
    assert [j["state"] for j in json.loads(two.fpctl("drain", "show", "--json").stdout)["jobs"] if j["kind"] == "merge"] == ["done"] * 4  # another target, another job


def test_what_was_begun_before_a_mistake_is_said(two):
    m, other = two.mounts[0], two.make_dir("other")
    drain(two, m.at("run/small"), to=other)
    r = merge(two, log(two), os.path.join(other, "run/small"), check=False)
    job = last_job(two)["job"]
    assert r.returncode == 1 and "does not end in .fplog" in r.stderr and f"job {job} has been begun" in r.stderr, r.stderr
    assert_same(read_file(m.at("run/f")), two.data)
    wait_until("it to be done all the same", 60, lambda: last_job(two)["state"] == "done")
    assert_same(read_file(at(two, "run/f")), two.data)


def test_a_damaged_log_makes_no_file(two):
    two.expect("drain job|target")
    stream = max((os.path.join(log(two), s) for s in os.listdir(log(two)) if s != "index"), key=os.path.getsize)
    half = os.path.getsize(stream) // 2 + 4096
    with open(stream, "r+b") as f:
        f.seek(half)
        b = f.read(1)
        f.seek(half)
        f.write(bytes([b[0] ^ 4]))
    r = merge(two, log(two), log(two, "run/small"), check=False)
    assert r.returncode == 4 and "is damaged" in r.stdout
    assert not os.path.exists(at(two, "run/f"))
    assert read_file(at(two, "run/small")) == b"small"  # what is wrong with one is nothing to the other
    os.truncate(stream, half)
    r = merge(two, log(two), check=False)
    assert r.returncode == 4 and "a part of it is missing" in r.stdout
    os.unlink(os.path.join(log(two), "index"))
    r = merge(two, log(two), check=False)
    assert r.returncode == 4 and "no log of a drained file" in r.stdout
    assert not os.path.exists(at(two, "run/f"))
    wait_until("the end of temporary files", 20, lambda: not os.listdir(at(two, ".fp-drain")))


def test_what_was_evicted_to_the_name_stays(two):
    two.expect("drain job")
    m = two.mounts[0]
    drain(two, m.at("run/f"), layout="file")
    two.fpctl("evict", m.at("run/f"), "--timeout=60s", seconds=80)
    r = merge(two, log(two), "--force", check=False)
    assert r.returncode == 4 and "evicted" in r.stdout
    assert_same(read_file(m.at("run/f")), two.data)


def test_a_copy_that_is_replaced_counts_no_more(two):
    m = two.mounts[0]
    drain(two, m.at("run/small"), layout="file")
    assert os.getxattr(m.at("run/small"), "user.fp.level") == b"drained"
    merge(two, log(two, "run/small"), "--force")
    assert os.getxattr(m.at("run/small"), "user.fp.level") != b"drained"


def test_it_goes_on_without_the_command_and_is_found_again(two):
    two.fpctl("benefactor", "set", "all", "hold=on")
    r = merge(two, log(two), check=False, timeout="2s")
    assert r.returncode == 3
    job = last_job(two)["job"]
    two.fpctl("benefactor", "set", "all", "hold=off")
    merge(two, log(two))
    j = last_job(two)
    assert (j["job"], j["state"]) == (job, "done")
    assert_same(read_file(at(two, "run/f")), two.data)


def test_what_is_in_no_target_is_merged_here(two):
    away = os.path.join(two.dir, "away.fplog")
    os.rename(log(two), away)
    r = merge(two, away)
    assert "merged here" in r.stderr
    assert_same(read_file(os.path.join(two.dir, "away")), two.data)
    r = merge(two, away, f"--to={os.path.join(two.dir, 'nothing/g')}", check=False)
    assert r.returncode == 1 and "nothing" in r.stderr


def test_mistakes_are_told_at_once(two):
    r = merge(two, at(two, "run/f"), check=False)
    assert r.returncode == 1 and "--to" in r.stderr
    two.expect("drain job")
    r = merge(two, log(two, "run/nothing"), check=False)
    assert r.returncode == 4 and "no log of a drained file" in r.stdout


def test_a_target_that_hangs_ends_the_merge_here_in_time(tmp_path):
    """A FIFO in place of the index: whoever opens it waits for ever."""
    os.mkdir(tmp_path / "f.fplog")
    os.mkfifo(tmp_path / "f.fplog" / "index")
    r = subprocess.run([bin_path("fpctl"), "merge", "--offline", str(tmp_path / "f.fplog"), "--timeout=1s"], capture_output=True, text=True, timeout=30)
    assert r.returncode == 3 and "--timeout" in r.stderr
