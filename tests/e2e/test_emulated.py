"""Emulated devices (--backend emulated:…): a store on them is right, and nobody gets at its data faster than the device is: neither mounts of the node, which
write and read segments themselves, nor those of others, nor fp-drain. A machine that is slow makes it slower; so only the one bound is tested here, the other by
tests/unit/test_bnf_emulated.c."""

import os
import time

import pytest

from harness.files import assert_same, content, read_file, write_file

MIB = 1 << 20
MB = 1000 * 1000
CREDIT_S = 0.010  # FP_LIMITER_CREDIT_NS


@pytest.fixture(params=["dir", "memory"])
def slow(request, new_store):
    """A benefactor that writes 40 MB/s and reads 50 MB/s."""
    return new_store().up(benefactors=1, backend=f"emulated:write=40MB/s,read=50MB/s,over={request.param}", pool="32MiB")


def seconds(what, *args):
    began = time.monotonic()
    result = what(*args)
    return time.monotonic() - began, result


def is_no_faster(took, size, rate):
    assert took >= size / rate - CREDIT_S, f"{size} bytes in {took:.3f} s are {size / took / MB:.1f} MB/s"


def write_no_faster(m, name, data):
    took, _ = seconds(lambda: write_file(m.at(name), data, sync=True))
    is_no_faster(took, len(data), 40 * MB)


def read_no_faster(m, name, data):
    """By a mount that has nothing of it in its memory."""
    m.unmount()
    m.start()
    took, got = seconds(read_file, m.at(name))
    assert_same(got, data)
    is_no_faster(took, len(data), 50 * MB)


@pytest.mark.short
@pytest.mark.limit(120)
def test_a_mount_of_the_node_is_no_faster_than_the_device(slow):
    m, data = slow.mounts[0], content(1, 0, 24 * MIB)
    write_no_faster(m, "f", data)
    read_no_faster(m, "f", data)
    b = slow.status()["benefactors"][0]
    assert b["backend"].startswith("emulated")
    assert "going over TCP" not in m.text()


@pytest.mark.limit(120)
def test_two_mounts_share_one_device(slow):
    other = slow.add_mount()
    data = content(2, 0, 12 * MIB)

    def both():
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                write_file(other.at("b"), data, sync=True)
                code = 0
            finally:
                os._exit(code)
        write_file(slow.mounts[0].at("a"), data, sync=True)
        assert os.waitpid(pid, 0)[1] == 0

    took, _ = seconds(both)
    is_no_faster(took, 2 * len(data), 40 * MB)
    assert_same(read_file(other.at("a")), data)
    assert_same(read_file(slow.mounts[0].at("b")), data)


@pytest.mark.limit(120)
def test_another_nodes_mount_is_no_faster(nodes, new_store):
    s = new_store(nodes(2))
    s.start_manager(node=0)
    s.add_benefactor(node=0, backend="emulated:write=40MB/s,read=50MB/s")
    m = s.add_mount(node=1)
    data = content(3, 0, 24 * MIB)
    write_no_faster(m, "f", data)
    read_no_faster(m, "f", data)


@pytest.mark.limit(120)
def test_a_drain_is_no_faster(slow):
    m, data = slow.mounts[0], content(4, 0, 24 * MIB)
    to = slow.make_dir("target")
    write_file(m.at("f"), data, sync=True)
    took, _ = seconds(lambda: slow.fpctl("drain", m.at("f"), f"--to={to}", "--now", "--wait", "--timeout=60s", seconds=80))
    assert_same(read_file(os.path.join(to, "f")), data)
    is_no_faster(took, len(data), 50 * MB)


@pytest.mark.limit(120)
def test_a_target_of_85_mb_is_a_disk_of_that_speed(new_store, targets):
    """The other end of a drain: it takes as long as the disk does, to write it and to read it back."""
    s = new_store().up(benefactors=2)
    m, data, disk = s.mounts[0], content(6, 0, 48 * MIB), targets.slow(emulate="write=85MB/s,read=85MB/s")
    write_file(m.at("f"), data, sync=True)
    took, _ = seconds(lambda: s.fpctl("drain", m.at("f"), f"--to={disk.path}", "--now", "--verify", "--wait", "--timeout=60s", seconds=80))
    assert_same(read_file(os.path.join(disk.source, "f")), data)
    is_no_faster(took, 2 * len(data), 85 * MB)


@pytest.mark.limit(120)
def test_the_device_is_there_again_after_a_restart(new_store):
    s = new_store()
    s.up(benefactors=1, backend="emulated:write=40MB/s,read=50MB/s")
    m, data = s.mounts[0], content(5, 0, 24 * MIB)
    write_file(m.at("f"), data, sync=True)
    s.benefactors[0].kill()
    s.benefactors[0].start()
    write_no_faster(m, "g", data)
    read_no_faster(m, "f", data)
