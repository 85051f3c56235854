"""Dumps that are converted: what ranks write, what is to come of it, and what a mount says of it."""

import os
import re

import numpy as np

from .daemons import wait_until
from .files import write_file

RANKS = 4
SCHEMA = """\
fpschema: 1
ranks: {{grid: [{ranks}, 1]}}
rank: "rank_{{rank}}.raw"
dims: {{x: {nx}, y: {ny}}}
datasets:
  - {{name: /temperature, type: float64, dims: [x, y], units: K}}
  - {{name: /cell, type: int32, dims: [x, y]}}
"""
PATTERN = "run/dump_*/rank_*.raw"


class Dumps:
    """Dumps of one program: a part of each array per rank, in run/dump_STEP of a mount."""

    def __init__(self, store, nx=64, ny=50, ranks=RANKS):
        self.store, self.nx, self.ny, self.ranks = store, nx, ny, ranks
        self.schema = os.path.join(store.dir, "schema.yaml")
        write_file(self.schema, SCHEMA.format(ranks=ranks, nx=nx, ny=ny).encode())

    def words(self, more="", pattern=PATTERN):
        return f"convert from=raw to=hdf5 schema={self.schema} pattern={pattern} {more}".strip()

    def arrays(self, step, version=0):
        n = self.nx * self.ny
        cell = (np.arange(n, dtype="<i4") + 1000003 * step + 7919 * version).reshape(self.nx, self.ny)
        return {"temperature": np.sqrt(cell.astype("<f8") + 1), "cell": cell}

    def bytes_of(self, step, rank, version=0):
        rows = self.nx // self.ranks
        return b"".join(a[rank * rows:(rank + 1) * rows].tobytes() for a in self.arrays(step, version).values())

    def write(self, step, mounts, version=0, ranks=None):
        """Rank i writes by mount i modulo their number, as one that runs on another node does."""
        os.makedirs(mounts[0].at(self.dir_of(step)), exist_ok=True)
        for rank in range(self.ranks) if ranks is None else ranks:
            write_file(mounts[rank * len(mounts) // self.ranks].at(self.dir_of(step), f"rank_{rank}.raw"), self.bytes_of(step, rank, version))

    @staticmethod
    def dir_of(step):
        return f"run/dump_{step:04d}"

    def result_of(self, step, into="run"):
        return f"{into}/dump_{step:04d}.h5"

    def check(self, path, step, version=0):
        """By the library, in a process that sees the file as any user does."""
        import h5py
        with h5py.File(path, "r", locking=False) as f:
            for name, expected in self.arrays(step, version).items():
                got = f[name][()]
                assert got.dtype == expected.dtype and got.shape == expected.shape, name
                assert np.array_equal(got, expected), f"{path}: {name} of step {step}"
            assert f["temperature"].attrs["units"] in ("K", b"K")

    def is_whole(self, path, step, version=0):
        try:
            self.check(path, step, version)
        except (AssertionError, OSError, KeyError):
            return False
        return True

    def dump_is_intact(self, mount, step, version=0):
        for rank in range(self.ranks):
            with open(mount.at(self.dir_of(step), f"rank_{rank}.raw"), "rb") as f:
                assert f.read() == self.bytes_of(step, rank, version), f"rank {rank} of step {step}"


def mark(mount, path):
    """What is said of a conversion; "" if nothing is."""
    try:
        return os.getxattr(mount.at(path), "user.fp.convert").decode()
    except OSError:
        return ""


def wait_mark(mount, path, word, seconds=20):
    seen = []

    def look():
        seen[:] = [mark(mount, path)]
        return seen[0] if re.match(word, seen[0]) else None
    return wait_until(lambda: f"{path} to be marked {word}; it is: {seen}\n{mount.tail(8)}", seconds, look, 0.05)


def temporaries(top):
    """What a conversion that is over must not leave; below a mount or any other directory."""
    return [os.path.join(base, name) for base, _, names in os.walk(top) for name in names if name.startswith(".fp-convert-")]


def processes(mount, word="run"):
    """fp-convert WORD of this mount: pids."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if len(words) > 2 and os.path.basename(words[0]) == b"fp-convert" and words[1] == word.encode() and any(os.fsencode(mount.path) in w for w in words[2:]):
            found.append(int(pid))
    return found
