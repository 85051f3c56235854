"""fp-store: up in less than 3 s, down leaves nothing, whatever happened in between."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

from harness.daemons import LIBC, SLOW, bin_path, is_mounted, mounts_below, unmount, wait_until
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20


def fp_store(*args, seconds=60, env=None):
    e = {k: v for k, v in os.environ.items() if not k.startswith("FP_")}
    e.update(env or {})
    return subprocess.run([bin_path("fp-store"), *args], capture_output=True, text=True, timeout=seconds * SLOW, env=e)


class Place:
    def __init__(self, base):
        self.base, self.dir, self.mnt = base, f"{base}/store", f"{base}/mnt"

    def __call__(self, command, *args, **kw):
        return fp_store(command, f"--dir={self.dir}", f"--mount={self.mnt}", *args, **kw)

    def up(self, *args, **kw):
        r = self("up", "--benefactors=2", "--size=256MiB", "--pool=32MiB", *args, **kw)
        assert r.returncode == 0, r.stderr
        return r

    def status(self):
        return json.loads(self("status", "--json").stdout)

    def pids(self):
        return [p["pid"] for p in self.status()["processes"]]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.fixture
def place(native):
    p = Place(native)
    yield p
    pids = p.pids() if os.path.exists(p.dir) else []
    p("down")
    left = [pid for pid in pids if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    mounted = mounts_below(native)
    for m in mounted:
        unmount(m)
    assert not left and not mounted, f"left behind: {left} {mounted}"
    assert os.listdir(native) == [], "down leaves nothing behind"


@pytest.mark.short
def test_up_use_down(place):
    started = time.monotonic()
    r = place.up()
    assert time.monotonic() - started < 3 * SLOW
    assert place.mnt in r.stdout
    st = os.stat(f"{place.dir}/key")
    assert stat.S_IMODE(st.st_mode) == 0o600
    write_file(f"{place.mnt}/f", content(1, 0, 10 * MIB))
    assert_same(read_file(f"{place.mnt}/f"), content(1, 0, 10 * MIB))
    s = place.status()
    assert s["up"] and len(s["processes"]) == 4
    assert place("status").returncode == 0
    r = subprocess.run([bin_path("fpctl"), "status", place.mnt], capture_output=True, text=True, timeout=15 * SLOW)
    assert r.returncode == 0 and "2 of 2 benefactors up" in r.stdout
    pids = place.pids()
    started = time.monotonic()
    assert place("down").returncode == 0
    assert time.monotonic() - started < 10 * SLOW
    assert not any(alive(pid) for pid in pids)
    assert not os.path.exists(place.dir) and not os.path.exists(place.mnt)
    assert place("status").returncode == 1


def test_up_4_in_less_than_3_s(place):
    started = time.monotonic()
    r = place("up", "--benefactors=4", "--size=1GiB")
    assert r.returncode == 0, r.stderr
    assert time.monotonic() - started < 3 * SLOW
    assert os.statvfs(place.mnt).f_blocks * 4096 == 4 << 30


def test_up_twice_says_already_up(place):
    place.up()
    pids = place.pids()
    r = place("up")
    assert r.returncode == 0 and "already up" in r.stdout
    assert place.pids() == pids


def test_up_elsewhere_while_it_is_up(place, native):
    """What is up is told, and that it is not what was asked for."""
    place.up()
    pids = place.pids()
    for args, says in ((["--mount", f"{native}/other"], [place.mnt, f"not mounted on {native}/other", "down --keep"]),
                       (["--benefactors", "5"], [place.mnt, "2 benefactors"]), (["--mounts", "2"], [place.mnt, "1 mount:"])):
        r = fp_store("up", f"--dir={place.dir}", *args)
        assert r.returncode == 1 and r.stdout == "" and r.stderr.count("\n") == 1, r.stdout + r.stderr
        assert all(x in r.stderr for x in says), r.stderr
    os.symlink(native, f"{native}/link")
    for same in (place.mnt + "/", f"{native}/./mnt", f"{native}/link/mnt"):
        r = fp_store("up", f"--dir={place.dir}", f"--mount={same}")
        assert r.returncode == 0 and r.stdout == f"already up: {place.mnt}\n", r.stderr
    assert fp_store("up", f"--dir={place.dir}").returncode == 0
    os.unlink(f"{native}/link")
    assert place.pids() == pids and not os.path.exists(f"{native}/other")


def test_mountpoint_with_a_slash_at_its_end(place):
    """And by way of a symbolic link: status, down and a second up mean the same mount."""
    os.symlink(place.base, f"{place.base}/link")
    place.mnt = f"{place.base}/link/mnt/"
    place.up()
    s = place.status()
    assert s["up"] and s["processes"][-1]["mountpoint"] == f"{place.base}/mnt"
    assert place("down").returncode == 0 and not is_mounted(f"{place.base}/mnt")
    os.unlink(f"{place.base}/link")
    place.mnt = f"{place.base}/mnt"


def test_down_keep_and_up_again(place):
    place.up()
    write_file(f"{place.mnt}/f", content(2, 0, 5 * MIB))
    assert place("down", "--keep").returncode == 0
    assert not is_mounted(place.mnt) and os.path.exists(f"{place.dir}/key")
    place.up()
    assert_same(read_file(f"{place.mnt}/f"), content(2, 0, 5 * MIB))


def test_kept_store_comes_back_as_it_was(place):
    """With neither number nor size said again; and another size when that is asked for."""
    place("up", "--benefactors=3", "--size=128MiB", "--pool=32MiB")
    for args, mib in ((), 128), (("--size=192MiB",), 192), ((), 192):
        assert place("down", "--keep").returncode == 0
        assert place("up", "--pool=32MiB", *args).returncode == 0
        assert sum(p["program"] == "fp-benefactor" for p in place.status()["processes"]) == 3
        v = os.statvfs(place.mnt)
        assert v.f_blocks * v.f_frsize == 3 * mib * MIB


def test_up_after_everything_was_killed(place):
    place.up()
    write_file(f"{place.mnt}/f", content(3, 0, 5 * MIB), sync=True)
    for pid in place.pids():
        os.kill(pid, signal.SIGKILL)
    assert is_mounted(place.mnt)
    assert place("status").returncode == 1
    place.up()
    assert_same(read_file(f"{place.mnt}/f"), content(3, 0, 5 * MIB))


ENDING = """
import ctypes, os, sys, threading, time
threading.Thread(target=lambda: (sys.stdin.read(), time.sleep(1), os._exit(0))).start()
ctypes.CDLL(None).syscall({exit}, 0)
"""


def test_who_is_ending_is_waited_for(place):
    """The first thread of one of them has ended, others still have its files open, as after SIGKILL on a busy node: it is not taken for alive, and not for gone."""
    place.up()
    for pid in place.pids():
        os.kill(pid, signal.SIGKILL)
    ending = subprocess.Popen([sys.executable, "-c", ENDING.format(exit=60 if os.uname().machine == "x86_64" else 93)], stdin=subprocess.PIPE)
    wait_until("its first thread to end", 20, lambda: not alive(ending.pid))
    path = f"{place.dir}/fp-store.json"
    with open(path) as f:
        state = json.load(f)
    with open(f"/proc/{ending.pid}/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    manager = next(p for p in state["processes"] if p["role"] == "manager")
    manager.update(pid=ending.pid, start_ticks=ticks)
    with open(path, "w") as f:
        json.dump(state, f)
    try:
        r = place("status")
        assert r.returncode == 1 and re.search(rf"^fp-manager +{ending.pid} +ending ", r.stdout, re.M) and "waits in the kernel" in r.stdout, r.stdout
        assert re.search(r"^gone: fp-benefactor 1, fp-benefactor 2, fp-mount 1\. ", r.stdout, re.M), r.stdout
        r = place("up")
        assert r.returncode == 1 and f"fp-manager (pid {ending.pid}) was killed and can't end yet" in r.stderr, r.stderr
    finally:
        ending.stdin.close()  # a second from now
    try:
        assert " again" not in place.up().stdout
    finally:
        ending.wait(30)


@pytest.mark.parametrize("how", ["kept", "killed"])
def test_a_store_comes_up_where_and_as_it_was(place, how):
    """With nothing said again, programs find it where they look for it, and options of the environment are what they were."""
    place.up("--mounts=2", "--chunk-size=256KiB", "--stripe=2", "--data-encryption=off", "--cores=0", "--auxapp=dedup hash=sha1", env={"FP_VERSIONS": "off"})
    before = arguments(place)
    write_file(f"{place.mnt}/f", content(3, 0, MIB), sync=True)
    if how == "kept":
        assert place("down", "--keep").returncode == 0
    else:
        for pid in place.pids():
            os.kill(pid, signal.SIGKILL)
        wait_until("all to be gone", 5, lambda: not any(alive(pid) for pid in place.pids()))
    r = fp_store("up", f"--dir={place.dir}")
    assert r.returncode == 0 and f"{place.mnt}: 2 benefactors" in r.stdout and "as it was up before: FP_VERSIONS=off" in r.stderr, (r.stdout, r.stderr)
    assert sorted(mounts_below(place.base)) == [place.mnt, f"{place.mnt}-2"] and arguments(place) == before
    assert_same(read_file(f"{place.mnt}/f"), content(3, 0, MIB))
    assert versions_while_rewritten(place) == 0
    assert place("down", "--keep").returncode == 0
    r = fp_store("up", f"--dir={place.dir}", "--mounts=1", env={"FP_VERSIONS": "on"})  # what is said today counts
    assert r.returncode == 0 and mounts_below(place.base) == [place.mnt] and versions_while_rewritten(place) == 1, (r.stdout, r.stderr)


def arguments(place):
    """Of all programs, but for the manager's address."""
    with open(f"{place.dir}/fp-store.json") as f:
        return [[a for a in p["args"] if not a.startswith("--manager=")] for p in json.load(f)["processes"]]


def fpctl_json(*args):
    return json.loads(subprocess.run([bin_path("fpctl"), *args, "--json"], capture_output=True, timeout=15 * SLOW, check=True).stdout)


def versions_while_rewritten(place):
    with open(f"{place.mnt}/f", "wb", buffering=0) as f:
        f.write(b"new")
        return len(fpctl_json("versions", f"{place.mnt}/f")["versions"]) - 1  # what it is now is one


def closes(place):
    """What close(2) waits for, as the mounts say themselves."""

    def said():
        mounts = [m for m in fpctl_json("status", place.mnt)["mounts"] if m["connected"]]
        return mounts and all(m["close"] for m in mounts) and {m["close"] for m in mounts}
    return wait_until("all mounts to say it", 10, said)


def test_when_close_returns_is_said_where_the_store_is_begun(place):
    """And stays so when it was kept, and of a mount that has died."""
    place.up("--mounts=2", "--close=behind")
    assert closes(place) == {"behind"}
    kill(place, "fp-mount")
    r = fp_store("up", f"--dir={place.dir}", env={"FP_CLOSE": "behind"})
    assert r.returncode == 0 and r.stdout.startswith("up again: ") and closes(place) == {"behind"}, r.stderr
    assert place("down", "--keep").returncode == 0
    assert place("up").returncode == 0 and closes(place) == {"behind"}
    assert place("down", "--keep").returncode == 0
    assert place("up", "--close", "sync").returncode == 0 and closes(place) == {"sync"}
    assert place("down", "--keep").returncode == 0
    assert place("up", env={"FP_CLOSE": "publish"}).returncode == 0 and closes(place) == {"publish"}


@pytest.mark.parametrize("was", [(), ("--close=sync",)])
def test_a_store_that_is_up_does_not_close_otherwise(place, was):
    has = was[0].split("=")[1] if was else "publish"
    place.up(*was)
    for args, env in ((("--close=behind",), None), ((), {"FP_CLOSE": "behind"})):
        r = place("up", *args, env=env)
        assert r.returncode == 1 and r.stderr.count("\n") == 1 and "does not close as --close=behind says: stop it first" in r.stderr, r.stderr
    assert closes(place) == {has}
    for args in ((), (f"--close={has}",)):
        r = place("up", *args)
        assert r.returncode == 0 and r.stdout == f"already up: {place.mnt}\n", r.stderr


def test_what_a_configuration_says_to_the_mounts_counts(place, tmp_path):
    """fp-store passes on nothing then, and says of a store that is up what its mount does."""
    conf = {"FP_CONFIG": str(tmp_path / "fp.conf")}
    (tmp_path / "fp.conf").write_text("[mount]\nclose = behind\n")
    place.up(env=conf)
    assert closes(place) == {"behind"}
    assert place("up", "--close=behind", env=conf).stdout.startswith("already up: ")
    r = place("up", "--close=publish", env=conf)
    assert r.returncode == 1 and "does not close as --close=publish says: stop it first" in r.stderr, r.stderr


def test_a_word_of_close_that_there_is_not(place):
    r = place("up", "--close=behnd")
    assert r.returncode == 2 and "must be publish, sync or behind: did you mean 'behind'?" in r.stderr, r.stderr
    assert not os.path.exists(place.dir)


def test_a_store_of_an_earlier_version_closes_as_its_environment_said(place):
    """What fp-store has kept of it has no word for close."""
    place.up(env={"FP_CLOSE": "behind"})
    for name in ("fp-store.shape", "fp-store.json"):
        with open(f"{place.dir}/{name}") as f:
            kept = json.load(f)
        kept.pop("close", None)
        for p in kept.get("processes", ()):
            p["args"] = [a for a in p["args"] if not a.startswith("--close=")]
        with open(f"{place.dir}/{name}", "w") as f:
            json.dump(kept, f)
    assert place("up", "--close=sync").returncode == 1 and place("up", "--close=behind").stdout.startswith("already up: ")
    assert place("down", "--keep").returncode == 0
    r = place("up")
    assert r.returncode == 0 and "as it was up before: FP_CLOSE=behind" in r.stderr and closes(place) == {"behind"}, r.stderr


def test_a_manager_that_died_has_its_options_of_the_environment_again(place):
    place.up(env={"FP_VERSIONS": "off"})
    write_file(f"{place.mnt}/f", content(3, 0, MIB), sync=True)
    kill(place, "fp-manager")
    r = fp_store("up", f"--dir={place.dir}", env={"FP_VERSIONS": "on"})
    assert r.returncode == 0 and "fp-manager had died: started again" in r.stderr, r.stderr
    assert versions_while_rewritten(place) == 0


def test_a_shape_that_was_edited_is_refused(place):
    place.up()
    assert place("down", "--keep").returncode == 0
    shape = f"{place.dir}/fp-store.shape"
    with open(shape) as f:
        was = json.load(f)
    for bad in ({"mount": "relative"}, {"mounts": 0}, {"stripe": "two"}, {"auxapps": [1]}, {"size_bytes": 1}, {"backend": "tape"}, {"close": "behnd"}, {"close": 1}):
        with open(shape, "w") as f:
            json.dump(was | bad, f)
        r = fp_store("up", f"--dir={place.dir}", f"--pool={32 * MIB}")
        assert r.returncode == 1 and "does not look right" in r.stderr, (bad, r.stderr)
    with open(shape, "w") as f:
        json.dump(was, f)
    assert fp_store("up", f"--dir={place.dir}").returncode == 0 and is_mounted(place.mnt)


def kill(place, program, index=1):
    """The pid that it had, when it is gone."""
    pid = next(p["pid"] for p in place.status()["processes"] if (p["program"], p["index"]) == (program, index))
    os.kill(pid, signal.SIGKILL)
    wait_until("it to be gone", 5, lambda: not alive(pid))
    return pid


def others(place, program):
    return [p["pid"] for p in place.status()["processes"] if p["program"] != program]


@pytest.mark.parametrize("program", ["fp-manager", "fp-benefactor"])
def test_one_that_died_is_started_again(place, program):
    """This one alone, with what it was given, and programs that have files open do not notice."""
    place.up("--chunk-size=256KiB", "--stripe=2", "--data-encryption=off")
    before = others(place, program)
    with open(f"{place.mnt}/f", "wb+", buffering=0) as f:
        f.write(content(1, 0, 4 * MIB))
        os.fsync(f.fileno())
        pid = kill(place, program)
        r = place("status")
        assert r.returncode == 1 and f"gone: {program}" in r.stdout and "just this one again" in r.stdout, r.stdout
        began = time.monotonic()
        r = fp_store("up", f"--dir={place.dir}", "--mount", place.mnt)
        assert r.returncode == 0 and r.stdout == f"up again: {place.mnt}\n", r.stderr
        assert re.search(rf"{program}( 1)? had died: started again, pid \d+\n$", r.stderr) and r.stderr.count("\n") == 1, r.stderr
        assert time.monotonic() - began < 5 * SLOW
        assert pid not in place.pids() and others(place, program) == before and place.status()["up"]
        f.write(content(1, 4 * MIB, 4 * MIB))
        os.fsync(f.fileno())
        f.seek(0)
        assert_same(f.read(), content(1, 0, 8 * MIB))

    def goes_everywhere():
        write_file(f"{place.mnt}/g", content(2, 0, 2 * MIB), sync=True)
        r = json.loads(subprocess.run([bin_path("fpctl"), "stat", f"{place.mnt}/g", "--json"], capture_output=True, timeout=15 * SLOW).stdout)
        return r["chunk_size_bytes"] == 256 << 10 and {x["benefactor"] for x in r["ranges"]} == {1, 2}

    wait_until("new data to go to both", 20, goes_everywhere)


def test_a_mount_that_died_is_mounted_again(place):
    """The dead mountpoint is unmounted first; other mounts go on."""
    place.up("--mounts=2")
    before = others(place, "fp-mount")
    write_file(f"{place.mnt}/f", content(1, 0, 4 * MIB), sync=True)
    with open(f"{place.mnt}-2/g", "wb", buffering=0) as g:
        g.write(b"a")
        kill(place, "fp-mount")
        with pytest.raises(OSError):
            os.stat(place.mnt)
        r = fp_store("up", f"--dir={place.dir}", "--mount", place.mnt)
        assert r.returncode == 0 and "fp-mount 1 had died: started again" in r.stderr and "unmounting it" in r.stderr, r.stderr
        g.write(b"b")
    assert others(place, "fp-mount") == before and place.status()["up"]
    assert sorted(mounts_below(place.base)) == [place.mnt, f"{place.mnt}-2"]
    assert_same(read_file(f"{place.mnt}/f"), content(1, 0, 4 * MIB))
    assert read_file(f"{place.mnt}/g") == b"ab"


def test_a_mount_that_is_unmounted_is_waited_for(place):
    """It ends when programs have closed what they have open there; for a moment up waits for that, and then says so."""
    place.up()
    with open(f"{place.mnt}/f", "wb", buffering=0) as f:
        f.write(b"a")
        assert LIBC.umount2(place.mnt.encode(), 2) == 0  # MNT_DETACH
        begun = time.monotonic()
        r = fp_store("up", f"--dir={place.dir}", "--mount", place.mnt)
        assert r.returncode == 1 and "runs and is not mounted on" in r.stderr and 5 < time.monotonic() - begun < 30 * SLOW, r.stderr
        later = threading.Timer(1, f.close)
        later.start()
        r = fp_store("up", f"--dir={place.dir}", "--mount", place.mnt)
        later.join()
        assert r.returncode == 0, r.stderr
    assert read_file(f"{place.mnt}/f") == b"a"


def test_all_but_one_died(place):
    place.up()
    write_file(f"{place.mnt}/f", content(1, 0, 4 * MIB), sync=True)
    for program in ("fp-mount", "fp-benefactor", "fp-manager"):
        kill(place, program)
    r = place("status")
    assert "gone: fp-manager, fp-benefactor 1, fp-mount 1. fp-store up" in r.stdout and "just these again" in r.stdout, r.stdout
    r = place("up")
    assert r.returncode == 0 and r.stderr.count("had died: started again") == 3, r.stderr
    assert_same(read_file(f"{place.mnt}/f"), content(1, 0, 4 * MIB))


def test_a_draining_program_that_died_is_started_by_its_benefactor(place):
    """Nothing for up to do: the store is up, and the drain ends."""
    place.up()
    target = f"{place.base}/target"
    os.mkdir(target)
    write_file(f"{place.mnt}/f", content(1, 0, 4 * MIB), sync=True)

    def drain():
        return subprocess.run([bin_path("fpctl"), "drain", f"{place.mnt}/f", f"--to={target}", "--wait", "--timeout=60s"],
                              capture_output=True, text=True, timeout=90 * SLOW)

    def drainers():
        mine = set(place.pids())
        found = []
        for d in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{d}/stat") as f:
                    name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
            except OSError:
                continue
            if name == "fp-drain" and int(rest.split()[1]) in mine and rest.split()[0] not in "ZX":
                found.append(int(d))
        return found

    assert drain().returncode == 0
    killed = drainers()
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    r = place("up")
    assert r.returncode == 0 and r.stdout == f"already up: {place.mnt}\n", r.stderr
    write_file(f"{place.mnt}/f", content(2, 0, 4 * MIB), sync=True)
    r = drain()
    assert r.returncode == 0, r.stderr
    assert_same(read_file(f"{target}/f"), content(2, 0, 4 * MIB))
    subprocess.run(["rm", "-r", target], check=True)


def test_what_cannot_be_started_again_stops_nothing(place):
    """Here something else lies where a mount was; then that is away."""
    place.up("--mounts=2")
    kill(place, "fp-mount", 2)
    kill(place, "fp-benefactor", 2)
    unmount(f"{place.mnt}-2")
    os.rmdir(f"{place.mnt}-2")
    write_file(f"{place.mnt}-2", b"")
    r = fp_store("up", f"--dir={place.dir}", f"--mount={place.mnt}")
    assert r.returncode == 1 and f"{place.mnt}-2" in r.stderr and "fp-benefactor 2 had died: started again" in r.stderr, r.stderr
    assert [(p["program"], p["index"]) for p in place.status()["processes"] if not p["running"]] == [("fp-mount", 2)]
    write_file(f"{place.mnt}/f", content(1, 0, 4 * MIB), sync=True)
    os.unlink(f"{place.mnt}-2")
    r = fp_store("up", f"--dir={place.dir}", f"--mount={place.mnt}")
    assert r.returncode == 0, r.stderr
    assert_same(read_file(f"{place.mnt}-2/f"), content(1, 0, 4 * MIB))


def test_down_is_bounded_when_everything_hangs(place):
    place.up()
    pids = place.pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    r = place("down", "--grace=500ms")
    assert time.monotonic() - started < 20 * SLOW
    assert r.returncode == 0 and not any(alive(pid) for pid in pids) and not is_mounted(place.mnt)


# --- down with a manager that has died ----------------------------------------


class Writer:
    """A file that was written and neither synced nor closed when the manager died. In a process of its own: after a fork of ours, the
    child's close would wait for the manager."""

    def __init__(self, place):
        self.place = place
        place.up()
        pid = next(p["pid"] for p in place.status()["processes"] if p["program"] == "fp-manager")
        code = ("import os, signal, sys, time\nfd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\nos.write(fd, b'y' * (5 << 20))\n"
                "os.kill(int(sys.argv[2]), signal.SIGKILL)\nprint('written', flush=True)\ntime.sleep(300)")
        self.proc = subprocess.Popen([sys.executable, "-c", code, f"{place.mnt}/f", str(pid)], stdout=subprocess.PIPE)
        assert self.proc.stdout.readline() == b"written\n"
        wait_until("the manager to be gone", 5, lambda: not alive(pid))

    def down(self, *args):
        """Its answer, and how long it took."""
        started = time.monotonic()
        r = self.place("down", *args)
        return r, time.monotonic() - started

    def is_whole(self):
        self.place.up()
        return read_file(f"{self.place.mnt}/f") == b"y" * (5 * MIB)


@pytest.fixture
def writer(place):
    w = Writer(place)
    yield w
    place("down")  # before: its end would wait for the manager
    w.proc.kill()
    w.proc.wait(30)


def test_down_keep_starts_a_dead_manager_to_lose_nothing(writer):
    r, _ = writer.down("--keep")
    assert r.returncode == 0 and "starting it again" in r.stderr and "lost" not in r.stderr, r.stderr
    assert writer.is_whole()


def test_down_keep_asks_for_force_when_there_is_no_manager_to_be_had(place, writer):
    where = json.loads(place("status", "--json").stdout)["manager"]
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", int(where.rsplit(":")[1])))
    s.listen()
    pids = [p for p in place.pids() if alive(p)]
    r, _ = writer.down("--keep")
    assert r.returncode == 1 and "--force" in r.stderr and where in r.stderr, r.stderr
    assert is_mounted(place.mnt) and all(alive(p) for p in pids), "nothing was stopped"
    s.close()
    r, _ = writer.down("--keep")
    assert r.returncode == 0, r.stderr
    assert writer.is_whole()


def test_down_force_says_what_is_lost(place, writer):
    r, took = writer.down("--keep", "--force")
    assert took < 8 * SLOW
    assert r.returncode == 1 and re.search(r"5 MiB of 1 file that no (close or )?fsync had confirmed are lost", r.stderr), r.stderr
    place.up()
    assert os.stat(f"{place.mnt}/f").st_size == 0, "and so it was"


def test_status_does_not_wait_for_a_dead_manager_and_up_starts_it(place, writer):
    """The mount keeps what it holds until then."""
    for command, code, says in (("status", 1, "gone: fp-manager"), ("up", 0, "fp-manager had died: started again"), ("status", 0, "")):
        started = time.monotonic()
        r = place(command)
        assert time.monotonic() - started < 3 * SLOW
        assert r.returncode == code and says in r.stdout + r.stderr
    r, _ = writer.down("--keep")
    assert r.returncode == 0 and "lost" not in r.stderr, r.stderr
    assert writer.is_whole()


def test_down_does_not_wait_for_a_dead_manager(writer):
    r, took = writer.down()
    assert r.returncode == 0 and took < 8 * SLOW


def test_down_when_the_mount_is_in_use(place):
    place.up()
    user = subprocess.Popen(["sleep", "60"], cwd=place.mnt)
    try:
        r = place("down", seconds=60)
        assert r.returncode == 0 and f"{place.mnt} is in use" in r.stderr
        assert not is_mounted(place.mnt)
    finally:
        user.kill()
        user.wait()


def test_two_stores_at_once(place, native):
    place.up()
    other = Place(native)
    other.dir, other.mnt = f"{native}/store2", f"{native}/mnt2"
    other.up()
    write_file(f"{place.mnt}/a", b"a")
    write_file(f"{other.mnt}/b", b"b")
    assert os.listdir(place.mnt) == ["a"] and os.listdir(other.mnt) == ["b"]
    assert other("down").returncode == 0
    assert read_file(f"{place.mnt}/a") == b"a"


@pytest.mark.short
def test_memory_backend_and_more_mounts(place):
    place.up("--backend=memory", "--mounts=3")
    write_file(f"{place.mnt}/f", content(4, 0, 3 * MIB))
    for m in (place.mnt, place.mnt + "-2", place.mnt + "-3"):
        assert_same(read_file(f"{m}/f"), content(4, 0, 3 * MIB))


def test_an_emulated_device_is_what_a_kept_store_has(place):
    place.up("--backend=emulated:write=40MB/s")
    write_file(f"{place.mnt}/f", content(6, 0, 3 * MIB))
    assert place("down", "--keep").returncode == 0
    assert place("up").returncode == 0
    assert_same(read_file(f"{place.mnt}/f"), content(6, 0, 3 * MIB))
    began = time.monotonic()
    write_file(f"{place.mnt}/g", content(7, 0, 16 * MIB), sync=True)
    assert time.monotonic() - began >= 16 * MIB / 80e6 - 0.02  # two benefactors


def test_options_reach_the_programs(place):
    place.up("--chunk-size=256KiB", "--stripe=2", "--data-encryption=off")
    write_file(f"{place.mnt}/f", content(5, 0, 2 * MIB), sync=True)
    r = json.loads(subprocess.run([bin_path("fpctl"), "stat", f"{place.mnt}/f", "--json"], capture_output=True,
                                  timeout=15 * SLOW).stdout)
    assert r["chunk_size_bytes"] == 256 << 10 and r["chunks"] == 8
    assert {x["benefactor"] for x in r["ranges"]} == {1, 2}


# --- failing ----------------------------------------------------------------


def fails(place, *args, says, leaves=()):
    r = place("up", *args)
    assert r.returncode == 1, r.stdout
    errors = [x for x in r.stderr.splitlines() if ": ERROR: " in x]
    assert len(errors) == 1 and re.search(says, errors[0]), r.stderr
    assert sorted(os.listdir(place.base)) == sorted(leaves)


def test_not_enough_space(place):
    fails(place, "--size=100TiB", says=r"free.*size")
    fails(place, "--backend=memory", "--size=900GiB", says=r"memory.*size")


def test_mountpoint_is_a_file(place):
    write_file(place.mnt, b"")
    fails(place, "--size=64MiB", says=re.escape(place.mnt), leaves=["mnt"])
    os.unlink(place.mnt)


def test_refused_up_leaves_a_directory_as_it_was(place):
    os.mkdir(place.dir)
    fails(place, "--size=100TiB", says=r"free.*size", leaves=["store"])
    fails(place, "--size=64MiB", "--pool=4TiB", says=r"fp-mount.*(memory|pool)", leaves=["store"])
    assert os.listdir(place.dir) == []
    os.rmdir(place.dir)


def test_mountpoint_of_another_store(place, native):
    place.up()
    other = Place(native)
    other.dir = f"{native}/store2"
    r = other("up", "--size=64MiB")
    assert r.returncode == 1 and r.stderr.count("\n") == 1 and place.mnt in r.stderr
    assert not os.path.exists(other.dir)


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_store_that_has_the_mountpoint_now_stays_there(place, native, command):
    """All processes of the first one are gone, and another one is where it was: that is not unmounted by those who clear up after the first."""
    place.up()
    pids = place.pids()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until("them to be gone", 10, lambda: not any(alive(pid) for pid in pids))
    unmount(place.mnt)
    other = Place(native)
    other.dir = f"{native}/other"
    other.up()
    try:
        write_file(f"{other.mnt}/f", b"of the other")
        r = place(command, *(["--keep"] if command == "down" else []))
        assert r.returncode == (1 if command == "up" else 0), r.stderr
        assert command == "down" or "another store is mounted on" in r.stderr
        assert is_mounted(place.mnt)
        assert read_file(f"{other.mnt}/f") == b"of the other"
    finally:
        other("down")
        if os.path.isdir(place.mnt):  # neither of the two knows that it has made it
            os.rmdir(place.mnt)


def test_cause_of_a_daemon_is_shown(place):
    """Here the mount cannot have its pool."""
    fails(place, "--size=64MiB", "--pool=4TiB", says=r"fp-mount.*(memory|pool)")


def test_directory_that_is_not_ours_or_missing(place, native):
    r = fp_store("up", f"--dir={native}/no/where", f"--mount={native}/m")
    assert r.returncode == 1 and r.stderr.count("\n") == 1 and f"{native}/no/where" in r.stderr


def test_files_of_others_are_left_alone(place):
    os.mkdir(place.dir)
    write_file(f"{place.dir}/mine", b"keep")
    place.up()
    assert place("down").returncode == 0
    assert os.listdir(place.dir) == ["mine"]
    os.unlink(f"{place.dir}/mine")
    os.rmdir(place.dir)


def test_down_leaves_nothing_to_rely_on_in_a_target(place):
    """Else the next store could not replace what this one has evicted."""
    place.up()
    target = f"{place.base}/pfs"
    os.mkdir(target)
    write_file(f"{place.mnt}/f", content(1, 0, 4 * MIB))
    for args in (["drain", f"{place.mnt}/f", f"--to={target}", "--wait"], ["evict", f"{place.mnt}/f"]):
        subprocess.run([bin_path("fpctl"), *args, "--timeout=60s"], check=True, timeout=80, env={**os.environ, "FP_KEY": f"{place.dir}/key"}, capture_output=True)
    assert any("-needs-" in n for n in os.listdir(f"{target}/.fp-drain"))
    r = place("down", "--keep")
    assert r.returncode == 0, r
    assert any("-needs-" in n for n in os.listdir(f"{target}/.fp-drain"))
    place.up()
    r = place("down")
    assert r.returncode == 0 and r.stderr == "", r
    assert not os.listdir(f"{target}/.fp-drain")
    assert_same(read_file(f"{target}/f"), content(1, 0, 4 * MIB))
    shutil.rmtree(target)


def test_interrupt_while_starting(place):
    """Ctrl-C at any moment: nothing is left."""
    for delay in (0.01, 0.03, 0.06, 0.1, 0.2):
        p = subprocess.Popen([bin_path("fp-store"), "up", "--benefactors=4", "--size=64MiB", f"--dir={place.dir}",
                              f"--mount={place.mnt}", "--pool=32MiB"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(delay)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=40 * SLOW)
        if p.returncode == 0:
            assert place("down").returncode == 0
        assert os.listdir(place.base) == [], f"after {delay} s"
