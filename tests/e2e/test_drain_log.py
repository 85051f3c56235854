"""Draining with layout=log: each benefactor writes a stream, nothing has the file's name until fpctl merge has made it, and then it is the file."""

import json
import os
import subprocess

import pytest

from harness.daemons import bin_path, wait_until
from harness.files import assert_same, content, write_file

MIB = 1 << 20


def drain(store, *paths, to, check=True, seconds=60):
    return store.fpctl("drain", *paths, "--layout=log", f"--to={to}", "--wait", f"--timeout={seconds}s", check=check, seconds=seconds + 20)


def merge(*args, check=True):
    """Without a store: neither manager nor key is told."""
    r = subprocess.run([bin_path("fpctl"), "merge", "--offline", *args], capture_output=True, text=True, timeout=120)
    assert not check or r.returncode == 0, r.stderr
    return r


def logs_below(path):
    return sorted(os.path.join(at, d) for at, dirs, _ in os.walk(path) for d in dirs if d.endswith(".fplog"))


def streams(log):
    names = os.listdir(log)
    assert "index" in names
    return [n for n in names if n != "index"]


def read(path):
    with open(path, "rb") as f:
        return f.read()


def test_a_policy_drains_sets_as_logs(new_store, target):
    """Each second set, as logs alone; it has no level by that, and can't be evicted; merged, it is what was written."""
    s = new_store()
    s.up(benefactors=2, mounts=1, manager_args=("--ckpt-quiet=500ms", "--ckpt-late=3s"))
    m = s.mounts[0]
    refused = s.fpctl("drain", "set", f"to={target} layout=log keep=1", check=False)
    assert refused.returncode == 1 and "never frees space" in refused.stderr, refused.stderr
    s.fpctl("drain", "set", f"to={target} layout=log every=2")

    def jobs():
        return json.loads(s.fpctl("drain", "show", "--json").stdout)["jobs"]

    for step in (1, 2):
        os.makedirs(m.at(f"run/chk_{step}"))
        for r in range(2):
            write_file(m.at(f"run/chk_{step}/rank_{r}"), content(10 * step + r, 0, 3 * MIB + r))
        done = m.at(f"run/chk_{step}")
        wait_until("the set", 30, lambda: s.fpctl("checkpoint", "latest", m.at("run"), check=False).stdout.strip() == done)
    wait_until("the drain", 60, lambda: [j["state"] for j in jobs()] == ["done"])
    assert logs_below(target) == [os.path.join(target, f"run/chk_2/rank_{r}.fplog") for r in range(2)]
    assert os.listdir(os.path.join(target, "run")) == ["chk_2"]
    kept = s.fpctl("evict", m.at("run/chk_2"), "--timeout=20s", check=False)
    assert kept.returncode == 4 and "not in a target" in kept.stdout + kept.stderr, kept
    merge(*logs_below(target))
    for r in range(2):
        assert_same(read(os.path.join(target, f"run/chk_2/rank_{r}")), content(20 + r, 0, 3 * MIB + r))


@pytest.mark.short
def test_a_directory_becomes_logs_and_these_the_files(store, target):
    m = store.mounts[0]
    os.makedirs(m.at("run/chk_0007"))
    files = {"run/chk_0007/rank_0": content(1, 0, 5 * MIB + 12345), "run/chk_0007/rank_1": content(2, 0, 19 * MIB), "run/small": b"x", "run/empty": b""}
    for name, data in files.items():
        write_file(m.at(name), data)
    with open(m.at("run/holes"), "wb") as f:
        f.truncate(40 * MIB)
        f.seek(7 * MIB + 5)
        f.write(b"middle")
    files["run/holes"] = bytes(7 * MIB + 5) + b"middle" + bytes(33 * MIB - 11)
    os.chmod(m.at("run/small"), 0o640)
    os.utime(m.at("run/small"), ns=(1_000_000_005, 2_000_000_007))
    os.setxattr(m.at("run/small"), "user.step", b"7")
    drain(store, m.at("run"), to=target)
    logs = logs_below(target)
    assert logs == sorted(os.path.join(target, n + ".fplog") for n in files)
    assert not os.listdir(os.path.join(target, ".fp-drain"))
    for name in files:  # nothing that a restart could take for the file
        assert not os.path.exists(os.path.join(target, name))
    merge(*logs, "--verify")
    for name, data in files.items():
        path = os.path.join(target, name)
        assert_same(read(path), data, name)
        s, t = os.stat(m.at(name)), os.stat(path)
        assert (s.st_size, s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns) == (t.st_size, t.st_mode, t.st_uid, t.st_gid, t.st_mtime_ns), name
    assert os.getxattr(os.path.join(target, "run/small"), "user.step") == b"7"
    assert os.stat(os.path.join(target, "run/holes")).st_blocks * 512 < 2 * MIB


def test_each_of_four_nodes_writes_one_stream(new_store):
    store = new_store()
    store.start_manager()
    for node in range(4):
        store.add_benefactor(node=node)
    for node in range(4):
        store.add_mount(node=node)
    target = store.make_dir("target")
    for piece in (MIB, 262144 + 4096, 5001):
        name, data = f"n1-{piece}", content(piece, 0, 9 * MIB + 12345)
        write_file(store.mounts[0].at(name), b"")
        for k, m in enumerate(store.mounts):  # pieces of any alignment: most windows are of several benefactors
            with open(m.at(name), "r+b", buffering=0) as f:
                for at in range(k * piece, len(data), 4 * piece):
                    f.seek(at)
                    f.write(data[at:at + piece])
        drain(store, store.mounts[0].at(name), to=target)
        log = os.path.join(target, name + ".fplog")
        assert len(streams(log)) == 4
        merge(log)
        assert_same(read(os.path.join(target, name)), data, name)


def test_a_log_is_no_copy_that_anything_is_evicted_for(store, target):
    m = store.mounts[0]
    write_file(m.at("f"), content(3, 0, 2 * MIB), sync=True)
    drain(store, m.at("f"), to=target)
    assert os.getxattr(m.at("f"), "user.fp.level") in (b"pool", b"local")
    before = os.listdir(os.path.join(target, "f.fplog"))
    r = store.fpctl("evict", m.at("f"), "--timeout=60s", check=False, seconds=80)
    assert r.returncode == 4, r.stdout + r.stderr
    assert os.listdir(os.path.join(target, "f.fplog")) == before
    os.rename(os.path.join(target, "f.fplog"), os.path.join(store.dir, "away"))  # nothing is read from it
    store.add_mount()
    assert_same(read(store.mounts[1].at("f")), content(3, 0, 2 * MIB))
    r = store.fpctl("wait", "--level=drained", "--timeout=3s", m.at("f"), check=False, seconds=30)
    assert r.returncode in (3, 4)  # there is no target of policies; a log is none


def test_what_is_drained_again_takes_the_place_of_the_log(store, target):
    m = store.mounts[0]
    log, file = os.path.join(target, "f.fplog"), os.path.join(target, "f")
    for n in (3, 1, 2):
        data = content(n, 0, n * 3 * MIB + n)
        write_file(m.at("f"), data)
        drain(store, m.at("f"), to=target)
        assert 1 <= len(streams(log)) <= 2  # of this drain, not of the one before
        assert not os.listdir(os.path.join(target, ".fp-drain"))
        assert n == 3 or merge(log, check=False).returncode == 1  # the file is there
        merge(log, "--force")
        assert_same(read(file), data)


def test_what_is_no_log_is_not_replaced(store, target):
    store.expect("drain job")
    m = store.mounts[0]
    os.mkdir(m.at("d"))
    for name in ("good", "bad", "worse"):
        write_file(m.at("d/" + name), name.encode())
    os.makedirs(os.path.join(target, "d/bad.fplog"))
    os.mkdir(os.path.join(target, "d/worse.fplog"))
    for name in ("index", "notes"):
        write_file(os.path.join(target, "d/worse.fplog", name), b"mine")
    r = drain(store, m.at("d"), to=target, check=False)
    assert r.returncode == 4 and "no log of a drained file" in r.stdout
    assert os.listdir(os.path.join(target, "d/bad.fplog")) == []
    assert read(os.path.join(target, "d/worse.fplog/index")) == b"mine"
    merge(os.path.join(target, "d/good.fplog"))
    assert read(os.path.join(target, "d/good")) == b"good"


def test_a_damaged_log_is_told_and_no_file_is_made(store, target):
    m = store.mounts[0]
    write_file(m.at("f"), content(5, 0, 3 * MIB))
    drain(store, m.at("f"), to=target)
    log = os.path.join(target, "f.fplog")
    stream = max((os.path.join(log, s) for s in streams(log)), key=os.path.getsize)
    half = os.path.getsize(stream) // 2
    with open(stream, "r+b") as f:
        f.seek(half)
        b = f.read(1)
        f.seek(half)
        f.write(bytes([b[0] ^ 4]))
    r = merge(log, check=False)
    assert r.returncode == 1 and "is damaged" in r.stderr
    assert sorted(n for n in os.listdir(target) if not n.startswith(".fp-")) == ["f.fplog"]
    os.truncate(stream, half)
    r = merge(log, check=False)
    assert r.returncode == 1 and "a part of it is missing" in r.stderr


def test_mistakes_are_named(store, target):
    m = store.mounts[0]
    write_file(m.at("f"), b"f")
    r = store.fpctl("drain", m.at("f"), "--layout=log", "--verify", f"--to={target}", check=False)
    assert r.returncode == 1 and "fpctl merge" in r.stderr
    r = store.fpctl("drain", m.at("f"), "--layout=lob", f"--to={target}", check=False)
    assert r.returncode == 2 and "log" in r.stderr
    r = merge(os.path.join(target, "f"), check=False)
    assert r.returncode == 1 and "--to" in r.stderr
    r = merge(os.path.join(target, "nothing.fplog"), check=False)
    assert r.returncode == 1 and "nothing.fplog" in r.stderr


def test_the_job_says_what_it_does(store, target):
    m = store.mounts[0]
    write_file(m.at("f"), content(8, 0, MIB))
    drain(store, m.at("f"), to=target)
    jobs = json.loads(store.fpctl("drain", "show", "--json").stdout)["jobs"]
    assert [(j["state"], j["files_done"], j["bytes_done"]) for j in jobs] == [("done", 1, MIB)]
