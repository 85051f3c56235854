"""Chunks that come back from a target while fp-drain is killed, and where there is no room for them, since programs fill the store: what is read is what was written."""

import json
import os
import threading
import time

import pytest

from harness.daemons import PACE, SLOW, wait_until
from harness.drains import kill_workers
from harness.files import assert_same, content, write_file

MIB = 1 << 20
FILES, SIZE = 6, 6 * MIB + 777


def evicted_bytes(store, path):
    return json.loads(store.fpctl("stat", path, "--json", seconds=60).stdout)["evicted_bytes"]


def evicted_files(new_store, target, *args):
    """A store of one benefactor, with files that are in the target only."""
    store = new_store()
    store.start_manager()
    store.add_benefactor(*args)
    m = store.add_mount("--io-timeout=60s")
    for i in range(FILES):
        write_file(m.at(str(i)), content(i, 0, SIZE), sync=True)
    store.fpctl("drain", *[m.at(str(i)) for i in range(FILES)], f"--to={target}", "--wait", "--timeout=2min", seconds=150)
    store.fpctl("evict", *[m.at(str(i)) for i in range(FILES)], "--timeout=60s", seconds=80)
    assert all(evicted_bytes(store, m.at(str(i))) == SIZE for i in range(FILES))
    return store


def read_all(m, files, wrong, seed):
    try:
        for i in sorted(files, key=lambda i: (i * 7 + seed) % FILES):
            with open(m.at(str(i)), "rb") as f:
                assert_same(f.read(), content(i, 0, SIZE), str(i))
    except BaseException as e:
        wrong.append(e)


@pytest.mark.limit(180)
def test_fp_drain_is_killed_while_it_fetches(new_store, targets):
    slow = targets.slow(emulate="read=12MB/s")
    os.mkdir(os.path.join(slow.path, "run"))
    store = evicted_files(new_store, os.path.join(slow.path, "run"))
    store.expect("fp-drain|not fetched|fetch")
    m, b, wrong, killed = store.mounts[0], store.benefactors[0], [], 0
    readers = [threading.Thread(target=read_all, args=(m, range(FILES), wrong, k)) for k in range(2)]
    for t in readers:
        t.start()
    until = time.monotonic() + 100 * SLOW
    while any(t.is_alive() for t in readers) and time.monotonic() < until:
        time.sleep(0.4 * PACE)
        if killed < 4 and (now := kill_workers(b)):
            killed += now
            time.sleep(1.2 * PACE)
    for t in readers:
        t.join(60 * SLOW)
        assert not t.is_alive(), "a read that does not end"
    assert killed > 1, "nobody was killed while it fetched"
    assert not wrong, wrong[0]
    wait_until("all of it to be here", 30, lambda: sum(evicted_bytes(store, m.at(str(i))) for i in range(FILES)) == 0)
    assert json.loads(store.fpctl("status", "--json").stdout)["damaged"] == []


@pytest.mark.limit(180)
def test_programs_fill_the_store_while_others_read_what_is_not_here(new_store):
    """Neither waits for the other: where there is no room, what is read is passed on and not kept."""
    store = new_store()
    store = evicted_files(lambda: store, store.make_dir("target"), "--size=128MiB")
    store.expect("space|full")
    m, wrong, full = store.mounts[0], [], []

    def fill(k):
        try:
            with open(m.at(f"fill{k}"), "wb") as f:
                for i in range(200):
                    f.write(content(k, i * MIB, MIB))
                    f.flush()
        except OSError as e:
            full.append(e.errno)
    writers = [threading.Thread(target=fill, args=(k,)) for k in range(2)]
    readers = [threading.Thread(target=read_all, args=(m, range(FILES), wrong, k)) for k in range(2)]
    for t in writers + readers:
        t.start()
    for t in writers + readers:
        t.join(100 * SLOW)
        assert not t.is_alive(), "somebody waits for ever"
    assert not wrong, wrong[0]
    assert set(full) == {28}, full
    read_all(m, range(FILES), wrong, 0) # full as it is
    assert not wrong, wrong[0]
    assert sum(evicted_bytes(store, m.at(str(i))) for i in range(FILES)) > 0, "there was room: the test shows nothing"
    for k in range(2):
        os.unlink(m.at(f"fill{k}"))

    wait_until("their space to be free", 60, lambda: json.loads(store.fpctl("status", "--json").stdout)["space"]["used_bytes"] < 60 * MIB)
    other = store.add_mount() # which has nothing of it in memory
    read_all(other, range(FILES), wrong, 0)
    assert not wrong, wrong[0]
    wait_until("all of it to be kept again", 30, lambda: sum(evicted_bytes(store, m.at(str(i))) for i in range(FILES)) == 0)
