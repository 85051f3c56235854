"""Versions: what a file was is kept while it is rewritten, costs nothing afterwards, and gives way when the store is full."""

import errno
import json
import os
import re

import pytest

from harness.daemons import wait_until
from harness.files import assert_same, content, pwrite_all, read_file, write_file

MIB = 1 << 20


@pytest.fixture
def small(new_store):
    """256 MiB in all, on two benefactors."""
    s = new_store()
    s.expect(r"no space: the version before of /ckpt .* is given up")
    return s.up(benefactors=2, size="128MiB", pool="32MiB", manager_args=["--versions=on"])


def versions(store, path):
    return [v["state"] for v in json.loads(store.fpctl("versions", path, "--json").stdout)["versions"]]


@pytest.mark.short
@pytest.mark.limit(120)
def test_rewriting_what_fits_the_store_only_once(small):
    m = small.mounts[0]
    path = m.at("ckpt")
    write_file(path, content(1, 0, 160 * MIB))
    for key in (2, 3):
        write_file(path, content(key, 0, 160 * MIB))  # O_TRUNC
        assert_same(read_file(path), content(key, 0, 160 * MIB))
    assert re.search("is given up", small.manager.text())
    assert versions(small, path) == ["present"]
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    pwrite_all(fd, content(4, 0, 160 * MIB), 0)
    os.close(os.open(path, os.O_WRONLY))  # publishes what was written
    wait_until("it to be said", 20, lambda: versions(small, path) == ["present", "given up"])
    assert small.status()["given_up"] == 1
    assert re.search(r"given up +1 of files", small.fpctl("status", m.path).stdout) and "had no space at" in small.fpctl("versions", path).stdout
    os.close(fd)
    wait_until("the file to be whole", 20, lambda: versions(small, path) == ["present"])
    assert small.status()["given_up"] == 0
    assert json.loads(small.fpctl("df", m.path, "--json").stdout)["version_bytes"] == 0


@pytest.mark.short
@pytest.mark.parametrize("how", ["trunc", "in_place"])
def test_a_version_is_there_while_a_file_is_rewritten_and_not_after(small, how):
    m = small.mounts[0]
    path = m.at("ckpt")
    write_file(path, content(1, 0, 4 * MIB), sync=True)
    used, files = os.statvfs(m.path).f_bfree, os.statvfs(m.path).f_ffree
    fd = os.open(path, os.O_WRONLY | (os.O_TRUNC if how == "trunc" else 0))
    pwrite_all(fd, content(2, 0, 2 * MIB), 0)
    os.close(os.open(path, os.O_WRONLY))  # publishes what was written
    assert versions(small, path) == ["present", "guard"]
    held = json.loads(small.fpctl("df", m.path, "--json").stdout)["version_bytes"]
    assert 2 * MIB <= held <= 4 * MIB
    status = small.status()
    assert (status["versions"], status["version_bytes"]) == (1, held)
    assert re.search(r"versions +1 of files that are rewritten", small.fpctl("status", m.path).stdout)
    assert os.statvfs(m.path).f_ffree == files
    r = small.fpctl("restore", path, check=False)
    assert r.returncode == 3 and m.path in r.stderr
    pwrite_all(fd, content(2, 2 * MIB, 2 * MIB), 2 * MIB)
    os.close(fd)
    wait_until("the version to go", 5, lambda: versions(small, path) == ["present"])
    assert_same(read_file(path), content(2, 0, 4 * MIB))
    assert small.status()["version_bytes"] == 0
    wait_until("its space to be free", 5, lambda: os.statvfs(m.path).f_bfree >= used)
    assert small.fpctl("restore", path, check=False).returncode == 1


def written(path, data):
    try:
        write_file(path, data)
    except OSError as e:
        assert e.errno == errno.EIO
        return False
    return True


@pytest.mark.short
def test_what_is_put_back_by_force_is_not_written_over(small):
    """The writer lives: its further writes fail, and both what was put back and what it had written stay until somebody opens the file anew and writes it."""
    m = small.mounts[0]
    small.expect(r"refused by the manager|written data was lost while this was mounted")
    path = m.at("ckpt")
    write_file(path, content(1, 0, 4 * MIB), sync=True)
    fd = os.open(path, os.O_WRONLY)
    pwrite_all(fd, content(2, 0, 2 * MIB), 0)
    os.close(os.open(path, os.O_WRONLY))  # publishes what was written
    wait_until("what is to be put back", 5, lambda: versions(small, path) == ["present", "guard"])
    small.fpctl("restore", path, "--force")
    with pytest.raises(OSError) as e:
        for _ in range(100):  # at the latest when it is published
            pwrite_all(fd, content(2, 2 * MIB, MIB), 2 * MIB)
            os.fsync(fd)
    assert e.value.errno in (errno.EIO, errno.ESTALE)
    try:
        os.close(fd)
    except OSError as closed:  # that it is told here, too, is no matter
        assert closed.errno in (errno.EIO, errno.ESTALE)
    assert_same(read_file(path), content(1, 0, 4 * MIB))
    assert versions(small, path) == ["present", "torn"]
    wait_until("the kernel to have let go of the file that was closed", 10, lambda: written(path, content(3, 0, MIB)))  # it tells that after close(2); till then the mount has the file open, and is refused
    assert_same(read_file(path), content(3, 0, MIB))
    wait_until("both to go", 10, lambda: versions(small, path) == ["present"])


@pytest.mark.short
@pytest.mark.limit(180)
def test_the_version_before_waits_until_the_next_is_in_the_target(new_store, targets):
    s = new_store().up(benefactors=2, mounts=1, manager_args=["--versions=on"])
    m = s.mounts[0]
    target = targets.slow()
    s.fpctl("drain", "set", f"to={target.path} every=none results=ckpt level=drained", m.path)
    path = m.at("ckpt")
    write_file(path, content(1, 0, 4 * MIB))
    s.fpctl("wait", path, "--level=drained", "--timeout=60s", seconds=70)
    target.hang()
    for key, how in ((2, "in_place"), (3, "trunc"), (4, "rename")):  # nobody waits for the target
        if how == "in_place":
            fd = os.open(path, os.O_WRONLY)
            pwrite_all(fd, content(key, 0, 4 * MIB), 0)
            os.close(fd)
        else:
            write_file(path + "~" if how == "rename" else path, content(key, 0, 4 * MIB))
        if how == "rename":
            os.rename(path + "~", path)
        wait_until("the version to wait", 20, lambda: versions(s, path) == ["present", "waits"])
        assert_same(read_file(path), content(key, 0, 4 * MIB))
    assert s.status()["version_bytes"] == 4 * MIB
    why = json.loads(s.fpctl("versions", path, "--json").stdout)["versions"][1]["why"]
    assert re.match("kept until the file is drained: it is (in the pool|local)", why)
    s.fpctl("restore", path)
    assert_same(read_file(path), content(1, 0, 4 * MIB))
    s.fpctl("restore", path + "@" + str(json.loads(s.fpctl("versions", path, "--json").stdout)["versions"][1]["version"]))
    write_file(path, content(5, 0, 4 * MIB))
    wait_until("the version to wait", 20, lambda: versions(s, path) == ["present", "waits"])
    target.resume()
    wait_until("the version to go", 100, lambda: versions(s, path) == ["present"], 0.2)
    assert os.getxattr(path, "user.fp.level") == b"drained"
    assert_same(read_file(os.path.join(target.path, "ckpt")), content(5, 0, 4 * MIB))
    wait_until("its space to be free", 20, lambda: s.status()["version_bytes"] == 0)
