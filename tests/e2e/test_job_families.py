"""fp-job on nodes that have addresses of IPv4 and of IPv6: IPv4 is used, as on nodes without the other. And where IPv6 is switched off."""

import contextlib

import pytest

SLURM = {"nodes": 2, "cpus": 2, "families": "46"}
SCRIPT = "#!/bin/bash\n#FP store size=256MiB pool=64MiB\n"
# Beside what each node sees of the other one's file, where the manager and the benefactors are.
APP = """#!/bin/bash
for n in {names}; do ssh $n "head -c 3000000 /dev/urandom > $FP_MOUNT/$n" || exit 9; done
for n in {names}; do ssh $n "cat $FP_MOUNT/* | md5sum" || exit 8; done
grep -o 'benefactor [0-9]* ([^)]*)' /tmp/fpstore-*/log/fp-manager.log | sort -u
grep -o 'listening on .*:' /tmp/fpstore-*/log/fp-manager.log
ss -Htn state established | awk '$4 !~ /:22$/ {{print "link", $4}}'
"""


@pytest.fixture(scope="module")
def nodes(by_ssh):
    return by_ssh


def run(nodes, hosts):
    """What a store on these nodes says, which is well."""
    nodes.write("job.sh", SCRIPT)
    nodes.write("app", APP.format(names=" ".join(nodes.names[1:])))
    r = nodes.on(1, "sh", "-c", f"exec 2>&1; fp-job run job.sh --hosts='{hosts}' -- ./app", check=False, seconds=60)
    assert r.returncode == 0 and "ERROR" not in r.stdout and "WARN" not in r.stdout, r.stdout
    sums = [line for line in r.stdout.splitlines() if line.endswith("  -")]
    assert len(sums) == 2 and len(set(sums)) == 1, r.stdout
    nodes.nothing_left()
    return r.stdout


@contextlib.contextmanager
def sysctl(nodes, *settings):
    """On all nodes; what these had is there again in the end. Addresses that were taken away by them are given back."""
    before = nodes.on(1, "sysctl", *(s.partition("=")[0] for s in settings), user="root").stdout.replace(" ", "").splitlines()
    try:
        for i in range(1, nodes.count + 1):
            nodes.on(i, "sysctl", "-w", *settings, user="root")
        yield
    finally:
        for i in range(1, nodes.count + 1):
            nodes.on(i, "sysctl", "-w", *before, user="root")
            nodes.on(i, "ip", "addr", "replace", nodes.net.addrs(i)[1], "dev", "eth0", "nodad", user="root")


def is_by_four(nodes, names):
    out = run(nodes, ",".join(names))
    for i, name in enumerate(names, 1):
        assert f"({name}, {nodes.net.addr(i)}:" in out and "link [fd78:" not in out, out
    return out


def test_ipv4_is_used_where_nodes_have_both(nodes):
    assert "listening on [::]:" in is_by_four(nodes, nodes.names[1:])
    out = run(nodes, "[fd78::2],[fd78::3]")
    assert "([fd78::2], [fd78::2]:" in out and "([fd78::3], [fd78::3]:" in out, out


def test_sockets_of_ipv6_that_take_ipv4_when_they_are_told_to_alone(nodes):
    with sysctl(nodes, "net.ipv6.bindv6only=1"):
        is_by_four(nodes, nodes.names[1:])


def test_ipv6_is_switched_off(nodes):
    """Sockets of it can be made, and there are no addresses, not even ::1."""
    with sysctl(nodes, "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1", "net.ipv6.conf.lo.disable_ipv6=1", "net.ipv6.conf.eth0.disable_ipv6=1"):
        assert "inet6" not in nodes.on(1, "ip", "addr", user="root").stdout
        is_by_four(nodes, nodes.names[1:])
        is_by_four(nodes, [nodes.net.addr(i) for i in (1, 2)])
