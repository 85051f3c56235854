"""Every process of the store is killed under load: kill -9 and SIGTERM of manager, benefactor, client, and everything at once.

Writers and readers (harness/promises.py) run in processes of their own and keep a journal on the native file system of what they were promised. After the
fault everything promised is read back and compared. Rows of the failure table in docs/ARCHITECTURE.md name these tests.
"""

import errno
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from harness.daemons import PACE, SLOW, unmount, wait_until
from harness.promises import difference, promised

LOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness", "promises.py")
WRITERS, READERS = 3, 2


class Load:
    """Writers and readers on a mount, and their journals."""

    def __init__(self, store, path, seconds):
        self.store, self.dir = store, path
        self.journals = os.path.join(store.dir, "journals")
        os.makedirs(self.journals, exist_ok=True)
        self.procs = []
        for i in range(WRITERS):
            self._start("write", path, str(i + 1), self._journal(f"w{i + 1}"), str(seconds))
        for i in range(READERS):
            self._start("read", path, self.journals, str(seconds), self._journal(f"r{i + 1}"))

    def _journal(self, name):
        return os.path.join(self.journals, name)

    def _start(self, *args):
        self.procs.append(subprocess.Popen([sys.executable, LOAD, *args], start_new_session=True))

    def finish(self, seconds):
        for p in self.procs:
            try:
                p.wait(seconds * SLOW)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"a program hangs: {p.args[2:]}") from None

    def kill(self):
        for p in self.procs:
            if p.poll() is None:
                p.kill()
                p.wait(20)

    def lines(self, kind):
        found = []
        for name in sorted(os.listdir(self.journals)):
            with open(self._journal(name)) as f:
                found += [f"{name}: {line.strip()}" for line in f if line.startswith(kind)]
        return found

    def ready(self, count=10):
        """Until so many files were promised: the fault hits a store at work."""
        wait_until(f"{count} files", 20, lambda: len(self.lines("synced")) + len(self.lines("closed")) >= count)

    def files(self, kinds=("synced", "closed")):
        return {name: what for i in range(WRITERS) for name, what in promised(self._journal(f"w{i + 1}"), kinds).items()}

    def verify(self, path=None, kinds=("synced", "closed")):
        assert self.lines("bad") == []
        files = self.files(kinds)
        assert len(files) >= WRITERS, "the load wrote next to nothing: the test shows nothing"
        wrong = []
        for name, (size, key) in sorted(files.items()):
            try:
                what = difference(os.path.join(path or self.dir, name), size, key)
            except OSError as e:
                what = str(e)
            if what:
                wrong.append(f"{name}: {what}")
        assert wrong == []
        return len(files)


@pytest.fixture
def load(request):
    made = []

    def make(store, seconds, path=None):
        made.append(Load(store, path or store.mounts[0].path, seconds * PACE))
        return made[-1]

    yield make
    for one in made:
        one.kill()


@pytest.fixture
def published(new_store):
    """A store whose close promises what these tests look for; with behind, test_behind_kill.py does."""
    return new_store().up(mount_args=["--close=publish"])


def pause(seconds):
    time.sleep(seconds * PACE)


@pytest.mark.short
@pytest.mark.limit(90)
def test_manager_killed_clients_wait_and_go_on(store, load):
    work = load(store, 8)
    work.ready()
    for _ in range(3):
        store.manager.kill()
        pause(0.4)
        store.restart_manager()
        pause(1.2)
    work.finish(40)
    assert work.lines("error") == [], "programs see a killed manager only as a delay"
    assert work.verify() > WRITERS


@pytest.mark.limit(120)
def test_manager_terminated_and_started_again(store, load):
    work = load(store, 5)
    work.ready()
    assert store.manager.term() == 0
    pause(0.5)
    store.restart_manager()
    work.finish(40)
    assert work.lines("error") == []
    work.verify()


@pytest.mark.limit(180)
def test_manager_with_100000_files_is_back_within_2_seconds(store):
    top = store.mounts[0].at("many")
    os.mkdir(top)
    code = ("import os,sys\nfor i in range(int(sys.argv[2]), int(sys.argv[3])):\n"
            " os.mknod(f'{sys.argv[1]}/f{i:06}')")
    made = [subprocess.Popen([sys.executable, "-c", code, top, str(k * 12500), str((k + 1) * 12500)]) for k in range(8)]
    assert [p.wait(160) for p in made] == [0] * 8
    store.manager.kill()
    begun = time.monotonic()
    store.restart_manager()
    assert os.path.exists(os.path.join(top, "f099999"))
    assert time.monotonic() - begun < 2 * SLOW
    assert len(os.listdir(top)) == 100000


@pytest.mark.limit(120)
@pytest.mark.expect_log(r"benefactor|chunk|can't be read")
def test_benefactor_killed_new_chunks_go_elsewhere(store, load):
    work = load(store, 9)
    work.ready()
    store.benefactors[0].kill()
    pause(5)
    store.benefactors[0].start()
    work.finish(60)
    slow = [line for line in work.lines("error") if float(line.split()[-1]) > 10 * SLOW]
    assert slow == [], "EIO within 10 s"
    assert [line for line in work.lines("error") if " write " in line] == [], "writers go to the other benefactor"
    work.verify()


@pytest.mark.limit(120)
@pytest.mark.expect_log(r"benefactor|chunk|can't be read")
def test_reads_of_a_dead_benefactor_give_eio_within_10_seconds_and_recover(new_store):
    store = new_store().up(benefactors=1)
    path = store.mounts[0].at("f")
    with open(path, "wb") as f:
        f.write(b"x" * (40 << 20))
    store.mounts[0].unmount()
    store.mounts[0].start()  # nothing of it is in the pool
    store.benefactors[0].kill()
    begun = time.monotonic()
    with pytest.raises(OSError) as e:
        with open(path, "rb", buffering=0) as f:
            f.read(1 << 20)
    assert e.value.errno == 5
    assert time.monotonic() - begun < 10 * SLOW
    store.benefactors[0].start()
    wait_until("the file to be readable", 10, lambda: readable(path))


def readable(path):
    try:
        with open(path, "rb") as f:
            return f.read() == b"x" * (40 << 20)
    except OSError:
        return False


@pytest.mark.limit(90)
def test_benefactor_terminated_loses_nothing(store, load):
    work = load(store, 6)
    store.expect(r"benefactor|chunk|can't be read")
    work.ready()
    assert store.benefactors[1].term() == 0
    pause(1)
    store.benefactors[1].start()
    work.finish(60)
    work.verify()


@pytest.mark.short
@pytest.mark.limit(90)
def test_client_killed_synced_and_closed_files_are_there_after_remount(published, load):
    store = published
    work = load(store, 60)
    work.ready(20)
    mount = store.mounts[0]
    mount.kill()
    work.kill()
    mount.start()  # the stale mount is cleaned by this
    assert re.search(r"stale|left", mount.text()), "it says that it cleaned up"
    assert work.verify() > WRITERS


@pytest.mark.limit(90)
def test_client_terminated_publishes_what_was_written(store):
    mount = store.mounts[0]
    path = mount.at("open")
    holder = subprocess.Popen([sys.executable, "-c", "import os,sys,time\nfd=os.open(sys.argv[1],os.O_WRONLY|os.O_CREAT)\n"
                               "d=os.open(os.path.dirname(sys.argv[1]),os.O_RDONLY|os.O_DIRECTORY)\n"
                               "os.write(fd,b'y'*5000000)\nprint('written',flush=True)\ntime.sleep(60)", path],
                              stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"written\n"
    assert mount.term(30) == 0
    holder.kill()
    holder.wait(20)
    mount.start()
    with open(path, "rb") as f:
        assert f.read() == b"y" * 5000000


@pytest.mark.limit(120)
def test_everything_killed_at_once_what_was_synced_is_there(published, load):
    store = published
    for _ in range(2):
        work = load(store, 60)
        work.ready(20)
        for d in (store.manager, store.mounts[0], *store.benefactors):
            d.ended_as_told = True
            d.proc.kill()
        for d in (store.manager, store.mounts[0], *store.benefactors):
            d.wait()
        work.kill()
        unmount(store.mounts[0].path)
        store.restart_manager()
        for b in store.benefactors:
            b.start()
        store.mounts[0].start()
        assert work.verify(kinds=("synced", "closed")) > WRITERS
        for name in os.listdir(work.journals):
            os.unlink(os.path.join(work.journals, name))


@pytest.mark.limit(90)
def test_space_of_a_killed_client_comes_back(new_store):
    store = new_store()
    store.start_manager("--orphan-grace=1s", "--session-timeout=1s")
    store.add_benefactor(size="512MiB")
    store.add_mount()
    fd = os.open(store.mounts[0].at("f"), os.O_WRONLY | os.O_CREAT)
    for i in range(200):
        os.pwrite(fd, b"z" * (1 << 20), i << 20)
    store.mounts[0].kill()
    try:
        os.close(fd)
    except OSError:
        pass
    unmount(store.mounts[0].path)
    wait_until("unpublished chunks to be collected", 40,
               lambda: store.status()["benefactors"][0]["used_bytes"] < 8 << 20)


@pytest.mark.limit(90)
def test_file_that_is_removed_while_a_mount_that_has_it_open_is_cut_off_for_too_long(new_store):
    """Each call on what is still open gives EIO; it is not as if a name were not there."""
    store = new_store()
    store.start_manager("--orphan-grace=1s", "--session-timeout=1s")
    store.expect("exists no more|silent|closed")
    store.add_benefactor()
    a, b = store.add_mount(), store.add_mount()
    fd = os.open(a.at("f"), os.O_RDWR | os.O_CREAT)
    os.write(fd, b"data")
    os.fsync(fd)
    a.send(signal.SIGSTOP)
    try:
        os.unlink(b.at("f"))
        time.sleep(8 * PACE)
    finally:
        a.send(signal.SIGCONT)
    wait_until("the line in the log", 20, lambda: "exists no more" in a.tail())
    time.sleep(1.1)  # of attributes that the kernel keeps
    for what in (lambda: os.fstat(fd), lambda: os.fchmod(fd, 0o600), lambda: os.pread(fd, 4, 0), lambda: os.pwrite(fd, b"x", 0),
                 lambda: os.ftruncate(fd, 0), lambda: os.fsync(fd), lambda: os.listxattr(fd)):
        with pytest.raises(OSError) as e:
            what()
        assert e.value.errno == errno.EIO
    try:
        os.close(fd)
    except OSError:
        pass
    assert not os.path.exists(a.at("f"))


@pytest.mark.limit(90)
def test_client_killed_what_was_being_rewritten_is_as_it_was(published):
    """In place, neither closed nor synced: less than a window, and more than the pool's age lets lie."""
    store = published
    m = store.mounts[0]
    code = ("import os,sys,time\nfd=os.open(sys.argv[1],os.O_RDWR)\nos.pwrite(fd,b'n'*int(sys.argv[2]),1000)\n"
            "print('written',flush=True)\ntime.sleep(60)")
    for name, size in (("small", 5000), ("large", 20 << 20)):
        path = m.at(name)
        with open(path, "wb") as f:
            f.write(b"o" * (24 << 20))
        p = subprocess.Popen([sys.executable, "-c", code, path, str(size)], stdout=subprocess.PIPE)
        assert p.stdout.readline() == b"written\n"
        pause(3)  # it is stored
        m.kill()
        p.kill()
        p.wait(20)
        unmount(m.path)
        m.start()
        with open(path, "rb") as f:
            assert f.read() == b"o" * (24 << 20), name
