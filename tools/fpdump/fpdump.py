"""fpdump in Python: NumPy arrays of a parallel program into a process-group stream, which fp-convert makes HDF5 or netCDF of (format: docs/PROTOCOL.md). Needs NumPy alone.

    import fpdump

    with fpdump.Writer(f"out.{rank:04}.fpd", rank=rank, ranks=ranks) as f:
        for step in range(steps):
            with f.group(step):
                f.put("/temperature", t, shape=(nz, ny, nx), offset=(z0, 0, 0))
                f.attr("/temperature", "units", "K")
                f.attr("/temperature", "dims", "z y x")

Payloads have checksums where the module xxhash is installed; headers and the index always have them.
"""

import os
import struct
import sys
import time
from contextlib import contextmanager

import numpy as np

try:
    import xxhash
except ImportError:
    xxhash = None

_ALIGN = 64
_DIMS_MAX = 7
_NAME_MAX = 255
_VALUES_MAX = 60000
_GROUP, _VARIABLE, _ATTRIBUTE, _END, _INDEX = range(1, 6)
_KINDS = {"i": 1, "u": 2, "f": 3, "c": 4}
_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotate(x, by):
    return (x << by | x >> (64 - by)) & _MASK


def _round(acc, v):
    return _rotate((acc + v * _P2) & _MASK, 31) * _P1 & _MASK


def _xxh64_plain(data):
    data, n, at = bytes(data), len(data), 0
    h = _P5
    if n >= 32:
        a, b, c, d = (_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK
        for words in struct.iter_unpack("<4Q", data[:n // 32 * 32]):
            a, b, c, d = _round(a, words[0]), _round(b, words[1]), _round(c, words[2]), _round(d, words[3])
        h = (_rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)) & _MASK
        for v in (a, b, c, d):
            h = ((h ^ _round(0, v)) * _P1 + _P4) & _MASK
        at = n // 32 * 32
    h = (h + n) & _MASK
    while n - at >= 8:
        h = (_rotate(h ^ _round(0, int.from_bytes(data[at:at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if n - at >= 4:
        h = (_rotate(h ^ int.from_bytes(data[at:at + 4], "little") * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        h = _rotate(h ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    h = (h ^ h >> 33) * _P2 & _MASK
    h = (h ^ h >> 29) * _P3 & _MASK
    return h ^ h >> 32


def _xxh64(data):
    return xxhash.xxh64_intdigest(data) if xxhash else _xxh64_plain(data)


def _path(name):
    name = name if name.startswith("/") else "/" + name
    data = name.encode()
    if len(data) < 2 or len(data) > _NAME_MAX:
        raise ValueError(f"the name of a variable has 1 to {_NAME_MAX - 1} bytes: {name!r}")
    return data


class Writer:
    """A stream. One thread at a time. Without close() (or `with`), it has no index, and is read as far as its groups are complete."""

    def __init__(self, path, rank=0, ranks=0, buffer_bytes=4 << 20, checksum=True):
        if buffer_bytes <= 0 or buffer_bytes % 4096:
            raise ValueError("buffer_bytes is a multiple of 4096")
        if ranks and rank >= ranks:
            raise ValueError(f"rank {rank} of {ranks}")
        self._rank, self._checksum = rank, checksum and xxhash is not None
        self._file = open(path, "wb", buffering=0)
        self._buffer, self._used, self._at = memoryview(bytearray(buffer_bytes)), 0, 0
        self._index, self._entries, self._groups, self._open = bytearray(), 0, 0, None
        head = b"FPDUMP1\n" + struct.pack("<HBBIQII", 1, 1 if sys.byteorder == "little" else 2, 0, 0, time.time_ns(), rank, ranks)
        self._sealed(head)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _write(self, data):
        while len(data):
            data = data[self._file.write(data):]

    def _append(self, data):
        data = memoryview(data).cast("B")
        self._at += len(data)
        size = len(self._buffer)
        while len(data):
            if not self._used and len(data) >= size:
                n = len(data) // size * size
                self._write(data[:n])
            else:
                n = min(size - self._used, len(data))
                self._buffer[self._used:self._used + n] = data[:n]
                self._used += n
                if self._used == size:
                    self._write(self._buffer)
                    self._used = 0
            data = data[n:]

    def _pad(self):
        self._append(bytes(-self._at % _ALIGN))

    def _sealed(self, data):
        """64 bytes with their checksum at the end."""
        data = data.ljust(56, b"\0")
        self._append(data + struct.pack("<Q", _xxh64(data)))

    def _record(self, kind, meta, payload=b"", rank=None, step=None):
        payload = memoryview(payload).cast("B")
        check = len(payload) > 0 and (self._checksum or kind == _INDEX)
        rank, step = self._open[:2] if self._open and rank is None else (rank, step)
        head = b"FPDR" + struct.pack("<HHIIQQQ", kind, check, rank, len(meta), step, len(payload), _xxh64(payload) if check else 0)
        head += struct.pack("<Q", _xxh64(head + meta)) + meta
        at = self._at
        self._append(head)
        self._pad()
        if len(payload):
            self._append(payload)
            self._pad()
        if kind in (_VARIABLE, _ATTRIBUTE):
            self._open[3] += 1
            entry = struct.pack("<Q", at) + head
            self._index += entry + bytes(-len(entry) % 8)
            self._entries += 1

    def _within(self):
        if self._file is None or self._open is None:
            raise ValueError("no group is open")

    def begin(self, step, rank=None):
        """A group begins: what this rank, or another for which it writes, has at a step."""
        if self._file is None or self._open is not None:
            raise ValueError("a group is open, or the stream is closed")
        self._open = [self._rank if rank is None else rank, step, self._at, 0]
        self._record(_GROUP, b"")

    def end(self):
        self._within()
        self._record(_END, struct.pack("<QQ", self._open[3], self._at - self._open[2]))
        self._open = None
        self._groups += 1

    @contextmanager
    def group(self, step, rank=None):
        self.begin(step, rank)
        yield self
        self.end()

    def put(self, name, array, shape=None, offset=None):
        """A block of the global array `shape` (default: the array is all of it), from `offset` on (default: its beginning)."""
        self._within()
        array = np.asarray(array)
        array = array.astype(np.uint8) if array.dtype.kind == "b" else array
        kind, size = _KINDS.get(array.dtype.kind), array.dtype.itemsize
        if kind is None or size not in ({3: (4, 8), 4: (8, 16)}.get(kind, (1, 2, 4, 8))):
            raise TypeError(f"{name}: arrays of {array.dtype} are not stored: integers, float32, float64, complex64, complex128 are")
        shape = array.shape if shape is None else tuple(shape)
        offset = (0,) * array.ndim if offset is None else tuple(offset)
        if array.ndim > _DIMS_MAX or len(shape) != array.ndim or len(offset) != array.ndim:
            raise ValueError(f"{name}: shape, offset and array have the same number of dimensions, at most {_DIMS_MAX}")
        if any(o < 0 or o + n > g for g, o, n in zip(shape, offset, array.shape)):
            raise ValueError(f"{name}: a block of {array.shape} at {offset} is not within {shape}")
        path, n = _path(name), array.ndim
        data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        meta = struct.pack("<BBBBI", kind, size, n, 0, len(path)) + struct.pack(f"<{3 * n}Q", *shape, *offset, *array.shape) + path
        self._record(_VARIABLE, meta, data.reshape(-1).view(np.uint8) if data.size else b"")

    def attr(self, variable, name, value):
        """An attribute of a variable that was put in this group or before, or of the whole (variable None): text, or integers or floats, one or several."""
        self._within()
        of, named = _path(variable) if variable else b"", name.encode()
        if not 0 < len(named) <= _NAME_MAX:
            raise ValueError(f"the name of an attribute has 1 to {_NAME_MAX} bytes: {name!r}")
        if isinstance(value, str):
            kind, data = 1, value.encode()
            count = len(data)
        else:
            values = np.atleast_1d(np.asarray(value))
            if values.dtype.kind not in "iubf" or values.ndim != 1:
                raise TypeError(f"{name}: text, or numbers in one dimension")
            kind, count = (3 if values.dtype.kind == "f" else 2), len(values)
            data = values.astype("<f8" if kind == 3 else "<i8").tobytes()
        if len(data) > _VALUES_MAX:
            raise ValueError(f"{name}: more than {_VALUES_MAX} bytes")
        self._record(_ATTRIBUTE, struct.pack("<HHIQ", kind, len(of), len(named), count) + of + named + data)

    def close(self, sync=False):
        if self._file is None:
            return
        if self._open is not None:
            self.end()
        at = self._at
        self._record(_INDEX, struct.pack("<Q", self._entries), self._index, rank=self._rank, step=0)
        self._sealed(b"FPDUMPE\n" + struct.pack("<QQQ", self._at + _ALIGN, at, self._groups))
        self._write(self._buffer[:self._used])
        if sync:
            os.fsync(self._file.fileno())
        self.abandon()

    def abandon(self):
        """Closes the file as it is: what is still in the buffer is not written."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
