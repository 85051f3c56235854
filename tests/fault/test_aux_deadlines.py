"""Aux-apps that take long: what an application waits for, for how long, and what it is told. Rows of "Errors and deadlines" in docs/ARCHITECTURE.md name these tests.

The plugin is tests/plugins/probe.c, told what to do by its options.
"""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from harness.aux import MIB, probe, unique, wait_app
from harness.daemons import SLOW, wait_until
from harness.files import assert_same, read_file, write_file

pytestmark = pytest.mark.expect_log(r"aux-?app|fp-auxhost|probe")


# ---------------------------------------------------------------- chunks


@pytest.mark.parametrize("sync", [False, True], ids=["close", "fsync"])
def test_slow_aux_apps_are_waited_for_as_long_as_they_go_forward(start, sync):
    """40 chunks of 0.1 s each, and a time-out of half of that: no error, and all is there."""
    s = start(f"{probe()} do=sleep us=100000", args=["--io-timeout=2s"])
    data = unique(1, 40 * MIB)
    begun = time.monotonic()
    write_file(s.mounts[0].at("f"), data, sync=sync)
    assert time.monotonic() - begun > 2
    assert_same(read_file(s.add_mount().at("f")), data)


@pytest.mark.limit(90)
@pytest.mark.expect_log(r"not stored in time")
def test_aux_apps_that_stand_still_fail_close_in_time_and_nothing_is_lost(start):
    """Each chunk takes ten times the time-out. close says so, log and status too; what is stored after that is published."""
    s = start(f"{probe()} do=sleep us=8000000 deadline=1h", args=["--io-timeout=800ms"])
    m, data = s.mounts[0], unique(2, 2 * MIB)
    f = os.open(m.at("f"), os.O_WRONLY | os.O_CREAT)
    os.write(f, data)
    begun = time.monotonic()
    with pytest.raises(OSError) as e:
        os.close(f)
    assert e.value.errno == errno.EIO
    assert 0.79 < time.monotonic() - begun < 5 * SLOW
    m.wait_log(r"not stored in time", 5)
    wait_until("its line in the status", 5, lambda: "not stored in time" in s.fpctl("status").stdout, 0.2)
    begun = time.monotonic()
    os.mkdir(m.at("d"))
    os.listdir(m.path)
    assert time.monotonic() - begun < 3 * SLOW, "nothing else waits for it"
    other = s.add_mount()
    assert os.path.getsize(other.at("f")) == 0
    s.fpctl("auxapps", "set", "probe", "us=0")
    wait_until("the data", 30, lambda: os.path.getsize(other.at("f")) == len(data))
    assert_same(read_file(other.at("f")), data)


@pytest.mark.limit(120)
@pytest.mark.expect_log(r"not stored in time|written out|are lost|could not be stored|written data was lost")
def test_the_end_of_a_mount_whose_aux_apps_stand_still(start):
    """They never come back. The mount ends all the same, after 30 s of waiting, with 1, and says how much is lost."""
    s = start(f"{probe()} do=hang deadline=1h", args=["--io-timeout=500ms"])
    m = s.mounts[0]
    for i in range(3):
        with pytest.raises(OSError) as e:
            write_file(m.at(f"f{i}"), unique(i, 2 * MIB))
        assert e.value.errno == errno.EIO
    m.ended_as_told = True
    subprocess.run(["fusermount3", "-u", m.path], check=True, timeout=20 * SLOW)
    begun = time.monotonic()
    assert m.wait(60) == 1, m.tail()
    assert time.monotonic() - begun < 35 + 5 * SLOW
    m.wait_log(r"6 MiB of 3 files that no (close or )?fsync had confirmed are lost", 1)


# ---------------------------------------------------------------- calls that wait for an aux-app: probe is asked before each unlink


def timed(f, *args):
    begun = time.monotonic()
    f(*args)
    return time.monotonic() - begun


def some_files(mount, *names):
    for name in names:
        write_file(mount.at(name), b"x")


@pytest.mark.short
def test_a_call_does_not_wait_for_a_file_that_takes_long(start):
    s = start(f"{probe()} us=9000000 deadline=1h")
    m = s.mounts[0]
    some_files(m, "keep", "go", "slow_file")
    m.wait_log(r"sealed go", 10)
    time.sleep(0.3)
    os.unlink(m.at("go"))
    assert "sealed slow_file" not in m.text()
    with pytest.raises(PermissionError):
        os.unlink(m.at("keep"))


@pytest.mark.parametrize("name", ["hang", "patient"])
def test_a_call_without_an_answer_goes_on(start, name):
    """It never comes back, or gives up when it is told that its time is over."""
    s = start(f"{probe()} deadline=500ms")
    m = s.mounts[0]
    some_files(m, name)
    assert timed(os.unlink, m.at(name)) < 1.5 + 5 * SLOW
    assert not os.path.exists(m.at(name))
    m.wait_log(r"no answer to unlink, which goes on", 5)
    wait_app(s, "probe", "its failure", lambda a: a["failures"] >= 1)


@pytest.mark.parametrize("name", ["hang", "patient"])
def test_a_call_without_an_answer_fails_where_it_is_required(start, name):
    s = start(f"{probe()} deadline=500ms failures=1 required")
    m = s.mounts[0]
    some_files(m, name, "go")
    for each in (name, "go"):  # the second: it has failed, and is not asked
        begun = time.monotonic()
        with pytest.raises(OSError) as e:
            os.unlink(m.at(each))
        assert e.value.errno == errno.EIO
        assert time.monotonic() - begun < 1.5 + 5 * SLOW
        wait_app(s, "probe", "failed", lambda a: a["state"] == "failed")
    m.wait_log(r"required and gives no answer to unlink", 5)
    assert os.path.exists(m.at(name)) and os.path.exists(m.at("go"))
    s.fpctl("auxapps", "set", "probe", "bypass=off")
    wait_app(s, "probe", "running", lambda a: a["state"] == "running")
    wait_until("an answer", 10, lambda: gone(m.at("go")), 0.2)


def gone(path):
    try:
        os.unlink(path)
    except OSError:
        pass
    return not os.path.exists(path)


def test_a_call_that_waits_can_be_interrupted(start):
    """Ctrl-C, also while it is required and has an hour to answer."""
    s = start(f"{probe()} us=8000000 deadline=1h required")
    m = s.mounts[0]
    some_files(m, "slow")
    p = subprocess.Popen([sys.executable, "-c", "import os, sys; os.unlink(sys.argv[1])", m.at("slow")], stderr=subprocess.DEVNULL)
    time.sleep(1)
    begun = time.monotonic()
    p.send_signal(signal.SIGINT)
    assert p.wait(20 * SLOW) != 0
    assert time.monotonic() - begun < 3 * SLOW
    assert os.path.exists(m.at("slow"))
