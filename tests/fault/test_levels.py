"""fpctl wait and the levels that are shown, while processes die and devices fail."""

import os
import random
import time

import pytest

from harness.daemons import PACE, SLOW, wait_until
from harness.files import content, level, seed_of_run, write_file

MIB = 1 << 20


def end_of(proc, seconds):
    try:
        _, err = proc.communicate(timeout=seconds * SLOW)
    finally:
        if proc.poll() is None:
            proc.kill()
            proc.communicate()
    return proc.returncode, err


@pytest.mark.expect_log(r"manager|connection|lost")
def test_manager_is_killed_in_wait(new_store):
    """Whatever it was killed in, the wait goes on and what it ends with is true."""
    s = new_store()
    s.start_manager()
    for _ in range(2):
        s.add_benefactor("--drain-max=8MB/s")
    m = s.add_mount()
    target = s.make_dir("target")
    s.fpctl("drain", "set", f"to={target}")
    write_file(m.at("file"), content(1, 0, 24 * MIB), sync=True)
    rnd = random.Random(seed_of_run())
    proc = s.begin_fpctl("wait", m.at("file"), "--level=verified", "--timeout=5min")
    try:
        for _ in range(3):
            time.sleep(rnd.uniform(0.05, 0.8) * PACE)
            assert proc.poll() is None or proc.returncode == 0, proc.communicate()
            s.manager.kill()
            time.sleep(rnd.uniform(0.05, 0.5) * PACE)
            s.restart_manager()
        code, err = end_of(proc, 240)
    finally:
        if proc.poll() is None:
            proc.kill()
    assert code == 0, (code, err)
    wait_until("verified", 30, lambda: level(m.at("file")) == "verified")
    with open(os.path.join(target, "file"), "rb") as f:
        assert f.read() == content(1, 0, 24 * MIB)


@pytest.mark.expect_log(r"manager|connection|lost")
def test_wait_ends_with_its_time_when_the_manager_stays_away(new_store):
    s = new_store().up(benefactors=1, mounts=1)
    path = s.mounts[0].at("file")
    with open(path, "wb") as f:
        f.write(content(1, 0, MIB))
        proc = s.begin_fpctl("wait", path, "--timeout=4s")
        time.sleep(1 * PACE)
        begun = time.monotonic()
        s.manager.kill()
        code, err = end_of(proc, 30)
        assert code == 3 and time.monotonic() - begun < 20 * SLOW, (code, err)
        s.restart_manager()


@pytest.mark.expect_log(r"could not be synced|sync|lost|EIO|I/O")
def test_a_sync_that_fails_makes_nothing_local(new_store):
    s = new_store()
    s.start_manager()
    s.add_benefactor(fault="bnf.fdatasync=EIO:count=1")
    m = s.add_mount()
    write_file(m.at("old"), content(1, 0, 2 * MIB))
    proc = s.begin_fpctl("wait", m.at("old"), "--timeout=60s")
    code, err = end_of(proc, 70)
    assert code == 4 and "lost what it had not synced" in err, (code, err)
    assert level(m.at("old")) == "pool"
    write_file(m.at("new"), content(2, 0, 2 * MIB))
    assert end_of(s.begin_fpctl("wait", m.at("new"), "--timeout=60s"), 70)[0] == 0
    assert level(m.at("new")) == "local"
    assert level(m.at("old")) == "pool"
