"""--close behind under faults: whoever dies or stands still, an open elsewhere ends in bounded time, and with a version that was published."""

import errno
import json
import os
import re
import subprocess
import sys
import time

import pytest

from harness.daemons import SLOW, wait_until
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20
CONT = 18


@pytest.fixture
def two(new_store):
    """Two mounts; sessions end after 5 s."""
    return new_store().up(mounts=2, manager_args=["--session-timeout=5s"], mount_args=["--close=behind", "--io-timeout=20s"])


def written_behind(s, name="f"):
    """A file published with one content, and closed on the first mount with another, longer one that can't be stored."""
    a = s.mounts[0].at(name)
    old, new, where = content(1, 0, MIB), content(2, 0, 300_001), MIB - 200_000
    write_file(a, old, sync=True)
    for b in s.benefactors:
        b.freeze()
    fd = os.open(a, os.O_WRONLY)
    os.pwrite(fd, new, where)
    os.close(fd)
    return old, old[:where] + new


def wait_told(s, name, size):
    """A close may go before the manager has heard of it, in the milliseconds behind it: a mount that dies in these is not said to have closed the file."""
    wait_until(f"the manager knows that {name} was closed", 10, lambda: os.stat(s.mounts[1].at(name)).st_size == size)


def let_go(s):
    for b in s.benefactors:
        b.send(CONT)


@pytest.mark.expect_log("benefactor", "inode", "could not be opened", "had not stored")
def test_holder_killed_the_last_published_version_is_seen_when_its_session_has_ended(two):
    old, _ = written_behind(two)
    two.mounts[0].kill()
    let_go(two)
    begun = time.monotonic()
    assert_same(read_file(two.mounts[1].at("f")), old)
    assert time.monotonic() - begun < 15 * SLOW


@pytest.mark.expect_log("benefactor", "inode", "had not stored")
def test_what_a_mount_took_to_its_grave_is_named(two):
    """Programs have been told that it is well: log, level and status say what is not, until it is written again."""
    old, new = written_behind(two)
    a, b = two.mounts
    fd = os.open(a.at("new"), os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, content(4, 0, 1000))
    os.close(fd)
    write_file(b.at("other"), b"")
    wait_told(two, "f", len(new))
    wait_told(two, "new", 1000)
    a.kill()
    let_go(two)
    two.manager.wait_log(r"mnt-1 is gone, and had not stored what programs had closed .* of 2 files: (/f, /new|/new, /f)\. That is lost", 30)
    assert_same(read_file(b.at("f")), old)
    assert read_file(b.at("new")) == b""

    def said():
        text = two.fpctl("status").stdout
        return sorted(re.findall(r"^ *lost +(/\S+): what was closed of it", text, re.M)), json.loads(two.fpctl("status", "--json").stdout)["lost"]
    names, listed = said()
    assert names == ["/f", "/new"] == sorted(listed)
    for name in ("f", "new"):
        assert os.getxattr(b.at(name), "user.fp.level") == b"none"
        waits = two.fpctl("wait", "--level", "local", b.at(name), check=False)
        assert waits.returncode == 4 and "was lost before it was stored" in waits.stdout + waits.stderr, waits
    assert two.fpctl("wait", "--level", "local", b.at("other")).returncode == 0
    target = two.make_dir("target")
    drained = two.fpctl("drain", b.at("new"), f"--to={target}", "--wait", check=False)
    assert drained.returncode != 0 and "was lost before it was stored" in drained.stdout + drained.stderr, drained
    assert not os.path.exists(os.path.join(target, "new"))
    with open(b.at("f"), "ab") as f:  # a program that goes on does not bring back what was lost
        f.write(b"more")
    assert said()[0] == ["/f", "/new"]
    write_file(b.at("f"), new, sync=True)
    os.unlink(b.at("new"))
    assert said() == ([], [])
    assert two.fpctl("wait", "--level", "local", b.at("f")).returncode == 0


@pytest.mark.expect_log("benefactor", "inode", "had not stored", "is torn")
def test_a_set_of_which_something_was_lost_is_complete_by_force_alone(two):
    """The rank that writes the marker was told that all is well, as all were."""
    a, b = two.mounts
    os.mkdir(a.at("chk_0001"))
    path = b.at("chk_0001/rank_0")
    write_file(path, content(5, 0, MIB), sync=True)
    _, new = written_behind(two, "chk_0001/rank_1")
    wait_told(two, "chk_0001/rank_1", len(new))
    a.kill()
    let_go(two)
    two.manager.wait_log(r"had not stored what programs had closed .* of 1 file: /chk_0001/rank_1\.", 30)
    write_file(b.at("chk_0001/COMPLETE"), b"")
    said = two.fpctl("checkpoint", "commit", os.path.dirname(path), check=False)
    assert said.returncode == 1 and "--force" in said.stderr, said
    said = two.fpctl("checkpoint", "commit", os.path.dirname(path), check=False)
    assert said.returncode == 1 and "was lost before it was stored" in said.stderr and "--force" in said.stderr, said  # the marker is published, too, and nobody writes
    for p in (path, os.path.dirname(path)):  # … nor does the attribute say that all is well
        with pytest.raises(OSError) as e:
            os.setxattr(p, "user.fp.checkpoint", b"complete")
        assert e.value.errno == errno.EUCLEAN
        with pytest.raises(OSError) as e:
            os.getxattr(p, "user.fp.checkpoint")
        assert e.value.errno == errno.ENODATA
    assert two.fpctl("checkpoint", "latest", b.at(""), "--timeout=1s", check=False).returncode == 3
    wait_until("the set to be torn", 20, lambda: os.getxattr(os.path.dirname(path), "user.fp.level") == b"none")
    assert [os.getxattr(p, "user.fp.level") for p in (path, b.at("chk_0001/rank_1"))] == [b"local", b"none"]
    two.fpctl("checkpoint", "commit", "--force", os.path.dirname(path))
    assert two.fpctl("checkpoint", "latest", b.at("")).stdout.strip() == os.path.dirname(path)
    assert json.loads(two.fpctl("status", "--json").stdout)["lost_files"] == 0


@pytest.mark.expect_log("benefactor", "inode", "had not stored")
def test_size_that_was_told_goes_with_its_mount(two):
    """stat elsewhere waits for nothing: it is told what was closed, for as long as that may come, and then what there is."""
    old, new = written_behind(two)
    path = two.mounts[1].at("f")
    new += content(3, 0, 1000)
    fd = os.open(two.mounts[0].at("f"), os.O_WRONLY | os.O_APPEND)
    os.write(fd, new[-1000:])
    os.close(fd)
    wait_told(two, "f", len(new))
    two.mounts[0].kill()
    let_go(two)
    wait_until("the size is that of what was published", 30, lambda: os.stat(path).st_size == len(old))
    assert_same(read_file(path), old)


@pytest.mark.expect_log("benefactor", "inode", "could not be opened", "had not stored")
def test_holder_that_stands_still_is_waited_for_for_a_bounded_time(two):
    old, new = written_behind(two)
    two.mounts[0].freeze()
    let_go(two)
    try:
        begun = time.monotonic()
        try:
            got = read_file(two.mounts[1].at("f"))
            assert_same(got, old)
        except OSError as e:
            assert e.errno == errno.EIO
        assert time.monotonic() - begun < 40 * SLOW
    finally:
        two.mounts[0].send(CONT)
    wait_until("what it had is published", 30, lambda: read_file(two.mounts[1].at("f")) == new)


def renamed_behind(s):
    """The usual way to replace a file, without fsync; the data can't be stored. The thread, which renames, and what there was and will be."""
    a = s.mounts[0]
    old, new = content(1, 0, 8 * MIB), content(2, 0, 500_001)
    write_file(a.at("f"), old, sync=True)  # space is leased of every benefactor
    for b in s.benefactors:
        b.freeze()
    fd = os.open(a.at("f.tmp"), os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(fd, new, 0)
    os.close(fd)
    renaming = subprocess.Popen([sys.executable, "-c", "import os, sys; os.rename(sys.argv[1], sys.argv[2])", a.at("f.tmp"), a.at("f")],
                                stderr=subprocess.DEVNULL)
    return renaming, old, new


@pytest.mark.expect_log("benefactor", "inode", "could not be opened", "had not stored")
@pytest.mark.limit(180)
def test_mount_killed_while_it_renames_leaves_the_old_file(two):
    renaming, old, _ = renamed_behind(two)
    with pytest.raises(subprocess.TimeoutExpired):
        renaming.wait(2)
    two.mounts[0].kill()
    renaming.wait(60)
    let_go(two)
    assert_same(read_file(two.mounts[1].at("f")), old)


@pytest.mark.expect_log("benefactor", "inode", "could not be opened", "had not stored")
@pytest.mark.limit(180)
def test_mount_killed_after_a_rename_leaves_the_new_file(two):
    renaming, _, new = renamed_behind(two)
    let_go(two)
    assert renaming.wait(60) == 0
    two.mounts[0].kill()
    assert_same(read_file(two.mounts[1].at("f")), new)


@pytest.mark.expect_log("benefactor", "inode", "could not be opened", "had not stored")
@pytest.mark.limit(180)
def test_directory_that_another_mount_renames_has_what_was_closed_in_it(two):
    """Each rank writes its file, and one of them renames the directory when all have: then the others' mounts may die."""
    a, b = two.mounts
    os.makedirs(a.at("ck.tmp/sub"))
    write_file(a.at("warm"), content(1, 0, 8 * MIB), sync=True)  # space is leased of every benefactor
    names = ["rank0", "rank1", "sub/rank2"]
    for x in two.benefactors:
        x.freeze()
    for i, name in enumerate(names):
        write_file(a.at(f"ck.tmp/{name}"), content(i, 0, 400_001))
    renaming = subprocess.Popen([sys.executable, "-c", "import os, sys; os.rename(sys.argv[1], sys.argv[2])", b.at("ck.tmp"), b.at("ck")])
    with pytest.raises(subprocess.TimeoutExpired):
        renaming.wait(2)
    let_go(two)
    assert renaming.wait(60) == 0
    a.kill()
    for i, name in enumerate(names):
        assert_same(read_file(b.at(f"ck/{name}")), content(i, 0, 400_001))


@pytest.fixture
def hurried(new_store):
    """What can't be stored is an error after 4 s, and sessions end after 5 s: who waits for the end of one waits for longer than for a benefactor."""
    return new_store().up(mounts=2, manager_args=["--session-timeout=5s"], mount_args=["--close=behind", "--io-timeout=4s"])


@pytest.mark.expect_log("benefactor", "inode", "could not be opened", "had not stored")
@pytest.mark.limit(180)
def test_holder_killed_while_another_mount_waits_for_it(hurried):
    old, _ = written_behind(hurried)
    reading = subprocess.Popen(["cat", hurried.mounts[1].at("f")], stdout=subprocess.PIPE)
    time.sleep(1.5)
    hurried.mounts[0].kill()
    let_go(hurried)
    got, _ = reading.communicate(timeout=60)
    assert reading.returncode == 0
    assert_same(got, old)


@pytest.mark.expect_log("benefactor", "inode", "could not be opened", "closed", "had not stored")
@pytest.mark.limit(180)
def test_what_was_closed_is_kept_until_it_can_be_stored(hurried):
    """For longer than --io-timeout and --session-timeout; who opens it elsewhere never sees what was before."""
    _, new = written_behind(hurried)
    with pytest.raises(OSError) as e:
        read_file(hurried.mounts[1].at("f"))
    assert e.value.errno == errno.EIO
    time.sleep(5)
    let_go(hurried)

    def there():
        try:
            return read_file(hurried.mounts[1].at("f"))
        except OSError as e:
            assert e.errno == errno.EIO
            return None
    assert_same(wait_until("it is stored", 60, there), new)
    assert_same(read_file(hurried.mounts[0].at("f")), new)


@pytest.mark.expect_log("benefactor", "inode", "could not be opened", "refused", "manager", "written data was lost", "had not stored")
@pytest.mark.limit(180)
def test_holder_that_was_cut_off_does_not_go_over_what_others_wrote(two):
    old, _ = written_behind(two)
    a, b = two.mounts
    newer = content(3, 0, 100_000)
    a.freeze()
    try:
        let_go(two)
        fd = os.open(b.at("f"), os.O_RDWR)  # when the session of the other has ended
        assert_same(os.pread(fd, MIB, 0), old)
        os.pwrite(fd, newer, 0)
        os.close(fd)
    finally:
        a.send(CONT)
    want = newer + old[len(newer):]
    a.wait_log("is not published", 60)
    two.manager.wait_log("had closed or appended before it was cut off is refused", 5)
    assert_same(read_file(b.at("f")), want)
    with pytest.raises(OSError) as e:
        read_file(a.at("f"))
    assert e.value.errno == errno.EIO  # once
    for m in (a, b):
        assert_same(read_file(m.at("f")), want)


@pytest.mark.expect_log("benefactor", "inode", "manager", "had not stored")
def test_manager_killed_between_close_and_open(two):
    _, new = written_behind(two)
    two.manager.kill()
    two.restart_manager()
    let_go(two)
    assert_same(read_file(two.mounts[1].at("f")), new)
