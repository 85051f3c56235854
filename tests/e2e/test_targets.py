"""The file systems that tests take for parallel ones: they are real, fail as they say, and leave nothing behind."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from harness import daemons
from harness.daemons import SLOW, is_mounted, mounts_below, unmount, wait_until
from harness.files import assert_same, content, read_file, write_file
from harness.targets import GlusterTarget, Targets, usable

MIB = 1 << 20
HARNESS = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def work(path, key=1):
    """As whoever drains: a temporary name, written in parts and out of order, synced, renamed; and read back past the cache."""
    data = content(key, 0, 3 * MIB + 17)
    os.makedirs(f"{path}/run/chk_0001")
    at = os.open(f"{path}/run/chk_0001", os.O_RDONLY | os.O_DIRECTORY)
    fd = os.open(".tmp", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=at)
    for off in (2 * MIB, 0, 3 * MIB, MIB):
        assert os.pwrite(fd, data[off:off + MIB], off) == len(data[off:off + MIB])
    os.fsync(fd)
    assert os.fstat(fd).st_size == len(data)
    os.fchmod(fd, 0o640)
    os.utime(fd, ns=(10**18, 10**18 + 5))
    os.rename(".tmp", "rank", src_dir_fd=at, dst_dir_fd=at)
    os.fsync(at)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    os.close(at)
    assert_same(read_file(f"{path}/run/chk_0001/rank"), data)
    st = os.stat(f"{path}/run/chk_0001/rank")
    assert st.st_mode & 0o777 == 0o640 and st.st_mtime_ns // 10**9 == 10**9
    assert os.listdir(f"{path}/run/chk_0001") == ["rank"]


def failing(code, what, *args):
    with pytest.raises(OSError) as e:
        what(*args)
    assert e.value.errno == code, e.value


class Later:
    """A call that may hang, in a thread."""

    def __init__(self, what, *args):
        self.result = None
        self.thread = threading.Thread(target=self._run, args=(what, *args), daemon=True)
        self.thread.start()

    def _run(self, what, *args):
        try:
            what(*args)
            self.result = "done"
        except OSError as e:
            self.result = e

    def is_waiting(self, seconds):
        self.thread.join(seconds)
        return self.thread.is_alive()

    def end(self, seconds=20):
        self.thread.join(seconds * SLOW)
        assert not self.thread.is_alive(), "still waiting"
        return self.result


def test_a_directory_is_worked_with(targets):
    work(targets.dir().path)


def test_a_slow_directory_is_worked_with(targets):
    t = targets.slow()
    work(t.path)
    assert os.listdir(f"{t.source}/run/chk_0001") == ["rank"]
    write_file(f"{t.source}/new", b"of others")
    assert read_file(f"{t.path}/new") == b"of others"
    os.rename(f"{t.source}/new", f"{t.source}/newer")
    assert sorted(os.listdir(t.path)) == ["newer", "run"] and not os.path.exists(f"{t.path}/new")


def test_it_takes_the_time_that_is_named_for_data_and_none_for_names(targets):
    t = targets.slow("write=10MB/s,read=20MB/s")
    data = content(2, 0, 10 * MIB)
    begun = time.monotonic()
    write_file(f"{t.path}/a", data, sync=True)
    wrote = time.monotonic() - begun
    fd = os.open(f"{t.path}/a", os.O_RDONLY | os.O_DIRECT)  # not from the page cache of this node
    begun, got = time.monotonic(), b"".join(os.pread(fd, MIB, off) for off in range(0, 10 * MIB, MIB))
    read = time.monotonic() - begun
    os.close(fd)
    assert_same(got, data)
    assert wrote >= 1.0485 - 0.02, f"10 MiB in {wrote:.3f} s"  # slower is the machine's business
    assert read >= 0.5242 - 0.02, f"10 MiB in {read:.3f} s"
    count = t.count()
    assert (count["write_bytes"], count["read_bytes"], count["fsyncs"]) == (10 * MIB, 10 * MIB, 1)
    begun = time.monotonic()
    for i in range(50):
        write_file(f"{t.path}/empty-{i}", b"")
        os.rename(f"{t.path}/empty-{i}", f"{t.path}/e{i}")
    assert t.count()["writes"] == count["writes"] and len(os.listdir(t.path)) == 51


def test_it_shows_all_kinds_of_files_and_attributes(targets):
    t = targets.slow()
    os.symlink("where", f"{t.path}/link")
    os.mkfifo(f"{t.path}/fifo", 0o600)
    write_file(f"{t.path}/a", b"x" * 5000)
    os.link(f"{t.path}/a", f"{t.path}/b")
    os.setxattr(f"{t.path}/a", "user.mine", b"value")
    assert os.readlink(f"{t.source}/link") == "where" and os.stat(f"{t.source}/fifo").st_mode == 0o10600
    assert os.stat(f"{t.path}/b").st_nlink == 2 and os.path.samefile(f"{t.path}/a", f"{t.path}/b")
    assert os.getxattr(f"{t.source}/a", "user.mine") == b"value" and os.listxattr(f"{t.path}/b") == ["user.mine"]
    os.utime(f"{t.path}/link", ns=(5, 10**18), follow_symlinks=False)
    assert os.lstat(f"{t.source}/link").st_mtime_ns == 10**18
    os.truncate(f"{t.path}/a", 1 << 20)
    fd = os.open(f"{t.path}/a", os.O_RDWR)
    assert os.lseek(fd, 0, os.SEEK_HOLE) < 1 << 20
    os.posix_fallocate(fd, 0, 2 << 20)
    os.unlink(f"{t.path}/a")
    os.unlink(f"{t.path}/b")
    assert os.fstat(fd).st_size == 2 << 20 and os.pread(fd, 5, 0) == b"xxxxx"  # open, and without a name
    os.close(fd)
    assert os.statvfs(t.path).f_blocks == os.statvfs(t.source).f_blocks
    names = {f"file-{i:04d}-{'n' * 100}" for i in range(700)}  # more than one answer holds
    for name in names:
        write_file(f"{t.source}/{name}", b"")
    assert set(os.listdir(t.path)) == names | {"link", "fifo"}
    os.mkdir(f"{t.path}/d")
    os.rmdir(f"{t.path}/d")
    failing(errno.ENOENT, os.stat, f"{t.path}/d")


def test_what_users_make_in_it_belongs_to_them(targets, as_root):
    t = targets.slow()
    os.chmod(os.path.dirname(t.path), 0o755)
    os.chmod(t.source, 0o1777)
    script = f"cd {t.path} && umask 027 && echo x >file && mkdir dir && ln -s a link && mkfifo fifo"
    subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script], check=True, timeout=20 * SLOW)
    for name, mode in (("file", 0o640), ("dir", 0o750), ("link", 0o777), ("fifo", 0o640)):
        st = os.lstat(f"{t.source}/{name}")
        assert (st.st_uid, st.st_gid, st.st_mode & 0o777) == (65534, 65534, mode), name
    write_file(f"{t.path}/secret", b"x")
    os.chmod(f"{t.path}/secret", 0o600)
    denied = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", f"{t.path}/secret"],
                            capture_output=True, timeout=20 * SLOW)
    assert b"Permission denied" in denied.stderr


def test_it_fails_as_it_is_told(targets):
    t = targets.slow()
    write_file(f"{t.path}/a", b"before")
    t.fail("write=EDQUOT,fsync=EIO,rename=EROFS")
    assert os.getxattr(t.path, "user.slowfs.fail") == b"write=EDQUOT,fsync=EIO,rename=EROFS"
    fd = os.open(f"{t.path}/a", os.O_RDWR)
    failing(errno.EDQUOT, os.pwrite, fd, b"x", 0)
    failing(errno.EIO, os.fsync, fd)
    failing(errno.EROFS, os.rename, f"{t.path}/a", f"{t.path}/b")
    assert os.pread(fd, 6, 0) == b"before"
    t.fail("all=ESTALE")
    failing(errno.ESTALE, os.listdir, t.path)
    failing(errno.ESTALE, os.stat, f"{t.path}/a")
    for wrong in ("write=EWHAT", "paint=EIO", "write", "write=EIO,"):
        failing(errno.EINVAL, t.fail, wrong)
    failing(errno.ESTALE, os.stat, f"{t.path}/a")  # as before
    t.fail()
    os.pwrite(fd, b"after!", 0)
    os.close(fd)
    assert read_file(f"{t.source}/a") == b"after!"


def test_it_hangs_and_goes_on(targets):
    t = targets.slow()
    t.hang()
    call = Later(write_file, f"{t.path}/a", b"late", True)
    assert call.is_waiting(1)
    t.resume()
    assert call.end() == "done" and read_file(f"{t.source}/a") == b"late"


def test_it_is_gone_and_comes_back(targets):
    t = targets.slow()
    fd = os.open(f"{t.path}/a", os.O_RDWR | os.O_CREAT)
    t.lose()
    failing(errno.ENOTCONN, os.fsync, fd)
    failing(errno.ENOTCONN, os.stat, t.path)
    failing(errno.ENOTCONN, os.close, fd)
    t.come_back()
    write_file(f"{t.path}/a", b"again")


def test_a_loop_device_is_worked_with_until_it_is_full(targets, as_root):
    t = targets.loop()
    work(t.path)
    t.fill(leave_bytes=MIB)
    fd = os.open(f"{t.path}/more", os.O_WRONLY | os.O_CREAT)

    def write_all():
        for off in range(0, 8 * MIB, MIB):
            os.pwrite(fd, bytes(MIB), off)
        os.fsync(fd)
    failing(errno.ENOSPC, write_all)
    t.make_room()
    write_all()
    os.close(fd)
    t.read_only()
    failing(errno.EROFS, write_file, f"{t.path}/x", b"x")
    t.read_only(False)
    write_file(f"{t.path}/x", b"x")


@pytest.mark.limit(150)
def test_a_gluster_volume_loses_its_brick_and_gets_it_back(targets, as_root):
    t = targets.gluster()
    with open("/proc/self/mounts") as f:
        assert any(line.split()[1:3] == [t.path, "fuse.glusterfs"] for line in f)
    work(t.path)
    assert os.path.exists(f"{t.brick}/run/chk_0001/rank")
    fd = os.open(f"{t.path}/run/chk_0001/rank", os.O_RDWR)
    assert os.pwrite(fd, b"before", 0) == 6
    os.fsync(fd)
    t.kill_brick()
    wait_until("the volume to be gone", 60, lambda: not usable(t.path))
    t.restart_brick()
    t.wait_usable()
    again = os.open(f"{t.path}/run/chk_0001/rank", os.O_RDWR)
    assert os.pread(again, 6, 0) == b"before"
    os.pwrite(again, b"after!", 0)
    os.fsync(again)
    os.close(again)
    os.close(fd)
    assert read_file(f"{t.brick}/run/chk_0001/rank")[:6] == b"after!"
    t.hang()
    call = Later(write_file, f"{t.path}/late", b"x", True)
    assert call.is_waiting(1)
    t.resume()
    call.end(60)  # done, or refused by a client that had given up
    t.lose()
    failing(errno.ENOTCONN, os.stat, t.path)
    t.come_back()
    work_again = read_file(f"{t.path}/run/chk_0001/rank")
    assert work_again[:6] == b"after!"


def users_of(path):
    """Processes that were started for what lies below path."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if path.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


ALL_KINDS = """
import sys
sys.path.insert(0, sys.argv[1])
from harness.targets import Targets
t = Targets()
t.loop()
t.gluster().kill_brick()
slow = t.slow("x25e")
held = open(slow.path + "/held", "wb")
slow.hang()
print(t.base, flush=True)
sys.stdin.read()
"""


@pytest.mark.limit(150)
def test_a_run_that_is_killed_leaves_no_process_and_no_mount(targets, as_root):
    targets._needs("mkfs.ext4", "losetup", *GlusterTarget.TOOLS)
    run = subprocess.Popen([sys.executable, "-c", ALL_KINDS, HARNESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        base = run.stdout.readline().strip()
        assert base.startswith(os.path.join(daemons.SCRATCH, f"fp-test-{run.pid}-")), "it did not start"
        assert len(mounts_below(base)) == 3 and users_of(base)
        run.kill()
        run.wait(20)
        wait_until(lambda: f"the end of {users_of(base)}", 20, lambda: not users_of(base))
        daemons.sweep()
        assert not mounts_below(base) and not os.path.exists(base)
    finally:
        run.kill()
        run.wait(20)


def test_only_what_a_test_has_made_is_unmounted():
    for path in ("", "/", "//", "/proc", "/sys/fs/cgroup", "/run/netns", "/dev/shm", "/var", "/var/..", "/var/tmp/../../proc", "relative/path"):
        with pytest.raises(ValueError):
            daemons.of_a_test(path)
    for what in (unmount, mounts_below):  # with a name that would do no harm
        with pytest.raises(ValueError):
            what("")


def test_a_set_of_targets_ends_whatever_state_they_are_in(targets):
    more = Targets()
    slow, gone, plain = more.slow("x25e"), more.slow(), more.dir()
    write_file(f"{plain.path}/a", b"x")
    held = os.open(f"{slow.path}/a", os.O_RDWR | os.O_CREAT)
    slow.hang()
    gone.send(signal.SIGKILL)
    gone.proc.wait(20)
    wrong = more.end()
    failing(errno.ENOTCONN, os.close, held)
    assert len(wrong) == 1 and "had ended by itself" in wrong[0]
    assert not os.path.exists(more.base) and not is_mounted(slow.path) and not users_of(more.base)
