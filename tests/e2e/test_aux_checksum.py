"""checksum and fpctl verify: a digest of every file, made on the way or by reading once more; what is right, wrong and unknown is told apart."""

import hashlib
import json
import os
import random
import time

import pytest

from harness.aux import MIB, text, unique, wait_app
from harness.daemons import wait_until
from harness.files import pwrite_all, write_file

XATTR = "user.fp.checksum"


def digest(path, data=None):
    """The xattr once it is there, and of this data if given."""
    def look():
        try:
            value = os.getxattr(path, XATTR).decode()
        except OSError:
            return None
        return value if data is None or hashlib.sha256(data).hexdigest() in value else None
    return wait_until(f"{XATTR} of {path}", 10, look, 0.05)


def verify(store, path, check=True):
    run = store.fpctl("verify", path, "--json", check=False)
    assert not check or run.returncode == 0, run.stdout + run.stderr
    return run.returncode, json.loads(run.stdout)


@pytest.mark.short
def test_in_order_out_of_order_and_rewritten(start):
    s = start("checksum")
    m, data = s.mounts[0], unique(1, 3 * MIB + 123)
    write_file(m.at("order"), data)
    assert hashlib.sha256(data).hexdigest() in digest(m.at("order"))
    fd = os.open(m.at("mixed"), os.O_WRONLY | os.O_CREAT)
    pieces = list(range(0, len(data), 70001))
    random.Random(2).shuffle(pieces)
    for off in pieces:
        pwrite_all(fd, data[off:off + 70001], off)
    os.close(fd)
    digest(m.at("mixed"), data)
    write_file(m.at("again"), unique(3, 2 * MIB))
    write_file(m.at("again"), data)
    digest(m.at("again"), data)
    fd = os.open(m.at("part"), os.O_RDWR | os.O_CREAT)
    pwrite_all(fd, data, 0)
    os.fsync(fd)
    pwrite_all(fd, b"changed", MIB + 1)
    os.close(fd)
    digest(m.at("part"), data[:MIB + 1] + b"changed" + data[MIB + 8:])
    write_file(m.at("read"), data)
    reader = os.open(m.at("read"), os.O_RDONLY)
    fd = os.open(m.at("read"), os.O_WRONLY)  # another version of it begins, which is not digested from its beginning
    pwrite_all(fd, unique(4, MIB), 0)
    os.close(fd)
    fd = os.open(m.at("read"), os.O_WRONLY)
    pwrite_all(fd, unique(5, 100), len(data))
    os.close(fd)
    os.close(reader)
    digest(m.at("read"), unique(4, MIB) + data[MIB:] + unique(5, 100))
    write_file(m.at("empty"), b"")
    rc, said = verify(s, m.path)
    assert said["verified"] >= 5 and said["wrong"] == said["changed"] == said["unreadable"] == 0


def test_a_flipped_byte_is_found(start):
    """Written through another mount, which has no checksum, with the version that the digest is of put back as a program could: the digest is wrong."""
    s = start("checksum")
    m, data = s.mounts[0], unique(4, 2 * MIB)
    write_file(m.at("f"), data, sync=True)
    good = digest(m.at("f"), data)
    assert verify(s, m.at("f"))[1]["verified"] == 1
    other = s.add_mount()
    fd = os.open(other.at("f"), os.O_WRONLY)
    pwrite_all(fd, bytes([data[MIB] ^ 4]), MIB)
    os.close(fd)
    rc, said = verify(s, other.at("f"), check=False)
    assert said["files"][0]["verdict"] == "changed since" and said["wrong"] == 0, "unknown, not wrong"
    version = s.layout("/f")["data_version"]
    old = good.split("version=")[1].split()[0]
    os.setxattr(other.at("f"), XATTR, good.replace(f"version={old}", f"version={version}").encode())
    rc, said = verify(s, other.at("f"), check=False)
    assert rc == 1 and said["wrong"] == 1 and said["files"][0]["verdict"] == "WRONG"
    rc = s.fpctl("verify", other.path, check=False)
    assert rc.returncode == 1 and "WRONG" in rc.stdout + rc.stderr
    write_file(m.at("f"), data, sync=True)
    digest(m.at("f"), data)
    assert verify(s, m.path)[1]["verified"] == 1


def test_truncate_by_name_leaves_the_old_digest_until_a_writer_closes(start):
    s = start("checksum")
    m, data = s.mounts[0], unique(9, MIB)
    write_file(m.at("f"), data)
    digest(m.at("f"), data)
    os.truncate(m.at("f"), MIB // 2)
    rc, said = verify(s, m.at("f"), check=False)
    assert (said["changed"], said["wrong"]) == (1, 0)
    assert "truncate(2) by name" in s.fpctl("verify", m.at("f"), check=False).stdout
    fd = os.open(m.at("f"), os.O_WRONLY)
    pwrite_all(fd, b"x", MIB // 2)
    os.close(fd)
    digest(m.at("f"), data[:MIB // 2] + b"x")
    assert verify(s, m.path)[1]["verified"] == 1


def test_xxh3_and_files_without_digest(start):
    s = start("checksum digest=xxh3")
    m = s.mounts[0]
    write_file(m.at("f"), text(5, MIB + 5))
    assert digest(m.at("f")).startswith("xxh128:")
    other = s.add_mount()
    write_file(other.at("g"), text(6, 100))
    rc, said = verify(s, m.path)
    assert (said["verified"], said["no_digest"], said["wrong"]) == (1, 1, 0)


def test_rubbish_in_the_xattr_is_not_unreadable_data(start):
    s = start("checksum")
    m = s.mounts[0]
    write_file(m.at("f"), text(8, MIB))
    good = digest(m.at("f"))
    for rubbish in ("rubbish", "x" * 1000, good.replace("sha256:", "sha256:0"), good.replace("sha256", "md5")):
        os.setxattr(m.at("f"), XATTR, rubbish.encode())
        rc, said = verify(s, m.at("f"), check=False)
        assert (rc, said["bad_digest"], said["unreadable"]) == (1, 1, 0), (rubbish, said)
    run = s.fpctl("verify", m.at("f"), check=False)
    assert run.stdout.startswith(f"bad digest    {m.at('f')}: "), run.stdout


def test_beside_dedup_and_compress(new_store):
    """The digest is of what the application wrote, whatever becomes of it afterwards."""
    s = new_store().up(mounts=0)
    m = s.add_mount("--auxapp=checksum", "--auxapp=dedup", "--auxapp=compress")
    for step in range(3):
        data = text(7, 2 * MIB) + unique(step, 100000)
        write_file(m.at(f"c{step}"), data, sync=True)
        digest(m.at(f"c{step}"), data)
    other = s.add_mount()
    assert verify(s, other.path)[1]["verified"] == 3


def test_files_that_are_opened_again_at_once(start):
    """Cut before they could be read for their digest: that is no failure, and the digest of what they are in the end is right.
    How often that was is not seen where a close may come before what it closes is published."""
    s = start("checksum", args=["--close=publish"])
    m = s.mounts[0]
    for turn in range(10):
        for name in "abcd":
            path, data = m.at(name), unique(turn, MIB)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            pwrite_all(fd, data[MIB // 2:], MIB // 2)
            pwrite_all(fd, data[:MIB // 2], 0)
            os.close(fd)
            held = os.open(path, os.O_WRONLY | os.O_TRUNC)
            if turn % 3 == 0:
                time.sleep(0.05)
            os.close(held)
    for i, name in enumerate("abcd"):
        fd = os.open(m.at(name), os.O_WRONLY | os.O_TRUNC)
        data = unique(100 + i, MIB + i)
        pwrite_all(fd, data[500:], 500)
        pwrite_all(fd, data[:500], 0)
        os.close(fd)
    for i, name in enumerate("abcd"):
        digest(m.at(name), unique(100 + i, MIB + i))
    rc, said = verify(s, m.path)
    assert said["verified"] == 4
    counters = wait_app(s, "checksum", "read again", lambda a: a["counters"].get("read again", 0) > 4)["counters"]
    assert counters["files"] >= 4
    assert "callback failed" not in m.text()


@pytest.mark.parametrize("close", ["publish", "behind"])
def test_files_closed_just_before_unmount_have_a_digest(start, close):
    s = start("checksum", args=[f"--close={close}"])
    m, other = s.mounts[0], s.add_mount()
    for turn in range(3):
        os.mkdir(m.at(f"d{turn}"))
        write_file(m.at(f"d{turn}/big"), unique(turn, 20 * MIB))
        for i in range(18):
            write_file(m.at(f"d{turn}/f{i}"), unique(20 * turn + i, 10_000 + i))
        fd = os.open(m.at(f"d{turn}/mixed"), os.O_WRONLY | os.O_CREAT)  # to be read once more
        pwrite_all(fd, unique(turn, 5 * MIB), 5 * MIB)
        pwrite_all(fd, unique(turn, 5 * MIB), 0)
        os.close(fd)
        m.unmount()
        rc, said = verify(s, other.at(f"d{turn}"))
        assert (said["verified"], said["no_digest"]) == (20, 0), f"round {turn}: {said}"
        if turn < 2:
            m = s.add_mount("--auxapp=checksum", f"--close={close}")
