"""The examples and fpctl auxapps on real mounts: calls, messages, refusals, counters; what docs/AUXAPPS.md promises of them."""

import errno
import json
import math
import os
import re
import signal
import struct
import subprocess
import time

import pytest

from harness.aux import MIB, app, apps, example, host_pid, probe, text, unique, used, wait_app, wait_empty
from harness.daemons import bin_path, wait_until
from harness.files import assert_same, pwrite_all, read_file, write_file


@pytest.mark.short
def test_trace_sees_every_call(start, tmp_path):
    s = start(f"{example('trace')} file={tmp_path}/calls")
    m = s.mounts[0]
    write_file(m.at("f"), b"x" * 5000, sync=True)
    os.rename(m.at("f"), m.at("g"))
    os.mkdir(m.at("d"))
    os.setxattr(m.at("g"), "user.x", b"1")
    os.getxattr(m.at("g"), "user.x")
    os.symlink("g", m.at("l"))
    os.readlink(m.at("l"))
    os.link(m.at("g"), m.at("h"))
    os.truncate(m.at("g"), 7)
    os.listdir(m.path)
    with open(m.at("g"), "rb") as f:
        os.isatty(f.fileno())
    read_file(m.at("g"))
    os.unlink(m.at("g"))
    os.rmdir(m.at("d"))
    with pytest.raises(OSError):
        os.open(m.at("none"), os.O_RDONLY)
    names = ["create", "write", "fsync", "flush", "release", "rename", "mkdir", "setxattr", "getxattr", "symlink", "readlink", "link",
             "truncate", "opendir", "readdir", "open", "read", "unlink", "rmdir", "lookup", "getattr", "ioctl"]

    def lines():
        try:
            with open(tmp_path / "calls") as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []
    missing = []

    def complete():
        missing[:] = [n for n in names if not any(line.startswith(n + " ") for line in lines())]
        return not missing
    try:
        wait_until("all calls", 5, complete)
    except AssertionError:
        raise AssertionError(f"not seen: {missing}") from None
    wait_until("the name that is not there", 5, lambda: any(
        line.startswith("lookup ") and "name=none" in line and f"result=-{errno.ENOENT}" in line for line in lines()))
    places = [next(i for i, line in enumerate(lines()) if line.startswith(n + " ")) for n in ("create", "write", "fsync", "rename", "unlink", "rmdir")]
    assert places == sorted(places), "in the order of the calls"
    wait_until("the write", 5, lambda: any(line.startswith("write ") and "len=5000" in line for line in lines()))
    assert wait_app(s, "trace", "calls", lambda a: a["counters"].get("calls", 0) >= len(names))["events"] >= len(names)


def test_a_callback_that_is_waited_for_can_refuse(start):
    m = start(probe()).mounts[0]
    write_file(m.at("keep"), b"1")
    write_file(m.at("other"), b"2")
    with pytest.raises(PermissionError):
        os.unlink(m.at("keep"))
    os.unlink(m.at("other"))
    assert os.listdir(m.at()) == ["keep"]


def test_data_of_small_and_large_writes_comes_with_the_call(start):
    m = start(probe()).mounts[0]
    fd = os.open(m.at("a"), os.O_CREAT | os.O_WRONLY)
    for n in range(5):
        assert os.pwrite(fd, b"small%d" % n, n) == 6
        assert os.pwrite(fd, (b"large%d" % n) * 40000, 1000000 * n) == 240000
    os.close(fd)
    for n in range(5):
        m.wait_log(f"write {n}[+]6: small{n}")
        m.wait_log(f"write {1000000 * n}[+]240000: large{n}large{n}")


def test_histogram_writes_its_file_beside(start):
    s = start(example("histogram"))
    m = s.mounts[0]
    numbers = [float(i) for i in range(-1000, 3001)] + [math.nan, math.inf]
    os.mkdir(m.at("run"))
    write_file(m.at("run", "t.bin"), struct.pack(f"={len(numbers)}d", *numbers))
    wait_until("the JSON file", 5, lambda: os.path.exists(m.at("run", "t.bin.json")))
    got = json.loads(read_file(m.at("run", "t.bin.json")))
    assert got == {"count": 4001, "min": -1000, "mean": 1000, "max": 3000, "not_finite": 2}
    assert sorted(os.listdir(m.at("run"))) == ["t.bin", "t.bin.json"], "no JSON of the JSON"


@pytest.mark.expect_log(r"data could not be stored: Numerical|written data was lost")
@pytest.mark.parametrize("how", ["write", "fsync", "close"])
def test_reject_tells_the_application(start, how):
    s = start(example('reject'))
    m = s.mounts[0]
    good = struct.pack("=d", 1.5) * (MIB // 8)
    bad = good[:MIB // 2] + struct.pack("=d", math.nan) + good[MIB // 2 + 8:]
    write_file(m.at("good"), good, sync=True)
    fd = os.open(m.at("bad"), os.O_WRONLY | os.O_CREAT)
    pwrite_all(fd, bad, 0)
    with pytest.raises(OSError) as e:
        if how == "write":
            for i in range(1, 200):  # until the error of a window is there; large writes come to fp-mount in parts
                pwrite_all(fd, good, i * MIB)
                time.sleep(0.005)
        if how != "close":
            os.fsync(fd)
        os.close(fd)
    assert e.value.errno == errno.EDOM
    if how != "close":
        try:
            os.close(fd)
        except OSError as again:
            assert again.errno == errno.EDOM
    m.wait_log(r"NaN after byte", 3)
    assert wait_app(s, "reject", "refused", lambda a: a["counters"].get("refused", 0) >= 1)["state"] == "running"
    assert_same(read_file(m.at("good")), good)


def test_peer_counts_on_two_mounts(start):
    s = start(example("peer"), mounts=2)
    a, b = s.mounts
    write_file(a.at("one"), b"1" * 1000)
    write_file(b.at("two"), b"2" * 234)
    for m in (a, b):
        wait_app(s, "peer", "the bytes of both", lambda x: x["counters"].get("bytes of all nodes") == 1234, mount=m)
    assert app(s, "peer", a)["counters"]["messages received"] == 1


@pytest.mark.short
def test_figure2_stores_what_is_known_once(start):
    s = start(example("figure2"), mounts=2)
    a, b = s.mounts
    data = unique(1, 4 * MIB)
    write_file(a.at("x"), data, sync=True)
    one = used(s)
    write_file(b.at("y"), data[:2 * MIB] + unique(2, 65536) + data[2 * MIB:], sync=True)
    assert used(s) - one < 0.1 * len(data), "64 KiB are new; the table is shared by all mounts"
    os.unlink(a.at("x"))
    assert_same(read_file(a.at("y")), data[:2 * MIB] + unique(2, 65536) + data[2 * MIB:])
    write_file(a.at("z"), data, sync=True)
    assert_same(read_file(b.at("z")), data)
    for name in ("y", "z"):
        os.unlink(a.at(name))
    wait_empty(s)


# ---------------------------------------------------------------- fpctl auxapps


def test_fpctl_auxapps(start):
    s = start("dedup cores=1-2", "compress level=3")
    m = s.mounts[0]
    write_file(m.at("f"), text(3, 4 * MIB), sync=True)
    wait_app(s, "compress", "4 chunks", lambda a: a["chunks"] == 4)
    said = s.fpctl("auxapps").stdout
    for word in ("dedup", "compress", "running", "THREADS", "new bytes"):
        assert word in said
    a = app(s, "compress")
    assert a["declared"] == "compress level=3" and a["bytes_in"] == 4 * MIB and a["bytes_out"] < MIB and a["threads"]
    assert a["mountpoint"] == m.path and a["failures"] == a["restarts"] == 0 and 0 < a["busy_percent"] <= 100
    assert [x["name"] for x in apps(s)] == ["dedup", "compress"], "in the order in which data passes them"
    watch = subprocess.Popen([bin_path("fpctl"), "auxapps", "--watch", f"--manager={s.addr}", f"--key={s.key}"],
                             stdout=subprocess.PIPE, text=True)
    lines = [watch.stdout.readline() for _ in range(30)]
    watch.kill()
    watch.wait()
    assert sum("compress" in line and "running" in line for line in lines) >= 2, "again and again"


@pytest.mark.expect_log(r"level|hush|hash|cores")
def test_fpctl_auxapps_set(start):
    s = start("compress level=3", "dedup")
    m = s.mounts[0]
    write_file(m.at("f"), text(4, MIB), sync=True)
    wait_app(s, "compress", "there", lambda a: a["chunks"] == 1)
    s.fpctl("auxapps", "set", "compress", "level=9")
    m.wait_log(r"compress.*level.*9", 3)
    s.fpctl("auxapps", "set", "dedup", "cores=2")
    wait_app(s, "dedup", "2 cores", lambda a: a["cores"] == 2)
    for name, change in (("compress", "level=99"), ("compress", "hush=1"), ("dedup", "hash=sha256"), ("dedup", "cores=0")):
        at = len(m.text())
        assert s.fpctl("auxapps", "set", name, change, check=False).returncode == 1
        m.wait_log(rf"{name}.*{change.split('=')[0]}", 3, at)
    assert s.fpctl("auxapps", "set", "dedup", "cores", check=False).returncode != 0
    assert app(s, "dedup")["cores"] == 2
    write_file(m.at("g"), text(5, MIB), sync=True)
    assert_same(read_file(m.at("g")), text(5, MIB))


def test_counters_survive_a_new_host(start):
    s = start("dedup", "compress")
    m = s.mounts[0]
    write_file(m.at("c1"), text(6, 4 * MIB), sync=True)
    before = wait_app(s, "dedup", "4 chunks", lambda a: a["chunks"] == 4)
    first = host_pid(m)
    os.kill(first, signal.SIGKILL)
    wait_until("another host", 3, lambda: host_pid(m) not in (None, first))
    write_file(m.at("c2"), text(6, 4 * MIB), sync=True)
    a = wait_app(s, "dedup", "8 chunks", lambda a: a["chunks"] >= 8)
    assert a["restarts"] == before["restarts"] + 1 and a["state"] == "running"
    assert a["counters"]["new bytes"] + a["counters"]["duplicate bytes"] + a["counters"]["zero bytes"] == 8 * MIB
    assert a["counters"]["duplicate bytes"] > 3 * MIB
    assert_same(read_file(m.at("c2")), text(6, 4 * MIB))


@pytest.mark.expect_log(r"aux-app|auxapp|plugin|hash|level|nothere")
@pytest.mark.parametrize("declared,said", [("dedop", "dedup"), ("dedup hush=sha1", "hash"), ("dedup hash=sha3", "sha256"), ("/nothere.so", "/nothere.so"),
                                           ("dedup cores=0", "cores"), ("compress level=1000", "19")])
def test_a_declaration_that_makes_no_sense_is_refused_at_once(new_store, declared, said):
    s = new_store().up(mounts=0)
    m = s.add_mount(f"--auxapp={declared}", wait=False)
    assert m.kill(0) in (1, 2)
    assert said in m.text() and not os.path.ismount(m.path)


def test_no_aux_app_no_host(start):
    s = start()
    m = s.mounts[0]
    write_file(m.at("f"), unique(8, MIB), sync=True)
    assert_same(read_file(m.at("f")), unique(8, MIB))
    assert host_pid(m) is None and apps(s) == []
    assert "--auxapp" in s.fpctl("auxapps").stdout


def test_services_for_files(start):
    """Log lines of plugins; reading and writing files beside the application."""
    s = start(f"{probe()} level=2")
    m = s.mounts[0]
    m.wait_log(r"probe.*starts on node0 with do=pass level=2", 3)
    write_file(m.at("readme"), b"01234567", sync=True)
    m.wait_log(r"sealed readme of 8 bytes", 5)
    m.wait_log(r"read 3, first 53 last 55", 3)
    assert_same(read_file(m.at("copy")), b"567")


# ---------------------------------------------------------------- complete checkpoints


def complete(path, value=b"complete"):
    os.setxattr(path, "user.fp.checkpoint", value)


def test_a_complete_checkpoint_is_told_to_aux_apps(start):
    """By the mount where it is said, with all files in the directory and below; said again, told again."""
    s = start(probe(), mounts=2)
    m, other = s.mounts
    chk = m.at("run", "chk_0007")
    os.makedirs(os.path.join(chk, "more"))
    for name in ("rank_0", "rank_1", "more/rank_2"):
        write_file(os.path.join(chk, name), b"data of a rank")
    os.symlink("rank_0", os.path.join(chk, "latest"))
    with pytest.raises(OSError, match="Invalid argument"):
        complete(chk, b"not yet")
    complete(chk)
    said = r"set run/chk_0007 step 7: 3 files, last run/chk_0007/rank_1"
    first = m.wait_log(said).end()
    assert os.getxattr(other.at("run", "chk_0007"), "user.fp.checkpoint") == b"complete"
    complete(chk)
    m.wait_log(said, start=first)
    write_file(m.at("result.h5"), b"all of it")
    complete(m.at("result.h5"))
    m.wait_log(r"set result.h5 step 5: 1 files, last result.h5")
    assert len(re.findall(r"\bset run", m.text())) == 2 and "step 7" not in other.text()


def test_a_set_that_no_aux_app_can_be_told_is_logged(start):
    s = start(probe())
    m = s.mounts[0]
    os.makedirs(m.at("empty"))
    with pytest.raises(OSError) as e:
        complete(m.at("empty"))
    assert e.value.errno == errno.ENODATA and "user.fp.checkpoint" not in os.listxattr(m.at("empty"))
    os.makedirs(m.at("large"))
    for i in range(800):
        os.close(os.open(m.at("large", f"{i:0250}"), os.O_CREAT | os.O_WRONLY))
    complete(m.at("large"))
    m.wait_log("no aux-app was told that checkpoint large is complete: it has too many files")
    complete(m.at("large", f"{7:0250}"))
    m.wait_log(r"set large/0+7 step 7: 1 files")
    assert "empty" not in m.text()


def test_without_aux_apps_it_is_an_attribute_as_any_other(start):
    path = start().mounts[0].at("one")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    complete(path)
    assert os.getxattr(path, "user.fp.checkpoint") == b"complete"
