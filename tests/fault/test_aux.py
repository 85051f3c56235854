"""Aux-apps that crash, hang, leak and are killed under load: programs see no error, all bytes are right, and the service is back within a second.

The plugin that misbehaves is tests/plugins/probe.c, told what to do by its options. Rows of the failure table in docs/ARCHITECTURE.md name these tests.
"""

import errno
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from harness.aux import MIB, PROBES, app, apps, host_pid, probe, stored, text, turn_dedup_off, unique, used, wait_app, wait_empty
from harness.daemons import PACE, SLOW, unmount, wait_until
from harness.files import assert_same, content, read_file, write_file
from test_kill import load  # noqa: F401  (a fixture)

pytestmark = pytest.mark.expect_log(r"aux-?app|fp-auxhost|probe|many")


def restarts_in_log(mount):
    """Milliseconds from each end of a host, as the mount saw it, to the next one at work: with its death, the pause and the start."""
    return [int(n) for n in re.findall(r"fp-auxhost runs again, (\d+) ms", mount.text())]


def assert_back_within_a_second(mount, at_least=1):
    took = restarts_in_log(mount)
    assert len(took) >= at_least, mount.tail()
    assert max(took) < 1000 * SLOW, took


def kill_and_wait(mount):
    """Milliseconds from the kill of the host to the next one at work, by our own clock."""
    old, before, begun = host_pid(mount), len(restarts_in_log(mount)), time.monotonic()
    os.kill(old, signal.SIGKILL)
    wait_until("another host at work", 5, lambda: len(restarts_in_log(mount)) > before, 0.005)
    took = (time.monotonic() - begun) * 1000
    assert host_pid(mount) not in (None, old)
    return took


def named(name):
    """Processes of this name."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as f:
                found += [pid] if f.read().strip() == name else []
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


# ---------------------------------------------------------------- what a plugin does to itself


@pytest.mark.limit(120)
@pytest.mark.parametrize("what", ["segv", "abort", "exit", "stack", "thread", "orphan"])
def test_crash_under_load_is_not_seen(start, load, what):  # noqa: F811
    """Each host crashes at its sixth chunk, again and again; failures is so large that it is not bypassed."""
    s = start("dedup", f"{probe()} do={what} after=6 failures=100", "compress")
    work = load(s, 4)
    work.finish(60)
    assert work.lines("error") == [] and work.lines("bad") == []
    assert work.verify() > 3
    m = s.mounts[0]
    assert_back_within_a_second(m, 3)
    a = wait_app(s, "probe", "failures", lambda a: a["failures"] >= 3)
    assert a["state"] in ("running", "starting")
    assert app(s, "dedup")["failures"] == 0 and app(s, "compress")["failures"] == 0, "it is known who is to blame"
    other = s.add_mount()
    assert work.verify(other.path) > 3


@pytest.mark.limit(120)
def test_a_call_beyond_its_deadline(start, load):  # noqa: F811
    """It loops for ever."""
    s = start(f"{probe()} do=hang after=20 deadline=500ms failures=100")
    work = load(s, 4)
    work.finish(80)
    assert work.lines("error") == [] and work.lines("bad") == []
    assert work.verify() >= 3
    assert_back_within_a_second(s.mounts[0])
    s.mounts[0].wait_log(r"longer than its deadline of 500 ms", 3)


@pytest.mark.limit(120)
def test_giving_up_at_the_deadline_refuses_nothing(start):
    """It works on until it is told that the time is over, and then says so, as it should."""
    s = start(f"{probe()} do=patient deadline=300ms failures=2", "compress")
    data = text(7, 3 * MIB)
    write_file(s.mounts[0].at("f"), data, sync=True)
    assert_same(read_file(s.mounts[0].at("f")), data)
    wait_app(s, "probe", "bypassed", lambda a: a["state"] == "bypassed" and a["failures"] == 2)


@pytest.mark.limit(120)
def test_a_leak_ends_the_host_in_order(start, load):  # noqa: F811
    s = start(f"{probe()} do=leak after=8 failures=100", args=["--aux-memory=512MiB"])
    work = load(s, 4)
    work.finish(60)
    assert work.lines("error") == [] and work.lines("bad") == []
    work.verify()
    s.mounts[0].wait_log("more than --aux-memory", 5)
    assert restarts_in_log(s.mounts[0])


@pytest.mark.limit(240)
@pytest.mark.expect_log("lost its connection", "silent for too long")
def test_a_host_that_waits_in_the_kernel_is_left_behind(start, new_store):
    """The plugin opens a file of a server that is away: another store's mount, which has taken the call from the kernel and is stopped then."""
    server = new_store().up(benefactors=1)
    away = server.mounts[0]
    write_file(away.at("f"), b"x")
    away.unmount()
    away.start()
    s = start(f"{probe()} do=open path={away.at('f')} deadline=2s failures=2")
    m, data = s.mounts[0], text(8, 3 * MIB)
    first = host_pid(m)
    os.kill(server.manager.pid, signal.SIGSTOP)
    try:
        writer = subprocess.Popen(["dd", f"of={m.at('f')}", "bs=1M", "conv=fsync", "status=none"], stdin=subprocess.PIPE)
        writer.stdin.write(data)
        writer.stdin.close()
        time.sleep(PACE)
        os.kill(away.pid, signal.SIGSTOP)
        m.wait_log(rf"process {first}\) was killed and does not end", 30)
        m.wait_log("bypassed: data is stored without it", 30)
        assert writer.wait(60 * SLOW) == 0
        assert_same(read_file(m.at("f")), data)
        begun = time.monotonic()
        m.unmount()
        assert time.monotonic() - begun < 15 * SLOW
        assert os.path.exists(f"/proc/{first}"), "the one left behind has ended, and this test has shown nothing"
    finally:
        os.kill(away.pid, signal.SIGCONT)
        os.kill(server.manager.pid, signal.SIGCONT)
    wait_until("the end of what was left behind", 30, lambda: not os.path.exists(f"/proc/{first}"))


@pytest.mark.limit(120)
def test_memory_that_is_shared_can_be_neither_cut_nor_overwritten(start, load):  # noqa: F811
    """By a plugin that tries."""
    s = start(f"{probe()} do=seize")
    work = load(s, 4)
    work.finish(60)
    assert work.lines("error") == [] and work.lines("bad") == []
    assert work.verify() > 3
    a = wait_app(s, "probe", "chunks", lambda a: a["chunks"] >= 12)
    assert a["counters"]["seized"] == 0 and restarts_in_log(s.mounts[0]) == [], "its host has met nothing"


@pytest.mark.short
def test_bypassed_after_so_many_failures_and_taken_in_again(start):
    s = start(f"{probe()} do=segv", "compress")
    m = s.mounts[0]
    data = text(1, 8 * MIB)
    write_file(m.at("f"), data, sync=True)
    assert_same(read_file(m.at("f")), data)
    a = wait_app(s, "probe", "bypassed", lambda a: a["state"] == "bypassed")
    assert a["failures"] == 3 and a["why"]
    m.wait_log(r"probe.*bypassed", 3)
    assert stored(s, "/f") < len(data) / 4, "the chain goes on without it"
    assert wait_app(s, "compress", "chunks", lambda a: a["chunks"] >= 8)["state"] == "running"
    write_file(m.at("g"), data, sync=True)
    assert app(s, "probe")["failures"] == 3
    s.fpctl("auxapps", "set", "probe", "do=xor")
    s.fpctl("auxapps", "set", "probe", "bypass=off")
    wait_app(s, "probe", "running", lambda a: a["state"] == "running")
    before = app(s, "probe")
    write_file(m.at("h"), data, sync=True)
    a = wait_app(s, "probe", "chunks again", lambda a: a["chunks"] >= before["chunks"] + 8)
    assert a["bytes_out"] - before["bytes_out"] > a["bytes_in"] - before["bytes_in"], "what was set meanwhile holds: it codes"
    assert_same(read_file(s.add_mount(f"--auxapp={probe()}").at("h")), data)
    assert len(re.findall("bypassed: data is stored", m.text())) == 1, "said once"


@pytest.mark.expect_log(r"could not be stored|written data was lost")
@pytest.mark.short
def test_required_and_failed_gives_eio(start):
    s = start(f"{probe()} do=abort failures=2 required")
    m = s.mounts[0]
    with pytest.raises(OSError) as e:
        write_file(m.at("f"), unique(2, 2 * MIB), sync=True)
    assert e.value.errno == errno.EIO
    m.wait_log(r"probe.*is required: writes fail with EIO", 3)
    assert wait_app(s, "probe", "failed", lambda a: a["state"] == "failed")["why"]
    with pytest.raises(OSError) as e:
        write_file(m.at("g"), unique(3, 2 * MIB), sync=True)
    assert e.value.errno == errno.EIO
    s.fpctl("auxapps", "set", "probe", "do=pass")
    s.fpctl("auxapps", "set", "probe", "bypass=off")
    wait_app(s, "probe", "running", lambda a: a["state"] == "running")
    write_file(m.at("h"), unique(4, 2 * MIB), sync=True)
    assert_same(read_file(m.at("h")), unique(4, 2 * MIB))


def test_a_replacement_that_is_not_undone_is_not_kept(start):
    """`verify`, the default for plugins of one's own."""
    s = start(f"{probe()} do=bad failures=3")
    m, data = s.mounts[0], text(5, 6 * MIB)
    write_file(m.at("f"), data, sync=True)
    m.unmount()
    m.start()
    assert_same(read_file(m.at("f")), data)
    other = s.add_mount()
    assert_same(read_file(other.at("f")), data)


@pytest.mark.expect_log(r"can't be read")
def test_a_crash_while_decoding_gives_eio_and_no_more(start):
    s = start(f"{probe()} do=xor")
    m, data = s.mounts[0], text(6, 2 * MIB)
    write_file(m.at("f"), data, sync=True)
    other = s.add_mount(f"--auxapp={probe()} do=crash_in failures=2")
    with pytest.raises(OSError) as e:
        read_file(other.at("f"))
    assert e.value.errno == errno.EIO
    write_file(other.at("g"), content(1, 0, MIB), sync=True)
    assert_same(read_file(m.at("f")), data)
    assert_same(read_file(m.at("g")), content(1, 0, MIB))


# ---------------------------------------------------------------- what is done to the host


@pytest.mark.limit(120)
@pytest.mark.parametrize("chain", [["dedup", "compress"], ["probe do=xor"]], ids=["dedup", "own"])
def test_host_killed_under_load(start, load, chain):  # noqa: F811
    find = [f"--auxapp-dir={PROBES}"] if chain[0].startswith("probe") else []
    s = start(*chain, args=find)
    m = s.mounts[0]
    work = load(s, 6)
    work.ready()
    took = []
    for _ in range(4):
        took.append(kill_and_wait(m))
        time.sleep(0.7 * PACE)
    assert max(took) < 1000 * SLOW, took
    work.finish(60)
    assert work.lines("error") == [] and work.lines("bad") == []
    assert work.verify() > 3
    assert all(a["state"] == "running" for a in apps(s)), "a kill from outside is nobody's failure, or not three"
    assert work.verify(s.add_mount(*find).path) > 3


@pytest.mark.limit(120)
@pytest.mark.parametrize("deadline", ["deadline=1s", "deadline=60s"])
def test_host_stopped_under_load(start, load, deadline):  # noqa: F811
    """SIGSTOP: it neither dies nor answers; the deadline of a call ends it, or that it gives no sign of life."""
    s = start(f"dedup {deadline}", f"compress {deadline}")
    m = s.mounts[0]
    work = load(s, 8)
    work.ready()
    old = host_pid(m)
    os.kill(old, signal.SIGSTOP)
    wait_until("another host", 20, lambda: host_pid(m) not in (None, old), 0.02)
    work.finish(60)
    assert work.lines("error") == [] and work.lines("bad") == []
    work.verify()
    assert not os.path.exists(f"/proc/{old}"), "the stopped one is ended"
    m.wait_log("no sign of life|its deadline of 1000 ms" if deadline == "deadline=1s" else "no sign of life", 3)


@pytest.mark.limit(180)
@pytest.mark.parametrize("chain", [("dedup",), ("dedup", f"{probe('resting')} required")], ids=["alone", "beside-required"])
def test_host_killed_while_it_is_passed_over(start, load, chain):  # noqa: F811
    """dedup is off, and the mount stores past the host: its death is nothing to data on the way. What is required sees all of it, before and after."""
    s = start(*chain)
    m = s.mounts[0]
    a = turn_dedup_off(s, m)
    work = load(s, 2)
    wait_app(s, "dedup", "passed over", lambda b: b["passed_chunks"] > a["passed_chunks"] + 20, 20)
    for _ in range(2):
        kill_and_wait(m)
    wait_app(s, "dedup", "windows again: the new one is on", lambda b: b["chunks"] > a["chunks"] + 5, 20)
    work.finish(60)
    assert work.lines("error") == [] and work.lines("bad") == []
    assert work.verify() > 3
    assert app(s, "dedup")["failures"] == 0 and app(s, "dedup")["state"] == "running"
    if len(chain) > 1:
        wait_app(s, "resting", "every byte", lambda b: b["counters"]["seen"] >= b["bytes_in"] > 16 * MIB)
        assert app(s, "resting")["passed_chunks"] == 0
        assert app(s, "resting")["bytes_in"] >= a["passed_bytes"]
    other = s.add_mount()
    assert work.verify(other.path) > 3


@pytest.mark.limit(120)
def test_children_of_a_plugin_end_with_the_host(start):
    """They hold its sockets: its end is seen at once all the same, and none is left when the mount has ended."""
    s = start(f"{probe()} do=orphan", "compress")
    m = s.mounts[0]
    data = text(1, 8 * MIB)
    begun = time.monotonic()
    write_file(m.at("f"), data, sync=True)
    assert_same(read_file(m.at("f")), data)
    a = wait_app(s, "probe", "bypassed", lambda a: a["state"] == "bypassed")
    assert a["failures"] == 3 and time.monotonic() - begun < 8 * SLOW, "a host that gives no sign of life takes 9 s, three times"
    m.ended_as_told = True
    unmount(m.path)
    assert m.wait(10) == 0
    wait_until("the end of all children", 5, lambda: not named(f"orphan-{m.pid}"))


def test_the_end_of_the_mount_ends_the_host(start):
    s = start("dedup")
    m = s.mounts[0]
    pid = host_pid(m)
    m.kill()
    wait_until("the end of fp-auxhost", 5, lambda: not os.path.exists(f"/proc/{pid}"))
    unmount(m.path)
    m.start()
    pid = host_pid(m)
    m.unmount()
    assert not os.path.exists(f"/proc/{pid}")


# ---------------------------------------------------------------- deaths in the middle of a de-duplicated checkpoint


def version(i, size):
    """Half of it is as in the version before."""
    out = bytearray(unique(1000, size))
    for k in range(0, i + 1):
        at = (k * 5 % 8) * (size // 8)
        out[at:at + size // 8] = unique(2000 + k, size // 8)
    return bytes(out)


WRITER = """
import os, sys
sys.path.insert(0, sys.argv[1])
sys.path.insert(0, os.path.join(sys.argv[1], "fault"))
from test_aux import version
from harness.files import write_file
for i in range(1, 1000):
    write_file(os.path.join(sys.argv[2], f"ckpt_{i}"), version(i, 4 << 20), sync=True)
    print(i, flush=True)
    if i > 2:
        os.unlink(os.path.join(sys.argv[2], f"ckpt_{i - 2}"))
"""


def writer(path):
    tests = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    return subprocess.Popen([sys.executable, "-c", WRITER, os.path.abspath(tests), path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def let_write(p, n):
    done = 0
    for _ in range(n):
        line = p.stdout.readline()
        assert line, p.stderr.read()
        done = int(line)
    return done


def end_of(p, last):
    """Kills the writer; the last version that it was told is stored."""
    p.kill()
    rest = p.stdout.read().split()
    p.wait()
    return int(rest[-1]) if rest else last


def verify_versions(mount, last):
    """All that were not deleted: the last two are there for certain."""
    for i in (last - 1, last):
        if i > 0:
            assert_same(read_file(mount.at(f"ckpt_{i}")), version(i, 4 * MIB), f"version {i}")
    for name in os.listdir(mount.path):
        i = int(name.split("_")[1])
        if i < last:
            assert_same(read_file(mount.at(name)), version(i, 4 * MIB), name)


SHORT = ["--session-timeout=2s", "--orphan-grace=1s"]


@pytest.mark.limit(120)
def test_mount_killed_amid_a_checkpoint_that_refers_to_others(start):
    """Its holds end with its session; nothing dangles; all space comes back."""
    s = start("dedup", mounts=2, manager_args=SHORT)
    m, other = s.mounts
    for _ in range(3):
        p = writer(m.path)
        last = let_write(p, 4)
        m.kill()
        last = end_of(p, last)
        unmount(m.path)
        verify_versions(other, last)
        for name in os.listdir(other.path):
            os.unlink(other.at(name))
        wait_empty(s, 30)
        m.start()


@pytest.mark.limit(120)
@pytest.mark.expect_log(r"benefactor|lost")
@pytest.mark.parametrize("who", ["manager", "benefactor"])
def test_server_killed_amid_a_checkpoint_that_refers_to_others(start, who):
    s = start("dedup", "compress", manager_args=SHORT)
    m = s.mounts[0]
    p = writer(m.path)
    last = let_write(p, 3)
    for i in range(3):
        d = s.manager if who == "manager" else s.benefactors[i % 2]
        d.kill()
        time.sleep(0.3 * PACE)
        d.start()
        last = let_write(p, 3)
    last = end_of(p, last)
    verify_versions(m, last)
    assert wait_app(s, "dedup", "duplicates", lambda a: a["counters"].get("duplicate bytes", 0) > 8 * MIB)
    m.unmount()
    m.start()
    verify_versions(m, last)
    for name in os.listdir(m.path):
        os.unlink(m.at(name))
    wait_empty(s, 30)
    assert used(s) == 0


# ---------------------------------------------------------------- fpctl while a mount begins


def test_fpctl_waits_for_a_mount_that_has_just_begun(new_store):
    store = new_store().up(mounts=0)
    mount = store.add_mount("--auxapp=dedup", fault="cl.report=EIO:count=4")
    shown = store.fpctl("auxapps").stdout
    assert "dedup" in shown and "No mount" not in shown, shown
    assert mount.text().count("fault fired: cl.report") == 4


def test_a_mount_that_does_not_report_is_not_taken_for_one_without_aux_apps(new_store):
    store = new_store().up(mounts=0)
    mount = store.add_mount("--auxapp=dedup", fault="cl.report=EIO")
    shown = store.fpctl("auxapps").stdout
    assert f"{mount.path} has not reported yet" in shown and "No mount" not in shown, shown
