"""A flipped bit on disk: EIO for exactly that range, a line in the log, the file in fpctl status. Never wrong bytes."""

import errno
import os
import random

import pytest

from harness.files import assert_same, content, read_file, seed_of_run, write_file
from harness.ondisk import data_runs, find_on_disk, flip, segments

MIB = 1 << 20
BLOCK = 65536
pytestmark = pytest.mark.expect_log(r"damaged|checksum|can't be read|missing|lacks")


def unique(n):
    """Bytes that occur once (content() repeats itself)."""
    return random.Random(n).randbytes(n)


def reads_by_block(path, size):
    """{block: bytes or errno}, each block read by itself."""
    out = {}
    fd = os.open(path, os.O_RDONLY)
    for off in range(0, size, BLOCK):
        try:
            out[off // BLOCK] = os.pread(fd, BLOCK, off)
        except OSError as e:
            out[off // BLOCK] = e.errno
    os.close(fd)
    return out


def cold(store):
    """Nothing in the mount's memory any more."""
    for m in store.mounts:
        m.unmount()
        m.start()


@pytest.mark.short
def test_flipped_bit_gives_eio_for_that_range_only(store):
    m, size = store.mounts[0], 5 * MIB
    data = unique(size)
    write_file(m.at("f"), data, sync=True)
    bad_at = 2 * MIB + 3 * BLOCK + 777
    where, off = find_on_disk(store, data[bad_at:bad_at + 64])
    cold(store)
    flip(where, off)
    got = reads_by_block(m.at("f"), size)
    bad = {i for i, b in got.items() if isinstance(b, int)}
    assert {got[i] for i in bad} == {errno.EIO}
    assert bad == {bad_at // BLOCK}, "exactly the 64 KiB that hold the bit"
    for i, b in got.items():
        if i not in bad:
            assert_same(b, data[i * BLOCK:(i + 1) * BLOCK], f"block {i}")
    m.wait_log(r"can't be read.*(checksum|damaged)", 3)
    status = store.wait_status("the file among the damaged", 3, lambda s: s["damaged"] and s)
    hit = status["damaged"][0]
    assert hit["path"].lstrip("/") == "f"
    assert hit["offset_bytes"] <= bad_at < hit["offset_bytes"] + hit["length_bytes"]
    assert "f" in store.fpctl("status").stdout
    assert store.layout("/f")["damaged"]


def test_rewriting_the_file_takes_it_off_the_list(store):
    m = store.mounts[0]
    data = unique(2 * MIB)
    write_file(m.at("f"), data, sync=True)
    where, off = find_on_disk(store, data[100000:100064])
    cold(store)
    flip(where, off)
    with pytest.raises(OSError):
        read_file(m.at("f"))
    store.wait_status("the damage to be known", 3, lambda s: s["damaged"])
    write_file(m.at("f"), data, sync=True)
    assert_same(read_file(m.at("f")), data)
    store.wait_status("the list to be empty", 5, lambda s: not s["damaged"])


@pytest.mark.limit(180)
def test_random_damage_never_gives_wrong_bytes(store):
    """Bits are flipped anywhere in the segments, headers too: each block is right or EIO, also after a restart of the
    benefactors, which read all headers then."""
    rnd, m, size = random.Random(seed_of_run()), store.mounts[0], 8 * MIB
    for i in range(4):
        write_file(m.at(f"f{i}"), content(i, 0, size), sync=True)
    paths = segments(store)
    cold(store)
    for _ in range(12):
        path, start, end = rnd.choice([(p, *run) for p in paths for run in data_runs(p) if run[1] - run[0] > MIB])
        record = start + (MIB + 4096) * rnd.randrange((end - start) // (MIB + 4096))
        flip(path, min(end - 1, record + rnd.choice([rnd.randrange(8192), rnd.randrange(MIB)])), rnd.randrange(8))

    def verify():
        bad = 0
        for i in range(4):
            for k, b in reads_by_block(m.at(f"f{i}"), size).items():
                if isinstance(b, int):
                    assert b == errno.EIO
                    bad += 1
                else:
                    assert_same(b, content(i, k * BLOCK, BLOCK), f"f{i} block {k}")
        return bad
    verify()
    for b in store.benefactors:
        b.term()
        b.start()
    cold(store)
    verify()


def test_segment_cut_short(store):
    """The end of a segment is missing: EIO for what was there, the rest is right."""
    m, size = store.mounts[0], 6 * MIB
    data = unique(size)
    write_file(m.at("f"), data, sync=True)
    where, off = find_on_disk(store, data[4 * MIB + 5:4 * MIB + 69])
    cold(store)
    for b in store.benefactors:
        b.term()
    os.truncate(where, off)
    for b in store.benefactors:
        b.start()
    store.wait_status("both benefactors", 5, lambda s: sum(b["state"] != "down" for b in s["benefactors"]) == 2)
    errors = 0
    for k, b in reads_by_block(m.at("f"), size).items():
        if isinstance(b, int):
            assert b == errno.EIO
            errors += 1
        else:
            assert_same(b, data[k * BLOCK:(k + 1) * BLOCK], f"block {k}")
    assert 0 < errors < size // BLOCK


def test_damage_seen_over_the_network(nodes, new_store):
    """The same when the chunk comes from a benefactor of another node."""
    n = nodes(2)
    store = new_store(n)
    store.start_manager(node=0)
    store.add_benefactor(node=1)
    m = store.add_mount(node=0)
    data = unique(3 * MIB)
    write_file(m.at("f"), data, sync=True)
    where, off = find_on_disk(store, data[MIB + 5:MIB + 69])
    cold(store)
    flip(where, off)
    got = reads_by_block(m.at("f"), 3 * MIB)
    bad = {i for i, b in got.items() if isinstance(b, int)}
    assert bad == {16}
    for i, b in got.items():
        if i not in bad:
            assert_same(b, data[i * BLOCK:(i + 1) * BLOCK], f"block {i}")
    store.wait_status("the damage to be known", 3, lambda s: s["damaged"])
