"""Whoever dies while a dump is converted: the right result appears in the end, whole, or none; the dump stays as it is, and no temporary file is left.

FP_KILLS=50: how often somebody is killed in test_whoever_is_killed (a few, if it is not set).
"""

import os
import random
import signal
import time

import pytest

from harness.aux import host_pid
from harness.conversions import Dumps, mark, processes, temporaries, wait_mark
from harness.daemons import PACE, unmount, wait_until

pytest.importorskip("h5py")
KILLS = int(os.environ.get("FP_KILLS", "6"))
QUICK = ("--ckpt-quiet=300ms", "--ckpt-late=2s", "--session-timeout=2s")
SHAPE = (800, 800)  # 7 MiB
SLOWLY = "convert-tile=delay:ms=40"


@pytest.fixture
def dumps(new_store):
    """A function: a store whose mount converts, slowly enough to be caught at it."""
    def make(more="chunk=50x800", fault=SLOWLY, shape=SHAPE, size="1GiB"):
        s = new_store().up(benefactors=1, mounts=0, manager_args=QUICK, size=size)
        s.expect("aux-app|convert|connection|session|lease")
        d = Dumps(s, *shape)
        s.add_mount(f"--auxapp={d.words(more)}", fault=fault)
        return d
    return make


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_mount(m):
    m.kill(signal.SIGKILL)
    unmount(m.path)
    wait_until("its programs to end with it", 10, lambda: not processes(m) and not processes(m, "watch"), 0.02)
    m.start()


def kill_one(who, m):
    if who == "mount":
        kill_mount(m)
        return
    pid = host_pid(m) if who == "host" else next(iter(processes(m, "run" if who == "worker" else "watch")), None)
    if pid:
        kill(pid)


def look(d, m, step, version):
    """What has the name is whole: the new one, or, of a dump that was there before, the old one."""
    path = m.at(d.result_of(step))
    if os.path.exists(path):
        assert d.is_whole(path, step, version) or (version and d.is_whole(path, step, version - 1)), f"half a result of step {step}"


@pytest.mark.limit(60 + 20 * KILLS)
def test_whoever_is_killed(dumps):
    d = dumps()
    m = d.store.mounts[0]
    seed = int(os.environ.get("FP_SEED", time.time_ns() % 1000000))
    print(f"FP_SEED={seed}")
    r = random.Random(seed)
    for i in range(KILLS):
        step, version = 1 + i // 2, i % 2
        who = ("worker", "watch", "host", "mount")[i % 4] if i < 4 else r.choice(("worker", "watch", "host", "mount"))
        d.write(step, [m], version=version)
        if r.random() < 0.8:
            wait_until("a conversion", 30, lambda: processes(m) or mark(m, d.dir_of(step)).startswith("done"), 0.005)
        time.sleep(r.uniform(0, 1) * PACE)
        kill_one(who, m)
        look(d, m, step, version)
        # What was done before may be said until it is noticed that the dump is another.
        wait_until("the result", 60, lambda: mark(m, d.dir_of(step)).startswith("done ") and d.is_whole(m.at(d.result_of(step)), step, version), 0.05)
        d.dump_is_intact(m, step, version)
        assert temporaries(m.path) == [], f"left when {who} was killed (FP_SEED={seed})"


def test_a_crash_is_tried_again_three_times_and_no_more(dumps):
    d = dumps(fault="convert-tile=abort")
    m = d.store.mounts[0]
    d.write(7, [m])
    text = wait_mark(m, d.dir_of(7), "failed ", 40)
    assert "crashed" in text and "signal 6" in text, text
    assert not os.path.exists(m.at(d.result_of(7)))
    d.dump_is_intact(m, 7)
    kept = processes(m, "watch")
    assert len(kept) == 1, "the coordinator has not noticed"
    tried = len([line for line in m.text().splitlines() if "tried again" in line])
    assert tried == 2, m.text()


def test_an_error_that_may_pass_is_tried_again(dumps):
    d = dumps(fault="convert-name=EIO:count=1")  # in each process: it never passes while this mount is there
    m = d.store.mounts[0]
    d.write(7, [m])
    text = wait_mark(m, d.dir_of(7), "waiting .*tried again", 30)
    assert not os.path.exists(m.at(d.result_of(7))) and temporaries(m.path) == [], text
    m.fault = None
    m.term()
    m.start()
    wait_mark(m, d.dir_of(7), "done ", 30)
    d.check(m.at(d.result_of(7)), 7)


@pytest.mark.limit(120)
def test_a_store_that_is_full_is_waited_for(dumps):
    d = dumps(fault=None, size="64MiB", more="chunk=50x800", shape=(1600, 1600))
    m = d.store.mounts[0]
    with open(m.at("ballast"), "wb") as f:
        try:
            while True:
                f.write(os.urandom(1 << 20))
                f.flush()
                os.fsync(f.fileno())
                if os.statvfs(m.path).f_bavail * os.statvfs(m.path).f_frsize < 45 << 20:
                    break
        except OSError:
            pass
    d.write(7, [m])
    text = wait_mark(m, d.dir_of(7), "waiting .*tried again|done ", 40)
    assert "tried again" in text, f"there was room: {text}"
    assert not os.path.exists(m.at(d.result_of(7)))
    d.dump_is_intact(m, 7)
    os.unlink(m.at("ballast"))
    wait_mark(m, d.dir_of(7), "done ", 90)
    d.check(m.at(d.result_of(7)), 7)
    assert temporaries(m.path) == []


def test_a_dump_that_somebody_has_open_for_writing_is_not_removed(dumps):
    """keep=none. It is converted anew when it is closed: what was written meanwhile is in no result."""
    d = dumps(more="keep=none chunk=50x800")
    m = d.store.mounts[0]
    other = d.store.add_mount()
    d.write(7, [m])
    wait_until("a conversion", 30, lambda: processes(m), 0.005)
    fd = os.open(other.at(d.dir_of(7), "rank_0.raw"), os.O_RDWR)
    try:
        os.pwrite(fd, d.bytes_of(7, 0, 1)[:4096], 0)
        wait_until("the conversion to end", 40, lambda: not processes(m), 0.02)
        time.sleep(3 * PACE)
        assert len(os.listdir(other.at(d.dir_of(7)))) == d.ranks
        assert os.pread(fd, 4096, 0) == d.bytes_of(7, 0, 1)[:4096]
    finally:
        os.close(fd)
    d.write(7, [m], version=1)
    wait_until("the dump to be gone", 40, lambda: not os.path.exists(m.at(d.dir_of(7))), 0.05)
    assert d.is_whole(m.at(d.result_of(7)), 7, 1)
