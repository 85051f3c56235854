"""Several nodes, as network namespaces: placement, sharing, and a link that is cut."""

import os

import pytest

from harness.daemons import wait_until
from harness.files import assert_same, content, pwrite_all, read_file, write_file

MIB = 1 << 20


@pytest.fixture
def four_nodes(nodes, new_store):
    """Manager on node 0; a benefactor and a mount on each of 4 nodes."""
    def make(size="512MiB", mounts=4, **kw):
        s = new_store(nodes(4))
        s.start_manager(node=0)
        for i in range(4):
            s.add_benefactor(node=i, size=size, wait=False, **kw)
        for b in s.benefactors:
            b.wait_ready()
        for i in range(mounts):
            s.add_mount(node=i, pool="32MiB", wait=False)
        for m in s.mounts:
            m.wait_ready()
        return s
    return make


def bytes_by_node(layout):
    out = {}
    for r in layout["ranges"]:
        if not r["hole"]:
            out[r["node"]] = out.get(r["node"], 0) + r["length_bytes"]
    return out


def test_local_benefactor_first(four_nodes):
    s = four_nodes()
    for i, m in enumerate(s.mounts):
        write_file(m.at(f"f{i}"), content(i, 0, 8 * MIB), sync=True)
        assert bytes_by_node(s.layout(f"/f{i}")) == {f"node{i}": 8 * MIB}
    for m in s.mounts:
        for i in range(4):
            assert_same(read_file(m.at(f"f{i}")), content(i, 0, 8 * MIB), f"f{i}")


def test_remote_when_the_local_is_full(four_nodes):
    s = four_nodes(size="64MiB", mounts=1)
    s.expect(r"full|ENOSPC|no space|[Nn]o space")
    m = s.mounts[0]
    write_file(m.at("f"), content(1, 0, 150 * MIB), sync=True)
    where = bytes_by_node(s.layout("/f"))
    assert where["node0"] > 40 * MIB and len(where) >= 3
    assert_same(read_file(m.at("f")), content(1, 0, 150 * MIB))


def test_remote_when_the_local_is_away(four_nodes):
    s = four_nodes(mounts=1)
    s.expect(r"benefactor")
    m = s.mounts[0]
    s.benefactors[0].kill()
    write_file(m.at("f"), content(2, 0, 20 * MIB), sync=True)
    where = bytes_by_node(s.layout("/f"))
    assert "node0" not in where and sum(where.values()) == 20 * MIB
    assert_same(read_file(m.at("f")), content(2, 0, 20 * MIB))
    s.benefactors[0].start()
    s.wait_status("all four", 5, lambda st: all(b["state"] == "ok" for b in st["benefactors"]))

    def goes_home():
        write_file(m.at("g"), content(3, 0, 4 * MIB), sync=True)
        return bytes_by_node(s.layout("/g")) == {"node0": 4 * MIB}
    wait_until("new chunks to go to the local one again", 10, goes_home, 0.3)


def test_node_without_a_benefactor(nodes, new_store):
    s = new_store(nodes(3))
    s.start_manager(node=0)
    s.add_benefactor(node=0)
    s.add_benefactor(node=1)
    m = s.add_mount(node=2)
    write_file(m.at("f"), content(4, 0, 16 * MIB + 3), sync=True)
    assert_same(read_file(m.at("f")), content(4, 0, 16 * MIB + 3))
    m.unmount()
    m.start()
    assert_same(read_file(m.at("f")), content(4, 0, 16 * MIB + 3))


@pytest.mark.parametrize("width", [2, 4])
def test_stripe_spreads(four_nodes, width):
    s = four_nodes(mounts=2)
    m = s.mounts[0]
    os.mkdir(m.at("striped"))
    os.setxattr(m.at("striped"), "user.fp.stripe", b"%d" % width)
    write_file(m.at("striped", "f"), content(5, 0, 16 * MIB), sync=True)
    where = bytes_by_node(s.layout("/striped/f"))
    assert len(where) == width
    assert max(where.values()) - min(where.values()) <= 2 * MIB
    assert_same(read_file(s.mounts[1].at("striped", "f")), content(5, 0, 16 * MIB))


def test_stripe_of_the_whole_store(nodes, new_store):
    s = new_store(nodes(3))
    s.start_manager("--stripe=3", node=0)
    for i in range(3):
        s.add_benefactor(node=i)
    m = s.add_mount(node=1)
    write_file(m.at("f"), content(6, 0, 12 * MIB), sync=True)
    where = bytes_by_node(s.layout("/f"))
    assert len(where) == 3


@pytest.mark.parametrize("encryption", ["on", "off"])
def test_n1_over_the_network(nodes, new_store, encryption):
    s = new_store(nodes(4))
    s.start_manager(node=0)
    for i in range(2):
        s.add_benefactor(f"--data-encryption={encryption}", node=i)
    for i in range(4):
        s.add_mount(f"--data-encryption={encryption}", node=i, pool="32MiB")
    write_file(s.mounts[0].at("f"), b"")
    record, records, pids = 47001, 200, []
    for rank, m in enumerate(s.mounts):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                fd = os.open(m.at("f"), os.O_WRONLY)
                for i in range(rank, records, 4):
                    pwrite_all(fd, content(7, i * record, record), i * record)
                os.close(fd)
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(p, 0)[1] for p in pids] == [0] * 4
    for m in s.mounts:
        assert_same(read_file(m.at("f")), content(7, 0, record * records), m.name)


def test_recall_of_what_another_node_still_holds(four_nodes):
    """close may return while data is in the node's pool; an open elsewhere gets it nevertheless."""
    s = four_nodes(mounts=2)
    for i in range(10):
        write_file(s.mounts[0].at("f"), content(i, 0, 6 * MIB))
        assert_same(read_file(s.mounts[1].at("f")), content(i, 0, 6 * MIB), f"round {i}")
