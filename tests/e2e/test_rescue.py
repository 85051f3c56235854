"""What is lost or damaged here and was drained: it is read from the target, its set is the one to restart from, and nobody is told that it is here when it is not."""

import errno
import json
import os
import random
import shutil
import time

import pytest

from harness.daemons import wait_until
from harness.files import assert_same, content, write_file
from harness.ondisk import find_on_disk, flip

MIB = 1 << 20
SIZE = 5 * MIB + 777


def drain(store, path, to, *args):
    store.fpctl("drain", path, f"--to={to}", "--wait", "--timeout=60s", *args, seconds=80)


def latest(store, path):
    r = store.fpctl("checkpoint", "latest", path, check=False)
    return r.stdout.strip() if r.returncode == 0 else None


def level(path):
    return os.getxattr(path, "user.fp.level").decode()


def read(path):
    with open(path, "rb") as f:
        return f.read()


def cold(mount):
    """Nothing of it in memory any more."""
    mount.unmount()
    mount.start()


def two_sets(new_store, *args, **up):
    """A store of one benefactor, a target, and a mount with two complete sets of two files each, of which the newer one is in the target, too."""
    store = new_store().up(benefactors=1, **up)
    target = store.make_dir("target")
    m = store.mounts[0]
    for step in (1, 2):
        os.makedirs(m.at(f"run/chk_{step}"))
        for rank in range(2):
            write_file(m.at(f"run/chk_{step}/rank_{rank}"), content(10 * step + rank, 0, SIZE), sync=True)
        store.fpctl("checkpoint", "commit", m.at(f"run/chk_{step}"), seconds=40)
    drain(store, m.at("run/chk_2"), target, *args)
    return store, target, m


def is_whole(m, step=2):
    for rank in range(2):
        assert_same(read(m.at(f"run/chk_{step}/rank_{rank}")), content(10 * step + rank, 0, SIZE))


def is_lost(path):
    with pytest.raises(OSError) as e:
        read(path)
    assert e.value.errno == errno.EIO


def restart_from_the_newest(store, m):
    """As a job does: what latest names, and all of its bytes."""
    wait_until("the drained set to be the one to restart from", 30, lambda: latest(store, m.at("run")) == m.at("run/chk_2"))
    cold(m)
    is_whole(m)


@pytest.mark.short
@pytest.mark.limit(120)
def test_a_restart_after_the_memory_of_a_node_was_lost(new_store):
    """The only benefactor keeps its data in memory, and is killed: the older set is gone, the drained one is not."""
    store, _, m = two_sets(new_store, "--verify", backend="memory")
    b = store.benefactors[0]
    store.expect("lacks .* chunks|benefactor|can't be read")
    b.kill()
    b.start()
    restart_from_the_newest(store, m)
    assert level(m.at("run/chk_2/rank_0")) == "verified"
    assert level(m.at("run/chk_1/rank_0")) == "none"
    damaged = {d["path"].lstrip("/") for d in store.status()["damaged"]}
    assert damaged == {"run/chk_1/rank_0", "run/chk_1/rank_1"}
    is_lost(m.at("run/chk_1/rank_0"))
    # of those that are left all are damaged
    shutil.rmtree(m.at("run/chk_2"))
    wait_until("it to be gone", 30, lambda: latest(store, m.at("run")) is None)
    r = store.fpctl("checkpoint", "latest", m.at("run"), check=False)
    assert r.returncode == 3 and not r.stdout and "of 1 that is complete data is lost or damaged" in r.stderr, r.stderr
    shutil.rmtree(m.at("run/chk_1"))
    wait_until("it to be gone", 30, lambda: "lost" not in store.fpctl("checkpoint", "latest", m.at("run"), check=False).stderr)


@pytest.mark.limit(120)
def test_a_restart_after_segments_were_removed(new_store):
    store, _, m = two_sets(new_store)
    b = store.benefactors[0]
    store.expect("lacks .* chunks|benefactor|segment|can't be read")
    b.kill()
    for name in os.listdir(os.path.join(b.dir, "segments")):
        os.unlink(os.path.join(b.dir, "segments", name))
    b.start()
    restart_from_the_newest(store, m)
    assert level(m.at("run/chk_2/rank_0")) == "drained"


@pytest.mark.limit(120)
def test_segments_that_go_while_a_benefactor_is_at_work(new_store):
    """It does not know, nor does anybody else: the reader finds out, and gets the bytes of the target."""
    store, _, m = two_sets(new_store)
    b = store.benefactors[0]
    store.expect("lacks .* chunks|benefactor|segment|can't be read|damaged")
    for name in os.listdir(os.path.join(b.dir, "segments")):
        with open(os.path.join(b.dir, "segments", name), "r+b") as f:
            size = os.fstat(f.fileno()).st_size
            f.truncate(0)
            f.truncate(size)
    cold(m)
    is_whole(m)


@pytest.mark.limit(120)
def test_what_a_reader_found_damaged_is_not_called_here(new_store):
    """A bit has flipped on the device, and the copy is away when somebody reads. The chunk's name is still in inventories, and says nothing of its bytes."""
    store = new_store().up(benefactors=1)
    target = store.make_dir("target")
    m, b = store.mounts[0], store.benefactors[0]
    data = random.Random(1).randbytes(SIZE)
    for name in ("f", "g"):
        write_file(m.at(name), data if name == "f" else content(2, 0, SIZE), sync=True)
    drain(store, m.at("f"), target)
    store.expect("damaged|checksum|can't be read|benefactor|is not what was drained|is not fetched|is not there any more")
    where, off = find_on_disk(store, data[2 * MIB + 5:2 * MIB + 69])
    cold(m)
    flip(where, off)
    os.rename(f"{target}/f", f"{target}/away")
    with pytest.raises(OSError) as e:
        read(m.at("f"))
    assert e.value.errno == errno.EIO
    wait_until("it to be known", 20, lambda: level(m.at("f")) == "none")
    b.kill()
    b.start()
    wait_until("what it has to be known", 30, lambda: level(m.at("g")) == "local")
    assert level(m.at("f")) == "none"
    r = store.fpctl("wait", "--level=local", m.at("f"), "--timeout=20s", check=False, seconds=40)
    assert r.returncode == 4, r.stdout + r.stderr
    os.rename(f"{target}/away", f"{target}/f")
    assert_same(read(m.at("f")), data)
    store.fpctl("stage-in", m.at("f"), "--timeout=60s", seconds=80)
    store.fpctl("wait", "--level=local", m.at("f"), "--timeout=30s", seconds=40)
    os.rename(f"{target}/f", f"{target}/away")  # so it is read here
    cold(m)
    assert_same(read(m.at("f")), data)


@pytest.mark.limit(120)
def test_a_node_that_is_gone(new_store):
    """Its benefactor does not come back: reads of what was drained wait for it some seconds, and then are of the target; what was not drained is EIO."""
    store, _, m = two_sets(new_store)
    gone = store.benefactors[0]
    store.add_benefactor()
    store.expect("benefactor|connection|can't be read")
    gone.kill()
    began = time.monotonic()
    is_whole(m)
    assert time.monotonic() - began < 40
    wait_until("the drained set to be the one to restart from", 30, lambda: latest(store, m.at("run")) == m.at("run/chk_2"))
    is_lost(m.at("run/chk_1/rank_0"))
    # it is back with all that it had
    gone.start()
    wait_until("what it has to be known", 30, lambda: level(m.at("run/chk_1/rank_0")) == "local")
    cold(m)
    is_whole(m, 1)
    is_whole(m, 2)


@pytest.mark.limit(120)
def test_staging_in_brings_it_back_or_says_what_it_can_not(new_store):
    store, target, m = two_sets(new_store, backend="memory")
    b = store.benefactors[0]
    store.expect("lacks .* chunks|benefactor|can't be read|no target has a copy|drain job|damaged|is not what was drained")
    b.kill()
    b.start()
    wait_until("it to be known that it has nothing", 20, lambda: store.status()["damaged"])
    store.fpctl("stage-in", m.at("run/chk_2"), "--timeout=60s", seconds=80)
    s = json.loads(store.fpctl("stat", m.at("run/chk_2/rank_0"), "--json").stdout)
    assert s["evicted_bytes"] == 0 and s["stored_bytes"] > SIZE, s
    os.rename(target, target + "-aside")  # it is here
    cold(m)
    is_whole(m)
    os.rename(target + "-aside", target)
    r = store.fpctl("stage-in", m.at("run/chk_1"), "--timeout=60s", check=False, seconds=80)
    assert r.returncode == 4, r
    assert "no target has a copy" in r.stdout + r.stderr


@pytest.mark.limit(120)
def test_what_others_have_put_there_is_no_copy_of_what_is_lost_here(new_store):
    """A name of the same size and time of which the data is lost does not count as staged in."""
    store = new_store().up(benefactors=1, backend="memory")
    target = store.make_dir("target")
    m = store.mounts[0]
    os.mkdir(os.path.join(target, "inputs"))
    write_file(os.path.join(target, "inputs/f"), content(1, 0, SIZE))
    command = ("stage-in", os.path.join(target, "inputs"), f"--to={m.path}", f"--target={target}", "--timeout=60s")
    store.fpctl(*command, seconds=80)
    assert_same(read(m.at("inputs/f")), content(1, 0, SIZE))
    b = store.benefactors[0]
    store.expect("lacks .* chunks|benefactor|can't be read|drain job|lost or damaged")
    b.kill()
    b.start()
    wait_until("it to be known that it has nothing", 20, lambda: store.status()["damaged"])
    r = store.fpctl(*command, check=False, seconds=80)
    assert r.returncode == 4, r
    assert "lost or damaged" in r.stdout + r.stderr
    os.unlink(m.at("inputs/f"))
    store.fpctl(*command, seconds=80)
    assert_same(read(m.at("inputs/f")), content(1, 0, SIZE))


@pytest.mark.limit(120)
def test_a_copy_that_is_gone_is_no_copy(new_store):
    store, target, m = two_sets(new_store, backend="memory")
    b = store.benefactors[0]
    store.expect("lacks .* chunks|benefactor|can't be read|can't fetch|is not what was drained|not there any more")
    shutil.rmtree(os.path.join(target, "run"))
    b.kill()
    b.start()
    wait_until("it to be known that all is lost", 30, lambda: len({d["path"] for d in store.status()["damaged"] if "target" in d["reason"] or "does not have" in d["reason"]}) == 4)
    time.sleep(2)
    assert latest(store, m.at("run")) is None
    assert level(m.at("run/chk_2/rank_0")) == "none"
    is_lost(m.at("run/chk_2/rank_0"))
