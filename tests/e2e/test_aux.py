"""The host of aux-apps as a part of its mount: it starts and ends with it, and what went wrong is told with the name of the aux-app."""

import errno
import os
import re
import shutil
import signal
import time

import pytest

from harness.aux import PROBES, TOP, apps, host_pid, probe, wait_app
from harness.daemons import SLOW, wait_until
from harness.files import read_file, write_file


@pytest.mark.limit(120)
@pytest.mark.expect_log("fp-mount: ERROR")
@pytest.mark.parametrize("words, line", [
    ("probe do=exit_start", r"probe did not start: it called exit\(7\)"),
    ("probe do=crash_start", r"probe did not start: it crashed \(Segmentation fault\)"),
    ("stillborn", r"stillborn did not start: it crashed \(Segmentation fault\)"),
    ("probe do=nostart", "probe does not start: there is no key under the mat"),
    (os.path.join(TOP, "lib", "auxapps", "dedup.so") + " pattern=abc", r"dedup does not start: pattern: \* must stand for the step"),
    ("probe do=nothing", "nothing"),
])
def test_a_failed_start_names_the_aux_app_and_leaves_no_session(start, words, line):
    store = start()
    mount = store.mounts[0]
    with pytest.raises(AssertionError):
        store.add_mount(f"--auxapp-dir={PROBES}", f"--auxapp={words}")
    failed = store.mounts[-1]
    failed.ended_as_told = True
    assert failed.wait() != 0
    assert re.search(line, failed.text()), failed.text()
    # not "away" for as long as a session is kept that may come back
    assert [c["pid"] for c in store.status()["mounts"]] == [mount.pid]


@pytest.mark.limit(120)
def test_a_killed_mounts_aux_apps_are_shown_as_away(start):
    store = start()
    dead = store.add_mount(f"--auxapp={probe()}")
    wait_until("the first figures", 10, lambda: "running" in store.fpctl("auxapps").stdout)
    dead.kill(signal.SIGKILL)
    dead.ended_as_told = True
    shown = wait_until("fpctl to know", 10, lambda: re.search("(?m)^.*probe +away.*$", store.fpctl("auxapps").stdout))
    assert "running" not in shown.group(0)
    assert [a["state"] for a in apps(store)] == ["away"]


@pytest.mark.limit(120)
@pytest.mark.expect_log("probe", "can't be read")
def test_a_crash_of_what_nobody_declared_is_told_with_its_name(start):
    store = start("probe do=xor", args=[f"--auxapp-dir={PROBES}"])
    mount = store.mounts[0]
    write_file(mount.at("a"), b"x" * 100000)
    mount.unmount()
    other = store.add_mount(f"--auxapp-dir={store.dir}")
    shutil.copy(os.path.join(PROBES, "stillborn.so"), os.path.join(store.dir, "probe.so"))
    with pytest.raises(OSError):
        read_file(other.at("a"))
    other.wait_log(r"aux-app probe, loaded to read what it has coded: it crashed \(Segmentation fault\)")


@pytest.mark.limit(240)
@pytest.mark.expect_log("probe", "can't be read")
def test_crashes_of_what_nobody_declared_count_for_it_alone(start):
    """One that can't be loaded takes the host along each time. It is given up itself: EIO for what needs it. What is declared beside it goes on."""
    store = start("probe do=xor", args=[f"--auxapp-dir={PROBES}"])
    mount = store.mounts[0]
    write_file(mount.at("a"), b"x" * 100000)
    mount.unmount()
    other = store.add_mount(f"--auxapp-dir={store.dir}", f"--auxapp={os.path.join(PROBES, 'probe2.so')} do=pass")
    shutil.copy(os.path.join(PROBES, "stillborn.so"), os.path.join(store.dir, "probe.so"))
    for turn in range(25):
        begun = time.monotonic()
        with pytest.raises(OSError) as e:
            read_file(other.at("a"))
        assert e.value.errno == errno.EIO
        if turn > 3:
            assert time.monotonic() - begun < 2 * SLOW, "it is not tried any more"
    text = other.text()
    assert len(re.findall("aux-app probe failed too often when it was to read what it has coded", text)) == 1
    assert 3 <= len(re.findall(r"loaded to read what it has coded: it crashed", text)) <= 4
    assert "bypassed" not in text
    write_file(other.at("b"), b"y" * 100000, sync=True)
    declared = wait_app(store, "probe2", "the file", lambda a: a["chunks"] > 0, mount=other)
    assert (declared["state"], declared["failures"]) == ("running", 0)
    assert read_file(other.at("b")) == b"y" * 100000


@pytest.mark.limit(120)
def test_host_ends_with_the_mount(start):
    """And has no more of it than it needs: files of its own, no socket or key of fp-mount's."""
    mount = start(probe()).mounts[0]
    pid = host_pid(mount)
    fds = set(os.listdir(f"/proc/{pid}/fd"))
    assert fds <= {str(n) for n in range(16)}, fds
    assert b"FP_KEY" not in read_file(f"/proc/{pid}/environ")
    mount.kill()
    wait_until("the host to end", 5, lambda: not os.path.exists(f"/proc/{pid}"))
