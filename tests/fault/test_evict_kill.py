"""Evicting and reading back while daemons are killed, and from a target that hangs: every byte that is read is what was written, and every read ends."""

import json
import os
import random
import threading
import time

import pytest

from harness.daemons import SLOW
from harness.files import assert_same, content, seed_of_run, write_file

MIB = 1 << 20
FILES, SIZE = 6, 6 * MIB + 777


def name(i):
    return f"old/{i}"


def evicted_bytes(store, path):
    return json.loads(store.fpctl("stat", path, "--json", seconds=60).stdout)["evicted_bytes"]


@pytest.fixture
def drained(new_store):
    """A store with files that are in a target, too. Called with arguments of the mounts."""
    def make(*args, target=None, benefactors=2):
        store = new_store()
        store.start_manager()
        for _ in range(benefactors):
            store.add_benefactor("--target-timeout=2s")
        m = store.add_mount(*args)
        store.target = target or os.path.join(store.dir, "target")
        os.makedirs(store.target, exist_ok=True)
        os.mkdir(m.at("old"))
        for i in range(FILES):
            write_file(m.at(name(i)), content(i, 0, SIZE), sync=True)
        store.fpctl("drain", m.at("old"), f"--to={store.target}", "--wait", "--timeout=2min", seconds=150)
        return store
    return make


def read_patiently(path, seconds):
    """EIO may come of a benefactor that is away for longer than the mount waits."""
    until = time.monotonic() + seconds * SLOW
    while True:
        try:
            with open(path, "rb") as f:
                return f.read()
        except OSError as e:
            if e.errno != 5 or time.monotonic() > until:
                raise


@pytest.mark.limit(240)
@pytest.mark.expect_log(".*")
@pytest.mark.parametrize("part", range(2))
def test_kills_while_files_go_and_come_back(drained, part):
    """Round by round: all files are evicted and read at once, by two readers, and somebody is killed in between."""
    rnd = random.Random(seed_of_run() * 10 + part)
    store = drained()
    m = store.mounts[0]
    wrong = []

    def reader(seed):
        order = list(range(FILES))
        random.Random(seed).shuffle(order)
        try:
            for i in order:
                assert_same(read_patiently(m.at(name(i)), 60), content(i, 0, SIZE), name(i))
        except BaseException as e:
            wrong.append(e)
    for round_ in range(5):
        evicting = store.begin_fpctl("evict", m.at("old"), "--timeout=60s")
        time.sleep(rnd.uniform(0, 0.4))
        victim = rnd.choice([store.manager, *store.benefactors])
        if rnd.random() < 0.5:
            victim.kill()
            time.sleep(rnd.uniform(0, 0.3))
            victim.start()
        out, err = evicting.communicate(timeout=90 * SLOW)
        assert evicting.returncode in (0, 4), (evicting.returncode, out, err)
        readers = [threading.Thread(target=reader, args=(round_ * 2 + k,)) for k in range(2)]
        for t in readers:
            t.start()
        time.sleep(rnd.uniform(0, 0.4))
        victim = rnd.choice([store.manager, *store.benefactors])
        victim.kill()
        time.sleep(rnd.uniform(0, 0.5))
        victim.start()
        for t in readers:
            t.join(120 * SLOW)
            assert not t.is_alive(), "a read that does not end"
        assert not wrong, wrong[0]
    # what was damaged for a moment is well; and all of it can go once more
    r = store.fpctl("evict", m.at("old"), "--timeout=60s", check=False, seconds=80)
    assert r.returncode == 0, r
    assert all(evicted_bytes(store, m.at(name(i))) == SIZE for i in range(FILES))
    for i in range(FILES):
        assert_same(read_patiently(m.at(name(i)), 30), content(i, 0, SIZE), name(i))
    assert json.loads(store.fpctl("status", "--json").stdout)["damaged"] == []


@pytest.mark.limit(120)
@pytest.mark.expect_log("target", "evicted to", "can't fetch", "drain")
def test_a_target_that_hangs_ends_a_read_in_time(drained, targets):
    """EIO within --io-timeout, with the name of the file there in the log; other programs are not held up; when it answers, it reads."""
    slow = targets.slow()
    store = drained("--io-timeout=5s", target=os.path.join(slow.path, "run"))
    m = store.mounts[0]
    store.fpctl("evict", m.at("old"), "--timeout=60s", seconds=80)
    assert evicted_bytes(store, m.at(name(0))) == SIZE
    slow.hang()
    began = time.monotonic()
    errors = []

    def read(i):
        try:
            with open(m.at(name(i)), "rb") as f:
                f.read()
        except OSError as e:
            errors.append(e.errno)
    readers = [threading.Thread(target=read, args=(i,)) for i in range(3)]
    for t in readers:
        t.start()
    write_file(m.at("other"), content(99, 0, 3 * MIB), sync=True)
    with open(m.at("other"), "rb") as f:
        assert_same(f.read(), content(99, 0, 3 * MIB))
    assert time.monotonic() - began < 4 * SLOW, "programs that have nothing to do with it wait for the target"
    for t in readers:
        t.join(30 * SLOW)
    assert errors == [5, 5, 5], errors
    assert time.monotonic() - began < 16 * SLOW
    named = [os.path.join(store.target, name(i)) for i in range(3)]  # similar lines of one second are one
    assert any(path in line for path in named for line in m.text().splitlines())
    assert json.loads(store.fpctl("status", "--json").stdout)["damaged"] == [], "a target that hangs has damaged nothing"
    slow.resume()
    for i in range(FILES):
        assert_same(read_patiently(m.at(name(i)), 60), content(i, 0, SIZE), name(i))


@pytest.mark.limit(120)
@pytest.mark.expect_log("cl.pread|can't be read")
def test_a_device_that_fails_a_reader_says_nothing_of_the_target(drained):
    """The copy that has just been fetched can't be read: it is read again, and nobody takes the file in the target for another."""
    store = drained(benefactors=1)
    m = store.mounts[0]
    store.fpctl("evict", m.at("old"), "--timeout=60s", seconds=80)
    assert all(evicted_bytes(store, m.at(name(i))) == SIZE for i in range(FILES))
    m.unmount()
    m.fault = "cl.pread=EIO:after=2:count=3"
    m.start()
    for i in range(FILES):
        with open(m.at(name(i)), "rb") as f:
            assert_same(f.read(), content(i, 0, SIZE), name(i))
    assert "fault fired: cl.pread" in m.text(), "the fault never fired"
    assert not json.loads(store.fpctl("status", "--json").stdout)["damaged"]
    for i in range(FILES):
        assert json.loads(store.fpctl("stat", m.at(name(i)), "--json").stdout)["level"] in ("drained", "verified")
