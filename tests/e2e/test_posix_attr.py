"""Attributes: permissions and owners, setgid and sticky, times, xattrs, statfs."""

import errno
import os
import shutil
import stat
import subprocess
import time

import pytest

from harness.daemons import SLOW, bin_path, wait_until
from harness.files import mode_of, write_file

NOBODY = 65534


def fails(err, call, *args, **kw):
    with pytest.raises(OSError) as e:
        call(*args, **kw)
    assert e.value.errno in (err if isinstance(err, tuple) else (err,)), errno.errorcode[e.value.errno]


def as_user(uid, gid, call, groups=()):
    """call() in a child with these ids; what it raises, its errno is raised here."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.setgroups(list(groups))
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            call()
        except OSError as e:
            code = e.errno
        except BaseException:
            code = 255
        os.write(w, bytes([code]))
        os._exit(0)
    os.close(w)
    code = os.read(r, 1)
    os.close(r)
    os.waitpid(pid, 0)
    if code == b"\xff":
        raise AssertionError("the child failed")
    if code != b"\0":
        raise OSError(code[0], os.strerror(code[0]))


def test_who_may_not_read_the_key_says_and_asks_by_attributes(store, as_root):
    m, fpctl = store.mounts[0], shutil.copy(bin_path("fpctl"), store.dir)  # the tree may be where only its owner can look
    for part in (store.dir, os.path.dirname(m.path)):
        os.chmod(part, 0o755)
    os.mkdir(m.at("mine"))
    os.chown(m.at("mine"), NOBODY, NOBODY)

    def script():
        os.mkdir(m.at("mine/results"))
        write_file(m.at("mine/results/a"), b"data", sync=True)
        assert os.getxattr(m.at("mine/results/a"), "user.fp.level") != b"none"
        os.setxattr(m.at("mine/results"), "user.fp.checkpoint", b"complete")
        wait_until("the set to be complete", 30, lambda: os.getxattr(m.at("mine/results"), "user.fp.level") == b"local")
        for args in (["checkpoint", "latest", m.path], ["drain", m.at("mine"), "--to=/nowhere"], ["wait", "--level=local", m.at("mine/results")]):
            r = subprocess.run([fpctl, *args], capture_output=True, text=True, timeout=15 * SLOW)
            assert r.returncode == 1 and "as the owner of the key or as root" in r.stderr, (args, r)

    as_user(NOBODY, NOBODY, script)
    assert store.fpctl("checkpoint", "latest", m.path).stdout.strip() == m.at("mine/results")
    os.mkdir(m.at("not_mine"))
    write_file(m.at("not_mine/a"), b"data")
    fails((errno.EACCES, errno.EPERM), as_user, NOBODY, NOBODY, lambda: os.setxattr(m.at("not_mine"), "user.fp.checkpoint", b"complete"))


@pytest.mark.short
def test_chmod_and_umask(d):
    old = os.umask(0o027)
    try:
        os.close(os.open(f"{d}/f", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir(f"{d}/x", 0o777)
    finally:
        os.umask(old)
    assert (mode_of(f"{d}/f"), mode_of(f"{d}/x")) == (0o640, 0o750)
    for mode in (0, 0o777, 0o7777, 0o4711, 0o1000):
        os.chmod(f"{d}/f", mode)
        assert mode_of(f"{d}/f") == mode


@pytest.mark.short
def test_owner_and_other_users(shared, d, as_root):
    write_file(f"{d}/f", b"secret")
    os.chmod(f"{d}/f", 0o600)
    fails(errno.EACCES, as_user, NOBODY, NOBODY, lambda: open(f"{d}/f").read())
    os.chmod(f"{d}/f", 0o644)
    as_user(NOBODY, NOBODY, lambda: open(f"{d}/f").read())
    fails(errno.EACCES, as_user, NOBODY, NOBODY, lambda: open(f"{d}/f", "w"))
    fails(errno.EACCES, as_user, NOBODY, NOBODY, lambda: os.mkdir(f"{d}/x"))
    fails(errno.EPERM, as_user, NOBODY, NOBODY, lambda: os.chmod(f"{d}/f", 0o777))
    fails(errno.EPERM, as_user, NOBODY, NOBODY, lambda: os.chown(f"{d}/f", NOBODY, -1))
    os.chown(f"{d}/f", NOBODY, 100)
    st = os.stat(f"{d}/f")
    assert (st.st_uid, st.st_gid) == (NOBODY, 100)
    as_user(NOBODY, NOBODY, lambda: os.chmod(f"{d}/f", 0o600))
    as_user(NOBODY, NOBODY, lambda: open(f"{d}/f", "w").write("mine"))
    os.chmod(f"{d}/f", 0o060)
    as_user(1234, 100, lambda: open(f"{d}/f").read())
    as_user(1234, 1234, lambda: open(f"{d}/f").read(), groups=[100])
    fails(errno.EACCES, as_user, 1234, 1234, lambda: open(f"{d}/f").read())


def test_new_files_belong_to_who_makes_them(d, as_root):
    os.chmod(d, 0o777)
    as_user(NOBODY, 100, lambda: write_file(f"{d}/f", b"x"))
    as_user(NOBODY, 100, lambda: os.mkdir(f"{d}/x"))
    as_user(NOBODY, 100, lambda: os.symlink("t", f"{d}/l"))
    assert [(os.lstat(f"{d}/{n}").st_uid, os.lstat(f"{d}/{n}").st_gid) for n in "fxl"] == [(NOBODY, 100)] * 3


def test_search_permission(d, as_root):
    os.makedirs(f"{d}/a/b")
    write_file(f"{d}/a/b/f", b"x")
    os.chmod(f"{d}/a", 0o700)
    fails(errno.EACCES, as_user, NOBODY, NOBODY, lambda: os.stat(f"{d}/a/b/f"))
    os.chmod(f"{d}/a", 0o711)
    as_user(NOBODY, NOBODY, lambda: os.stat(f"{d}/a/b/f"))
    fails(errno.EACCES, as_user, NOBODY, NOBODY, lambda: os.listdir(f"{d}/a"))


@pytest.mark.short
def test_setgid_directory_gives_its_group(d, as_root):
    os.mkdir(f"{d}/s")
    os.chown(f"{d}/s", 0, 777)
    os.chmod(f"{d}/s", 0o2777)
    write_file(f"{d}/s/f", b"x")
    os.mkdir(f"{d}/s/sub")
    assert os.stat(f"{d}/s/f").st_gid == 777
    assert os.stat(f"{d}/s/sub").st_gid == 777
    assert mode_of(f"{d}/s/sub") & stat.S_ISGID
    as_user(NOBODY, NOBODY, lambda: os.close(os.open(f"{d}/s/g", os.O_CREAT | os.O_WRONLY, 0o2770)))
    assert not mode_of(f"{d}/s/g") & stat.S_ISGID, "not of that group: no setgid file"


@pytest.mark.short
def test_sticky_directory(d, as_root):
    os.mkdir(f"{d}/t")
    os.chmod(f"{d}/t", 0o1777)
    write_file(f"{d}/t/roots", b"x")
    as_user(1001, 1001, lambda: write_file(f"{d}/t/theirs", b"x"))
    fails((errno.EPERM, errno.EACCES), as_user, 1002, 1002, lambda: os.unlink(f"{d}/t/theirs"))
    fails((errno.EPERM, errno.EACCES), as_user, 1002, 1002, lambda: os.rename(f"{d}/t/theirs", f"{d}/t/x"))
    fails((errno.EPERM, errno.EACCES), as_user, 1001, 1001, lambda: os.unlink(f"{d}/t/roots"))
    as_user(1001, 1001, lambda: os.unlink(f"{d}/t/theirs"))


def test_write_and_chown_clear_setuid(d, as_root):
    write_file(f"{d}/f", b"x")
    os.chown(f"{d}/f", 1001, 1001)
    os.chmod(f"{d}/f", 0o6777)
    as_user(NOBODY, NOBODY, lambda: open(f"{d}/f", "r+b").write(b"yy"))
    assert mode_of(f"{d}/f") & 0o6000 == 0, "a write of somebody else takes setuid and setgid away"
    os.chmod(f"{d}/f", 0o6777)
    as_user(NOBODY, NOBODY, lambda: os.truncate(f"{d}/f", 0))
    assert mode_of(f"{d}/f") & 0o6000 == 0
    os.chmod(f"{d}/f", 0o6777)
    os.chown(f"{d}/f", 1002, 1002)
    assert mode_of(f"{d}/f") & 0o6000 == 0


@pytest.mark.short
def test_times_have_nanoseconds(d):
    write_file(f"{d}/f", b"x")
    for ns in ((1234567890123456789, 987654321987654321), (0, 1), (-1500000001, 4102444800123456789)):
        os.utime(f"{d}/f", ns=ns)
        st = os.stat(f"{d}/f")
        assert (st.st_atime_ns, st.st_mtime_ns) == ns
    os.symlink("f", f"{d}/l")
    os.utime(f"{d}/l", ns=(5, 6), follow_symlinks=False)
    assert os.lstat(f"{d}/l").st_mtime_ns == 6
    assert os.stat(f"{d}/f").st_mtime_ns == 4102444800123456789


@pytest.mark.short
def test_times_change_with_what_is_done(d):
    def times(name):
        st = os.lstat(f"{d}/{name}")
        return st.st_mtime_ns, st.st_ctime_ns

    def after(name, call):
        before = times(name)
        time.sleep(0.02)
        call()
        now = times(name)
        return now[0] > before[0], now[1] > before[1]

    now = time.time_ns()
    write_file(f"{d}/f", b"x")
    assert abs(os.stat(f"{d}/f").st_mtime_ns - now) < 2_000_000_000
    assert after("f", lambda: open(f"{d}/f", "ab").write(b"y")) == (True, True)
    assert after("f", lambda: os.chmod(f"{d}/f", 0o600)) == (False, True)
    assert after("f", lambda: os.truncate(f"{d}/f", 1)) == (True, True)
    assert after("f", lambda: os.link(f"{d}/f", f"{d}/g")) == (False, True)
    assert after("f", lambda: os.setxattr(f"{d}/f", "user.a", b"1")) == (False, True)
    assert after(".", lambda: os.mkdir(f"{d}/x")) == (True, True)
    assert after(".", lambda: os.unlink(f"{d}/g")) == (True, True)
    assert after("x", lambda: os.rename(f"{d}/x", f"{d}/y") or os.rename(f"{d}/y", f"{d}/x"))[0] is False
    fd = os.open(f"{d}/f", os.O_RDWR)
    assert after("f", lambda: os.pwrite(fd, b"z", 0)) == (True, True), "also while the file is open"
    os.close(fd)


def test_mtime_that_is_set_stays(d):
    """tar and cp -p write, then set the time, then close."""
    fd = os.open(f"{d}/f", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b"x" * 3000000)
    os.utime(fd, ns=(1000, 2000))
    os.close(fd)
    assert os.stat(f"{d}/f").st_mtime_ns == 2000
    time.sleep(1.2)
    assert os.stat(f"{d}/f").st_mtime_ns == 2000


@pytest.mark.short
def test_xattrs(d):
    write_file(f"{d}/f", b"x")
    own = {n for n in os.listxattr(f"{d}/f") if n.startswith("user.fp.")}
    values = {"user.a": b"1", "user.empty": b"", "user.bytes": bytes(range(256)), "user." + "n" * 250: b"long name",
              "user.big": b"v" * 60000}
    for name, value in values.items():
        if name == "user.big":
            try:
                os.setxattr(f"{d}/f", name, value)
            except OSError as e:
                assert e.errno in (errno.ENOSPC, errno.E2BIG)
                continue
        os.setxattr(f"{d}/f", name, value)
        assert os.getxattr(f"{d}/f", name) == value
    assert set(os.listxattr(f"{d}/f")) - own >= {"user.a", "user.empty", "user.bytes"}
    fails(errno.EEXIST, os.setxattr, f"{d}/f", "user.a", b"2", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, f"{d}/f", "user.none", b"2", os.XATTR_REPLACE)
    os.setxattr(f"{d}/f", "user.a", b"22", os.XATTR_REPLACE)
    assert os.getxattr(f"{d}/f", "user.a") == b"22"
    os.removexattr(f"{d}/f", "user.a")
    fails(errno.ENODATA, os.getxattr, f"{d}/f", "user.a")
    fails(errno.ENODATA, os.removexattr, f"{d}/f", "user.a")
    os.rename(f"{d}/f", f"{d}/g")
    assert os.getxattr(f"{d}/g", "user.bytes") == bytes(range(256))


def test_xattrs_of_directories_and_trusted(d, as_root):
    os.setxattr(d, "user.x", b"dir")
    assert os.getxattr(d, "user.x") == b"dir"
    write_file(f"{d}/f", b"x")
    os.setxattr(f"{d}/f", "trusted.t", b"root only")
    assert os.getxattr(f"{d}/f", "trusted.t") == b"root only"
    os.symlink("f", f"{d}/l")
    fails(errno.EPERM, os.setxattr, f"{d}/l", "user.x", b"1", follow_symlinks=False)
    os.chmod(f"{d}/f", 0o600)
    fails(errno.EACCES, as_user, NOBODY, NOBODY, lambda: os.getxattr(f"{d}/f", "user.x"))


def test_statfs_has_the_totals_of_the_store(shared, d):
    v, status = os.statvfs(d), shared.status()
    assert v.f_namemax == 255
    assert v.f_blocks * v.f_frsize == status["space"]["total_bytes"]
    assert abs(v.f_bavail * v.f_frsize - status["space"]["free_bytes"]) <= 128 << 20
    assert sum(b["capacity_bytes"] for b in status["benefactors"]) == status["space"]["total_bytes"]
    for i in range(10):
        write_file(f"{d}/{i}", b"")
    assert os.statvfs(d).f_files - os.statvfs(d).f_ffree >= 10


def test_chunk_size_and_stripe_are_inherited(shared, d):
    os.mkdir(f"{d}/c")
    os.setxattr(f"{d}/c", "user.fp.chunk_size", b"65536")
    os.setxattr(f"{d}/c", "user.fp.stripe", b"2")
    os.mkdir(f"{d}/c/sub")
    write_file(f"{d}/c/sub/f", os.urandom(300000), sync=True)
    assert os.getxattr(f"{d}/c/sub/f", "user.fp.chunk_size") == b"65536"
    assert os.getxattr(f"{d}/c/sub/f", "user.fp.stripe") == b"2"
    for value in (b"1000", b"0", b"33554432", b"many", b"-65536", b"65537"):
        fails((errno.EINVAL, errno.ERANGE), os.setxattr, f"{d}/c", "user.fp.chunk_size", value)
