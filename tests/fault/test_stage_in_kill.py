"""Staging in from a target while daemons are killed, files change and the target fails: what has a name in the store is whole, and nothing is left of what has none."""

import json
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from harness.daemons import SLOW, wait_until
from harness.files import assert_same, content, seed_of_run, write_file

MIB = 1 << 20
OLD = 1_700_000_000
SIZES = [40 * MIB + 777, 17 * MIB, 3 * MIB + 1, 5, 0]


def tree(path, rounds=3):
    """Large and small files; their names with sizes and seeds."""
    files = {}
    for d in range(rounds):
        os.makedirs(os.path.join(path, f"d{d}"))
        for k, size in enumerate(SIZES):
            name = f"d{d}/f{k}"
            files[name] = (d * 10 + k, size)
            write_file(os.path.join(path, name), content(d * 10 + k, 0, size))
            os.utime(os.path.join(path, name), (OLD, OLD))
    return files


@pytest.fixture
def staging(new_store):
    """A store, a target with files that are not the store's, and what it is called with."""
    def make(benefactors=3, target=None, there=None, **kw):
        store = new_store()
        store.start_manager()
        for _ in range(benefactors):
            store.add_benefactor("--target-timeout=2s", **kw)
        store.add_mount()
        store.target = target or os.path.join(store.dir, "target")
        there = there or store.target
        os.makedirs(os.path.join(there, "in"))
        store.files = tree(os.path.join(there, "in"))
        return store
    return make


def fpctl_in(store, *args):
    return store.begin_fpctl("stage-in", os.path.join(store.target, "in"), f"--to={store.mounts[0].path}", f"--target={store.target}", *args)


def whole(store, name):
    seed, size = store.files[name]
    with open(store.mounts[0].at("in", name), "rb") as f:
        assert_same(f.read(), content(seed, 0, size), name)


def used(store):
    return json.loads(store.fpctl("status", "--json", seconds=30).stdout)["space"]["used_bytes"]


@pytest.mark.limit(240)
@pytest.mark.expect_log(".*")
@pytest.mark.parametrize("part", range(3))
def test_kills_while_files_come(staging, part):
    """Manager, benefactors and fp-drain are killed all the time; what has a name is whole in every moment, and in the end all is there, and nothing else takes space."""
    rnd = random.Random(seed_of_run() * 10 + part)
    store = staging()
    m = store.mounts[0]
    job = fpctl_in(store, "--timeout=2min")
    kills = 0
    until = time.monotonic() + 6 * SLOW
    while job.poll() is None and time.monotonic() < until:
        time.sleep(rnd.uniform(0.05, 0.5))
        victim = rnd.choice([store.manager, *store.benefactors])
        victim.kill()
        time.sleep(rnd.uniform(0, 0.3))
        victim.start()
        kills += 1
        for name in store.files:
            if os.path.exists(m.at("in", name)):
                assert os.stat(m.at("in", name)).st_size == store.files[name][1]
    out, err = job.communicate(timeout=150 * SLOW)
    assert job.returncode == 0 and kills >= 1, (job.returncode, out, err, kills)
    for name in store.files:
        whole(store, name)
    assert json.loads(store.fpctl("status", "--json").stdout)["damaged"] == []
    total = sum(s for _, s in store.files.values())
    wait_until("what was left of attempts to be deleted", 60, lambda: used(store) < total + 8 * MIB, step=0.5)
    subprocess.run(["rm", "-r", m.at("in")], check=True)
    wait_until("all of it to be free", 60, lambda: used(store) < 4 * MIB, step=0.5)


@pytest.mark.limit(120)
@pytest.mark.expect_log(".*")
def test_a_job_that_is_cancelled_leaves_whole_files_alone(staging):
    store = staging()
    job = fpctl_in(store, "--timeout=60s")
    wait_until("a file to be there", 30, lambda: os.path.isdir(store.mounts[0].at("in")))
    r = store.fpctl("drain", "cancel", "1", check=False)
    assert r.returncode in (0, 1), r
    job.communicate(timeout=80 * SLOW)
    assert job.returncode in (0, 5)
    there = [n for n in store.files if os.path.exists(store.mounts[0].at("in", n))]
    for name in there:
        whole(store, name)
    total = sum(store.files[n][1] for n in there)
    wait_until("the rest to be deleted", 60, lambda: used(store) < total + 8 * MIB, step=0.5)


@pytest.mark.limit(180)
@pytest.mark.expect_log(".*")
def test_a_file_that_changes_meanwhile_is_of_one_moment(staging):
    """Somebody replaces the bytes of a large file again and again while it is staged: what gets the name is one of its contents, or the job says why not."""
    store = staging(benefactors=2)
    path = os.path.join(store.target, "in", "d0", "f0")
    stop = threading.Event()

    def change():
        k = 0
        while not stop.is_set() and k < 4:
            k += 1
            with open(path, "r+b") as f:
                f.write(bytes([k]) * SIZES[0])
            stop.wait(0.7)
    t = threading.Thread(target=change)
    t.start()
    job = fpctl_in(store, "--timeout=100s")
    out, err = job.communicate(timeout=120 * SLOW)
    stop.set()
    t.join()
    assert job.returncode == 0, (job.returncode, out, err)
    with open(store.mounts[0].at("in/d0/f0"), "rb") as f:
        data = f.read()
    assert data == content(0, 0, SIZES[0]) or data == data[:1] * SIZES[0], "bytes of several moments"


@pytest.mark.limit(120)
@pytest.mark.expect_log(".*")
def test_a_target_that_hangs_delays_it(staging, targets):
    slow = targets.slow()
    store = staging(target=os.path.join(slow.path, "run"), benefactors=2)
    m = store.mounts[0]
    slow.hang()
    for _ in range(2):  # called again, it waits for the same job
        job = fpctl_in(store, "--timeout=4s")
        out, err = job.communicate(timeout=60 * SLOW)
        assert job.returncode == 3 and "job 1" in out + err and "job 2" not in out + err, (job.returncode, out, err)
    write_file(m.at("other"), content(99, 0, 3 * MIB), sync=True)
    slow.resume()
    job = fpctl_in(store, "--timeout=60s")
    out, err = job.communicate(timeout=90 * SLOW)
    assert job.returncode == 0, (job.returncode, out, err)
    for name in store.files:
        whole(store, name)


@pytest.mark.limit(120)
@pytest.mark.expect_log(".*")
def test_a_store_that_is_too_small_says_so(staging):
    store = staging(benefactors=1, size="128MiB")
    job = fpctl_in(store, "--timeout=60s")
    out, err = job.communicate(timeout=90 * SLOW)
    assert job.returncode == 4 and "room" in out, (job.returncode, out, err)
    for name in store.files:
        if os.path.exists(store.mounts[0].at("in", name)):
            whole(store, name)


@pytest.mark.limit(120)
@pytest.mark.expect_log(".*")
def test_a_large_file_is_staged_by_all_benefactors(staging):
    store = staging()
    job = fpctl_in(store, "--timeout=60s")
    out, err = job.communicate(timeout=90 * SLOW)
    assert job.returncode == 0, (out, err)
    layout = json.loads(store.fpctl("stat", store.mounts[0].at("in/d0/f0"), "--json").stdout)
    assert len({str(s.get("benefactor")) for s in layout["ranges"]}) >= 2, layout
    # one that dies in mid-way is not waited for
    subprocess.run(["rm", "-r", store.mounts[0].at("in")], check=True)
    store.benefactors[2].freeze()
    job = fpctl_in(store, "--timeout=100s")
    out, err = job.communicate(timeout=120 * SLOW)
    store.benefactors[2].send(signal.SIGCONT)
    assert job.returncode == 0, (out, err)
    for name in store.files:
        whole(store, name)
