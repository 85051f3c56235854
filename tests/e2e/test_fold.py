"""Small writes into large files: what is written is reserved, and what is overwritten comes back (client/data/reserve.c, fold.c)."""

import os
import random
import threading

import pytest

from harness.daemons import wait_until
from harness.files import assert_same, content, pwrite_all, read_file, seed_of_run, write_file

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def small(new_store):
    """128 MiB in all, on two benefactors."""
    s = new_store()
    return s.up(benefactors=2, mounts=2, size="64MiB", pool="64MiB", mount_args=("--fold=on",))


def used(store):
    return store.status()["space"]["used_bytes"]


def at_rest(store, most):
    """Folded, and what was in the way is deleted."""
    wait_until(f"no more than {most >> 10} KiB to be used", 60, lambda: used(store) <= most, 0.2)


def check_counts(store, *paths):
    """References are exact: what is there is what files are of, and nothing else."""
    def agree():
        st, layouts = store.status(), [store.layout(p) for p in paths]
        return (st["garbage_chunks"] == 0 and st["chunks"] == sum(x["chunks"] for x in layouts) and st["slices"] == sum(x["slices"] for x in layouts)
                and sum(b["chunks"] for b in st["benefactors"]) == st["chunks"]
                and sum(b["used_bytes"] for b in st["benefactors"]) == st["space"]["used_bytes"])
    wait_until("manager and benefactors to agree", 10, agree, 0.1)


def patch(path, mirror, rnd, n, length, low=0, high=None):
    high = high or len(mirror)
    fd = os.open(path, os.O_RDWR)
    for _ in range(n):
        off = rnd.randrange(low, high - length + 1) & ~4095
        data = rnd.randbytes(length)
        assert os.pwrite(fd, data, off) == length
        mirror[off:off + length] = data
    os.close(fd)


@pytest.mark.limit(180)
def test_small_changes_of_a_large_file_go_on_for_ever(new_store):
    """50 of 192 MiB: 30 rounds of 300 x 16 KiB anywhere in it, each of which takes 6 MiB more where nothing is folded."""
    small = new_store().up(benefactors=2, mounts=2, size="96MiB", pool="64MiB", mount_args=("--fold=on",))
    m, rnd = small.mounts[0], random.Random(seed_of_run())
    mirror = bytearray(content(1, 0, 50 * MIB))
    write_file(m.at("f"), mirror)
    for _ in range(30):
        patch(m.at("f"), mirror, rnd, 300, 16 * KIB)
        assert used(small) < 192 * MIB
    assert_same(read_file(m.at("f")), mirror)
    at_rest(small, 80 * MIB)
    assert_same(read_file(m.at("f")), mirror, "folded")
    assert_same(read_file(small.mounts[1].at("f")), mirror, "on the other mount")
    check_counts(small, m.at("f"))
    os.unlink(m.at("f"))
    small.wait_status("nothing used", 10, lambda s: s["chunks"] == 0 and s["space"]["used_bytes"] == 0)


@pytest.mark.limit(120)
def test_many_open_files_take_what_is_in_them(small):
    """400 files, some 70 MiB in all, open at once in 128 MiB; the last bytes of a window are as good as the first."""
    m, rnd = small.mounts[0], random.Random(seed_of_run())
    want, fds = {}, []
    for i in range(400):
        data = rnd.randbytes(rnd.randrange(100 * KIB, 240 * KIB))
        off = rnd.choice([0, MIB - len(data), 300 * KIB])
        fd = os.open(m.at(f"f{i}"), os.O_RDWR | os.O_CREAT, 0o644)
        pwrite_all(fd, data, off)
        fds.append(fd)
        want[f"f{i}"] = bytes(off) + data
    for fd in fds:
        os.close(fd)
    for name, data in want.items():
        assert_same(read_file(m.at(name)), data, name)


@pytest.mark.limit(180)
def test_two_mounts_write_to_one_file_while_it_is_folded(small):
    """Each in windows of its own, and both in one, at disjoint places: folds and writes meet."""
    mirrors, errors = [bytearray(24 * MIB), bytearray(24 * MIB)], []
    write_file(small.mounts[0].at("f"), bytes(24 * MIB))

    def work(k):
        rnd, mine = random.Random(seed_of_run() + k), mirrors[k]
        try:
            for _ in range(25):
                fd = os.open(small.mounts[k].at("f"), os.O_RDWR)
                for _ in range(150):
                    # even and odd stretches of 8 KiB
                    off = (rnd.randrange(24 * MIB // (16 * KIB)) * 2 + k) * 8 * KIB
                    data = rnd.randbytes(8 * KIB)
                    os.pwrite(fd, data, off)
                    mine[off:off + 8 * KIB] = data
                os.close(fd)
        except OSError as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    want = bytearray(24 * MIB)
    for k in (0, 1):
        for off in range(k * 8 * KIB, 24 * MIB, 16 * KIB):
            want[off:off + 8 * KIB] = mirrors[k][off:off + 8 * KIB]
    for when in ("at once", "folded"):
        for m in small.mounts:
            assert_same(read_file(m.at("f")), want, f"{m.name} {when}")
        at_rest(small, 24 * MIB * 16 // 10)
    check_counts(small, small.mounts[0].at("f"))


@pytest.mark.limit(180)
def test_what_a_snapshot_shares_is_not_multiplied(small):
    """20 MiB and a copy by copy_file_range: folding the one must not copy what both have."""
    m, rnd = small.mounts[0], random.Random(seed_of_run())
    first = bytearray(content(1, 0, 20 * MIB))
    write_file(m.at("f"), first)
    src, dst = os.open(m.at("f"), os.O_RDONLY), os.open(m.at("snap"), os.O_WRONLY | os.O_CREAT, 0o644)
    done = 0
    while done < len(first):
        done += os.copy_file_range(src, dst, len(first) - done, done, done)
    os.close(src)
    os.close(dst)
    mirror = bytearray(first)
    for _ in range(15):
        patch(m.at("f"), mirror, rnd, 200, 16 * KIB, high=10 * MIB)
    # all of the snapshot, and what is new of the first half with half as much again
    at_rest(small, 20 * MIB + 10 * MIB * 16 // 10)
    for other in small.mounts:
        assert_same(read_file(other.at("f")), mirror)
        assert_same(read_file(other.at("snap")), first)
    os.unlink(m.at("snap"))
    patch(m.at("f"), mirror, rnd, 100, 16 * KIB)
    at_rest(small, 32 * MIB)
    assert_same(read_file(m.at("f")), mirror)
    check_counts(small, m.at("f"))


@pytest.mark.limit(120)
def test_a_log_of_short_lines_does_not_take_a_block_for_each(small):
    """Each line is opened for, written and closed: a chunk of 8 KiB for 100 bytes, until the window is folded."""
    m, want = small.mounts[0], b""
    for i in range(1500):
        line = content(i, 0, 100)
        with open(m.at("log"), "ab", buffering=0) as f:
            f.write(line)
        want += line
    at_rest(small, 1 * MIB)
    assert_same(read_file(m.at("log")), want)
    assert_same(read_file(small.mounts[1].at("log")), want)
    check_counts(small, m.at("log"))


@pytest.mark.limit(120)
def test_a_fold_changes_no_time_and_no_size(small):
    m, rnd = small.mounts[0], random.Random(seed_of_run())
    mirror = bytearray(content(1, 0, 4 * MIB))
    write_file(m.at("f"), mirror)
    for _ in range(20):
        patch(m.at("f"), mirror, rnd, 20, 16 * KIB)
    before, slices = os.stat(m.at("f")), store_slices(small, m)
    at_rest(small, 4 * MIB * 16 // 10)
    after = os.stat(m.at("f"))
    assert store_slices(small, m) < slices
    assert (after.st_mtime_ns, after.st_ctime_ns, after.st_size, after.st_blocks) == (before.st_mtime_ns, before.st_ctime_ns, before.st_size, before.st_blocks)
    assert_same(read_file(m.at("f")), mirror)


def store_slices(store, m):
    return store.layout(m.at("f"))["slices"]
