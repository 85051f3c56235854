"""Aux-apps under test: where the plugins are, what fpctl says of them, the process that runs them, and data that says what it is."""

import json
import os
import random
import struct

from .daemons import MIB, bin_path, wait_until
from .files import assert_same, content, read_file, write_file

TOP = os.path.dirname(os.path.dirname(bin_path("fp-auxhost")))
PROBES = os.path.join(TOP, "tests", "plugins")


def example(name):
    return os.path.join(TOP, "lib", "auxapps", "examples", name + ".so")


def probe(name="probe"):
    return os.path.join(PROBES, name + ".so")


def apps(store):
    return json.loads(store.fpctl("auxapps", "--json").stdout)["auxapps"]


def app(store, name, mount=None):
    """What fpctl auxapps says of one; the figures are up to a second old."""
    found = [a for a in apps(store) if a["name"] == name and (mount is None or a["mountpoint"] == mount.path)]
    assert len(found) == 1, f"{name}: {found}"
    return found[0]


def wait_app(store, name, what, test, seconds=5, mount=None):
    """Until test(figures) holds; the figures."""
    found = []

    def look():
        found[:] = [a for a in apps(store) if a["name"] == name and (mount is None or a["mountpoint"] == mount.path)]
        return found[0] if len(found) == 1 and test(found[0]) else None
    return wait_until(lambda: f"{name}: {what}; last: {found}", seconds, look, 0.1)


def host_pid(mount):
    """The mount's fp-auxhost, or None."""
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/stat") as f:
                    name, rest = f.read().rsplit(")", 1)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if name.endswith("(fp-auxhost") and int(rest.split()[1]) == mount.pid and rest.split()[0] != "Z":
                return int(pid)
    return None


def unique(seed, size):
    """Bytes that occur once, and can't be made smaller."""
    return random.Random(seed).randbytes(size)


def text(seed, size):
    """Bytes that compress well, and are different everywhere."""
    line = b"step %08d of run %d: residual 0.%08d after the usual number of iterations\n"
    n = size // 70 + 2
    return b"".join(line % (i, seed, i * 7919 % 100000000) for i in range(n))[:size]


def turn_dedup_off(store, mount):
    """Unique versions of one file, until dedup on this mount is off, and passed over; its figures then."""
    size, a = 16 * MIB, None
    data = bytearray(unique(5000 + mount.pid, size))
    for step in range(30):
        data[:] = data[MIB + 4099:] + data[:MIB + 4099]
        for at in range(0, len(data), 4096):
            data[at:at + 8] = struct.pack("<II", step, mount.pid + at)
        write_file(mount.at(f"off{mount.pid}_{step}"), data, sync=True)
        if step:
            os.unlink(mount.at(f"off{mount.pid}_{step - 1}"))
        seen = (step + 1) * size  # each window comes or is passed over; figures come each second
        a = wait_app(store, "dedup", f"all {seen} bytes", lambda b: b["bytes_in"] + b["passed_bytes"] >= seen, 10, mount)
        if a["counters"]["on"] == 0 and a["passed_chunks"]:
            os.unlink(mount.at(f"off{mount.pid}_{step}"))
            return a
    raise AssertionError(f"it is on: {a}")


def stored(store, path):
    """Bytes that a file's own chunks take on the devices, without their headers' share of a block."""
    return store.layout(path)["stored_bytes"]


def used(store):
    """Bytes of all chunks that somebody refers to."""
    return store.status()["space"]["used_bytes"]


def wait_empty(store, seconds=15):
    """All files are gone: every byte comes back, on the manager and on the devices."""
    def gone():
        s = store.status()
        return s["space"]["used_bytes"] == 0 and s["garbage_chunks"] == 0 and all(b["used_bytes"] == 0 for b in s["benefactors"])
    wait_until("the space of what was deleted", seconds, gone, 0.1)


def assert_files(mount, files):
    """{name: (key, size)} of content()."""
    for name, (key, size) in files.items():
        assert_same(read_file(mount.at(name)), content(key, 0, size), name)


__all__ = [n for n in dir() if not n.startswith("_")] + ["MIB"]
