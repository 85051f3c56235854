"""Aux-apps that take long: what an application waits for, for how long, and what it is told. Rows of "Errors and deadlines" in docs/ARCHITECTURE.md name these tests.

The plugin is tests/plugins/probe.c, told what to do by its options.
"""

import errno
import os
import time

import pytest

from harness.aux import MIB, probe, unique
from harness.daemons import SLOW, wait_until
from harness.files import assert_same, read_file, write_file

pytestmark = pytest.mark.expect_log(r"aux-?app|fp-auxhost|probe")


@pytest.fixture
def start(new_store):
    def make(*declared, args=()):
        s = new_store().up(mounts=0)
        s.add_mount(*[f"--auxapp={d}" for d in declared], *args)
        return s
    return make


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
    assert 0.8 <= time.monotonic() - begun < 5 * SLOW
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
