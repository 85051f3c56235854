"""Two stores with one target and the same names, while fp-drain is killed: what the one has evicted the other does not replace."""

import json
import os
import random
import threading
import time

import pytest

from harness.drains import kill_workers
from harness.files import assert_same, content, seed_of_run, write_file

SIZE = (1 << 20) + 777
FILES = 12


@pytest.fixture
def stores(new_store, tmp_path):
    """So many stores, each with FILES files in its directory run. faults: of their benefactors."""
    target = str(tmp_path / "target")
    os.mkdir(target)

    def make(*faults):
        made = []
        for k, fault in enumerate(faults):
            s = new_store()
            s.expect(".*")
            s.start_manager()
            s.add_benefactor(fault=fault)
            s.k, s.target = k, target
            os.mkdir(s.add_mount().at("run"))
            write_all(s, 0)
            made.append(s)
        return made
    return make


def at(store, i):
    return store.mounts[0].at(f"run/{i}")


def bytes_of(store, i, round_):
    return content(1000 * store.k + 50 * round_ + i, 0, SIZE)


def write_all(store, round_):
    for i in range(FILES):
        write_file(at(store, i), bytes_of(store, i, round_), sync=True)


def call(store, *args):
    return store.fpctl(*args, store.mounts[0].at("run"), "--timeout=60s", check=False, seconds=120)


def drain(store, *more):
    return call(store, "drain", f"--to={store.target}", "--now", "--wait", *more)


def evicted(store):
    return sum(json.loads(store.fpctl("stat", at(store, i), "--json").stdout)["evicted_bytes"] for i in range(FILES))


def read_all(store, round_):
    for i in range(FILES):
        with open(at(store, i), "rb") as f:
            assert_same(f.read(), bytes_of(store, i, round_), f"store {store.k}: {i}")


@pytest.mark.limit(180)
def test_nothing_is_evicted_that_could_not_be_marked(stores):
    """fp-drain is killed each time between the entry and the mark."""
    first, second = stores("drain.mark=kill", None)
    assert drain(first).returncode == 0
    r = call(first, "evict")
    assert r.returncode == 4 and "crashed" in r.stdout, r
    assert evicted(first) == 0
    assert drain(second).returncode == 0  # nothing is marked
    first.benefactors[0].kill()
    first.benefactors[0].fault = None
    first.benefactors[0].start()
    assert call(first, "evict").returncode == 4  # its copies are gone
    assert evicted(first) == 0
    read_all(first, 0)
    read_all(second, 0)


@pytest.mark.limit(180)
def test_fp_drain_is_killed_before_it_looks_at_what_it_has_replaced(stores):
    first, second = stores(None, "drain.settle=kill")
    assert drain(first).returncode == 0
    assert drain(second).returncode == 4
    second.benefactors[0].kill()
    second.benefactors[0].fault = None
    second.benefactors[0].start()
    call(first, "evict")
    read_all(first, 0)
    assert drain(first).returncode == 0
    assert call(first, "evict").returncode == 0
    assert drain(second).returncode == 4
    read_all(first, 0)


@pytest.mark.limit(300)
def test_two_stores_evict_and_drain_at_once_and_are_killed(stores):
    rnd = random.Random(seed_of_run())
    both = stores(None, None)
    gone = refused = 0
    for round_ in range(1, 5):
        for s in both:
            write_all(s, round_)
        assert drain(both[round_ % 2], "--overwrite").returncode == 0
        codes = []
        at_work = [threading.Thread(target=lambda f=f, s=s: codes.append(f(s).returncode))
                   for f, s in ((lambda s: call(s, "evict"), both[round_ % 2]), (drain, both[1 - round_ % 2]))]
        for t in at_work:
            t.start()
        for _ in range(4):
            time.sleep(rnd.uniform(0.02, 0.3))
            kill_workers(*rnd.choice(both).benefactors)
        for t in at_work:
            t.join()
        assert set(codes) <= {0, 4}, codes
        gone += evicted(both[round_ % 2])
        refused += codes.count(4)
        read_all(both[round_ % 2], round_)
        read_all(both[1 - round_ % 2], round_)
    assert gone and refused
