"""Staging in: what others have put into a target comes into the store, whole and as it is there."""

import json
import os
import stat
import struct
import subprocess
import time

import pytest

from harness.daemons import PACE
from harness.files import assert_same, content, write_file

MIB = 1 << 20
OLD = 1_700_000_000


def stage_in(store, *paths, to, root=None, timeout="60s", check=True):
    more = [f"--target={root}"] if root else []
    return store.fpctl("stage-in", *paths, f"--to={to}", f"--timeout={timeout}", *more, check=check, seconds=80)


def put(path, data, mtime=OLD, mode=0o644):
    write_file(path, data)
    os.chmod(path, mode)
    os.utime(path, (mtime - 100, mtime))


def read(path):
    with open(path, "rb") as f:
        return f.read()


def levels(store, path):
    return json.loads(store.fpctl("stat", path, "--json").stdout)


@pytest.mark.short
def test_a_tree_comes_as_it_is(store, target):
    m = store.mounts[0]
    tree = os.path.join(target, "in")
    os.makedirs(os.path.join(tree, "a", "b"))
    files = {"one": content(1, 0, 3 * MIB + 77), "a/two": content(2, 0, 100), "a/b/empty": b"", "a/b/three": content(3, 0, 2 * MIB)}
    for name, data in files.items():
        put(os.path.join(tree, name), data, mode=0o640)
    os.symlink("a/two", os.path.join(tree, "link"))
    os.mkfifo(os.path.join(tree, "pipe"))
    holes = os.path.join(tree, "holes")
    with open(holes, "wb") as f:
        f.truncate(20 * MIB)
        f.seek(9 * MIB + 5)
        f.write(b"here")
    os.utime(holes, (OLD, OLD))
    os.chmod(os.path.join(tree, "a"), 0o750)
    for d in ("a/b", "a", "."):
        os.utime(os.path.join(tree, d), (OLD, OLD + 5))
    r = stage_in(store, tree, to=m.path, root=target)
    assert "done" in r.stdout and "6 of 6 files" in r.stdout and "left out: 1 device, socket or FIFO, in/pipe" in r.stdout, r
    for name, data in files.items():
        assert_same(read(m.at("in/" + name)), data)
        st = os.stat(m.at("in/" + name))
        assert stat.S_IMODE(st.st_mode) == 0o640 and int(st.st_mtime) == OLD and st.st_uid == os.stat(os.path.join(tree, name)).st_uid
    assert os.readlink(m.at("in/link")) == "a/two"
    assert not os.path.lexists(m.at("in/pipe"))
    data = read(m.at("in/holes"))
    assert len(data) == 20 * MIB and data[9 * MIB + 5:9 * MIB + 9] == b"here" and data.count(0) == 20 * MIB - 4
    assert os.stat(m.at("in/holes")).st_blocks * 512 <= MIB, "what is nothing but zeros takes no space"
    assert stat.S_IMODE(os.stat(m.at("in/a")).st_mode) == 0o750
    for d in ("a/b", "a", "."):
        assert int(os.stat(m.at("in/" + d)).st_mtime) == OLD + 5, d
    # what is in the store may be changed, and what is in the target removed
    with open(m.at("in/one"), "r+b") as f:
        f.write(b"changed")
    os.rename(tree, tree + ".aside")
    assert_same(read(m.at("in/one")), b"changed" + files["one"][7:])
    assert_same(read(m.at("in/a/b/three")), files["a/b/three"])
    store.fpctl("wait", m.at("in/a/b/three"), "--level=local", "--timeout=30s", seconds=50)


def test_names_are_seen_at_once_where_they_were_looked_for(store, target):
    """The mount is alone, so its kernel keeps for half a second that there is no such name."""
    m = store.mounts[0]
    for i in range(6):
        os.mkdir(os.path.join(target, f"d{i}"))
        put(os.path.join(target, f"d{i}/f"), b"%d" % i)
        os.mkdir(m.at(f"to{i}"))
        assert not os.path.lexists(m.at(f"to{i}/d{i}"))
        r = stage_in(store, os.path.join(target, f"d{i}"), to=m.at(f"to{i}"), root=target)
        assert os.path.lexists(m.at(f"to{i}/d{i}")), r
        assert read(m.at(f"to{i}/d{i}/f")) == b"%d" % i
        assert os.listdir(m.at(f"to{i}")) == [f"d{i}"]


def test_attributes_come_and_what_does_not_is_said(store, target):
    m = store.mounts[0]
    d = os.path.join(target, "d")
    os.makedirs(os.path.join(d, "sub"))
    for name in ("a", "sub/one", "plain"):
        put(os.path.join(d, name), name.encode())
    os.link(os.path.join(d, "a"), os.path.join(d, "sub/b"))
    os.mkfifo(os.path.join(d, "sub/pipe"))
    os.mkfifo(os.path.join(d, "pipe"))
    try:
        os.setxattr(os.path.join(d, "a"), "user.note", b"of the others")
        os.setxattr(os.path.join(d, "a"), "user.fp.drain", b"00000000:1:1")
        os.setxattr(d, "user.dir", b"")
    except OSError:
        pytest.skip("the native file system has no user attributes")
    says = ["2 devices, sockets and FIFOs, the first is d/pipe", "2 hard links", "the first is d/a"]
    try:
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in ((1, 6, 2**32 - 1), (2, 4, 77), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 4, 2**32 - 1)))
        os.setxattr(os.path.join(d, "plain"), "system.posix_acl_access", acl)
        says.append("1 file's ACL or attributes, d/plain")
    except OSError:
        pass
    r = stage_in(store, d, to=m.path, root=target)
    assert "left out: " in r.stdout and all(s in r.stdout for s in says), r
    assert os.getxattr(m.at("d/a"), "user.note") == os.getxattr(m.at("d/sub/b"), "user.note") == b"of the others"
    assert os.listxattr(m.at("d")) == ["user.dir"] and os.getxattr(m.at("d"), "user.dir") == b""
    assert "user.fp.drain" not in os.listxattr(m.at("d/a"))
    assert os.stat(m.at("d/a")).st_ino != os.stat(m.at("d/sub/b")).st_ino and read(m.at("d/sub/b")) == b"a"
    assert sorted(os.listdir(m.at("d/sub"))) == ["b", "one"]
    shown = json.loads(store.fpctl("drain", "show", "--json").stdout)["jobs"]
    assert any("left out" in j["why"] for j in shown)


def test_what_was_staged_in_is_a_set_when_somebody_says_so(store, target):
    m = store.mounts[0]
    os.mkdir(m.at("run"))
    os.makedirs(os.path.join(target, "chk_0003/sub"))
    for i, name in enumerate(("rank_0", "rank_1", "sub/more")):
        put(os.path.join(target, "chk_0003", name), content(i, 0, MIB))
    os.mkdir(m.at("run/chk_0004"))
    write_file(m.at("run/chk_0004/rank_0"), b"later")
    store.fpctl("checkpoint", "commit", m.at("run/chk_0004"))
    stage_in(store, os.path.join(target, "chk_0003"), to=m.at("run"), root=target)
    time.sleep(3 * PACE)  # longer than --ckpt-quiet
    assert store.fpctl("checkpoint", "latest", m.at("run")).stdout.strip() == m.at("run/chk_0004")
    store.fpctl("checkpoint", "commit", m.at("run/chk_0003"))
    assert store.fpctl("checkpoint", "latest", m.at("run")).stdout.strip() == m.at("run/chk_0003")
    sets = {s["step"]: s for s in json.loads(store.fpctl("checkpoints", m.at("run"), "--json").stdout)["checkpoints"]}
    assert sets[3]["files"] == 3 and sets[3]["bytes"] == 3 * MIB and sets[3]["state"] == "complete", sets
    assert sets[4]["files"] == 1 and sets[4]["state"] == "complete", sets
    store.fpctl("wait", m.at("run/chk_0003"), "--level=local", "--timeout=30s", seconds=50)


def test_numbers_that_were_staged_in_are_no_steps(store, target):
    """Brought one after the other, as steps come; then a program makes the next one, and the manager looks what was there."""
    m = store.mounts[0]
    os.mkdir(m.at("run"))
    for step in range(1, 5):
        os.mkdir(os.path.join(target, str(step)))
        put(os.path.join(target, f"{step}/rank_0"), content(step, 0, MIB))
        stage_in(store, os.path.join(target, str(step)), to=m.at("run"), root=target)
        time.sleep(2.5)  # longer than --ckpt-quiet
    os.mkdir(m.at("run/5"))
    write_file(m.at("run/5/rank_0"), b"mine")
    assert json.loads(store.fpctl("checkpoints", m.at("run"), "--json").stdout)["checkpoints"] == []


def test_names_that_are_there_stay(store, target):
    store.expect("drain job")
    m = store.mounts[0]
    os.mkdir(os.path.join(target, "d"))
    put(os.path.join(target, "d/same"), content(1, 0, MIB))
    put(os.path.join(target, "d/other"), content(2, 0, MIB))
    put(os.path.join(target, "d/new"), content(3, 0, MIB))
    os.symlink("x", os.path.join(target, "d/link"))
    stage_in(store, os.path.join(target, "d/same"), to=m.path, root=target)
    os.mkdir(m.at("d"))
    os.rename(m.at("same"), m.at("d/same"))
    ino = os.stat(m.at("d/same")).st_ino
    write_file(m.at("d/other"), b"mine")
    os.symlink("y", m.at("d/link"))
    r = stage_in(store, os.path.join(target, "d"), to=m.path, check=False)
    assert r.returncode == 4 and "stays" in r.stdout, r
    assert read(m.at("d/other")) == b"mine" and os.readlink(m.at("d/link")) == "y"
    assert os.stat(m.at("d/same")).st_ino == ino
    assert_same(read(m.at("d/new")), content(3, 0, MIB))
    os.unlink(m.at("d/other"))
    os.unlink(m.at("d/link"))
    new = os.stat(m.at("d/new")).st_ino
    stage_in(store, os.path.join(target, "d"), to=m.path)
    assert_same(read(m.at("d/other")), content(2, 0, MIB))
    assert os.stat(m.at("d/new")).st_ino == new, "what is there is not copied again"


def test_what_can_not_be_is_said(store, target):
    store.expect("drain job")
    m = store.mounts[0]
    r = stage_in(store, os.path.join(target, "f"), to=m.path, check=False)
    assert r.returncode == 1 and "--target" in r.stderr, r
    r = stage_in(store, os.path.join(target, "f"), to=m.at("nothing"), root=target, check=False)
    assert r.returncode == 1 and "nothing" in r.stderr, r
    r = stage_in(store, os.path.join(target, "f"), to=m.path, root=target, check=False)
    assert r.returncode == 4 and "not in the target" in r.stdout, r
    r = store.fpctl("stage-in", os.path.join(target, "f"), f"--target={target}", check=False)
    assert r.returncode == 1 and "--to" in r.stderr, r
    assert os.listdir(m.path) == []


def test_many_files_in_pages(store, target):
    m = store.mounts[0]
    os.mkdir(os.path.join(target, "many"))
    for i in range(1500):
        put(os.path.join(target, "many", f"f{i:04}"), b"%d" % i)
    stage_in(store, os.path.join(target, "many"), to=m.path, root=target)
    assert sorted(os.listdir(m.at("many"))) == [f"f{i:04}" for i in range(1500)]
    for i in range(1500):
        assert read(m.at(f"many/f{i:04}")) == b"%d" % i


def test_a_file_that_is_being_written_is_waited_for(store, target):
    m = store.mounts[0]
    path = os.path.join(target, "f")
    put(path, content(1, 0, MIB), mtime=time.time())
    began = time.monotonic()
    stage_in(store, path, to=m.path, root=target)
    assert time.monotonic() - began > 1
    assert_same(read(m.at("f")), content(1, 0, MIB))


def test_names_appear_to_programs_that_looked_before(store, target):
    """The only mount of a store keeps for a moment that there is no such name, and makes names before the manager hears of them."""
    m = store.mounts[0]
    put(os.path.join(target, "f"), content(1, 0, MIB))
    for _ in range(3):
        for i in range(20):
            write_file(m.at(f"own{i}"), b"x")
        assert not os.path.exists(m.at("f"))
        stage_in(store, os.path.join(target, "f"), to=m.path, root=target)
        assert_same(read(m.at("f")), content(1, 0, MIB))
        os.unlink(m.at("f"))
    assert len(os.listdir(m.path)) == 20


def test_a_checkpoint_that_comes_is_no_set(store, target):
    """Completeness by time would name it while its last files are still on their way."""
    m = store.mounts[0]
    for i in range(3):
        os.makedirs(os.path.join(target, "run/chk_0007"), exist_ok=True)
        put(os.path.join(target, f"run/chk_0007/rank_{i}"), content(i, 0, MIB))
    stage_in(store, os.path.join(target, "run"), to=m.path, root=target)
    time.sleep(2.5)
    assert store.fpctl("checkpoint", "latest", m.at("run"), check=False).returncode == 3
    assert_same(read(m.at("run/chk_0007/rank_2")), content(2, 0, MIB))


def test_a_file_can_be_drained_to_where_it_came_from(store, target):
    m = store.mounts[0]
    put(os.path.join(target, "f"), content(1, 0, 3 * MIB))
    stage_in(store, os.path.join(target, "f"), to=m.path, root=target)
    with open(m.at("f"), "r+b") as f:
        f.write(b"changed")
    store.fpctl("drain", m.at("f"), f"--to={target}", "--wait", "--timeout=60s", seconds=80)
    assert_same(read(os.path.join(target, "f")), b"changed" + content(1, 7, 3 * MIB - 7))
    r = stage_in(store, os.path.join(target, "f"), to=m.path)
    assert "1 of 1 files" in r.stdout, "what it has drained itself is the same"


def test_results_are_staged_out(store, target):
    store.expect("drain job")
    m = store.mounts[0]
    os.makedirs(m.at("out/a"))
    write_file(m.at("out/a/f"), content(1, 0, 3 * MIB + 5))
    write_file(m.at("out/g"), content(2, 0, 100))
    r = store.fpctl("stage-out", m.at("out"), f"--to={target}", "--timeout=60s", seconds=80)
    assert "2 of 2 files" in r.stdout, r
    assert_same(read(os.path.join(target, "out/a/f")), content(1, 0, 3 * MIB + 5))
    assert levels(store, m.at("out/a/f"))["level"] == "verified"
    # and back, by another name
    os.mkdir(m.at("back"))
    stage_in(store, os.path.join(target, "out"), to=m.at("back"))
    assert_same(read(m.at("back/out/a/f")), content(1, 0, 3 * MIB + 5))
    os.mkdir(m.at("dir"))
    write_file(m.at("dir/f"), b"x")
    os.makedirs(os.path.join(target, "dir/f"))
    r = store.fpctl("stage-out", m.at("dir/f"), f"--to={target}", "--timeout=30s", check=False, seconds=50)
    assert r.returncode == 4 and "dir/f" in r.stdout, r


@pytest.fixture
def read_only(store, as_root):
    """A directory with files that nobody can write to, and a function that makes it writable."""
    path = store.make_dir("inputs")
    os.mkdir(os.path.join(path, "d"))
    for i in range(6):
        put(os.path.join(path, f"d/f{i}"), content(i, 0, 3 * MIB + i))
    subprocess.run(["mount", "--bind", path, path], check=True, timeout=20)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True, timeout=20)
        yield path, lambda: subprocess.run(["mount", "-o", "remount,bind,rw", path], check=True, timeout=20)
    finally:
        subprocess.run(["umount", path], check=True, timeout=20)


@pytest.mark.limit(120)
def test_inputs_of_a_read_only_file_system(store, read_only):
    """Nothing can be written there, so there is no marker: files come all the same, also after restarts, and none of them is evicted."""
    path, make_writable = read_only
    m = store.mounts[0]
    r = stage_in(store, os.path.join(path, "d"), to=m.path, root=path)
    assert "6 of 6 files" in r.stdout, r
    for i in range(6):
        assert_same(read(m.at(f"d/f{i}")), content(i, 0, 3 * MIB + i))
    assert sorted(os.listdir(path)) == ["d"]
    store.manager.kill()
    store.restart_manager()
    os.mkdir(m.at("again"))
    stage_in(store, os.path.join(path, "d"), to=m.at("again"))
    assert_same(read(m.at("again/d/f5")), content(5, 0, 3 * MIB + 5))
    store.expect("drain job")
    r = store.fpctl("evict", m.at("d/f0"), "--timeout=20s", check=False, seconds=40)
    assert r.returncode == 4 and "0 of 1 files" in r.stdout, r
    assert levels(store, m.at("d/f0"))["level"] in ("pool", "local")


@pytest.mark.limit(120)
def test_a_read_only_file_system_becomes_a_target(store, read_only):
    """A drain to it waits and says why; it goes on when the file system can be written to, and has its marker then."""
    path, make_writable = read_only
    store.expect("drain job")
    m = store.mounts[0]
    stage_in(store, os.path.join(path, "d/f1"), to=m.path, root=path)
    write_file(m.at("new"), content(9, 0, MIB), sync=True)
    r = store.fpctl("drain", m.at("new"), f"--to={path}", "--wait", "--timeout=3s", check=False, seconds=30)
    assert r.returncode != 0
    assert "nothing can be written to the target" in store.fpctl("drain", "show").stdout
    assert not os.path.exists(os.path.join(path, ".fp-target"))
    make_writable()
    store.fpctl("drain", m.at("new"), f"--to={path}", "--wait", "--timeout=40s", seconds=60)
    assert_same(read(os.path.join(path, "new")), content(9, 0, MIB))
    assert os.path.exists(os.path.join(path, ".fp-target"))
    stage_in(store, os.path.join(path, "d/f2"), to=m.path)
    assert_same(read(m.at("f2")), content(2, 0, 3 * MIB + 2))


@pytest.mark.limit(120)
def test_another_directory_is_not_taken_for_the_read_only_one(store, read_only):
    """What lies below the mount point of a file system that is not mounted has no marker that says so: it is known by its inode."""
    path, make_writable = read_only
    store.expect("drain job|staged in from before|fp-drain")
    m = store.mounts[0]
    stage_in(store, os.path.join(path, "d/f1"), to=m.path, root=path)
    other = store.make_dir("other")
    os.mkdir(os.path.join(other, "d"))
    put(os.path.join(other, "d/f3"), b"not meant")
    subprocess.run(["mount", "--bind", other, path], check=True, timeout=20)
    try:
        r = stage_in(store, os.path.join(path, "d/f3"), to=m.path, timeout="8s", check=False)
        assert r.returncode != 0 and not os.path.exists(m.at("f3")), r
        assert "staged in from before" in store.fpctl("drain", "show").stdout
    finally:
        subprocess.run(["umount", path], check=True, timeout=20)
    stage_in(store, os.path.join(path, "d/f3"), to=m.path, timeout="80s")
    assert_same(read(m.at("f3")), content(3, 0, 3 * MIB + 3))
