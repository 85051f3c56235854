"""Service cores: what works for aux-apps runs there, and leaves the application's cores alone."""

import os

import pytest

from harness.daemons import MIB, SLOW, wait_until


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
