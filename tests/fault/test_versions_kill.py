"""A mount is killed while a file is rewritten: the file is the last good version again (docs/ARCHITECTURE.md, the failure table)."""

import json
import os
import subprocess
import sys

import pytest

from harness.daemons import wait_until

MIB = 1 << 20
SIZE = 6 * MIB + 12345

# A program that rewrites a file, has told the mount so much that half of it is published, and waits.
WRITER = """
import os, sys, time
path, manner = sys.argv[1], sys.argv[2]
data = os.urandom(1 << 20)
fd = os.open(path, os.O_WRONLY | (os.O_TRUNC if manner == "trunc" else 0))
for i in range(3):
    os.pwrite(fd, data, i * len(data) + (0 if manner == "trunc" else 333))
os.close(os.open(path, os.O_WRONLY))
print("half", flush=True)
time.sleep(600)
"""


def content(seed):
    return bytes((i * 131 + seed * 7) & 0xFF for i in range(4096)) * (SIZE // 4096 + 1)


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


@pytest.fixture
def versions(new_store):
    """A store of two mounts that keeps versions, whose manager soon takes a silent mount for dead."""
    store = new_store()
    store.start_manager("--versions=on", "--session-timeout=2s", "--orphan-grace=2s")
    store.add_benefactor()
    for _ in range(2):
        store.add_mount("--close=publish")
    return store


def rewrite(path, manner):
    """Until half of it is there for everybody."""
    p = subprocess.Popen([sys.executable, "-c", WRITER, path, manner], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "half\n"
    return p


@pytest.mark.short
@pytest.mark.parametrize("manner", ["trunc", "in_place"])
def test_mount_killed_while_a_file_is_rewritten(versions, manner):
    store = versions
    writer, other = store.mounts
    good = content(1)[:SIZE]
    write(writer.at("ckpt"), good)
    p = rewrite(writer.at("ckpt"), manner)
    try:
        torn = read(other.at("ckpt"))
        assert torn != good, "nothing of it was published: the test shows nothing"
        writer.kill()
    finally:
        p.kill()
        p.wait(20)
    wait_until("the good version", 20, lambda: read(other.at("ckpt")) == good)
    given_up = [v for v in json.loads(store.fpctl("versions", other.at("ckpt"), "--json").stdout)["versions"] if v["state"] == "torn"]
    assert [v["size_bytes"] for v in given_up] == [len(torn)]
    what = f"{other.at('ckpt')}@{given_up[0]['version']}"
    store.fpctl("restore", what)
    assert read(other.at("ckpt")) == torn
    store.fpctl("restore", what)
    assert read(other.at("ckpt")) == good
    writer.start()
    assert read(writer.at("ckpt")) == good
    assert os.stat(writer.at("ckpt")).st_size == SIZE
    write(writer.at("ckpt"), content(2)[:MIB])
    assert read(other.at("ckpt")) == content(2)[:MIB]


def test_mount_ended_while_a_file_is_rewritten(versions):
    """SIGTERM: what was written is published, but its writer has not come to an end."""
    store = versions
    writer, other = store.mounts
    good = content(1)[:SIZE]
    write(writer.at("ckpt"), good)
    p = rewrite(writer.at("ckpt"), "trunc")
    try:
        with open(writer.at("new"), "wb") as f:  # has no version before: what was written stays
            f.write(good)
            f.flush()
            assert writer.term() == 0
    except OSError:  # of the close
        pass
    finally:
        p.kill()
        p.wait(20)
    assert read(other.at("ckpt")) == good
    assert read(other.at("new")) == good


def test_new_mount_at_the_place_of_a_killed_one_finds_the_good_version(new_store):
    """Long before the session of the one before expires."""
    store = new_store()
    store.start_manager("--versions=on")
    store.add_benefactor()
    mount = store.add_mount("--close=publish")
    good = content(1)[:SIZE]
    write(mount.at("ckpt"), good)
    p = rewrite(mount.at("ckpt"), "trunc")
    mount.kill()
    p.kill()
    p.wait(20)
    mount.start()
    assert read(mount.at("ckpt")) == good
