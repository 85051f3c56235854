"""What aux-apps have coded, what files share, and what was rewritten in pieces: lost here and drained, it is read from the target, and what is said of it is true."""

import json
import os

import pytest

from harness.daemons import wait_until
from harness.files import assert_same, content, write_file

MIB = 1 << 20
HALF = 3 * MIB
SAME = (b"0123456789abcdef" * 48 + content(1, 0, 256)) * (HALF // 1024)


def data_of(step, rank):
    """Half of it is in all files, the rest can be compressed by half."""
    return SAME + (content(10 * step + rank, 0, 512) + bytes(512)) * (HALF // 1024) + content(step, 0, 777)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def drained_sets(store, target):
    """Two sets in the target by a policy; a window of one file of each is in pieces."""
    m = store.add_mount("--auxapp=dedup", "--auxapp=compress")
    store.fpctl("drain", "set", f"to={target}")
    want = {}
    for step in (1, 2):
        top = m.at(f"run/chk_{step}")
        os.makedirs(top)
        for rank in range(2):
            path = os.path.join(top, f"rank_{rank}")
            want[path] = data_of(step, rank)
            write_file(path, want[path], sync=True)
        with open(path, "r+b") as f:
            f.seek(4 * MIB + 1000)
            f.write(b"x" * 70000)
        want[path] = want[path][:4 * MIB + 1000] + b"x" * 70000 + want[path][4 * MIB + 71000:]
        store.fpctl("checkpoint", "commit", top, seconds=40)
        store.fpctl("wait", top, "--level=drained", "--timeout=60s", seconds=80)
    return m, want


def lose_by_kill(store):
    b = store.benefactors[0]
    b.kill()
    b.start()


def lose_segments(store):
    b = store.benefactors[0]
    b.kill()
    for name in os.listdir(os.path.join(b.dir, "segments")):
        os.unlink(os.path.join(b.dir, "segments", name))
    b.start()


def lose_under_it(store):
    """It goes on, and does not know."""
    top = os.path.join(store.benefactors[0].dir, "segments")
    for name in os.listdir(top):
        with open(os.path.join(top, name), "r+b") as f:
            size = os.fstat(f.fileno()).st_size
            f.truncate(0)
            f.truncate(size)


@pytest.mark.limit(180)
@pytest.mark.parametrize("backend,lose", [("memory", lose_by_kill), ("dir", lose_segments), ("dir", lose_under_it)], ids=["memory", "removed", "emptied"])
def test_all_of_it_is_read_from_the_target(new_store, backend, lose):
    store = new_store().up(benefactors=1, mounts=0, backend=backend)
    target = store.make_dir("target")
    m, want = drained_sets(store, target)
    m.unmount()
    store.expect("lacks .* chunks|benefactor|can't be read|segment|damaged|lost")
    lose(store)
    m.start()
    for path, data in want.items():  # at once, whatever is known of it by now
        assert_same(read(path), data, path)
    top = m.at("run/chk_2")
    wait_until("the newer set to be the one to restart from", 30, lambda: store.fpctl("checkpoint", "latest", m.at("run"), check=False).stdout.strip() == top)
    for step in (1, 2):
        store.fpctl("wait", m.at(f"run/chk_{step}"), "--level=drained", "--timeout=30s", seconds=50)
    sets = json.loads(store.fpctl("checkpoints", m.at("run"), "--json").stdout)["checkpoints"]
    assert {s["level"] for s in sets} == {"drained"}, sets
    assert store.status()["damaged"] == []
    assert {os.getxattr(p, "user.fp.level") for p in want} == {b"drained"}
    # and all of it is here again
    store.fpctl("stage-in", m.at("run"), "--timeout=60s", seconds=80)
    for path in want:
        s = json.loads(store.fpctl("stat", path, "--json").stdout)
        assert s["evicted_bytes"] == 0 and s["stored_bytes"] > 0, s
    os.rename(target, target + "-aside")
    m.unmount()
    m.start()
    for path, data in want.items():
        assert_same(read(path), data, path)
    os.rename(target + "-aside", target)


@pytest.mark.limit(120)
def test_a_node_that_is_gone_is_waited_for_once(new_store):
    """What was coded on a benefactor that does not come back."""
    store = new_store().up(benefactors=1, mounts=0)
    target = store.make_dir("target")
    m, want = drained_sets(store, target)
    store.add_benefactor()
    m.unmount()
    store.expect("benefactor|connection|can't be read")
    store.benefactors[0].kill()
    m.start()
    for path, data in want.items():
        assert_same(read(path), data, path)
    for step in (1, 2):
        store.fpctl("wait", m.at(f"run/chk_{step}"), "--level=drained", "--timeout=30s", seconds=50)


@pytest.mark.limit(120)
def test_a_copy_that_is_another_by_now_is_none(new_store):
    """Nothing else is read, and what is lost is said to be."""
    store = new_store().up(benefactors=1, mounts=0, backend="memory")
    target = store.make_dir("target")
    m, want = drained_sets(store, target)
    m.unmount()
    store.expect("lacks .* chunks|benefactor|can't be read|can't fetch|is not what was drained|damaged|lost")
    with open(os.path.join(target, "run/chk_2/rank_0"), "r+b") as f:
        f.write(b"other")
    lose_by_kill(store)
    m.start()
    gone = m.at("run/chk_2/rank_0")
    for path, data in want.items():
        if path == gone:
            with pytest.raises(OSError):
                read(path)
        else:
            assert_same(read(path), data, path)
    wait_until("that to be known", 30, lambda: {d["path"].lstrip("/") for d in store.status()["damaged"]} == {"run/chk_2/rank_0"})
    wait_until("the older set to be the one to restart from", 30, lambda: store.fpctl("checkpoint", "latest", m.at("run"), check=False).stdout.strip() == m.at("run/chk_1"))
    r = store.fpctl("stage-in", gone, "--timeout=60s", check=False, seconds=80)
    assert r.returncode == 4 and ("no target has a copy" in r.stdout or "not there any more" in r.stdout), r
