"""What benefactors have on their devices: found there by its bytes, and damaged."""

import os

from harness.files import pread_all

MIB = 1 << 20


def segments(store):
    return [os.path.join(top, f) for b in store.benefactors for top, _, files in os.walk(b.dir) for f in files
            if os.path.getsize(os.path.join(top, f)) >= MIB]


def data_runs(path):
    """[(start, end)] of a segment's data; the rest are holes."""
    out, at = [], 0
    with open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        while at < size:
            try:
                start = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(f.fileno(), start, os.SEEK_HOLE)
            out.append((start, at))
    return out


def find_on_disk(store, needle):
    """(file, offset) of bytes in the segments."""
    for path in segments(store):
        with open(path, "rb") as f:
            for start, end in data_runs(path):
                k = pread_all(f.fileno(), end - start, start).find(needle)
                if k >= 0:
                    return path, start + k
    raise AssertionError("not found on disk")


def flip(path, off, bit=3):
    with open(path, "r+b") as f:
        f.seek(off)
        byte = f.read(1)
        f.seek(off)
        f.write(bytes([byte[0] ^ (1 << bit)]))
