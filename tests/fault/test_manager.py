"""The manager: killed under load, stopped, started on what a crash has left of its database."""

import os
import shutil
import signal
import sqlite3
import time

import pytest

from harness.daemons import SLOW, wait_until
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20


def busy(work, more=30):
    """Waits until the load has done some more."""
    before = work.progress()
    wait_until("the load to go on", 30, lambda: work.progress() > before + more, 0.05)


@pytest.mark.limit(120)
def test_silent_manager_is_waited_for(store, stress):
    """SIGSTOP for some seconds: the applications wait, none gets an error."""
    work = stress(store, workers=3)
    busy(work)
    store.manager.send(signal.SIGSTOP)
    time.sleep(8)
    store.manager.send(signal.SIGCONT)
    busy(work)
    stats = work.stop()
    assert stats["errors"] == 0
    work.verify(store.mounts[0].path)


def add_rows(db, count):
    """count empty files in the directory "many", as if they had been created."""
    c = sqlite3.connect(db)
    parent, = c.execute("SELECT ino FROM dirent WHERE name = ?", (b"many",)).fetchone()
    ino, cookie = c.execute("SELECT next_ino, next_cookie FROM counters").fetchone()
    columns = [row[1] for row in c.execute("PRAGMA table_info(inode)")]
    sample = dict(zip(columns, c.execute("SELECT * FROM inode WHERE mode & 61440 = 32768").fetchone()))
    sample.update(size=0, mapped=0, nlink=1, parent=parent, data_version=1)
    rows = ([(sample | {"ino": ino + i})[k] for k in columns] for i in range(count))
    c.executemany(f"INSERT INTO inode VALUES ({','.join('?' * len(columns))})", rows)
    c.executemany("INSERT INTO dirent (parent, name, ino, type, cookie) VALUES (?, ?, ?, 8, ?)",
                  ((parent, b"file-%06d" % i, ino + i, cookie + i) for i in range(count)))
    c.execute("UPDATE inode SET size = size + ? WHERE ino = ?", (count, parent))
    c.execute("UPDATE counters SET next_ino = next_ino + ?, next_cookie = next_cookie + ?, inodes = inodes + ?",
              (count, count, count))
    c.commit()
    c.close()


@pytest.mark.limit(120)
def test_restart_with_100000_files_takes_less_than_2_s(store):
    m = store.mounts[0]
    os.mkdir(m.at("many"))
    write_file(m.at("f"), content(1, 0, 3 * MIB), sync=True)
    store.manager.term()
    add_rows(os.path.join(store.dir, "manager", "store.db"), 100000)
    store.restart_manager()
    assert store.status()["inodes"] >= 100003
    for i in range(100):
        os.rename(m.at("many", f"file-{i:06d}"), m.at(f"g{i}"))
    store.manager.kill()
    started = time.monotonic()
    store.restart_manager()
    assert_same(read_file(m.at("f")), content(1, 0, 3 * MIB))
    assert time.monotonic() - started < 2 * SLOW, "a mount works again"
    assert os.path.exists(m.at("g99")) and not os.path.exists(m.at("many", "file-000099"))
    assert len(os.listdir(m.at("many"))) == 99900


@pytest.mark.limit(120)
@pytest.mark.expect_log(r"database|WAL|manager")
def test_database_of_a_crash(store, stress):
    """A copy of the files, as they are at some moment under load, is a database to go on with."""
    work = stress(store, workers=3)
    busy(work, 60)
    store.manager.kill()
    home = os.path.join(store.dir, "manager")
    names = sorted(os.listdir(home))
    assert any(n.endswith("-wal") for n in names), names
    os.rename(home, home + ".crashed")
    shutil.copytree(home + ".crashed", home)
    store.restart_manager()
    busy(work)
    assert work.stop()["errors"] == 0
    work.verify(store.mounts[0].path)


@pytest.mark.limit(120)
@pytest.mark.expect_log(r"database|WAL|manager|session|lacks|missing|slot")
def test_torn_write_ahead_log(store):
    """The end of the WAL was not written: what was synced before it is there."""
    m = store.mounts[0]
    wal = os.path.join(store.dir, "manager", "store.db-wal")
    write_file(m.at("synced"), content(1, 0, 5 * MIB), sync=True)
    fd = os.open(m.path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    safe = os.path.getsize(wal)
    for i in range(300):
        os.mkdir(m.at(f"d{i}"))
    m.term()
    store.manager.kill()
    size = os.path.getsize(wal)
    assert size >= safe
    os.truncate(wal, max(safe, size - 3000))
    store.restart_manager()
    m.start()
    assert_same(read_file(m.at("synced")), content(1, 0, 5 * MIB))
    assert len(os.listdir(m.path)) >= 1
    os.mkdir(m.at("goes on"))


@pytest.mark.limit(90)
@pytest.mark.expect_log(r"database|disk|repair|ENOSPC|I/O|commit|EIO|published|Input/output")
def test_commit_that_fails(new_store):
    """The disk under the database gives an error: the application gets EIO, and the store recovers after a restart."""
    s = new_store()
    s.start_manager(fault="mgr.commit=EIO:after=40:count=1000000")
    s.add_benefactor()
    m = s.add_mount("--manager-timeout=3s")
    write_file(m.at("before"), b"kept", sync=True)
    failed = 0
    for i in range(100):
        try:
            write_file(m.at(f"f{i}"), content(i, 0, 5000), sync=True)
        except OSError:
            failed += 1
            if failed > 3:
                break
    assert failed > 0
    assert "fault fired: mgr.commit" in s.manager.text()
    s.manager.fault = None
    s.manager.kill()
    s.restart_manager()
    wait_until("the mount to work again", 10, lambda: os.path.exists(m.at("before")))
    assert read_file(m.at("before")) == b"kept"
    write_file(m.at("after"), b"works", sync=True)
