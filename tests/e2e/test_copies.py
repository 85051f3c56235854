"""Files that were drained to several targets: the best copy is the level, and one that is lost takes nothing of another."""

import os

import pytest

from harness.daemons import wait_until
from harness.files import content, level, write_file

MIB = 1 << 20


def drain(store, path, to, *args):
    store.fpctl("drain", path, f"--to={to}", "--wait", "--timeout=60s", *args, seconds=80)


def read(path):
    with open(path, "rb") as f:
        return f.read()


@pytest.mark.parametrize("order", (0, 1))
def test_another_copy_takes_no_level_away(store, two_targets, order):
    m, (first, second) = store.mounts[0], two_targets
    data = content(1, 0, 5 * MIB + 77)
    write_file(m.at("file"), data)
    steps = [(first, ("--verify",)), (second, ())]
    for to, args in reversed(steps) if order else steps:
        drain(store, m.at("file"), to, *args)
    assert level(m.at("file")) == "verified"
    assert read(os.path.join(first, "file")) == read(os.path.join(second, "file")) == data
    store.expect(r"manager|connection")
    store.manager.kill()
    store.restart_manager()
    r = store.fpctl("wait", m.at("file"), "--level=local", "--timeout=30s", check=False, seconds=50)
    assert r.returncode == 0, r.stderr
    assert level(m.at("file")) == "verified"
    before = [os.stat(os.path.join(t, "file")).st_ino for t in two_targets]
    for t in two_targets:
        drain(store, m.at("file"), t)  # both are known to be there
    assert [os.stat(os.path.join(t, "file")).st_ino for t in two_targets] == before


def test_what_is_evicted_is_read_from_the_copy_that_is_there(store, two_targets):
    m, (first, second) = store.mounts[0], two_targets
    data = content(2, 0, 3 * MIB)
    write_file(m.at("file"), data)
    drain(store, m.at("file"), first, "--verify")
    drain(store, m.at("file"), second)
    os.unlink(os.path.join(first, "file"))
    store.fpctl("evict", m.at("file"), "--timeout=60s", seconds=80)
    wait_until("both benefactors to have looked", 30, lambda: level(m.at("file")) == "drained")
    cold = store.add_mount()
    assert read(cold.at("file")) == data


def test_what_was_evicted_is_drained_to_another_target(store, two_targets):
    """Also while a mount answers from what it has read."""
    m, (first, second) = store.mounts[0], two_targets
    os.makedirs(m.at("d"))
    data = {f"d/f{k}": content(k, 0, (k + 1) * MIB + 5) for k in range(3)}
    for name, b in data.items():
        write_file(m.at(name), b)
    drain(store, m.at("d"), first)
    store.fpctl("evict", m.at("d"), "--timeout=60s", seconds=80)
    assert all(read(m.at(name)) == b for name, b in data.items())
    drain(store, m.at("d"), second, "--verify")
    assert all(read(os.path.join(second, name)) == b for name, b in data.items())
    assert level(m.at("d/f0")) == "verified"
