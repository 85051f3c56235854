"""Service cores: what works for aux-apps runs there, and leaves the application's cores alone."""

import glob
import os
import pathlib
import re
import signal
import subprocess

import pytest

from harness.aux import app, host_pid, probe, unique, wait_app
from harness.daemons import MIB, SLOW, wait_until
from harness.files import write_file


def threads(pid, name):
    """Cores that each thread of this name may use."""
    found = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm") as f:
            if f.read().strip() == name:
                found.append(os.sched_getaffinity(int(tid)))
    return found


@pytest.mark.parametrize("cores", ["first", "all"])
def test_the_thread_that_serves_the_host_runs_on_service_cores(new_store, cores):
    ours = sorted(os.sched_getaffinity(0))
    wanted = ours[:1] if cores == "first" else ours
    store = new_store()
    store.start_manager()
    store.add_benefactor()
    mount = store.add_mount("--auxapp=dedup", f"--cores={','.join(str(c) for c in wanted)}")
    wait_until("aux-link on its cores", 10 * SLOW, lambda: threads(mount.pid, "aux-link") == [set(wanted)])
    with open(os.path.join(mount.path, "f"), "wb") as f:
        f.write(bytes(range(256)) * (MIB // 256))
    with open(os.path.join(mount.path, "f"), "rb") as f:
        assert f.read() == bytes(range(256)) * (MIB // 256)


def test_whether_the_service_cores_are_ours_alone_is_told(new_store):
    core = max(os.sched_getaffinity(0))
    store = new_store().up(mounts=0)
    with open("/sys/devices/system/cpu/isolated", encoding="ascii") as f:
        isolated = f.read().strip()
    mount = store.add_mount(f"--cores={core}")
    mount.wait_log(f"service cores {core}: " + ("other programs may run there, too" if not isolated else ""))
    assert "service cores" not in store.add_mount().text()


# ---------------------------------------------------------------- the cpuset of fp-auxhost

CPUSETS = "/sys/fs/cgroup/cpuset"  # version 1, where it is usually mounted


def left(pid):
    """Cpusets of a mount's aux-apps that there are."""
    return glob.glob(f"/sys/fs/cgroup/**/fpstore-aux-{pid}-*", recursive=True)


def usable():
    """May this process make a cpuset of version 1 and move another one into it? Found out by doing it."""
    with open("/proc/self/cgroup", encoding="ascii") as f:
        own = [line.strip().split(":", 2)[2] for line in f if "cpuset" in line.split(":")[1].split(",")]
    where = os.path.join(CPUSETS, own[0].lstrip("/"), "fp-test-probe") if own else None
    try:
        os.mkdir(where)
    except (OSError, TypeError):
        return False
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        for name, value in (("cpuset.cpus", str(max(os.sched_getaffinity(0)))), ("cpuset.mems", "0"), ("cgroup.procs", str(sleeper.pid))):
            with open(os.path.join(where, name), "w", encoding="ascii") as f:
                f.write(value)
        return True
    except OSError:
        return False
    finally:
        sleeper.kill()
        sleeper.wait()
        wait_until("the cpuset to be empty", 5, lambda: not os.path.exists(where) or os.rmdir(where) is None, 0.01)


def confined(mount):
    """What the mount says of it, once; the truth of it is tested here."""
    text = mount.text()
    yes = len(re.findall(r"fp-auxhost is in a cpuset of its own: .*\(/.*/fpstore-aux-\d+-\d\)", text))
    no = len(re.findall(r"fp-auxhost has no cpuset of its own: \S.*; its threads are pinned, but", text))
    assert yes + no == 1, text
    return yes == 1


def test_a_plugins_own_thread_stays_on_the_service_core(new_store):
    """It asks for every other core. Where a cpuset may be made it stays; where not, it gets away, and the log has said so."""
    core = max(os.sched_getaffinity(0))
    store = new_store().up(mounts=0)
    mount = store.add_mount(f"--auxapp={probe()} do=stray", f"--cores={core}")
    kept = confined(mount)
    assert kept or not usable(), mount.text()
    for i in range(4):
        write_file(mount.at(f"f{i}"), unique(i, MIB))
    figures = wait_app(store, "probe", "four chunks", lambda a: a["counters"].get("strayed", 0) + a["counters"].get("stayed", 0) == 4)
    alone = os.sysconf("SC_NPROCESSORS_CONF") == 1
    assert figures["counters"].get("stayed", 0) == (4 if kept or alone else 0), figures
    assert (figures["counters"]["core"] == core) == (kept or alone)
    assert figures["cpuset"] == kept
    shown = store.fpctl("auxapps").stdout
    assert len(re.findall(r"(?m)^.*probe .*running .* 1 cpuset .*$", shown)) == kept, shown
    assert (f"{core} cpuset" in shown) == kept, shown
    mount.unmount()
    assert left(mount.pid) == []


def test_a_cpuset_goes_with_its_host_and_comes_with_the_next(new_store):
    core = max(os.sched_getaffinity(0))
    store = new_store().up(mounts=0)
    mount = store.add_mount(f"--auxapp={probe()}", f"--cores={core}")
    kept = confined(mount)
    for _ in range(3):
        old = host_pid(mount)
        os.kill(old, signal.SIGKILL)
        wait_until("another host", 10, lambda: host_pid(mount) not in (None, old) and app(store, "probe")["state"] == "running")
        cgroup = f"/proc/{host_pid(mount)}/cgroup"
        wait_until("its cpuset", 10, lambda: ("/fpstore-aux-" in pathlib.Path(cgroup).read_text()) == kept)
        assert len(left(mount.pid)) == kept
    assert confined(mount) == kept, "told once"
    mount.unmount()
    assert left(mount.pid) == []


def test_what_a_killed_mount_has_left_is_removed_by_the_next(new_store):
    core = max(os.sched_getaffinity(0))
    store = new_store().up(mounts=0)
    dead = store.add_mount(f"--auxapp={probe()}", f"--cores={core}")
    kept, host = confined(dead), host_pid(dead)
    dead.kill(signal.SIGKILL)
    dead.ended_as_told = True
    wait_until("its host to end with it", 10, lambda: not os.path.exists(f"/proc/{host}"))
    assert len(left(dead.pid)) == kept
    mount = store.add_mount(f"--auxapp={probe()}", f"--cores={core}")
    assert confined(mount) == kept and left(dead.pid) == []
    assert len(left(mount.pid)) == kept
    mount.unmount()
    assert left(mount.pid) == []
