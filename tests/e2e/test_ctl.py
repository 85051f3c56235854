"""fpctl: what it says, how it finds its store, that it never waits for ever."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from harness.daemons import SLOW, bin_path, wait_until
from harness.files import content, pwrite_all, write_file

MIB = 1 << 20


def fpctl(*args, cwd="/", env=None, seconds=15):
    e = {k: v for k, v in os.environ.items() if not k.startswith("FP_")}
    e.update(env or {})
    return subprocess.run([bin_path("fpctl"), *args], capture_output=True, text=True, timeout=seconds * SLOW, cwd=cwd, env=e)


@pytest.mark.short
def test_status_says_what_is_there(store):
    write_file(store.mounts[0].at("f"), content(1, 0, 5 * MIB), sync=True)
    s = store.wait_status("a report of the mount", 3, lambda s: s["mounts"] and s["mounts"][0]["pool_bytes"] and s)
    assert s["manager"]["address"] == store.addr and s["manager"]["pid"] == store.manager.pid
    assert s["manager"]["uptime_ms"] > 0
    assert s["inodes"] == 2 and s["chunks"] == 5 and s["slices"] == 5
    assert 5 * MIB <= s["space"]["used_bytes"] < 6 * MIB
    m = s["mounts"][0]
    assert m["mountpoint"] == store.mounts[0].path and m["pid"] == store.mounts[0].pid and m["connected"]
    assert m["pool_bytes"] == 64 * MIB and m["dirty_bytes"] == 0 and m["uncommitted_bytes"] == 0
    names = {f["name"] for f in m["features"]}
    assert any("passthrough" in n for n in names) and any("uring" in n for n in names)
    assert all(f["in_use"] or f["why_not"] for f in m["features"]), "why not is said"
    assert [b["state"] for b in s["benefactors"]] == ["ok", "ok"]
    assert s["damaged"] == []
    text = store.fpctl("status").stdout
    for word in ("MOUNTS", "BENEFACTORS", "FUSE FEATURES", store.addr, store.mounts[0].path, "2 of 2 benefactors up"):
        assert word in text
    assert "\033" not in text, "no colours where it is no terminal"


def test_mounts_say_of_which_store_they_are(store, new_store):
    """So fpctl knows of two mounts whether they are of one (tests/unit/test_ctl_find.c)."""
    second, other = store.add_mount(), new_store().up(benefactors=1)
    said = [os.getxattr(m.path, "user.fp.store").decode() for m in (store.mounts[0], second, other.mounts[0])]
    assert said[0] == said[1] != said[2] and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", said[0]), said
    assert "user.fp.store" not in os.listxattr(second.path)


def test_status_shows_options_that_matter_to_other_mounts(manager, benefactors):
    """And warns, in the manager's log too, where --strict is not the same for all."""
    benefactors(1)
    s = manager.store
    a = s.add_mount("--strict=off", "--close=publish", "--locks=store")

    def mounts(n):
        return s.wait_status("the options of the mounts", 5, lambda s: len(s["mounts"]) == n and all(m["close"] for m in s["mounts"]) and s)
    got = mounts(1)
    assert [(m["close"], m["strict"], m["locks"]) for m in got["mounts"]] == [("publish", False, "store")] and not got["strict_differs"]
    b = s.add_mount("--strict=off", "--close=sync", "--locks=local")
    assert not mounts(2)["strict_differs"] and "--strict" not in s.fpctl("status").stdout and "--strict" not in manager.text()
    c = s.add_mount("--strict=on", "--close=behind", "--locks=store")
    got = mounts(3)
    assert {m["mountpoint"]: (m["close"], m["strict"], m["locks"]) for m in got["mounts"]} == {
        a.path: ("publish", False, "store"), b.path: ("sync", False, "local"), c.path: ("behind", True, "store")}
    assert got["strict_differs"]
    text = s.fpctl("status").stdout
    assert re.search(r"--strict +is not the same for all mounts", text)
    assert re.search(rf"{re.escape(c.path)} .* connected +behind +on +store ", text) and re.search(rf"{re.escape(b.path)} .* connected +sync +off +local ", text)
    manager.wait_log(rf"WARN.*{re.escape(c.path)} has --strict and .*({re.escape(a.path)}|{re.escape(b.path)}) has not")
    os.mkdir(a.at("d"))
    os.setxattr(a.at("d"), "user.fp.strict", b"1")
    for name, strict in (("d/f", True), ("f", False)):
        write_file(a.at(name), b"x")
        assert json.loads(s.fpctl("stat", a.at(name), "--json").stdout)["strict"] == strict
        assert ("every read sees every write" in s.fpctl("stat", a.at(name)).stdout) == strict


def test_status_shows_bytes_at_risk(store):
    fd = os.open(store.mounts[0].at("f"), os.O_WRONLY | os.O_CREAT, 0o644)
    pwrite_all(fd, content(1, 0, 300000), 0)
    dirty, uncommitted = map(int, os.getxattr(store.mounts[0].at("f"), "user.fp.at_risk").split())
    assert dirty + uncommitted > 0
    at = [300000]

    def writing(s):
        """Some more bytes all the time: what nobody adds to is safe after a moment."""
        at[0] += pwrite_all(fd, content(1, at[0], 5000), at[0])
        return s["mounts"][0]["dirty_bytes"] + s["mounts"][0]["uncommitted_bytes"] > 0
    store.wait_status("the bytes at risk", 5, writing)
    os.fsync(fd)
    assert os.getxattr(store.mounts[0].at("f"), "user.fp.at_risk") == b"0 0"
    store.wait_status("nothing at risk", 3, lambda s: s["mounts"][0]["dirty_bytes"] + s["mounts"][0]["uncommitted_bytes"] == 0)
    os.close(fd)


@pytest.mark.short
def test_stat_tells_where_chunks_lie(store):
    path = store.mounts[0].at("dir", "f")
    os.mkdir(store.mounts[0].at("dir"))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o640)
    pwrite_all(fd, content(1, 0, 3 * MIB + 5), 0)
    pwrite_all(fd, content(1, 0, 100), 10 * MIB)
    os.fsync(fd)
    os.close(fd)
    r = json.loads(fpctl("stat", path, "--json").stdout)
    assert (r["path"].lstrip("/"), r["size_bytes"], r["kind"], r["mode"]) == ("dir/f", 10 * MIB + 100, "regular file", 0o640)
    assert r["chunks"] == 5 and r["chunk_size_bytes"] == MIB and r["at_risk"] == {"dirty_bytes": 0, "uncommitted_bytes": 0}
    at = 0
    for x in r["ranges"]:
        assert x["offset_bytes"] == at, "ranges follow each other"
        at += x["length_bytes"]
        assert x["hole"] or (x["benefactor"] in (1, 2) and x["node"] == "node0" and x["state"] == "ok")
    assert at == 10 * MIB + 100
    assert [x["length_bytes"] for x in r["ranges"] if x["hole"]] == [7 * MIB - 5]
    each = json.loads(fpctl("stat", path, "--json", "--all").stdout)["ranges"]
    assert sum(not x["hole"] for x in each) == 5 and len({x["chunk"] for x in each if not x["hole"]}) == 5
    text = fpctl("stat", path).stdout
    assert "hole" in text and "node0" in text
    assert fpctl("stat", store.mounts[0].path).returncode == 0, "the root"
    assert json.loads(fpctl("stat", store.mounts[0].at("dir"), "--json").stdout)["kind"] == "directory"
    r = fpctl("stat", store.mounts[0].at("none"))
    assert r.returncode == 1 and r.stderr.count("\n") == 1 and "none" in r.stderr


def test_stat_of_a_file_of_many_slices(store):
    path = store.mounts[0].at("f")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    for i in range(5000):
        os.pwrite(fd, b"x", i * 70000)
    os.fsync(fd)
    os.close(fd)
    r = json.loads(fpctl("stat", path, "--json", "--all", seconds=30).stdout)
    data = [x for x in r["ranges"] if not x["hole"]]
    assert len(data) == r["slices"] == 5000
    assert [x["offset_bytes"] for x in data] == [i * 70000 for i in range(5000)]


def test_df_and_benefactors(store):
    out = json.loads(fpctl("df", store.mounts[0].path, "--json").stdout)
    v = os.statvfs(store.mounts[0].path)
    assert out["total_bytes"] == v.f_blocks * v.f_frsize == 2 << 30
    b = json.loads(fpctl("benefactors", store.mounts[0].path, "--json").stdout)["benefactors"]
    assert [x["id"] for x in b] == [1, 2]
    for command in ("df", "benefactors"):
        lines = fpctl(command, store.mounts[0].path).stdout.splitlines()
        assert len(lines) >= 2 and all(len(x) == len(x.rstrip()) for x in lines)


def test_df_says_what_df_1_says_while_files_are_deleted(store):
    """The benefactors are halted, so that deleted chunks stay for as long as it takes to look."""
    path = store.mounts[0].path
    write_file(store.mounts[0].at("f"), content(1, 0, 40 * MIB), sync=True)

    def both():
        out = json.loads(fpctl("df", path, "--json").stdout)
        v = os.statvfs(path)
        assert out["used_bytes"] == (v.f_blocks - v.f_bfree) * v.f_frsize
        assert out["free_bytes"] == v.f_bfree * v.f_frsize
        return out
    assert both()["used_bytes"] >= 40 * MIB
    for b in store.benefactors:
        b.send(signal.SIGSTOP)
    try:
        os.unlink(store.mounts[0].at("f"))
        seen = wait_until("what is being deleted", 2, lambda: (lambda o: o["deleting_bytes"] and o)(both()))
        assert seen["used_bytes"] >= seen["deleting_bytes"] >= 40 * MIB
    finally:
        for b in store.benefactors:
            b.send(signal.SIGCONT)
    store.wait_status("nothing to be left", 5, lambda s: s["space"]["used_bytes"] == 0)
    assert both()["deleting_bytes"] == 0


def test_manager_that_listens_on_all_addresses(new_store):
    """0.0.0.0 is no address that anybody could use: the one that answered is shown."""
    s = new_store()
    s.start_manager("--listen=0.0.0.0:0")
    where = "127.0.0.1:" + s.addr.rsplit(":")[1]
    asked = [f"--manager={where}", f"--key={s.key}"]
    assert json.loads(fpctl("df", "--json", *asked).stdout)["manager"] == where
    assert json.loads(fpctl("status", "--json", *asked).stdout)["manager"]["address"] == where
    for command in ("df", "status"):
        text = fpctl(command, *asked).stdout
        assert where in text and "0.0.0.0" not in text


@pytest.mark.short
def test_finds_its_store(new_store):
    a, b = new_store().up(benefactors=1), new_store().up(benefactors=1)
    os.mkdir(a.mounts[0].at("sub"))

    def store_of(*args, **kw):
        r = fpctl(*args, "--json", **kw)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)["manager"]["address"]
    assert store_of("status", a.mounts[0].path) == a.addr
    assert store_of("status", cwd=b.mounts[0].path) == b.addr
    assert store_of("status", cwd=a.mounts[0].at("sub")) == a.addr
    env = {"FP_MANAGER": b.addr, "FP_KEY": b.key}
    assert store_of("status", a.mounts[0].path, env=env) == a.addr, "a path is stronger than the environment"
    assert store_of("status", f"--manager={b.addr}", f"--key={b.key}", cwd=a.mounts[0].path) == b.addr
    link = os.path.join(a.dir, "link")
    os.symlink(b.mounts[0].path, link)
    assert store_of("status", link) == b.addr
    r = fpctl("status", "/usr")
    assert r.returncode == 1 and "/usr" in r.stderr and r.stderr.count("\n") == 1


def test_bounded_when_the_manager_is_silent(store):
    store.manager.freeze()
    try:
        started = time.monotonic()
        r = fpctl("status", f"--manager={store.addr}", f"--key={store.key}", "--timeout=1s")
        assert r.returncode == 1 and r.stderr.count("\n") == 1
        assert time.monotonic() - started < 4 * SLOW
    finally:
        store.manager.send(signal.SIGCONT)


def test_bounded_when_the_mount_hangs(store):
    store.mounts[0].freeze()
    try:
        started = time.monotonic()
        r = fpctl("status", store.mounts[0].path, "--timeout=1s")
        assert r.returncode == 1 and r.stderr.count("\n") == 1, r.stderr
        assert time.monotonic() - started < 4 * SLOW
    finally:
        store.mounts[0].send(signal.SIGCONT)


def test_dead_mount(store):
    store.mounts[0].kill()
    r = fpctl("status", store.mounts[0].path)
    assert r.returncode == 1 and r.stderr.count("\n") == 1


def test_colours_on_a_terminal_only(store):
    def on_terminal(env):
        pid, fd = pty.fork()
        if pid == 0:
            os.environ.update(env)
            os.execv(bin_path("fpctl"), ["fpctl", "status", f"--manager={store.addr}", f"--key={store.key}"])
        out = b""
        try:
            while data := os.read(fd, 4096):
                out += data
        except OSError:
            pass
        os.waitpid(pid, 0)
        return out
    assert b"\033[" in on_terminal({"TERM": "xterm", "NO_COLOR": ""})
    assert b"\033[" not in on_terminal({"TERM": "xterm", "NO_COLOR": "1"})
    assert b"\033[" not in on_terminal({"TERM": "dumb", "NO_COLOR": ""})


def test_names_cannot_reach_the_terminal(store):
    evil = store.mounts[0].at("\033[2Jevil\n")
    write_file(evil, b"x", sync=True)
    r = fpctl("stat", evil)
    assert r.returncode == 0 and "\033" not in r.stdout
    raw = os.fsencode(store.mounts[0].path) + b"/\xff\xfe"
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    r = subprocess.run([bin_path("fpctl"), "stat", raw, "--json"], capture_output=True, timeout=15)
    assert r.returncode == 0 and json.loads(r.stdout)["path"].endswith("\\xff\\xfe")


def test_full_output_device(store):
    with open("/dev/full", "w") as full:
        r = subprocess.run([bin_path("fpctl"), "status", f"--manager={store.addr}", f"--key={store.key}"], stdout=full,
                           stderr=subprocess.PIPE, text=True, timeout=15)
    assert r.returncode == 1 and r.stderr.count("\n") == 1


@pytest.mark.short
def test_stop_ends_everything(store):
    write_file(store.mounts[0].at("f"), content(1, 0, 5 * MIB))
    r = fpctl("stop", store.mounts[0].path, seconds=40)
    assert r.returncode == 0, r.stderr
    for d in store.daemons():
        d.ended_as_told = True
        assert d.wait(10) == 0, d.name
    assert fpctl("status", f"--manager={store.addr}", f"--key={store.key}").returncode == 1
    store.manager.start()
    for d in (*store.benefactors, *store.mounts):
        d.start()
    assert open(store.mounts[0].at("f"), "rb").read() == content(1, 0, 5 * MIB)


LOCKER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
print("begun", flush=True)
if sys.argv[2] == "flock":
    fcntl.flock(fd, fcntl.LOCK_SH)
else:
    fcntl.lockf(fd, fcntl.LOCK_EX, int(sys.argv[4]), int(sys.argv[3]))
print("had", flush=True)
sys.stdin.read()
"""


def locker(path, *what):
    p = subprocess.Popen([sys.executable, "-c", LOCKER, path, *what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "begun\n"
    return p


@pytest.mark.short
@pytest.mark.limit(60)
def test_locks_says_who_holds_and_who_waits(new_store):
    s = new_store().up(mounts=2, mount_args=("--close=publish", "--locks=store"))
    a, b = s.mounts
    assert "no locks" in s.fpctl("locks").stdout and json.loads(s.fpctl("locks", "--json").stdout) == {"locks": [], "more": False}
    os.mkdir(a.at("d"))
    for name in ("d/f", "log"):
        write_file(a.at(name), b"x" * 100)
    procs = [locker(a.at("d/f"), "fcntl", "10", "20")]
    assert procs[0].stdout.readline() == "had\n"
    procs.append(locker(b.at("d/f"), "fcntl", "0", "0"))
    procs.append(locker(b.at("log"), "flock"))
    assert procs[2].stdout.readline() == "had\n"
    fd = os.open(a.at("log"), os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, b"end")

        def listed(path=None):
            got = json.loads(s.fpctl("locks", *([path] if path else []), "--json").stdout)
            assert not got["more"]
            return [(k["path"], k["kind"], k["state"], k["exclusive"], k["start_bytes"], k["end_bytes"], k["mountpoint"], k["pid"]) for k in got["locks"]]
        file = [("/d/f", "fcntl", "held", True, 10, 29, a.path, procs[0].pid), ("/d/f", "fcntl", "waits", True, 0, None, b.path, procs[1].pid)]
        log = [("/log", "flock", "held", False, 0, None, b.path, procs[2].pid), ("/log", "append", "held", True, 0, None, a.path, None)]
        wait_until("all to be there", 10, lambda: listed() == file + log)
        assert listed(b.at("d")) == listed(a.at("d/f")) == file and listed(b.at("log")) == log
        text = s.fpctl("locks").stdout.splitlines()
        assert len(text) == 5 and "/d/f" in text[1] and "10-29" in text[1] and a.path in text[1] and "waits" in text[2] and "node0" in text[2]
        assert s.fpctl("locks", a.at("none"), check=False).returncode == 1
    finally:
        os.close(fd)
        for p in procs:
            p.stdin.close()
    for p in procs:
        assert p.wait(20) == 0
        p.stdout.close()
    wait_until("all to be gone", 10, lambda: listed() == [])
