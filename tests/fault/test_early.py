"""Files made and removed before the manager has heard of it: what holds when it, or the mount, stops, dies or refuses.

A mount that is alone in its store answers these from what it knows of directories that it has made (client/early.h). A manager that is stopped shows
which of them were: they come at once.
"""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from harness.daemons import SLOW, is_mounted, unmount, wait_until

STOPPED_S = 1.5
TOLD = 128  # that many changes may be under way with their programs told (LATE_FROM in client/early.c)

# Each process makes file after file, and removes each second but the last ones: "closed N" and "removed N" in its journal follow the calls.
STORM = """
import os, sys
path, rank, journal = sys.argv[1], sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for i in range(int(sys.argv[4])):
    try:
        os.close(os.open(f"{path}/{rank}.{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.write(journal, b"closed %d\\n" % i)
        if i % 2:
            os.write(journal, b"removing %d\\n" % (i - 1))
            os.unlink(f"{path}/{rank}.{i - 1}")
            os.write(journal, b"removed %d\\n" % (i - 1))
    except OSError as e:
        os.write(journal, b"error %s\\n" % str(e).encode())
        break
"""
RANKS = 6
# These two say that they run, and begin when they are told to: the right to answer early is there for a second after a change only.
HOLD = """
import os, sys, time
print("runs", flush=True)
sys.stdin.readline()
fds = [os.open(f"{sys.argv[1]}/{i}", os.O_WRONLY | os.O_CREAT) for i in range(20)]
print("made", flush=True)
time.sleep(100)
"""

# Looks at what is there and at what is not, until the mount is dead.
LOOK = """
import os, sys
for i in range(10 ** 9):
    try:
        os.stat(f"{sys.argv[1]}/{i % 20}")
    except FileNotFoundError:
        pass
"""

# Says what it is about to do, until a call that waits is interrupted. From a descriptor: for a path the manager is asked, again and again, where it begins.
CROWD = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
at, remove, fds = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY), sys.argv[2] == "unlink", []
print("runs", flush=True)
sys.stdin.readline()
try:
    for i in range(300):
        print(i, flush=True)
        if remove:
            os.unlink(f"{i}", dir_fd=at)
        else:
            fds.append(os.open(f"{i}", os.O_WRONLY | os.O_CREAT, dir_fd=at))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


class Storm:
    def __init__(self, store, path, count=10 ** 9):
        self.journals = [os.path.join(store.dir, f"storm-{rank}") for rank in range(RANKS)]
        self.procs = [subprocess.Popen([sys.executable, "-c", STORM, path, str(rank), self.journals[rank], str(count)])
                      for rank in range(RANKS)]

    def lines(self, rank, kind):
        with open(self.journals[rank]) as f:
            return [line[len(kind) + 1:].strip() for line in f.read().splitlines() if line.startswith(kind + " ")]

    def numbers(self, rank, kind):
        return [int(n) for n in self.lines(rank, kind)]

    def errors(self):
        return [e for rank in range(RANKS) for e in self.lines(rank, "error")]

    def done(self):
        return [len(self.lines(rank, "closed")) if os.path.exists(self.journals[rank]) else 0 for rank in range(RANKS)]

    def ready(self, more=300):
        before = sum(self.done())
        wait_until("the storm", 30 * SLOW, lambda: sum(self.done()) > before + more and min(self.done()) > 10)

    def kill(self):
        for p in self.procs:
            if p.poll() is None:
                p.kill()
            p.wait(20)

    def finish(self, seconds):
        for p in self.procs:
            p.wait(seconds * SLOW)

    def verify(self, path):
        """What was closed is there; and changes are lost from the end only: of what came before a change that is there, none is lost."""
        there = set(os.listdir(path))
        for rank in range(RANKS):
            closed, removing = self.numbers(rank, "closed"), set(self.numbers(rank, "removing"))
            assert len(closed) > 10
            lost = [i for i in closed if f"{rank}.{i}" not in there and i not in removing]
            assert lost == [], f"rank {rank}: closed and lost"
            last = max(i for i in range(closed[-1] + 2) if f"{rank}.{i}" in there)
            late = [i for i in removing if i < last - 2 and f"{rank}.{i}" in there]
            assert late == [], f"rank {rank}: removed before {last} was made, and there"
        for name in there:
            assert os.stat(f"{path}/{name}").st_nlink == 1


@pytest.fixture
def storm():
    made = []

    def make(*args, **kw):
        made.append(Storm(*args, **kw))
        return made[-1]

    yield make
    for one in made:
        one.kill()


@pytest.fixture
def known(store):
    """A directory that the only mount of the store has made."""
    path = store.mounts[0].at("dir")
    os.mkdir(path)
    wait_early(store, path)
    return path


def session_store(new_store, timeout):
    """A store whose manager forgets a dead mount after that time, its only mount, and a directory that this has made."""
    store = new_store()
    store.start_manager(f"--session-timeout={timeout}")
    store.add_benefactor()
    first = store.add_mount()
    os.mkdir(first.at("dir"))
    return store, first, first.at("dir")


@contextlib.contextmanager
def stopped_early(store, path, seconds=STOPPED_S):
    """The manager is stopped, and of all changes one is under way that was told early: a file in path. That keeps the right to answer early while the manager
    is stopped, whatever else this machine is busy with."""
    with contextlib.ExitStack() as stack:
        def probed():
            probe = stack.enter_context(Probed(store.manager, path, seconds))
            return probe if probe.early else stack.close()

        yield wait_until("files to be made early", 10 * SLOW, probed, 0.2)


def wait_early(store, path):
    with stopped_early(store, path):
        pass


def started(*args):
    """A program that begins with what it does by a newline."""
    p = subprocess.Popen([sys.executable, "-c", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "runs\n"
    return p


def go(p):
    p.stdin.write("\n")
    p.stdin.flush()


class Stopped:
    """A daemon stopped for a while, or until the end of the block if that comes first."""

    def __init__(self, daemon, seconds=STOPPED_S):
        self.daemon, self.seconds = daemon, seconds

    def __enter__(self):
        self.daemon.freeze()
        self.begin(self.seconds)
        return self

    def begin(self, seconds):
        self.began = time.monotonic()
        self.timer = threading.Timer(seconds, self.daemon.send, [signal.SIGCONT])
        self.timer.start()

    def cancel(self):
        self.timer.cancel()
        self.timer.join()

    def over(self):
        return time.monotonic() - self.began > self.seconds * 0.9

    def __exit__(self, *_):
        self.cancel()
        self.daemon.send(signal.SIGCONT)


class Probed(Stopped):
    """The manager stopped, and a file made that may have been early. Another name each time: one that the manager has been asked for is never made early."""

    def __init__(self, manager, path, seconds):
        super().__init__(manager, seconds)
        self.path, self.name = path, f"probe-{time.monotonic_ns()}"

    def __enter__(self):
        self.at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(self.at)  # what was told before has been answered: it would be under way too
        self.daemon.freeze()
        self.begin(STOPPED_S)
        self.fd = os.open(self.name, os.O_WRONLY | os.O_CREAT, dir_fd=self.at)
        self.cancel()
        self.early = time.monotonic() - self.began < STOPPED_S
        if self.early:
            self.begin(self.seconds)
        return self

    def __exit__(self, *_):
        super().__exit__()
        os.close(self.fd)
        os.unlink(self.name, dir_fd=self.at)
        os.close(self.at)


@pytest.mark.short
@pytest.mark.limit(60)
def test_stopped_manager_made_and_removed_at_once_and_closed_when_it_has_heard(store, known):
    with Stopped(store.manager) as stopped:
        fd = os.open(f"{known}/a", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        st = os.stat(f"{known}/a")
        assert (st.st_mode & 0o777, st.st_nlink, st.st_size, st.st_uid) == (0o640, 1, 0, os.getuid())
        with pytest.raises(FileExistsError):
            os.open(f"{known}/a", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.unlink(f"{known}/a")
        assert not os.path.exists(f"{known}/a")
        again = os.open(f"{known}/a", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        assert os.fstat(again).st_ino != st.st_ino
        assert not stopped.over()
        os.close(again)
        assert stopped.over(), "what was closed is known to the manager"
    os.close(fd)
    assert os.listdir(known) == ["a"]
    fd = os.open(f"{known}/b", os.O_WRONLY | os.O_CREAT)
    before = os.fstat(fd)
    os.fsync(fd)
    os.close(fd)
    time.sleep(0.7)  # the kernel asks again
    after = os.stat(f"{known}/b")
    assert [getattr(before, x) for x in ("st_mtime_ns", "st_ctime_ns", "st_ino", "st_mode", "st_gid")] == \
        [getattr(after, x) for x in ("st_mtime_ns", "st_ctime_ns", "st_ino", "st_mode", "st_gid")]


@pytest.mark.limit(60)
def test_stopped_manager_fsync_of_file_and_directory_wait(store, known):
    for sync_directory in (False, True):
        with Stopped(store.manager) as stopped:
            fd = os.open(f"{known}/f", os.O_WRONLY | os.O_CREAT)
            d = os.open(known, os.O_RDONLY | os.O_DIRECTORY) if sync_directory else os.dup(fd)
            os.fsync(d)
            assert stopped.over()
        os.close(d)
        os.close(fd)
        os.unlink(f"{known}/f")


@pytest.mark.limit(60)
def test_stopped_manager_other_operations_come_after(store, known):
    """Data, a second name, a rename, attributes, a listing: each finds what was made before."""
    with Stopped(store.manager):
        fd = os.open(f"{known}/a", os.O_RDWR | os.O_CREAT, 0o600)
        os.write(fd, b"data")
        assert os.fstat(fd).st_size == 4
        os.link(f"{known}/a", f"{known}/b")
    os.chmod(f"{known}/a", 0o644)
    assert os.stat(f"{known}/b").st_nlink == 2 and os.stat(f"{known}/b").st_mode & 0o777 == 0o644
    os.unlink(f"{known}/a")
    assert os.stat(f"{known}/b").st_nlink == 1 and sorted(os.listdir(known)) == ["b"]
    with Stopped(store.manager):
        os.close(os.open(f"{known}/a", os.O_RDWR | os.O_CREAT, 0o600))
        os.rename(f"{known}/b", f"{known}/a")
    assert os.listdir(known) == ["a"]
    os.close(fd)
    with open(f"{known}/a", "rb") as f:
        assert f.read() == b"data"
    os.unlink(f"{known}/a")
    os.rmdir(known)


def look_and_remove(store, known, fd, name):
    """The manager is asked for the directory, and before its answer comes a file is removed early. Nanoseconds that the directory then seems to be newer than
    that; None: it was not early."""
    time.sleep(0.6)  # until the kernel has to ask again by what name it knows the directory
    os.stat(os.path.dirname(known))  # and has nothing else to ask before
    os.unlink(f"other-{name}", dir_fd=fd)
    os.fstat(fd)
    with Stopped(store.manager) as stopped:
        looker = threading.Thread(target=os.stat, args=(known,))
        looker.start()
        time.sleep(0.1)
        began = time.time_ns()
        os.unlink(name, dir_fd=fd)
        early = not stopped.over()
        looker.join()
        return os.fstat(fd).st_mtime_ns - began if early else None


@pytest.mark.limit(90)
def test_directory_that_was_looked_at_before_an_unlink_is_not_seen_as_before(store, known):
    fd = os.open(known, os.O_RDONLY | os.O_DIRECTORY)
    for i in range(6):
        for name in (f"{i}", f"other-{i}"):
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    newer = [look_and_remove(store, known, fd, str(i)) for i in range(6)]
    os.close(fd)
    newer = [ns for ns in newer if ns is not None]
    assert newer, "none was early: the test shows nothing"
    assert min(newer) >= 0, f"its time is {-min(newer) / 1e6:.1f} ms before the removal"


@pytest.mark.parametrize("call", ["create", "unlink"])
@pytest.mark.limit(90)
def test_call_that_waits_behind_too_many_is_interrupted(store, known, call):
    if call == "unlink":
        with stopped_early(store, known) as stopped:  # which ends while one of these waits
            fds = [os.open(f"{i}", os.O_WRONLY | os.O_CREAT, dir_fd=stopped.at) for i in range(300)]
        for fd in fds:
            os.close(fd)
    crowd = started(CROWD, known, call)
    try:
        with stopped_early(store, known, 4 * SLOW) as stopped:
            go(crowd)
            assert [int(crowd.stdout.readline()) for _ in range(TOLD)] == list(range(TOLD)) and not stopped.over()
            time.sleep(0.5)
            crowd.send_signal(signal.SIGINT)
            assert crowd.stdout.readline() == "interrupted\n"
            assert not stopped.over()
        assert crowd.wait(20) == 0
    finally:
        crowd.kill()
        crowd.wait(20)
    # What was told is so; the one that was interrupted may be done or not. It is the last of TOLD, as there is the one of stopped_early.
    there = {int(n) for n in os.listdir(known)} - {TOLD - 1}
    assert there == set(range(TOLD - 1) if call == "create" else range(TOLD, 300))


@pytest.mark.limit(60)
def test_open_file_that_was_removed_early_keeps_its_data(store, known):
    fd = os.open(f"{known}/a", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 100000)
    os.fsync(fd)
    with Stopped(store.manager):
        os.unlink(f"{known}/a")
        os.write(fd, b"y" * 100000)
    assert os.fstat(fd).st_nlink == 0
    assert os.pread(fd, 200001, 0) == b"x" * 100000 + b"y" * 100000
    os.close(fd)
    wait_until("its space to be free", 20 * SLOW, lambda: store.status()["benefactors"][0]["used_bytes"] < 1 << 20)


@pytest.mark.short
@pytest.mark.limit(90)
def test_manager_killed_in_a_storm_of_creates_and_unlinks(store, known, storm):
    work = storm(store, known, count=3000)
    work.ready()
    for _ in range(3):
        store.manager.kill()
        time.sleep(0.3 * SLOW)
        store.restart_manager()
        time.sleep(0.5 * SLOW)
    work.finish(60)
    assert work.errors() == []
    assert sorted(os.listdir(known)) == sorted(f"{rank}.{i}" for rank in range(RANKS) for i in range(1, 3000, 2))


@pytest.mark.short
@pytest.mark.limit(90)
def test_client_killed_in_a_storm_what_was_closed_is_there(store, known, storm):
    mount = store.mounts[0]
    for turn in range(3):
        path = f"{known}/{turn}"
        os.mkdir(path)
        work = storm(store, path)
        work.ready(500)
        mount.kill()
        work.kill()
        began = time.monotonic()
        mount.start()
        assert time.monotonic() - began < 5 * SLOW, "who has its mountpoint does not wait for a dead mount"
        work.verify(path)
        for journal in work.journals:
            os.unlink(journal)


@pytest.mark.limit(90)
def test_everything_killed_in_a_storm_what_was_closed_is_there(store, known, storm):
    work = storm(store, known)
    work.ready(500)
    for d in (store.manager, store.mounts[0]):
        d.ended_as_told = True
        d.proc.kill()
    for d in (store.manager, store.mounts[0]):
        d.wait()
    work.kill()
    unmount(store.mounts[0].path)
    store.restart_manager()
    store.mounts[0].start()
    work.verify(known)


@pytest.mark.limit(90)
def test_second_mount_in_a_storm_sees_all_that_was_closed(store, known, storm):
    work = storm(store, known)
    work.ready(500)
    second = store.add_mount()
    seen = [(rank, work.numbers(rank, "closed"), set(work.numbers(rank, "removed"))) for rank in range(RANKS)]
    there = second.at("dir")
    for rank, closed, removed in seen:
        assert all(not os.path.exists(f"{there}/{rank}.{i}") for i in list(removed)[-50:])
        gone = set(work.numbers(rank, "removing"))
        assert all(os.path.exists(f"{there}/{rank}.{i}") or i in gone | set(work.numbers(rank, "removing"))
                   for i in closed[-50:])
    for i in range(100):  # and each name at once, in both directions
        here, other = (known, there) if i % 2 else (there, known)
        os.close(os.open(f"{here}/x", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        with pytest.raises(FileExistsError):
            os.open(f"{other}/x", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.unlink(f"{other}/x")
        assert not os.path.exists(f"{here}/x")
    work.kill()
    assert work.errors() == []
    work.verify(there)


@pytest.mark.limit(90)
def test_second_mount_waits_for_what_the_first_has_told_its_programs(store, known):
    first = store.mounts[0]
    holder = started(HOLD, known)
    wait_early(store, known)
    with Stopped(store.manager, 1 * SLOW):
        go(holder)
        assert holder.stdout.readline() == "made\n"
        first.send(signal.SIGSTOP)  # has told it of these, and the manager not yet
    try:
        second = store.add_mount("--start-timeout=60s", wait=False)
        time.sleep(8)  # its connection is closed meanwhile
        assert second.alive() and not is_mounted(second.path)
    finally:
        first.send(signal.SIGCONT)
    second.wait_ready(30)
    assert len(os.listdir(second.at("dir"))) == 20
    holder.kill()
    holder.wait(20)


@pytest.mark.limit(60)
def test_second_mount_waits_for_a_dead_one_until_its_session_has_expired(new_store, storm):
    store, first, path = session_store(new_store, "9s")
    work = storm(store, path)
    work.ready(500)
    first.kill()
    work.kill()
    began = time.monotonic()
    second = store.add_mount("--start-timeout=1s", wait=False).wait_ready(30)  # longer than it asked for: it is known what for
    assert 5 < time.monotonic() - began < 25 * SLOW
    work.verify(second.at("dir"))
    unmount(first.path)


@pytest.mark.parametrize("end", ["killed", "stopped"])
@pytest.mark.limit(90)
def test_second_mount_does_not_wait_for_one_that_only_looks(new_store, end):
    """Looking does not keep the right to answer early, so nothing that a program was told can be missing."""
    store, first, known = session_store(new_store, "1h")
    wait_early(store, known)
    for i in range(10):
        os.close(os.open(f"{known}/{i}", os.O_WRONLY | os.O_CREAT))
    looker = subprocess.Popen([sys.executable, "-c", LOOK, known], stderr=subprocess.DEVNULL)
    try:
        time.sleep(2.5 * SLOW)
        assert looker.poll() is None
        if end == "killed":
            first.kill()
        else:
            first.send(signal.SIGSTOP)  # as a node that is cut off: its connection is closed after 5 s
        second = store.add_mount(wait=False).wait_ready(20)
        assert sorted(os.listdir(second.at("dir")), key=int) == [str(i) for i in range(10)]
    finally:
        if end == "stopped":
            first.send(signal.SIGCONT)
        looker.kill()
        looker.wait(20)
    if end == "killed":
        unmount(first.path)


@pytest.mark.limit(60)
def test_failed_create_is_told_by_close(new_store):
    store = new_store()
    store.start_manager(fault="mgr.commit=EIO:after=60:count=1000000")
    store.add_benefactor()
    m = store.add_mount("--manager-timeout=3s")
    store.expect("told to be (made|removed), which failed|commit|COMMIT|database")
    path = m.at("dir")
    os.mkdir(path)
    time.sleep(0.5)
    made, failed = [], 0
    for i in range(10):
        os.close(os.open(f"{path}/{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        made.append(i)
    for i in range(10, 400):
        try:
            fd = os.open(f"{path}/{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except OSError:
            break  # from here on nothing is answered early
        try:
            os.close(fd)
            made.append(i)
        except OSError:
            failed += 1
            break
    assert made and failed == 1
    assert "fault fired: mgr.commit" in store.manager.text()
    store.manager.fault = None
    store.manager.kill()
    store.restart_manager()
    wait_until("the mount to work again", 10, lambda: os.path.exists(path))
    assert sorted(int(n) for n in os.listdir(path)) == made


def unlink_that_fails(new_store, after):
    """A store in which the after-th COMMIT has failed; None if that was not one of an unlink."""
    store = new_store()
    store.start_manager(fault=f"mgr.commit=EIO:after={after}:count=1")
    store.add_benefactor()
    m = store.add_mount()
    store.expect("which failed|injected failure")
    path = m.at("dir")
    os.mkdir(path)
    time.sleep(0.3)
    for _ in range(100):
        try:
            os.close(os.open(f"{path}/f", os.O_WRONLY | os.O_CREAT))
        except OSError:
            return None
        os.unlink(f"{path}/f")
        time.sleep(0.01)
        if "which failed" in m.text():
            return store if "told to be removed" in m.text() else None
    return None


@pytest.mark.limit(90)
def test_failed_unlink_is_told_by_the_next_fsync_of_a_directory(new_store):
    store = None
    for after in range(40, 50):
        store = store or unlink_that_fails(new_store, after)
    assert store, "no unlink has failed: the test shows nothing"
    path = store.mounts[0].at("dir")
    d = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(OSError) as failed:
        os.fsync(d)
    assert failed.value.errno == errno.EIO
    os.fsync(d)
    os.close(d)
    wait_until("the status", 5, lambda: "told to be removed" in store.status()["mounts"][0]["last_error"])
    at = store.status()["mounts"][0]["last_error_ns"] / 1e9
    assert time.time() - 60 < at <= time.time()
    assert f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}  inode" in store.fpctl("status").stdout
    wait_until("the file to be seen again", 5, lambda: os.listdir(path) == ["f"] and os.path.exists(f"{path}/f"))
    os.unlink(f"{path}/f")
    assert os.listdir(path) == []
