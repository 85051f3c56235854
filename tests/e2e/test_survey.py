"""What waits rest on is looked at in the target: copies that were removed, changed, or replaced by another store."""

import os
import shutil
import time

import pytest

from harness.daemons import PACE, wait_until
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20
SIZE = 2 * MIB + 99


def wait(store, *args):
    return store.fpctl("wait", *args, "--timeout=60s", check=False, seconds=80)


def drained_set(store, target, *more, seed=0):
    """A complete set of three files, and its copy."""
    m = store.mounts[0]
    top = m.at("chk_0001")
    os.mkdir(top)
    for k in range(3):
        write_file(f"{top}/rank_{k}", content(seed + k, 0, SIZE), sync=True)
    store.fpctl("checkpoint", "commit", top, "--timeout=30s", seconds=50)
    store.fpctl("drain", top, f"--to={target}", "--now", "--wait", "--timeout=60s", *more, seconds=80)
    return top


def in_target(target, k):
    return os.path.join(target, "chk_0001", f"rank_{k}")


def forgotten():
    """What was found in the target is not taken for granted any more."""
    time.sleep(6 * PACE)


@pytest.fixture
def target(store):
    return store.make_dir("target")


@pytest.mark.short
def test_what_was_removed_is_drained_again_or_said(store, target):
    top = drained_set(store, target, "--verify")
    assert wait(store, "--level=verified", top).returncode == 0
    shutil.rmtree(os.path.join(target, "chk_0001"))
    forgotten()
    r = wait(store, "--level=verified", top)
    assert r.returncode == 4 and "not what was drained there any more" in r.stderr and "--to" in r.stderr, r
    assert os.getxattr(top, "user.fp.level") in (b"pool", b"local")
    r = wait(store, "--level=verified", f"--to={target}", top)
    assert r.returncode == 0, r
    for k in range(3):
        assert_same(read_file(in_target(target, k)), content(k, 0, SIZE))


def test_what_was_changed_is_drained_again(store, target):
    top = drained_set(store, target)
    with open(in_target(target, 1), "ab") as f:
        f.write(b"hello")
    whole = os.stat(in_target(target, 0)).st_ino
    forgotten()
    r = wait(store, "--level=drained", f"--to={target}", top)
    assert r.returncode == 0, r
    for k in range(3):
        assert_same(read_file(in_target(target, k)), content(k, 0, SIZE))
    assert os.stat(in_target(target, 0)).st_ino == whole  # what was as it should be stays


def test_what_another_store_has_replaced_is_drained_again(new_store, tmp_path):
    """Two jobs with the same names and one target: each has its bytes there when its wait ends."""
    target = str(tmp_path / "target")
    os.mkdir(target)
    stores = [new_store().up(benefactors=1, mounts=1) for _ in range(2)]
    tops = [drained_set(s, target, seed=10 * i) for i, s in enumerate(stores)]
    forgotten()
    for i in (0, 1, 0):
        r = wait(stores[i], "--level=drained", f"--to={target}", tops[i])
        assert r.returncode == 0, r
        for k in range(3):
            assert_same(read_file(in_target(target, k)), content(10 * i + k, 0, SIZE))
        forgotten()


def test_what_is_doubted_is_copied_again(store, target):
    """Bytes that have changed in the target, and neither size nor time says so."""
    top = drained_set(store, target, "--verify")
    with open(in_target(target, 1), "r+b") as f:
        was = os.fstat(f.fileno())
        f.seek(MIB)
        f.write(b"other bytes")
        f.flush()
        os.utime(f.fileno(), ns=(was.st_atime_ns, was.st_mtime_ns))
    args = ("drain", top, f"--to={target}", "--now", "--verify", "--wait", "--timeout=60s")
    store.fpctl(*args, seconds=80)
    assert os.stat(in_target(target, 1)).st_ino == was.st_ino
    store.fpctl(*args, "--again", seconds=80)
    for k in range(3):
        assert_same(read_file(in_target(target, k)), content(k, 0, SIZE))
    assert os.stat(in_target(target, 1)).st_ino != was.st_ino and os.getxattr(top, "user.fp.level") == b"verified"


def test_latest_names_only_what_is_there(store, target):
    first, second = drained_set(store, target), store.mounts[0].at("chk_0002")
    os.mkdir(second)
    write_file(f"{second}/rank_0", content(5, 0, SIZE), sync=True)
    store.fpctl("checkpoint", "commit", second, "--timeout=30s", seconds=50)
    store.fpctl("drain", second, f"--to={target}", "--now", "--wait", "--timeout=60s", seconds=80)

    def latest(*args):
        return store.fpctl("checkpoint", "latest", store.mounts[0].path, *args, check=False, seconds=40)
    assert latest("--level=drained").stdout == second + "\n"
    os.unlink(os.path.join(target, "chk_0002", "rank_0"))
    forgotten()
    r = latest("--level=drained")
    assert r.returncode == 0 and r.stdout == first + "\n" and "chk_0002 is passed over" in r.stderr, r
    assert not os.path.exists(os.path.join(target, "chk_0002", "rank_0"))  # nothing was begun
    shutil.rmtree(os.path.join(target, "chk_0001"))
    forgotten()
    r = latest("--level=drained")
    assert r.returncode == 3 and r.stdout == "" and "no complete checkpoint set" in r.stderr, r
    assert latest().stdout == second + "\n"


def test_another_copy_will_do(store, target):
    m, second = store.mounts[0], store.make_dir("second")
    write_file(m.at("file"), content(1, 0, SIZE))
    for to in (target, second):
        store.fpctl("drain", m.at("file"), f"--to={to}", "--now", "--wait", "--timeout=60s", seconds=80)
    os.unlink(os.path.join(target, "file"))
    forgotten()
    r = wait(store, "--level=drained", m.at("file"))
    assert r.returncode == 0, r
    assert os.listdir(target) in ([".fp-target", ".fp-drain"], [".fp-drain", ".fp-target"])
    r = wait(store, "--level=drained", f"--to={target}", m.at("file"))
    assert r.returncode == 0, r
    assert_same(read_file(os.path.join(target, "file")), content(1, 0, SIZE))
    wait_until("the level", 10, lambda: os.getxattr(m.at("file"), "user.fp.level") == b"drained")
