"""Nodes: network namespaces with addresses of their own, joined by a bridge.

Each node is a namespace with one end of a veth pair; the other end is a port of a bridge that lives in a namespace of
its own, so nothing of the machine's own network is touched and several runs do not meet. Addresses are 10.78.0.1 and up
in every run, or fd78::1 and up where nodes have IPv6: families "6" has these alone, "46" both. Cutting a node takes its port of the bridge down: the node keeps its address and its own link, packets are
lost silently, as when a switch dies.
"""

import os
import re
import subprocess

from .daemons import is_over


def ip(*args, check=True):
    """The kernel does such things one after the other: others that come and go are waited for."""
    return subprocess.run(["ip", *args], check=check, capture_output=True, text=True, timeout=90)


class Nodes:
    def __init__(self, count, families="4"):
        self.count, self.families = count, families
        self.prefix = f"fpt{os.getpid()}"
        self.made = []
        try:
            self._make()
        except BaseException:
            self.remove()  # or their names are taken for all that comes
            raise

    def _make(self):
        self.bridge = self._add_netns("sw")
        self._in("sw", "link", "add", "br0", "type", "bridge")
        self._in("sw", "link", "set", "br0", "up")
        for i in range(self.count):
            self._add_node(i)

    def _add_netns(self, name):
        full = f"{self.prefix}{name}"
        ip("netns", "add", full)
        self.made.append(full)
        return full

    def _in(self, name, *args):
        return ip("-n", f"{self.prefix}{name}", *args)

    def _add_node(self, i):
        self._add_netns(f"n{i}")
        self._in("sw", "link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", self.netns(i))
        self._in("sw", "link", "set", f"p{i}", "master", "br0", "up")
        self._in(f"n{i}", "link", "set", "lo", "up")
        for addr in self.addrs(i):
            self._in(f"n{i}", "addr", "add", addr, "dev", "eth0", *(["nodad"] if ":" in addr else []))
        self._in(f"n{i}", "link", "set", "eth0", "up")

    def netns(self, i):
        return f"{self.prefix}n{i}"

    def addr(self, i):
        return self.addrs(i)[0].partition("/")[0]

    def addrs(self, i):
        """With the length of the network's part, in the order of families."""
        forms = {"4": f"10.78.0.{i + 1}/24", "6": f"fd78::{i + 1:x}/64"}
        return [forms[family] for family in self.families]

    def cut(self, i):
        self._in("sw", "link", "set", f"p{i}", "down")

    def restore(self, i):
        self._in("sw", "link", "set", f"p{i}", "up")

    def remove(self):
        for name in self.made:
            ip("netns", "del", name, check=False)
        self.made = []


def sweep():
    """Namespaces of runs that are gone."""
    for line in ip("netns", "list", check=False).stdout.splitlines():
        m = re.match(r"fpt(\d+)(n\d+|sw)\b", line)
        if m and is_over(m[1]):
            ip("netns", "del", line.split()[0], check=False)
