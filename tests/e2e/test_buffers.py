"""The memory back end in buffers (--backend memory:buffers=3): what fpctl shows of them is true, and a store of them is a store like others."""

import os

import pytest

from harness.daemons import wait_until
from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20
BUFFER = 32 * MIB


@pytest.fixture
def three(new_store):
    return new_store().up(benefactors=1, size="100MiB", backend=f"memory:buffers=3,buffer={BUFFER // MIB}MiB", pool="32MiB")


def buffers(store):
    """(use, bytes) of each."""
    (b,) = store.status()["benefactors"]
    assert all(x["size_bytes"] == BUFFER for x in b["buffers"])
    return sorted((x["use"], x["bytes"]) for x in b["buffers"])


def uses(store):
    return [use for use, _ in buffers(store)]


def count(store):
    """How many of each use; what is free is whole buffers of what is free altogether, and all that is used is in one that is shown."""
    (b,) = store.status()["benefactors"]
    found = {use: sum(x["use"] == use for x in b["buffers"]) for use in ("filling", "full", "draining", "free")}
    assert found["free"] == b["free_bytes"] // BUFFER
    assert sum(x["bytes"] for x in b["buffers"]) <= b["used_bytes"]
    return found


def kept(store):
    return sum(n for _, n in buffers(store))


@pytest.mark.short
@pytest.mark.limit(90)
def test_buffers_are_filled_one_after_the_other_and_become_free(three):
    m = three.mounts[0]
    (b,) = three.status()["benefactors"]
    assert b["capacity_bytes"] == 3 * BUFFER and b["backend"] == "memory"
    assert uses(three) == ["free"] * 3
    assert "of benefactor 1, 3 of 32 MiB each: 3 free" in three.fpctl("status").stdout
    write_file(m.at("a"), content(1, 0, 28 * MIB))
    wait_until("one to be filled", 10, lambda: "filling" in uses(three) and kept(three) >= 28 * MIB)
    assert "draining" not in uses(three)
    write_file(m.at("b"), content(2, 0, 28 * MIB))
    wait_until("leases that nobody uses to be back", 15, lambda: count(three)["filling"] <= 1 and count(three)["free"] == 1)
    assert count(three)["full"] >= 1 and count(three)["draining"] == 0
    assert 56 * MIB < kept(three) < 57 * MIB
    assert_same(read_file(m.at("a")), content(1, 0, 28 * MIB))
    text = three.fpctl("status").stdout
    assert " full (" in text and "1 free" in text and "32 MiB each" in text
    os.unlink(m.at("a"))
    os.unlink(m.at("b"))
    wait_until("all to be free", 15, lambda: uses(three) == ["free"] * 3)


@pytest.mark.limit(120)
def test_a_buffer_that_is_drained_is_shown(three, targets):
    m, slow = three.mounts[0], targets.slow(emulate="write=4MB/s")
    write_file(m.at("a"), content(3, 0, 30 * MIB))
    write_file(m.at("b"), content(4, 0, 8 * MIB))
    wait_until("leases that nobody uses to be back", 15, lambda: count(three)["filling"] <= 1 and count(three)["full"] >= 1)
    three.fpctl("drain", m.at("a"), f"--to={slow.path}", "--now")
    wait_until("a buffer to be draining", 15, lambda: count(three)["draining"] >= 1)
    three.fpctl("drain", m.at("a"), f"--to={slow.path}", "--wait", "--timeout=60s", seconds=80)
    assert_same(read_file(os.path.join(slow.source, "a")), content(3, 0, 30 * MIB))
    wait_until("nothing to be draining", 10, lambda: count(three)["draining"] == 0 and count(three)["full"] >= 1)
