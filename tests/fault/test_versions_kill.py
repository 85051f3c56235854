"""A mount is killed while a file is rewritten: the file is the last good version again (docs/ARCHITECTURE.md, the failure table)."""

import json
import os
import subprocess
import sys

import pytest

from harness.daemons import wait_until

MIB = 1 << 20
SIZE = 6 * MIB + 12345

# A program that rewrites a file, has told the mount so much that half of it is published, and waits. "rename": as another file, which takes its name too early;
# "rename_unpublished": before anything of it was published.
WRITER = """
import os, sys, time
path, manner = sys.argv[1], sys.argv[2]
data = os.urandom(1 << 20)
name = path + ".new" if manner.startswith("rename") else path
fd = os.open(name, os.O_WRONLY | (0 if manner == "in_place" else os.O_TRUNC | os.O_CREAT))
for i in range(3):
    os.pwrite(fd, data, i * len(data) + (333 if manner == "in_place" else 0))
if manner != "rename_unpublished":
    os.close(os.open(name, os.O_WRONLY))
if name != path:
    os.rename(name, path)
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
@pytest.mark.parametrize("manner", ["trunc", "in_place", "rename", "rename_unpublished"])
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
    def given_up():
        found = [v for v in json.loads(store.fpctl("versions", other.at("ckpt"), "--json").stdout)["versions"] if v["state"] == "torn"]
        assert len(found) == 1
        return found[0]

    first = given_up()
    store.fpctl("restore", f"{other.at('ckpt')}@{first['version']}")
    if manner == "rename_unpublished":  # the mount may have published it meanwhile, as it gets older
        torn = read(other.at("ckpt"))
    assert read(other.at("ckpt")) == torn
    assert first["size_bytes"] == len(torn)
    again = store.fpctl("restore", f"{other.at('ckpt')}@{first['version']}", check=False)
    assert again.returncode == 1 and "there is no such version" in again.stderr  # it is not undone by who says it twice
    assert read(other.at("ckpt")) == torn
    store.fpctl("restore", f"{other.at('ckpt')}@{given_up()['version']}")
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


def kept(store, path):
    return [v for v in json.loads(store.fpctl("versions", path, "--json").stdout)["versions"] if v["version"]]


@pytest.mark.short
@pytest.mark.parametrize("manner", ["trunc", "in_place"])
@pytest.mark.parametrize("then", ["restore", "remount", "mend"])
def test_program_killed_while_its_mount_lives(versions, manner, then):
    """The kernel closes what it had open, which is no close: what it has written is seen as it is, and what was there before is kept for it."""
    store = versions
    writer, other = store.mounts
    good = content(1)[:SIZE]
    write(writer.at("ckpt"), good)
    p = rewrite(writer.at("ckpt"), manner)
    p.kill()
    p.wait(20)
    wait_until("its end to be known", 10, lambda: [v for v in kept(store, other.at("ckpt")) if "killed" in v["why"]])
    torn = read(writer.at("ckpt"))
    assert torn != good and read(other.at("ckpt")) == torn
    if then == "restore":
        store.fpctl("restore", writer.at("ckpt"))
    elif then == "remount":
        assert writer.term() == 0
        writer.start()
    else:
        good = content(2)[:SIZE]
        write(writer.at("ckpt"), good)
    assert read(writer.at("ckpt")) == good
    assert read(other.at("ckpt")) == good
    if then == "mend":
        assert kept(store, writer.at("ckpt")) == []
        assert writer.term() == 0
        writer.start()
        assert read(writer.at("ckpt")) == good


@pytest.mark.parametrize("how", ["exit", "signal handled", "thread", "reaped late"])
def test_program_that_ends_without_a_close_has_closed(versions, how):
    """It was not killed: as on any file system, what it has written is the file."""
    store = versions
    path = store.mounts[0].at("ckpt")
    write(path, content(1)[:SIZE])
    ends = {"exit": "os._exit(3)",
            "signal handled": "signal.signal(signal.SIGTERM, lambda *a: os._exit(1)); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
            "thread": "threading.Thread(target=lambda: os._exit(0)).start(); time.sleep(60)",  # the others are killed by the kernel
            "reaped late": "os._exit(0)"}[how]
    p = subprocess.Popen([sys.executable, "-c", "import os, signal, sys, threading, time\n"
                          "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC); os.write(fd, b'x' * 100000)\n" + ends, path])
    if how == "reaped late":
        wait_until("its end", 10, lambda: open(f"/proc/{p.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "Z")
        wait_until("its close", 10, lambda: kept(store, path) == [])
    p.wait(20)
    wait_until("its close", 10, lambda: kept(store, path) == [])
    assert read(path) == b"x" * 100000


def test_child_is_killed_and_its_parent_goes_on(versions):
    """They share a descriptor: who closes it last says how it ended."""
    store = versions
    path = store.mounts[0].at("ckpt")
    write(path, content(1)[:SIZE])
    subprocess.run([sys.executable, "-c", "import os, signal, sys\n"
                    "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)\n"
                    "if not (pid := os.fork()):\n"
                    "    os.write(fd, b'x' * 5000); os.kill(os.getpid(), signal.SIGKILL)\n"
                    "os.waitpid(pid, 0); os.write(fd, b'y' * 5000); os.close(fd)\n", path], check=True, timeout=60)
    wait_until("its close", 10, lambda: kept(store, path) == [])
    assert read(path) == b"x" * 5000 + b"y" * 5000


def test_mount_killed_at_once_after_a_close(versions):
    """Close has said that it is there: that the mount did not come to give the file back does not matter."""
    store = versions
    writer, other = store.mounts
    for key in range(2, 8):
        write(writer.at("ckpt"), content(1)[:SIZE])
        subprocess.run([sys.executable, "-c", "import os, signal, sys\n"
                        "with open(sys.argv[1], sys.argv[2]) as f: f.write('z' * 300000)\n"
                        "os.kill(int(sys.argv[3]), signal.SIGKILL)\n", writer.at("ckpt"), ("w", "r+")[key % 2], str(writer.pid)], check=True, timeout=60)
        writer.kill()
        writer.start()
        assert read(other.at("ckpt")).startswith(b"z" * 300000)


@pytest.mark.short
def test_what_another_mount_has_closed_is_not_taken_back(versions):
    """Two mounts write one file: one closes, and is told that it is there; the other one is killed. The file is torn, and what it was is kept for fpctl restore."""
    store = versions
    writer, other = store.mounts
    good = content(1)[:SIZE]
    write(writer.at("ckpt"), good)
    p = rewrite(writer.at("ckpt"), "in_place")  # the first three MiB
    part = content(2)[:MIB]
    with open(other.at("ckpt"), "r+b") as f:
        f.seek(4 * MIB)
        f.write(part)
    try:
        writer.kill()
    finally:
        p.kill()
        p.wait(20)
    writer.start()
    wait_until("the end of the first", 20, lambda: any("closed" in v["why"] and "torn" in v["why"] for v in kept(store, other.at("ckpt"))))
    torn = read(other.at("ckpt"))
    assert torn[4 * MIB:5 * MIB] == part and torn[5 * MIB:] == good[5 * MIB:]
    assert read(writer.at("ckpt")) == torn
    store.fpctl("restore", other.at("ckpt"))
    assert read(other.at("ckpt")) == good and read(writer.at("ckpt")) == good


def test_mount_killed_that_began_to_write_after_another_had_closed(versions):
    """It had the file open all the time: what the other one has closed is the version that comes back."""
    store = versions
    writer, other = store.mounts
    write(writer.at("ckpt"), content(1)[:SIZE])
    fd = os.open(other.at("ckpt"), os.O_RDWR)
    good = content(2)[:SIZE]
    with open(writer.at("ckpt"), "r+b") as f:
        f.write(good)
    wait_until("its close", 10, lambda: kept(store, writer.at("ckpt")) == [])
    p = rewrite(other.at("ckpt"), "in_place")
    assert read(writer.at("ckpt")) != good
    other.kill()
    p.kill()
    p.wait(20)
    try:
        os.close(fd)
    except OSError:
        pass
    other.start()
    wait_until("the version that was closed", 20, lambda: read(writer.at("ckpt")) == good)


def test_mount_killed_that_had_a_file_open_and_wrote_nothing(versions):
    """What another one has closed stays."""
    store = versions
    writer, other = store.mounts
    write(writer.at("ckpt"), content(1)[:SIZE])
    fd = os.open(other.at("ckpt"), os.O_RDWR)
    write(writer.at("ckpt"), content(2)[:SIZE])
    other.kill()
    try:
        os.close(fd)
    except OSError:
        pass
    other.start()
    wait_until("its session to end", 20, lambda: kept(store, writer.at("ckpt")) == [])
    assert read(writer.at("ckpt")) == content(2)[:SIZE]


def test_program_that_starts_another_has_not_closed(versions):
    """Which inherits its descriptors, and closes them before it begins."""
    store = versions
    writer, other = store.mounts
    good = content(1)[:SIZE]
    write(writer.at("ckpt"), good)
    p = subprocess.Popen([sys.executable, "-c", "import os, subprocess, sys, time\n"
                          "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC); os.write(fd, b'x' * 100000)\n"
                          "subprocess.run(['true'], check=True)\n"
                          "if not os.fork(): os._exit(0)\n"
                          "os.wait(); print('half', flush=True); time.sleep(600)", writer.at("ckpt")], stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline() == "half\n"
        assert len(kept(store, other.at("ckpt"))) == 1
        writer.kill()
    finally:
        p.kill()
        p.wait(20)
    wait_until("the good version", 20, lambda: read(other.at("ckpt")) == good)


@pytest.mark.parametrize("closer", ["itself", "a child"])
def test_close_by_a_program_that_executes_another(versions, closer):
    """The kernel closes then while it holds a lock that files of /proc wait for: who looks at them to see whether that process ends waits for its own answer."""
    store = versions
    writer, other = store.mounts
    path = writer.at("ckpt")
    write(path, content(1)[:SIZE])
    child = "if os.fork(): os.wait(); os._exit(0)\n" if closer == "a child" else ""
    p = subprocess.Popen([sys.executable, "-c", "import os, sys\n"
                          "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC); os.write(fd, b'x' * 5000)\n"
                          f"{child}os.execvp('true', ['true'])\n", path])
    try:
        assert p.wait(30) == 0
    finally:
        p.kill()
    assert read(other.at("ckpt")) == b"x" * 5000
    wait_until("its close", 10, lambda: kept(store, path) == [])


@pytest.mark.short
@pytest.mark.limit(180)
@pytest.mark.expect_log(r"lacks \d+ chunks of files|can't be read|lost what had not been synced|written data was lost")
def test_data_that_is_lost_before_it_is_safe(new_store):
    """Of what is declared to be drained, before it is: what the file was is put back by hand, and nobody reads anything else meanwhile."""
    store = new_store()
    store.start_manager("--versions=on")
    first = store.add_benefactor()
    m = store.add_mount("--close=publish", "--io-timeout=5s")
    target = store.make_dir("target")
    store.fpctl("drain", "set", f"to={target} every=none results=ckpt level=drained", m.path)
    good, path = content(1)[:SIZE], m.at("ckpt")
    write(path, good)
    store.fpctl("wait", path, "--level=drained", "--timeout=60s", seconds=70)
    first.term()
    second = store.add_benefactor(backend="memory")
    store.fpctl("benefactor", "set", "all", "hold=on")
    write(path, content(2)[:SIZE])
    assert read(path) == content(2)[:SIZE]
    first.start()
    store.fpctl("benefactor", "set", "all", "hold=on")
    states = lambda: [v["state"] for v in json.loads(store.fpctl("versions", path, "--json").stdout)["versions"]]
    wait_until("the version to wait", 20, lambda: states() == ["present", "waits"])
    second.kill()
    second.start()  # with nothing
    wait_until("the loss to be known", 60, lambda: os.getxattr(path, "user.fp.level") == b"none", 0.2)
    assert states() == ["present", "waits"]
    other = store.add_mount("--io-timeout=5s")  # the first may have it in its memory
    with pytest.raises(OSError):
        read(other.at("ckpt"))
    damaged = [d for d in store.status()["damaged"] if d["path"].endswith("ckpt")]
    assert damaged and all(d["version"] for d in damaged)
    assert "is kept: fpctl restore" in store.fpctl("status", m.path, check=False).stdout
    store.manager.wait_log("ckpt .*some of it is lost or damaged; version .* is kept", 20)
    store.manager.kill()
    store.restart_manager()
    store.fpctl("restore", path)
    for mount in store.mounts:
        assert read(mount.at("ckpt")) == good
