"""Aux-apps on a mount: declared ones see and change what applications write, and everything reads back, also where nothing is declared."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import time

import pytest

from harness.daemons import BIN, MIB, SLOW, wait_until

PLUGINS = os.path.join(BIN, "..", "tests", "plugins")
EXAMPLES = os.path.join(BIN, "..", "lib", "auxapps", "examples")


def example(name, words=""):
    return f"--auxapp={EXAMPLES}/{name}.so {words}".rstrip()


def probe(words="", name="probe"):
    return [f"--auxapp={name} {words}".rstrip(), f"--auxapp-dir={PLUGINS}"]


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def store_with(new_store, *args, benefactors=1):
    store = new_store()
    store.start_manager()
    for _ in range(benefactors):
        store.add_benefactor()
    return store, store.add_mount(*args)


def fpctl(store, *args):
    return subprocess.run([os.path.join(BIN, "fpctl"), f"--manager={store.addr}", f"--key={store.key}", *args],
                          check=True, capture_output=True, text=True, timeout=30 * SLOW).stdout


def used_bytes(store):
    return json.loads(fpctl(store, "status", "--json"))["space"]["used_bytes"]


def refused(new_store, *args):
    """The lines of an fp-mount that does not start."""
    store = new_store()
    store.start_manager()
    store.add_benefactor()
    with pytest.raises(AssertionError):
        store.add_mount(*args)
    store.mounts[-1].ended_as_told = True
    assert store.mounts[-1].wait() == 1
    return store.mounts[-1].text()


# --------------------------------------------------------------------- transforms

@pytest.mark.limit(120)
def test_transformed_data_reads_back_here_and_on_a_mount_that_declares_nothing(new_store):
    data = os.urandom(3 * MIB + 12345)
    store, mount = store_with(new_store, example("rot13"))
    write(mount.at("a"), data)
    assert read(mount.at("a")) == data
    with open(mount.at("a"), "r+b") as f:  # over the middle, unaligned
        f.seek(MIB - 777)
        f.write(b"x" * 2000)
    data = data[:MIB - 777] + b"x" * 2000 + data[MIB + 1223:]
    assert read(mount.at("a")) == data
    other = store.add_mount(f"--auxapp-dir={EXAMPLES}")
    assert read(other.at("a")) == data
    mount.unmount()
    assert read(other.at("a")) == data


@pytest.mark.limit(120)
@pytest.mark.expect_log("rot13", "can't be read")
def test_without_the_plugin_there_is_eio_and_a_line_that_names_it(new_store):
    store, mount = store_with(new_store, example("rot13"))
    write(mount.at("a"), b"secret" * 1000)
    other = store.add_mount(f"--auxapp-dir={store.dir}")
    with pytest.raises(OSError):
        read(other.at("a"))
    other.wait_log("made by aux-app rot13, whose plugin is not here: install it")
    other.wait_log("the aux-app that coded it cannot undo it here")
    assert read(mount.at("a")) == b"secret" * 1000


@pytest.mark.limit(120)
def test_chain_of_two_undoes_in_reverse_order(new_store):
    data = b"The quick brown fox. " * 200000
    store, mount = store_with(new_store, example("rot13"), "--auxapp=compress", f"--auxapp-dir={BIN}/../lib/auxapps")
    write(mount.at("a"), data)
    assert read(mount.at("a")) == data
    mount.unmount()
    again = store.add_mount(example("rot13"), "--auxapp=compress", f"--auxapp-dir={BIN}/../lib/auxapps")
    assert read(again.at("a")) == data


@pytest.mark.limit(120)
def test_dedup_refers_to_the_version_before(new_store):
    store, mount = store_with(new_store, "--auxapp=dedup")
    data = bytearray(os.urandom(8 * MIB))
    write(mount.at("chk_0001"), data)
    data[MIB:MIB + 4096] = os.urandom(4096)
    write(mount.at("chk_0002"), data)
    assert read(mount.at("chk_0002")) == data
    used = fpctl(store, "stat", mount.at("chk_0002"))
    assert re.search(r"shared|saved", used), used
    os.unlink(mount.at("chk_0001"))
    other = store.add_mount()
    assert read(other.at("chk_0002")) == data
    # cut to nothing and written again: compared with what it was
    data[5 * MIB:5 * MIB + 10] = b"0123456789"
    write(mount.at("chk_0002"), data)
    assert read(other.at("chk_0002")) == data


@pytest.mark.limit(180)
@pytest.mark.parametrize("layout", ["chk_{step:04}_rank{rank}", "step_{step:04}/rank_{rank}.dat", "chk.{step}.{rank}.tmp"])
def test_dedup_finds_the_step_before_of_each_rank(new_store, layout):
    store, mount = store_with(new_store, "--auxapp=dedup")
    ranks = [bytearray(os.urandom(4 * MIB)) for _ in range(3)]

    def step(n):
        for rank, data in enumerate(ranks):
            path = mount.at(layout.format(step=n, rank=rank))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write(path, data)
            if path.endswith(".tmp"):
                os.rename(path, path[:-4])

    step(7)
    first = used_bytes(store)
    for data in ranks:
        data[MIB + 100:MIB + 110] = b"0123456789"
    step(8)
    second = used_bytes(store) - first
    assert first > 12 * MIB and second < 2 * MIB, (first, second)


# --------------------------------------------------------------------- events

@pytest.mark.limit(120)
def test_trace_sees_calls_in_order(new_store):
    _, mount = store_with(new_store, example("trace"))
    write(mount.at("seen"), b"1234")
    os.rename(mount.at("seen"), mount.at("moved"))
    os.unlink(mount.at("moved"))
    mount.wait_log("unlink")
    text = mount.text()
    places = [text.find(word) for word in ("create", "write", "rename", "unlink")]
    assert all(p >= 0 for p in places) and places == sorted(places), text


@pytest.mark.limit(120)
def test_a_callback_that_is_waited_for_can_refuse(new_store):
    _, mount = store_with(new_store, *probe())
    write(mount.at("keep"), b"1")
    write(mount.at("other"), b"2")
    with pytest.raises(PermissionError):
        os.unlink(mount.at("keep"))
    os.unlink(mount.at("other"))
    assert os.listdir(mount.at()) == ["keep"]


@pytest.mark.limit(120)
def test_data_of_small_and_large_writes_comes_with_the_event(new_store):
    _, mount = store_with(new_store, *probe())
    fd = os.open(mount.at("a"), os.O_CREAT | os.O_WRONLY)
    for n in range(5):
        assert os.pwrite(fd, b"small%d" % n, n) == 6
        assert os.pwrite(fd, (b"large%d" % n) * 40000, 1000000 * n) == 240000
    os.close(fd)
    for n in range(5):
        mount.wait_log(f"write {n}[+]6: small{n}")
        mount.wait_log(f"write {1000000 * n}[+]240000: large{n}large{n}")


@pytest.mark.limit(120)
def test_histogram_writes_json_beside_a_sealed_file(new_store):
    _, mount = store_with(new_store, example("histogram", "type=double"))
    os.mkdir(mount.at("run"))
    write(mount.at("run", "t.bin"), struct.pack("<4d", 1.0, 2.0, 3.0, 10.0) * 50000)
    found = wait_until("a JSON file", 20, lambda: [n for n in os.listdir(mount.at("run")) if n.endswith(".json")])
    got = json.loads(read(mount.at("run", found[0])))
    assert got["min"] == 1 and got["max"] == 10 and got["mean"] == 4
    time.sleep(0.5)  # no JSON of the JSON
    assert sorted(os.listdir(mount.at("run"))) == sorted(["t.bin"] + found)


@pytest.mark.limit(120)
@pytest.mark.expect_log("could not be stored: Numerical argument", "written data was lost")
def test_reject_refuses_a_file_with_nan(new_store):
    _, mount = store_with(new_store, example("reject"))
    write(mount.at("good"), struct.pack("<d", 1.5) * 100000)
    with pytest.raises(OSError):
        fd = os.open(mount.at("bad"), os.O_CREAT | os.O_WRONLY)
        try:
            os.write(fd, struct.pack("<d", float("nan")) * 200000)
            os.fsync(fd)
        finally:
            os.close(fd)
    assert len(read(mount.at("good"))) == 800000


@pytest.mark.limit(120)
def test_peers_count_what_each_other_writes(new_store):
    store, one = store_with(new_store, example("peer"))
    two = store.add_mount(example("peer"))
    write(one.at("a"), b"x" * 1000)
    write(two.at("b"), b"x" * 500)

    def totals():
        return len(re.findall(r"bytes of all nodes\D*1500", fpctl(store, "auxapps"))) >= 2 or None
    wait_until("both know of 1500 bytes", 20, totals)


# --------------------------------------------------------------------- mistakes

@pytest.mark.limit(120)
@pytest.mark.expect_log("fp-mount: ERROR")
@pytest.mark.parametrize("words, line", [
    ("dedup hsh=sha1", "hash"),
    ("dedup hash=md5", "sha1"),
    ("nosuch", "nosuch"),
    ("/nowhere/x.so", "/nowhere/x.so"),
])
def test_a_mistake_in_a_declaration_ends_the_start_with_a_line(new_store, words, line):
    text = refused(new_store, f"--auxapp={words}", f"--auxapp-dir={BIN}/../lib/auxapps")
    assert line in text, text


@pytest.mark.limit(120)
@pytest.mark.expect_log("fp-mount: ERROR")
@pytest.mark.parametrize("words, line", [
    ("probe do=exit_start", r"probe did not start: it called exit\(7\)"),
    ("probe do=crash_start", r"probe did not start: it crashed \(Segmentation fault\)"),
    ("stillborn", r"stillborn did not start: it crashed \(Segmentation fault\)"),
    ("probe do=nostart", "probe does not start"),
    ("probe do=nothing", "nothing"),
])
def test_a_failed_start_names_the_aux_app_and_leaves_no_session(new_store, words, line):
    store, mount = store_with(new_store)
    with pytest.raises(AssertionError):
        store.add_mount(*probe(words)[1:], f"--auxapp={words}")
    failed = store.mounts[-1]
    failed.ended_as_told = True
    assert re.search(line, failed.text()), failed.text()
    # not "away" for as long as a session is kept that may come back
    assert [c["pid"] for c in json.loads(fpctl(store, "status", "--json"))["mounts"]] == [mount.pid]


@pytest.mark.limit(120)
def test_a_killed_mounts_aux_apps_are_shown_as_away(new_store):
    store, mount = store_with(new_store)
    dead = store.add_mount(*probe())
    wait_until("the first figures", 10, lambda: "running" in fpctl(store, "auxapps"))
    dead.kill(signal.SIGKILL)
    dead.ended_as_told = True
    shown = wait_until("fpctl to know", 10, lambda: re.search("(?m)^.*probe +away.*$", fpctl(store, "auxapps")))
    assert "running" not in shown.group(0)
    assert [a["state"] for a in json.loads(fpctl(store, "auxapps", "--json"))["auxapps"]] == ["away"]


@pytest.mark.limit(120)
@pytest.mark.expect_log("probe", "can't be read")
def test_a_crash_of_what_nobody_declared_is_told_with_its_name(new_store):
    store, mount = store_with(new_store, *probe("do=xor"))
    write(mount.at("a"), b"x" * 100000)
    mount.unmount()
    other = store.add_mount(f"--auxapp-dir={store.dir}")
    shutil.copy(os.path.join(PLUGINS, "stillborn.so"), os.path.join(store.dir, "probe.so"))
    with pytest.raises(OSError):
        read(other.at("a"))
    other.wait_log(r"aux-app probe, loaded to read what it has coded: it crashed \(Segmentation fault\)")


@pytest.mark.limit(120)
def test_host_ends_with_the_mount(new_store):
    _, mount = store_with(new_store, *probe())
    pid = host_of(mount)
    fds = set(os.listdir(f"/proc/{pid}/fd"))
    assert fds <= {str(n) for n in range(16)}, fds  # its own, and no socket or key of fp-mount's
    assert b"FP_KEY" not in read(f"/proc/{pid}/environ")
    mount.kill()
    wait_until("the host to end", 5, lambda: not os.path.exists(f"/proc/{pid}"))


def host_of(mount):
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/stat") as f:
                    words = f.read().rsplit(")", 1)[1].split()
                with open(f"/proc/{pid}/comm") as f:
                    name = f.read().strip()
            except OSError:
                continue
            if name.startswith("fp-auxhost") and int(words[1]) == mount.pid and words[0] != "Z":
                return int(pid)
    raise AssertionError("there is no host")
