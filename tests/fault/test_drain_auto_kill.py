"""The manager dies between a set's completion and its drain: each set that is chosen is drained exactly once."""

import json
import os
import random
import signal
import time

import pytest

from harness.daemons import PACE, wait_until
from harness.files import assert_same, content, seed_of_run, write_file

SETS, SIZE = 8, 200_000


@pytest.mark.limit(150)
def test_manager_is_killed_around_completion(new_store):
    """At a random moment around the one at which the set becomes complete, for each set anew."""
    rnd = random.Random(seed_of_run())
    store = new_store()
    store.expect("manager|connection|session|drain")
    store.up(benefactors=1, manager_args=("--ckpt-quiet=500ms",))
    target = store.make_dir("target")
    store.fpctl("drain", "set", f"to={target}")
    m = store.mounts[0]

    def show():
        r = store.fpctl("drain", "show", "--json", check=False)
        return json.loads(r.stdout) if r.returncode == 0 else None

    def inodes():
        found = {}
        for i in range(SETS):
            path = os.path.join(target, f"chk_{i}/data")
            if os.path.exists(path):
                found[i] = os.stat(path).st_ino
        return found

    written = {}
    for i in range(SETS):
        os.mkdir(m.at(f"chk_{i}"))
        write_file(m.at(f"chk_{i}/data"), content(i, 0, SIZE))
        time.sleep(rnd.uniform(0.3, 1.0) * PACE)
        store.manager.kill(signal.SIGKILL)
        store.restart_manager()

        def is_drained():
            s = show()
            return s and s["policies"][0]["sets_seen"] == i + 1 and all(j["state"] == "done" for j in s["jobs"])
        wait_until("the set's copy", 60, is_drained)
        now = inodes()
        assert {k: now[k] for k in written} == written, "written again"
        written = now
    assert set(written) == set(range(SETS))
    jobs = show()["jobs"]
    assert sorted(j["path"] for j in jobs) == [f"chk_{i}" for i in range(SETS)], "one job for each set"
    assert show()["policies"][0]["sets_chosen"] == SETS
    for i in range(SETS):
        with open(os.path.join(target, f"chk_{i}/data"), "rb") as f:
            assert_same(f.read(), content(i, 0, SIZE))
