"""Registers in one file, read and written by processes of several mounts, and whether there is an order of their calls (linearizability).

A register is a range of the file. Each write fills one with a stamp that no other write has, so that a read tells which write it saw, or that it
saw a mixture. Calls have the times of their beginning and end by the clock of this machine, which all mounts share.

With values that are unique, an order exists if and only if, for each register, the calls of each value v (its write and the reads that saw it), of which the
first end is f and the last beginning is s, do not contradict those of another: v must have been the value from f to s if f < s ("forward"), and at one point
between s and f else ("backward"). Two forward intervals must not overlap, and no backward one may lie within a forward one; and no read may end
before its write began (P. Gibbons and E. Korach, Testing Shared Memories, 1997). Registers are checked one by one: an order for each is an order for all
(M. Herlihy and J. Wing, 1990).
"""

import bisect
import os
import random
import struct
import time

from . import forks

STAMP = struct.Struct("<Q")
NEVER = float("inf")


def layout(sizes, gap=333):
    """[(offset, size)] at no alignment, one after the other."""
    at, out = 111, []
    for size in sizes:
        out.append((at, size))
        at += size + gap
    return out


def filled(stamp, size):
    return (STAMP.pack(stamp) * (size // 8 + 1))[:size]


def stamp_of(data, size):
    """The write that filled it; 0: nobody has yet."""
    if not data.strip(b"\0"):
        return 0
    stamp = STAMP.unpack_from(data)[0]
    assert data == filled(stamp, size), f"a mixture: begins as {stamp:#x}"
    return stamp


class Worker:
    """One process: calls = [(begin, end, register, stamp, is_write)]."""

    def __init__(self, path, number, registers, until, seed, may_fail=False):
        self.path, self.number, self.registers, self.until, self.may_fail = path, number, registers, until, may_fail
        self.rnd, self.calls, self.writes = random.Random(seed * 1000 + number), [], 0

    def write(self, fd, reg):
        off, size = self.registers[reg]
        self.writes += 1
        stamp = (self.number + 1) << 32 | self.writes
        begin = time.monotonic()
        try:
            n = os.pwrite(fd, filled(stamp, size), off)
        except OSError:
            self.calls.append((begin, NEVER, reg, stamp, True))  # it may have been made, or be made later
            raise
        assert n == size
        self.calls.append((begin, time.monotonic(), reg, stamp, True))

    def read(self, fd, first, last):
        """Several registers that lie side by side are read by one call."""
        base, end = self.registers[first][0], sum(self.registers[last])
        begin = time.monotonic()
        data = os.pread(fd, end - base, base)
        done = time.monotonic()
        data += bytes(end - base - len(data))
        for reg in range(first, last + 1):
            off, size = self.registers[reg]
            self.calls.append((begin, done, reg, stamp_of(data[off - base:off - base + size], size), False))

    def run(self):
        try:
            self.work(os.open(self.path, os.O_RDWR))
        except OSError:
            if not self.may_fail:
                raise
        return self.calls

    def work(self, fd):
        while time.monotonic() < self.until:
            reg = self.rnd.randrange(len(self.registers))
            if self.rnd.random() < 0.4:
                self.write(fd, reg)
            else:
                self.read(fd, reg, min(len(self.registers) - 1, reg + self.rnd.choice([0, 0, 1, 3])))
        os.close(fd)


def start(paths, registers, seconds, seed, may_fail=False, first=0):
    """One process for each path, numbered from `first` on, for forks.collect. may_fail: its first call that fails is its last."""
    until = time.monotonic() + seconds
    return [forks.begin(Worker(path, first + i, registers, until, seed, may_fail).run) for i, path in enumerate(paths)]


def _zones(calls):
    """value -> [first end, last beginning, beginning of its write]"""
    zones = {0: [-NEVER, -NEVER, -NEVER]}  # the file as it was
    for begin, end, _, stamp, is_write in calls:
        if is_write:
            zones[stamp] = [end, begin, begin]
    for begin, end, _, stamp, is_write in calls:
        if is_write:
            continue
        assert stamp in zones, f"{stamp:#x} was read, and nobody wrote it"
        z = zones[stamp]
        assert end >= z[2], f"{stamp:#x} was read before it was written"
        z[0], z[1] = min(z[0], end), max(z[1], begin)
    return zones


def contradiction(calls):
    """Why there is no order of these calls to one register, or None."""
    forward, backward = [], []
    for stamp, (f, s, _) in _zones(calls).items():
        if f < s:
            forward.append((f, s, stamp))
        elif f != NEVER:
            backward.append((s, f, stamp))
    forward.sort()
    for a, b in zip(forward, forward[1:]):
        if b[0] < a[1]:
            return f"{b[2]:#x} was the value while {a[2]:#x} was: it was seen again {1000 * (a[1] - b[0]):.3f} ms later"
    for lo, hi, stamp in backward:
        i = bisect.bisect_left(forward, (lo,)) - 1  # they do not overlap: this one or none
        if i >= 0:
            _, s, other = forward[i]
            if hi < s:
                return f"{stamp:#x} was never seen, or for a moment, while {other:#x} was the value before and after"
    return None


def check(calls):
    """Asserts that there is an order. Returns how many calls there were."""
    by_reg = {}
    for c in calls:
        by_reg.setdefault(c[2], []).append(c)
    for reg, some in sorted(by_reg.items()):
        why = contradiction(some)
        assert why is None, f"register {reg}, {len(some)} calls: {why}"
    return len(calls)
