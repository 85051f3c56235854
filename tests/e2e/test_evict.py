"""Evicting: what is drained gives its space back and reads as if it were here; what has become another in the target is an error, never other bytes."""

import errno
import json
import os
import time

import pytest

from harness.daemons import SLOW, wait_until
from harness.files import assert_same, content, write_file

MIB = 1 << 20
SIZE = 5 * MIB + 12345


def drain(store, *paths, to):
    store.fpctl("drain", *paths, f"--to={to}", "--wait", "--timeout=60s", seconds=80)


def evict(store, *paths, check=True):
    return store.fpctl("evict", *paths, "--timeout=60s", check=check, seconds=80)


def stat(store, path):
    return json.loads(store.fpctl("stat", path, "--json").stdout)


def used(store):
    return json.loads(store.fpctl("status", "--json").stdout)["space"]["used_bytes"]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def evicted(store, path, target, seed=1, size=SIZE):
    """A file of this content that is in the target only."""
    write_file(path, content(seed, 0, size))
    drain(store, path, to=target)
    evict(store, path)
    s = stat(store, path)
    assert s["evicted_bytes"] == size and s["stored_bytes"] == 0, s


@pytest.mark.short
def test_an_evicted_file_reads_as_before_and_comes_back(store, target):
    m = store.mounts[0]
    evicted(store, m.at("f"), target)
    wait_until("its space to be free", 20, lambda: used(store) < MIB)
    assert os.stat(m.at("f")).st_size == SIZE
    assert "evicted" in store.fpctl("stat", m.at("f")).stdout
    assert_same(read(m.at("f")), content(1, 0, SIZE))

    def back():
        s = stat(store, m.at("f"))
        return s["evicted_bytes"] == 0 and s["stored_bytes"] > SIZE
    wait_until("what was read to be here", 20, back)
    os.rename(os.path.join(target, "f"), os.path.join(target, "aside"))
    assert_same(read(m.at("f")), content(1, 0, SIZE))
    os.rename(os.path.join(target, "aside"), os.path.join(target, "f"))
    # and it goes again, without being copied
    before = os.stat(os.path.join(target, "f"))
    evict(store, m.at("f"))
    assert stat(store, m.at("f"))["evicted_bytes"] == SIZE
    assert os.stat(os.path.join(target, "f")).st_ino == before.st_ino
    assert_same(read(m.at("f")), content(1, 0, SIZE))


def test_other_mounts_read_it_too(store, target):
    a, b = store.mounts[0], store.add_mount()
    evicted(store, a.at("f"), target)
    with open(b.at("f"), "rb", buffering=0) as f:
        f.seek(3 * MIB + 77)
        assert_same(f.read(1000), content(1, 3 * MIB + 77, 1000))
    wait_until("one chunk to be here", 20, lambda: stat(store, a.at("f"))["evicted_bytes"] == SIZE - MIB)
    assert_same(read(b.at("f")), content(1, 0, SIZE))
    assert_same(read(a.at("f")), content(1, 0, SIZE))
    # who has read it before has an old map
    evict(store, a.at("f"))
    with open(b.at("f"), "rb") as f:
        assert_same(f.read(), content(1, 0, SIZE))


def test_it_can_be_written_cut_copied_and_removed(store, target):
    m = store.mounts[0]
    data = bytearray(content(1, 0, SIZE))
    evicted(store, m.at("f"), target)
    with open(m.at("f"), "r+b") as f:
        f.seek(MIB + 100)
        f.write(b"changed")
    data[MIB + 100:MIB + 107] = b"changed"
    assert_same(read(m.at("f")), bytes(data))
    os.truncate(m.at("f"), 4 * MIB + 5)
    del data[4 * MIB + 5:]
    assert_same(read(m.at("f")), bytes(data))
    drain(store, m.at("f"), to=target)  # all of it is here
    assert_same(read(os.path.join(target, "f")), bytes(data))
    evict(store, m.at("f"))
    assert_same(read(m.at("f")), bytes(data))
    evicted(store, m.at("g"), target, seed=2)
    with open(m.at("g"), "rb") as f, open(m.at("h"), "wb") as g:
        n = os.copy_file_range(f.fileno(), g.fileno(), SIZE)
        assert n > 0
    assert_same(read(m.at("h")), content(2, 0, SIZE)[:n])
    for name in "fgh":
        os.unlink(m.at(name))
    wait_until("all of it to be free", 20, lambda: used(store) < MIB)
    assert_same(read(os.path.join(target, "g")), content(2, 0, SIZE), "what is in the target stays")


def test_a_file_that_is_only_in_the_target_is_brought_back_before_it_is_copied(store, target):
    """Over itself: what was not written anew is in the target alone."""
    m = store.mounts[0]
    evicted(store, m.at("f"), target)
    with open(m.at("f"), "r+b") as f:
        f.write(b"changed")
    now = b"changed" + content(1, 7, SIZE - 7)
    drain(store, m.at("f"), to=target)
    assert_same(read(os.path.join(target, "f")), now)
    assert stat(store, m.at("f"))["evicted_bytes"] == 0
    assert_same(read(store.add_mount().at("f")), now)


def test_what_is_not_drained_or_open_stays(store, target):
    store.expect("drain job")
    m = store.mounts[0]
    write_file(m.at("f"), content(1, 0, SIZE))
    r = evict(store, m.at("f"), check=False)
    assert r.returncode == 4 and "fpctl drain" in r.stdout, r
    drain(store, m.at("f"), to=target)
    with open(m.at("f"), "rb"):
        r = evict(store, m.at("f"), check=False)
        assert r.returncode == 4 and "open" in r.stdout, r
    assert stat(store, m.at("f"))["evicted_bytes"] == 0
    r = evict(store, m.at("nothing"), check=False)
    assert r.returncode == 1 and "nothing" in r.stderr, r


def test_the_newest_sets_stay_and_that_is_no_failure(new_store, target):
    """A script that makes room goes on; one that asks for what stays by design hears 4."""
    s = new_store().up(benefactors=1, mounts=1, manager_args=("--ckpt-quiet=500ms",))
    m = s.mounts[0]
    for step in range(1, 5):
        os.makedirs(m.at(f"run/chk_{step}"))
        for rank in range(2):
            write_file(m.at(f"run/chk_{step}/rank_{rank}"), content(step, rank, MIB))
        s.fpctl("checkpoint", "commit", m.at(f"run/chk_{step}"))
    drain(s, m.at("run"), to=target)
    r = evict(s, m.at("run"), check=False)
    assert r.returncode == 0 and "done: 4 of 8 files" in r.stdout, r
    assert "run/chk_3/rank_0, and 3 more: it is one of the newest complete sets" in r.stdout, r
    r = evict(s, m.at("run/chk_4"), check=False)
    assert r.returncode == 4 and "failed: 0 of 2 files" in r.stdout and "newest complete sets" in r.stdout, r


def test_what_does_not_go_is_said(store, target):
    """A script that makes room must not take it for done: what others share stays."""
    store.expect("stays here")
    m = store.mounts[0]
    write_file(m.at("f"), content(1, 0, SIZE))
    for name, size in (("g", SIZE), ("h", MIB)):
        with open(m.at("f"), "rb") as src, open(m.at(name), "wb") as dst:
            assert os.copy_file_range(src.fileno(), dst.fileno(), size) == size
    drain(store, m.at("f"), to=target)
    r = evict(store, m.at("f"), check=False)
    assert r.returncode == 4 and "0 of 1 files, 0 B of" in r.stdout and "that other files or versions share (6)" in r.stdout, r
    assert stat(store, m.at("f"))["evicted_bytes"] == 0
    os.unlink(m.at("g"))
    r = wait_until("what has gone to be shared no more", 20, lambda: (lambda e: e.returncode == 0 and e)(evict(store, m.at("f"), check=False)))
    assert "1 of 1 files" in r.stdout and "that other files or versions share (1)" in r.stdout, r
    assert stat(store, m.at("f"))["evicted_bytes"] == SIZE - MIB
    jobs = json.loads(store.fpctl("drain", "show", "--json", m.path).stdout)["jobs"]
    assert {j["kind"] for j in jobs} == {"files", "evict"}
    done = [j for j in jobs if j["kind"] == "evict" and j["state"] == "done"]
    assert [(j["bytes"], j["bytes_done"]) for j in done] == [(SIZE, SIZE - MIB)]


@pytest.fixture
def two_stores(new_store, tmp_path):
    """Jobs have names of files in common, and each its own store, and one target: what the first has evicted must not become the second's."""
    stores, target = [], str(tmp_path / "target")
    os.mkdir(target)
    for k in range(2):
        s = new_store()
        s.expect("another store|target|evicted to|can't fetch")
        s.start_manager()
        s.add_benefactor()
        m = s.add_mount()
        for name in ("f", "g", f"own{k}"):
            write_file(m.at(name), content(k, 0, SIZE))
        stores.append(s)
    drain(stores[0], stores[0].mounts[0].path, to=target)
    return stores[0], stores[1], target


def needs_entries(target):
    return sorted(n for n in os.listdir(os.path.join(target, ".fp-drain")) if "-needs-" in n)


def drain_of_all(store, target, *more):
    return store.fpctl("drain", store.mounts[0].path, f"--to={target}", "--wait", "--timeout=60s", *more, check=False, seconds=80)


@pytest.mark.short
def test_who_replaces_files_of_another_store_is_told(two_stores):
    """Neither has evicted any: the last one has the names, and says so, in the line of --wait, in drain show, and in the log; as often as it has done it."""
    first, second, target = two_stores
    r = drain_of_all(second, target)
    assert r.returncode == 0 and "3 of 3 files" in r.stdout and "; 2 files of another store were replaced" in r.stdout, r
    assert [j["files_replaced"] for j in json.loads(second.fpctl("drain", "show", "--json").stdout)["jobs"]] == [2]
    assert "2 files of another store were replaced" in second.fpctl("drain", "show").stdout
    assert "2 files of the target that another store had drained there have given way" in second.manager.text()
    r = drain_of_all(second, target, "--again")
    assert r.returncode == 0 and "another store" not in r.stdout, r
    r = first.fpctl("drain", first.mounts[0].at("g"), f"--to={target}", "--wait", "--overwrite", "--timeout=60s", seconds=80)
    assert "; 1 file of another store was replaced" in r.stdout, r
    for name, k in (("own0", 0), ("own1", 1), ("g", 0), ("f", 1)):
        assert_same(read(os.path.join(target, name)), content(k, 0, SIZE))
    r = drain_of_all(second, target)  # it looks at what it has there
    assert r.returncode == 0 and "; 1 file of another store was replaced" in r.stdout, r
    assert_same(read(os.path.join(target, "g")), content(1, 0, SIZE))


@pytest.mark.short
def test_what_another_store_has_evicted_is_not_replaced(two_stores):
    first, second, target = two_stores
    assert needs_entries(target) == []
    evict(first, first.mounts[0].at("f"))
    assert len(needs_entries(target)) == 1
    r = drain_of_all(second, target)
    assert r.returncode == 4 and "another store" in r.stdout and "2 of 3 files" in r.stdout and "--overwrite" in r.stdout, r
    for name, k in (("own1", 1), ("g", 1), ("f", 0)):
        assert_same(read(os.path.join(target, name)), content(k, 0, SIZE))
    assert_same(read(first.mounts[0].at("f")), content(0, 0, SIZE))
    # what has come back, and its copy, are replaced when the file is not in that store any more
    os.unlink(first.mounts[0].at("f"))
    wait_until("the first store to need nothing there", 60, lambda: needs_entries(target) == [])
    drain(second, second.mounts[0].at("f"), to=target)
    assert_same(read(os.path.join(target, "f")), content(1, 0, SIZE))


def test_what_another_store_has_evicted_is_replaced_when_that_is_said(two_stores):
    first, second, target = two_stores
    evict(first, first.mounts[0].at("f"))
    r = drain_of_all(second, target, "--overwrite")
    assert r.returncode == 0, r
    assert_same(read(os.path.join(target, "f")), content(1, 0, SIZE))
    with pytest.raises(OSError) as e:
        read(first.mounts[0].at("f"))
    assert e.value.errno == errno.EIO
    wait_until("it to be said", 30, lambda: "not there any more" in first.fpctl("status", check=False).stdout)
    assert_same(read(first.mounts[0].at("own0")), content(0, 0, SIZE))


def test_what_a_store_that_is_removed_has_evicted_is_replaced(two_stores):
    """As by jobs that drain to one directory one after the other, each with a store of its own."""
    first, second, target = two_stores
    evict(first, first.mounts[0].at("f"))
    assert os.listdir(os.path.join(target, ".fp-drain"))
    first.fpctl("drain", "release")
    assert not os.listdir(os.path.join(target, ".fp-drain"))
    for d in reversed(first.daemons()):
        d.term()
    r = drain_of_all(second, target)
    assert r.returncode == 0, r
    assert_same(read(os.path.join(target, "f")), content(1, 0, SIZE))


def test_a_target_that_hangs_is_not_waited_for_for_ever(new_store, targets):
    s = new_store()
    s.expect("target|drain job")
    s.up(benefactors=1, mounts=1)
    target = targets.slow()
    m = s.mounts[0]
    write_file(m.at("f"), content(0, 0, SIZE))
    s.fpctl("drain", m.at("f"), f"--to={target.path}", "--wait", "--timeout=60s", seconds=80)
    evict(s, m.at("f"))
    target.hang()
    r = s.fpctl("drain", "release", "--timeout=2s", check=False, seconds=30)
    assert r.returncode == 3 and target.path in r.stderr and "--overwrite" in r.stderr, r
    target.resume()
    s.fpctl("drain", "release", "--timeout=60s", seconds=80)
    assert not [n for n in os.listdir(os.path.join(target.path, ".fp-drain")) if "needs" in n]


def test_a_policy_says_that_all_is_replaced(two_stores):
    first, second, target = two_stores
    evict(first, first.mounts[0].at("f"))
    second.fpctl("drain", "set", f"to={target} every=none all=yes overwrite=yes")
    os.utime(second.mounts[0].at("f"))
    with open(second.mounts[0].at("f"), "ab") as f:
        f.write(b"more")
    wait_until("it to be drained by itself", 60, lambda: os.stat(os.path.join(target, "f")).st_size == SIZE + 4)
    assert_same(read(os.path.join(target, "f")), content(1, 0, SIZE) + b"more")


@pytest.mark.parametrize("how", ["removed", "changed", "changed-quietly", "cut"])
def test_a_copy_that_is_another_is_an_error(store, target, how):
    store.expect("evicted to|target|can't fetch")
    m = store.mounts[0]
    evicted(store, m.at("f"), target)
    there = os.path.join(target, "f")
    s = os.stat(there)
    if how == "removed":
        os.unlink(there)
    elif how == "cut":
        os.truncate(there, SIZE - 1)
    else:
        with open(there, "r+b") as f:
            f.seek(100)
            f.write(b"other bytes")
        if how == "changed-quietly":
            os.utime(there, ns=(s.st_atime_ns, s.st_mtime_ns))
    began = time.monotonic()
    with pytest.raises(OSError) as e:
        read(m.at("f"))
    assert e.value.errno == 5
    assert time.monotonic() - began < 20 * SLOW
    assert any(there in line for line in m.text().splitlines()), "the log says which file it is"
    damaged = wait_until("the damage to be shown", 20, lambda: json.loads(store.fpctl("status", "--json").stdout)["damaged"])
    assert "target" in damaged[0]["reason"], damaged
    r = evict(store, m.at("f"), check=False)
    assert r.returncode == 4, "its level is not claimed any more"


def test_a_copy_that_was_there_again_reads(store, target):
    """What is read is compared, so an error is none any more when the file is back."""
    store.expect("evicted to|target|can't fetch")
    m = store.mounts[0]
    evicted(store, m.at("f"), target)
    os.rename(os.path.join(target, "f"), os.path.join(target, "aside"))
    with pytest.raises(OSError):
        read(m.at("f"))
    os.rename(os.path.join(target, "aside"), os.path.join(target, "f"))
    assert_same(read(m.at("f")), content(1, 0, SIZE))
    wait_until("no damage", 20, lambda: not json.loads(store.fpctl("status", "--json").stdout)["damaged"])


def test_files_are_staged_in_before_they_are_read(store, target):
    m = store.mounts[0]
    os.makedirs(m.at("old/deep"))
    names = ["old/a", "old/b", "old/deep/c", "old/empty"]
    for i, name in enumerate(names):
        write_file(m.at(name), b"" if "empty" in name else content(i, 0, SIZE + i))
    drain(store, m.at("old"), to=target)
    evict(store, m.at("old"))
    r = store.fpctl("stage-in", m.at("old"), "--timeout=60s", seconds=80)
    assert "done: 4 of 4 files" in r.stdout and "staged in" in r.stdout, r
    os.rename(os.path.join(target, "old"), os.path.join(target, "aside"))
    for i, name in enumerate(names):
        assert stat(store, m.at(name))["evicted_bytes"] == 0
        assert_same(read(m.at(name)), b"" if "empty" in name else content(i, 0, SIZE + i), name)


def test_staging_in_fails_for_the_file_that_is_gone(store, target):
    store.expect("drain job|evicted in favour")
    m = store.mounts[0]
    os.makedirs(m.at("old"))
    for i in range(3):
        write_file(m.at(f"old/{i}"), content(i, 0, SIZE))
    drain(store, m.at("old"), to=target)
    evict(store, m.at("old"))
    os.unlink(os.path.join(target, "old/1"))
    r = store.fpctl("stage-in", m.at("old"), "--timeout=60s", check=False, seconds=80)
    assert r.returncode == 4 and "old/1" in r.stdout, r
    for i in (0, 2):
        assert_same(read(m.at(f"old/{i}")), content(i, 0, SIZE))


def test_what_aux_apps_have_coded_and_shared_goes(new_store, target):
    """Compressed, and de-duplicated: three files with the same half, each with windows rewritten in their middle."""
    s = new_store().up(benefactors=1, mounts=0)
    m = s.add_mount("--auxapp=dedup", "--auxapp=compress")
    same = (b"0123456789abcdef" * 48 + content(1, 0, 256)) * (3 * MIB // 1024)
    want = {}
    for i in range(3):
        want[f"f{i}"] = same + (content(10 + i, 0, 512) + bytes(512)) * (3 * MIB // 1024)
        write_file(m.at(f"f{i}"), want[f"f{i}"], sync=True)
    with open(m.at("f2"), "r+b") as f:
        f.seek(4 * MIB + 1000)
        f.write(b"x" * 70000)
    want["f2"] = want["f2"][:4 * MIB + 1000] + b"x" * 70000 + want["f2"][4 * MIB + 71000:]
    drain(s, *(m.at(f) for f in want), to=target)
    was = used(s)
    r = evict(s, *(m.at(f) for f in want))
    assert "3 of 3 files" in r.stdout and "stays here" not in r.stdout, r
    for f in want:
        assert stat(s, m.at(f))["evicted_bytes"] == len(want[f])
    wait_until("the space to be free", 30, lambda: used(s) < was // 10)
    other = s.add_mount()
    for f, data in want.items():
        assert_same(read(m.at(f)), data, f)
        assert_same(read(other.at(f)), data, f)
    assert_same(read(os.path.join(target, "f2")), want["f2"])
    r = evict(s, *(m.at(f) for f in want))
    assert "3 of 3 files" in r.stdout, r
    assert_same(read(other.at("f2")), want["f2"])


def test_a_policy_makes_room_of_what_is_compressed(new_store, target):
    s = new_store().up(benefactors=1, size="64MiB", mounts=0, pool="16MiB")
    m = s.add_mount("--auxapp=compress", "--pool=16MiB")
    s.fpctl("drain", "set", f"to={target} keep=1")
    want = {}
    for i in range(1, 9):
        os.makedirs(m.at(f"run/chk_{i:04}"))
        want[i] = (content(i, 0, 512) + bytes(512)) * (24 * 1024)
        write_file(m.at(f"run/chk_{i:04}/rank_0"), want[i], sync=True)
        write_file(m.at(f"run/chk_{i:04}/DONE"), b"")
    for i in (1, 2, 5, 8):
        assert_same(read(m.at(f"run/chk_{i:04}/rank_0")), want[i], f"set {i}")
