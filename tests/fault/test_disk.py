"""The disk under a benefactor: full, read-only, returning errors, cut off by a power failure; a torn last record.

Real file systems on loop devices where root can have them; device-mapper is not needed. EXT4_IOC_SHUTDOWN stops an ext4
at once, without writing what is in its page cache and journal: what mounts again is what a power failure leaves. Errors of
the device come from fault points that only the programs of the fault build have.
"""

import errno
import os
import shutil
import subprocess

import pytest

from harness.daemons import wait_until
from harness.disk import Disk
from harness.files import assert_same, content, pread_all, pwrite_all, read_file, write_file

MIB = 1 << 20
DISK_WORDS = r"disk|space|full|ENOSPC|EROFS|[Rr]ead-only|EIO|I/O|Input/output|written|benefactor|segment|lacks|chunk|database|WAL"


@pytest.fixture
def disk(native, as_root):
    for tool in ("mkfs.ext4", "losetup"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    made = []

    def make(size_mib=300, name="disk"):
        try:
            made.append(Disk(native, name, size_mib))
        except subprocess.CalledProcessError:
            pytest.skip("no loop devices here")
        return made[-1]

    yield make
    for d in made:
        d.unmount()


def restart(daemon):
    daemon.kill()
    daemon.start()


# --- full -------------------------------------------------------------------


@pytest.mark.limit(120)
@pytest.mark.expect_log(DISK_WORDS)
def test_disk_filled_by_somebody_else(disk, new_store):
    """The benefactor cannot use all that it has promised: writes go elsewhere, nothing is damaged."""
    d, s = disk(300), new_store()
    s.start_manager()
    s.add_benefactor(size="200MiB", path=os.path.join(d.path, "b"))
    s.add_benefactor(size="1GiB", node=1)
    m = s.add_mount()
    write_file(m.at("before"), content(1, 0, 30 * MIB), sync=True)
    v = os.statvfs(d.path)
    with open(os.path.join(d.path, "hog"), "wb") as hog:
        try:
            os.posix_fallocate(hog.fileno(), 0, v.f_bavail * v.f_frsize)
        except OSError:
            pass
        try:
            while True:
                os.write(hog.fileno(), bytes(MIB))
        except OSError as e:
            assert e.errno == errno.ENOSPC
    for i in range(3):
        write_file(m.at(f"f{i}"), content(i, 0, 60 * MIB), sync=True)
    for i in range(3):
        assert_same(read_file(m.at(f"f{i}")), content(i, 0, 60 * MIB), f"f{i}")
    assert_same(read_file(m.at("before")), content(1, 0, 30 * MIB))
    m.unmount()
    os.unlink(os.path.join(d.path, "hog"))
    restart(s.benefactors[0])
    m.start()
    for i in range(3):
        assert_same(read_file(m.at(f"f{i}")), content(i, 0, 60 * MIB), f"f{i} after restart")
    assert_same(read_file(m.at("before")), content(1, 0, 30 * MIB))


@pytest.mark.limit(120)
@pytest.mark.expect_log(DISK_WORDS)
def test_only_disk_is_full(disk, new_store):
    """Nowhere else to go: ENOSPC from write, and what fsync has promised stays."""
    d, s = disk(300), new_store()
    s.start_manager()
    s.add_benefactor(size="200MiB", path=os.path.join(d.path, "b"))
    m = s.add_mount()
    write_file(m.at("before"), content(1, 0, 10 * MIB), sync=True)
    with open(os.path.join(d.path, "hog"), "wb") as hog:
        try:
            while True:
                os.write(hog.fileno(), bytes(MIB))
        except OSError as e:
            assert e.errno == errno.ENOSPC
    done, fd = 0, os.open(m.at("f"), os.O_WRONLY | os.O_CREAT, 0o644)
    with pytest.raises(OSError) as e:
        while done < 300 * MIB:
            done += os.pwrite(fd, content(2, done, MIB), done)
    assert e.value.errno in (errno.ENOSPC, errno.EIO)
    try:
        os.fsync(fd)
        synced = done
    except OSError:
        synced = 0
    os.close(fd)
    assert_same(read_file(m.at("f"))[:synced], content(2, 0, synced))
    assert_same(read_file(m.at("before")), content(1, 0, 10 * MIB))
    os.unlink(os.path.join(d.path, "hog"))

    def works_again():
        try:
            return write_file(m.at("after"), content(3, 0, 20 * MIB), sync=True)
        except OSError:
            return False
    wait_until("writing to work again", 20, works_again, 0.5)
    assert_same(read_file(m.at("after")), content(3, 0, 20 * MIB))


# --- read-only and errors ---------------------------------------------------


@pytest.mark.limit(120)
@pytest.mark.expect_log(DISK_WORDS)
def test_disk_turns_read_only(disk, new_store):
    d, s = disk(300), new_store()
    s.start_manager()
    s.add_benefactor(size="200MiB", path=os.path.join(d.path, "b"))
    s.add_benefactor(size="1GiB", node=1)
    m = s.add_mount()
    write_file(m.at("before"), content(1, 0, 20 * MIB), sync=True)
    subprocess.run(["mount", "-o", "remount,abort", d.path], capture_output=True, timeout=20)
    with pytest.raises(OSError):
        write_file(os.path.join(d.path, "x"), b"y", sync=True)

    def writes():
        try:
            return write_file(m.at("f"), content(2, 0, 40 * MIB), sync=True)
        except OSError as e:
            assert e.errno in (errno.EIO, errno.EROFS, errno.ENOSPC)
            return False
    wait_until("writes to go elsewhere", 20, writes, 0.3)
    assert_same(read_file(m.at("f")), content(2, 0, 40 * MIB))
    assert_same(read_file(m.at("before")), content(1, 0, 20 * MIB), "reads still work")
    s.wait_status("the state to be seen", 10, lambda st: st["benefactors"][0]["state"] not in ("ok", "down")
                  and st["benefactors"][0]["error"])
    d.power_off()
    for x in (m, s.benefactors[0]):
        x.kill()
    d.power_on()
    s.benefactors[0].start()
    m.start()
    assert_same(read_file(m.at("before")), content(1, 0, 20 * MIB))
    assert_same(read_file(m.at("f")), content(2, 0, 40 * MIB))


@pytest.mark.expect_log(r"the device under --dir does not answer \(longer than --device-timeout\)")
def test_a_device_that_pauses(new_store):
    """An operation takes longer than --device-timeout: new data goes to the other benefactor meanwhile, and back when it is over."""
    s = new_store()
    s.start_manager()
    b = s.add_benefactor("--device-timeout=1s", fault="bnf.fallocate=delay:ms=8000:count=1")
    s.add_benefactor(node=1)
    m = s.add_mount()
    write_file(m.at("wakes"), content(1, 0, 20 * MIB), sync=True)
    b.wait_log(r"does not answer", 5)
    write_file(m.at("meanwhile"), content(2, 0, 50 * MIB), sync=True)
    assert "takes data again" not in b.text(), "nothing was written while the device paused"
    b.wait_log("the device takes data again", 12)
    write_file(m.at("after"), content(3, 0, 50 * MIB), sync=True)
    for i, name in enumerate(("wakes", "meanwhile", "after"), 1):
        size = 20 * MIB if i == 1 else 50 * MIB
        assert_same(read_file(m.at(name)), content(i, 0, size), name)


def test_a_device_that_is_only_slow_says_nothing(new_store):
    """Less than --device-timeout: it takes as long as it takes, and nobody hears of it."""
    s = new_store()
    s.start_manager()
    b = s.add_benefactor("--device-timeout=30s", fault="bnf.fallocate=delay:ms=6000:count=1")
    m = s.add_mount()
    write_file(m.at("f"), content(1, 0, 20 * MIB), sync=True)
    b.wait_log("fault fired: bnf.fallocate", 5)
    assert_same(read_file(m.at("f")), content(1, 0, 20 * MIB))


@pytest.mark.limit(90)
@pytest.mark.expect_log(DISK_WORDS + r"|can't be read")
@pytest.mark.parametrize("who,fault", [
    ("mount", "cl.pwrite=EIO:after=20:count=5"), ("mount", "cl.pwrite=ENOSPC:after=20:count=5"),
    ("benefactor", "bnf.fallocate=EIO:after=1:count=3"), ("remote", "bnf.fdatasync=EIO:after=3:count=2"),
    ("remote", "bnf.pwrite=EIO:after=20:count=5"), ("remote", "bnf.pwrite=ENOSPC:after=20:count=3")])
def test_writes_that_fail(new_store, stress, who, fault):
    """Some writes of the device fail: what was promised is there, and work goes on."""
    s = new_store()
    s.start_manager()
    s.add_benefactor(fault=fault if who != "mount" else None)
    s.add_benefactor(node=1)
    m = s.add_mount(fault=fault if who == "mount" else None, node=None if who != "remote" else 2)
    if who == "benefactor":
        for i in range(8):
            try:
                write_file(m.at(f"f{i}"), content(i, 0, 20 * MIB), sync=True)
            except OSError as e:
                assert e.errno == errno.EIO
    work = stress(s, workers=2, tolerant=True)
    point = fault.split("=")[0]
    daemon = m if who == "mount" else s.benefactors[0]
    if who != "benefactor":
        daemon.wait_log(f"fault fired: {point}", 20)
    before = work.progress()
    wait_until("the work to go on", 20, lambda: work.progress() > before + 50, 0.05)
    work.stop()
    assert f"fault fired: {point}" in daemon.text(), "the fault never fired"
    daemon.fault = None
    try:
        m.unmount()
    except AssertionError as e:  # a sync that failed is a loss of what was closed and not synced: the end of the mount says so
        assert point == "bnf.fdatasync" and "exit 1" in str(e), e
    for b in s.benefactors:
        b.kill()
        b.start()
    m.start()
    work.verify(m.path)


@pytest.mark.limit(90)
@pytest.mark.expect_log(DISK_WORDS + r"|can't be read")
@pytest.mark.parametrize("who", ["mount", "remote"])
def test_reads_that_fail(new_store, who):
    """EIO of the device is EIO for that range and nothing else; once the device is well, so are the files."""
    s = new_store()
    s.start_manager()
    point = "cl.pread" if who == "mount" else "bnf.pread"
    fault = f"{point}=EIO:after=6:count=2"
    s.add_benefactor(fault=fault if who == "remote" else None)
    m = s.add_mount(node=None if who == "mount" else 2)
    data = content(1, 0, 20 * MIB)
    write_file(m.at("f"), data, sync=True)
    m.unmount()
    victim = m if who == "mount" else s.benefactors[0]
    m.fault = fault if who == "mount" else None
    m.start()
    errors, fd = 0, os.open(m.at("f"), os.O_RDONLY)
    for off in range(0, len(data), MIB):
        try:
            assert_same(os.pread(fd, MIB, off), data[off:off + MIB], f"at {off}")
        except OSError as e:
            assert e.errno == errno.EIO
            errors += 1
    os.close(fd)
    assert f"fault fired: {point}" in victim.text(), "the fault never fired"
    assert errors <= 3
    wait_until("the file to be well again", 15, lambda: whole(m.at("f"), data), 0.5)


@pytest.mark.limit(90)
@pytest.mark.expect_log(DISK_WORDS + r"|can't be read|damaged|recover")
def test_read_errors_while_a_benefactor_starts(new_store):
    """A benefactor that cannot read some records at its start must not take their space for free."""
    s = new_store()
    s.start_manager()
    s.add_benefactor()
    m = s.add_mount()
    data = content(1, 0, 20 * MIB)
    write_file(m.at("f"), data, sync=True)
    m.unmount()
    b = s.benefactors[0]
    b.term()
    b.fault = "bnf.pread=EIO:after=4:count=2"
    try:
        b.start()
    except AssertionError:
        pass  # not to start with such a disk is fine too
    assert "fault fired: bnf.pread" in b.text(), "the fault never fired"
    m.start()
    try:
        write_file(m.at("g"), content(2, 0, 30 * MIB), sync=True)
    except OSError:
        pass
    m.unmount()
    b.fault = None
    restart(b)
    s.wait_status("the benefactor", 10, lambda st: st["benefactors"][0]["state"] == "ok")
    m.start()
    assert_same(read_file(m.at("f")), data)


def whole(path, data):
    try:
        return read_file(path) == data
    except OSError:
        return False


# --- crashes ----------------------------------------------------------------


@pytest.mark.limit(120)
@pytest.mark.expect_log(DISK_WORDS + r"|session|slot|TLS|connection")
@pytest.mark.parametrize("round_", range(2))
def test_power_failure_of_the_node(disk, new_store, stress, round_):
    """All of the store on one disk, under load, power off: what fsync has promised is there, byte for byte."""
    d, s = disk(900), new_store()
    home = os.path.join(s.dir, "manager")
    os.mkdir(os.path.join(d.path, "manager"))
    os.symlink(os.path.join(d.path, "manager"), home)
    s.start_manager()
    for i in range(2):
        s.add_benefactor(size="300MiB", path=os.path.join(d.path, f"b{i}"))
    m = s.add_mount()
    work = stress(s, workers=4, tolerant=True)
    wait_until("some syncs", 30, lambda: sum(e[0] == "sync" for e in work.entries()) > 25 + 20 * round_, 0.05)
    d.power_off()
    for x in (m, *s.benefactors, s.manager):
        x.kill()
    work.kill()  # not before: who dies in close() waits for the mount, as long as its --io-timeout
    d.power_on()
    s.restart_manager()
    for b in s.benefactors:
        b.start()
    m.start()
    files, _ = work.verify(m.path, kept="sync")
    assert files > 5
    write_file(m.at("goes on"), content(9, 0, 5 * MIB), sync=True)
    assert_same(read_file(m.at("goes on")), content(9, 0, 5 * MIB))


@pytest.mark.limit(120)
@pytest.mark.expect_log(DISK_WORDS + r"|session|slot|TLS|connection")
def test_power_failure_after_one_mount_has_synced_what_two_wrote(disk, new_store):
    """A checkpoint of several nodes: all close, one calls fsync, and another's node fails."""
    d, s, half = disk(300), new_store(), 6 * MIB
    s.start_manager()
    s.add_benefactor(size="200MiB", path=os.path.join(d.path, "b"))
    s.add_benefactor(size="200MiB", node=1)
    m, other = s.add_mount(), s.add_mount(node=1)
    data = content(4, 0, 2 * half)
    for at, x in enumerate((m, other)):
        fd = os.open(x.at("ckpt"), os.O_WRONLY | os.O_CREAT, 0o644)
        pwrite_all(fd, data[at * half:(at + 1) * half], at * half)
        os.close(fd)
    fd = os.open(other.at("ckpt"), os.O_WRONLY)
    os.fsync(fd)
    os.close(fd)
    d.power_off()
    for x in (m, s.benefactors[0]):
        x.kill()
    d.power_on()
    s.benefactors[0].start()
    assert_same(read_file(other.at("ckpt")), data)


def last_data(path):
    """The last 4 KiB-aligned block of a segment that has data."""
    fd, at, last = os.open(path, os.O_RDONLY), 0, None
    size = os.fstat(fd).st_size
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(fd, start, os.SEEK_HOLE)
        run = pread_all(fd, at - start, start)
        used = len(run.rstrip(b"\0"))
        if used:
            last = start + (used - 1) // 4096 * 4096
    os.close(fd)
    return last


@pytest.mark.limit(120)
@pytest.mark.expect_log(DISK_WORDS + r"|can't be read|damaged|session")
@pytest.mark.parametrize("how", ["payload", "header", "cut"])
def test_torn_last_record(new_store, how):
    """The last record of a segment was written half: the rest is there, and the benefactor goes on."""
    s = new_store()
    s.start_manager()
    s.add_benefactor()
    m = s.add_mount("--close=publish")
    write_file(m.at("synced"), content(1, 0, 10 * MIB), sync=True)
    fd = os.open(m.at("torn"), os.O_WRONLY | os.O_CREAT, 0o644)
    pwrite_all(fd, content(2, 0, 3 * MIB), 0)
    os.close(fd)
    for x in (m, s.benefactors[0], s.manager):
        x.kill()
    seg = max((os.path.join(top, f) for top, _, files in os.walk(s.benefactors[0].dir) for f in files),
              key=os.path.getsize)
    end = last_data(seg)
    with open(seg, "r+b") as f:
        if how == "payload":
            f.seek(end - 300 * 1024)
            f.write(bytes(304 * 1024))
        elif how == "header":
            f.seek(end - MIB)
            f.write(os.urandom(4096))
        else:
            f.truncate(end - 200 * 1024)
    s.restart_manager()
    s.benefactors[0].start()
    m.start()
    assert_same(read_file(m.at("synced")), content(1, 0, 10 * MIB))
    fd = os.open(m.at("torn"), os.O_RDONLY)
    bad = 0
    for off in range(0, 3 * MIB, 65536):
        try:
            assert_same(os.pread(fd, 65536, off), content(2, off, 65536), f"torn at {off}")
        except OSError as e:
            assert e.errno == errno.EIO
            bad += 1
    os.close(fd)
    assert 0 < bad <= 16 * 2, "only the torn record is bad"
    write_file(m.at("after"), content(3, 0, 10 * MIB), sync=True)
    assert_same(read_file(m.at("after")), content(3, 0, 10 * MIB))


@pytest.mark.limit(90)
@pytest.mark.parametrize("how", ["bit", "gone"])
def test_benefactor_that_forgot_who_it_is(new_store, how):
    """benefactor.json is damaged or gone: the segments say whose they are, and nothing is missing."""
    s = new_store().up(benefactors=1)
    m, b = s.mounts[0], s.benefactors[0]
    write_file(m.at("before"), content(1, 0, 10 * MIB), sync=True)
    file = os.path.join(b.dir, "benefactor.json")
    good = open(file, "rb").read()
    b.kill()
    if how == "bit":
        at = good.index(b'"benefactor": "') + 17
        with open(file, "r+b") as f:
            f.seek(at)
            f.write(bytes([good[at] ^ 1]))
    else:
        os.unlink(file)
    b.start()
    b.wait_log("written anew; its segments say")
    assert open(file, "rb").read() == good
    assert_same(read_file(m.at("before")), content(1, 0, 10 * MIB))
    write_file(m.at("after"), content(2, 0, 10 * MIB), sync=True)
    assert_same(read_file(m.at("after")), content(2, 0, 10 * MIB))


@pytest.mark.limit(60)
@pytest.mark.expect_log(r"benefactor\.json is damaged: restore it")
def test_benefactor_that_nothing_tells_who_it_is(new_store):
    """Neither benefactor.json nor a segment says it: the start is refused, and says why."""
    s = new_store().up(benefactors=1, mounts=0)
    b = s.benefactors[0]
    b.kill()
    with open(os.path.join(b.dir, "benefactor.json"), "r+b") as f:
        f.truncate(40)
    segments = os.path.join(b.dir, "segments")
    for name in os.listdir(segments):
        with open(os.path.join(segments, name), "r+b") as f:
            f.write(bytes(64))
    b.start(wait=False)
    assert b.wait() == 1
    b.ended_as_told = True
    b.wait_log("is damaged: restore it")
