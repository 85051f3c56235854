"""Records appended to one file by several processes, and whether each is whole."""

import os
import struct
import zlib

from harness.files import read_file

HEAD = struct.Struct("<IIII")  # magic, writer, number, length of what follows; then that, and its CRC


def record(writer, number, size):
    body = bytes((writer * 31 + number * 7 + i) & 0xff for i in range(min(size, 997))) * (size // 997 + 1)
    body = body[:size]
    return HEAD.pack(0xfeedf00d, writer, number, size) + body + struct.pack("<I", zlib.crc32(body))


def parse(data):
    """Every byte belongs to a whole record: [(writer, number)] in the order of the file."""
    at, seen = 0, []
    while at < len(data):
        magic, writer, number, size = HEAD.unpack_from(data, at)
        assert magic == 0xfeedf00d, f"no record begins at byte {at}, after {len(seen)} whole ones"
        body = data[at + HEAD.size:at + HEAD.size + size]
        assert struct.unpack_from("<I", data, at + HEAD.size + size)[0] == zlib.crc32(body), f"torn at {at}: {writer}, {number}"
        seen.append((writer, number))
        at += HEAD.size + size + 4
    return seen


def appender(path, writer, records, size_of, fsync_every=0):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        for i in range(records):
            data = record(writer, i, size_of(writer, i))
            if os.write(fd, data) != len(data):
                os._exit(2)
            if fsync_every and i % fsync_every == 0:
                os.fsync(fd)
        os.close(fd)
        code = 0
    finally:
        os._exit(code)


def check(path, writers, records):
    seen = parse(read_file(path))
    assert len(seen) == writers * records
    for w in range(writers):
        assert [n for writer, n in seen if writer == w] == list(range(records)), f"order of writer {w}"
    return seen
