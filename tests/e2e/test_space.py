"""Space: ENOSPC comes from write and fallocate, deleted data is free again within 2 s, totals are exact."""

import errno
import os
import random

import pytest

from harness.daemons import wait_until
from harness.files import (FALLOC_KEEP_SIZE, assert_same, content, fallocate, pread_all, pwrite_all, read_file, seed_of_run,
                           write_file)

MIB = 1 << 20


@pytest.fixture
def small(new_store):
    """256 MiB in all, on two benefactors."""
    s = new_store()
    s.expect(r"ENOSPC|no space|[Nn]o space left|full")
    return s.up(benefactors=2, size="128MiB", pool="32MiB")


def fill(path, piece, key=1):
    """Writes until ENOSPC; how much was accepted."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    done = 0
    try:
        while True:
            assert done < 1 << 30, "no end"
            done += os.pwrite(fd, content(key, done, piece), done)
    except OSError as e:
        assert e.errno == errno.ENOSPC
    os.fsync(fd)
    os.close(fd)
    return done


@pytest.mark.short
@pytest.mark.limit(120)
@pytest.mark.parametrize("piece", [MIB, 4096 * 3 + 1])
def test_enospc_comes_from_write_and_nothing_is_lost(small, piece):
    m = small.mounts[0]
    done = fill(m.at("f"), piece)
    assert 200 * MIB < done <= 256 * MIB
    assert os.stat(m.at("f")).st_size == done
    assert_same(read_file(m.at("f")), content(1, 0, done))
    m.unmount()
    m.start()
    assert_same(read_file(m.at("f")), content(1, 0, done), "after remount")
    os.unlink(m.at("f"))
    wait_until("the space to be free again", 2, lambda: os.statvfs(m.path).f_bavail * os.statvfs(m.path).f_frsize > 240 * MIB)
    again = fill(m.at("g"), MIB, key=2)
    assert again >= done - 8 * MIB
    assert_same(read_file(m.at("g")), content(2, 0, again))


@pytest.mark.limit(120)
def test_several_writers_fill_the_store(small):
    m = small.mounts[0]
    r, w = os.pipe()
    pids = []
    for i in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.write(w, b"%d %d\n" % (i, fill(m.at(f"f{i}"), 300000 + i, key=i)))
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    os.close(w)
    assert [os.waitpid(p, 0)[1] for p in pids] == [0] * 4
    done = dict(map(int, line.split()) for line in os.read(r, 1000).splitlines())
    os.close(r)
    for i, n in done.items():
        assert_same(read_file(m.at(f"f{i}")), content(i, 0, n), f"f{i}")
    assert sum(done.values()) > 190 * MIB


@pytest.mark.limit(120)
def test_small_writes_and_metadata_on_a_full_store(small):
    m = small.mounts[0]
    fill(m.at("f"), MIB)
    os.mkdir(m.at("names still work"))
    os.rename(m.at("f"), m.at("g"))
    fd = os.open(m.at("small"), os.O_WRONLY | os.O_CREAT, 0o644)
    with pytest.raises(OSError) as e:
        for i in range(100000):
            os.pwrite(fd, b"x" * 5000, i * 70000)
    assert e.value.errno == errno.ENOSPC
    os.fsync(fd)
    os.close(fd)
    os.truncate(m.at("g"), 50 * MIB)
    assert_same(read_file(m.at("g")), content(1, 0, 50 * MIB))
    wait_until("room after truncate", 3, lambda: os.statvfs(m.path).f_bavail * 4096 > 100 * MIB)


def test_fallocate_reports_no_space(small):
    m = small.mounts[0]
    fd = os.open(m.at("f"), os.O_RDWR | os.O_CREAT, 0o644)
    with pytest.raises(OSError) as e:
        fallocate(fd, 0, 0, 1 << 30)
    assert e.value.errno == errno.ENOSPC
    with pytest.raises(OSError) as e:
        fallocate(fd, FALLOC_KEEP_SIZE, 0, 1 << 30)
    assert e.value.errno == errno.ENOSPC
    fallocate(fd, 0, 0, 50 * MIB)
    pwrite_all(fd, content(3, 0, 50 * MIB), 0)
    os.close(fd)
    assert_same(read_file(m.at("f")), content(3, 0, 50 * MIB))


@pytest.mark.short
def test_space_is_free_2_seconds_after_unlink(store):
    m = store.mounts[0]
    before = os.statvfs(m.path).f_bavail
    write_file(m.at("f"), content(1, 0, 200 * MIB), sync=True)
    used = store.wait_status("200 MiB used", 3, lambda s: s["space"]["used_bytes"] >= 200 * MIB and s)
    assert used["space"]["used_bytes"] < 204 * MIB
    os.unlink(m.at("f"))
    wait_until("free space as before", 2, lambda: os.statvfs(m.path).f_bavail >= before - 128 * MIB // 4096)
    store.wait_status("nothing used", 2, lambda s: s["space"]["used_bytes"] == 0 and s["chunks"] == 0)
    blocks = sum(os.stat(os.path.join(top, f)).st_blocks for b in store.benefactors
                 for top, _, files in os.walk(b.dir) for f in files)
    assert blocks * 512 <= 192 * MIB, "the files of the benefactors shrink too"


def test_space_of_an_unlinked_open_file_is_free_after_close(store):
    m = store.mounts[0]
    fd = os.open(m.at("f"), os.O_RDWR | os.O_CREAT, 0o644)
    pwrite_all(fd, content(1, 0, 50 * MIB), 0)
    os.fsync(fd)
    os.unlink(m.at("f"))
    assert_same(pread_all(fd, 50 * MIB, 0), content(1, 0, 50 * MIB))
    assert store.status()["chunks"] >= 50
    os.close(fd)
    store.wait_status("nothing used", 2, lambda s: s["chunks"] == 0 and s["inodes"] == 1)


@pytest.mark.limit(120)
def test_totals_are_exact(store):
    """After much coming and going, the counts are those of what is there."""
    m, rnd = store.mounts[0], random.Random(seed_of_run())
    names = {}
    for i in range(300):
        act = rnd.random()
        if act < 0.6 or not names:
            names[f"f{i}"] = n = rnd.choice([0, 1, 4096, 100000, 2 * MIB])
            write_file(m.at(f"f{i}"), content(i, 0, n))
        elif act < 0.8:
            name = rnd.choice(list(names))
            os.unlink(m.at(name))
            del names[name]
        else:
            name = rnd.choice(list(names))
            names[name] = n = rnd.choice([0, 5, 70000])
            os.truncate(m.at(name), n)
    os.sync()
    status = store.wait_status("garbage to go", 5, lambda s: s["garbage_chunks"] == 0 and s)
    assert status["inodes"] == len(names) + 1
    assert {n: os.stat(m.at(n)).st_size for n in os.listdir(m.path)} == names
    layouts = [store.layout(m.at(n)) for n in names]
    assert status["chunks"] == sum(x["chunks"] for x in layouts)
    assert status["slices"] == sum(x["slices"] for x in layouts)
    store.wait_status("benefactors to agree", 3, lambda s: sum(b["chunks"] for b in s["benefactors"]) == s["chunks"]
                      and sum(b["used_bytes"] for b in s["benefactors"]) == s["space"]["used_bytes"])
    for name in names:
        os.unlink(m.at(name))
    store.wait_status("all to be gone", 3, lambda s: s["chunks"] == 0 and s["inodes"] == 1 and s["slices"] == 0
                      and s["space"]["used_bytes"] == 0)


def test_many_small_files_do_not_eat_the_store(store):
    """A file of some bytes takes a few KiB, not a chunk."""
    m = store.mounts[0]
    for i in range(200):
        write_file(m.at(f"f{i}"), b"small")
    os.sync()
    assert store.status()["space"]["used_bytes"] < 200 * 16384


@pytest.mark.limit(120)
def test_write_right_after_unlink_in_a_full_store(small):
    """Delete the oldest checkpoint, write the next."""
    m = small.mounts[0]
    for i in range(3):
        done = fill(m.at(f"f{i}"), MIB)
        assert done > 200 * MIB
        os.unlink(m.at(f"f{i}"))
        write_file(m.at("next"), content(9, 0, 100 * MIB), sync=True)
        assert_same(read_file(m.at("next")), content(9, 0, 100 * MIB))
        os.unlink(m.at("next"))
