"""Programs that make, change and remove files beside each other, each of which compares all that it is told with what it has done.

Half of it is answered before the manager has heard of it (client/early.h), half not, and the two are mixed in every order. Meanwhile the manager is killed
and started again, and another mount comes.
"""

import json
import os
import subprocess
import sys
import time

import pytest

from harness.daemons import SLOW, wait_until

RANKS = 4

# argv: directory (with subdirectories a and b), rank, seed, file to stop it, file for the names that are left
PROGRAM = r"""
import errno, json, os, random, sys

path, rank, seed, stop, left = sys.argv[1:6]
rnd = random.Random(int(seed))
names = {}    # name -> file
opened = []   # (descriptor, file)
log = []

class File:
    def __init__(self, mode):
        self.mode, self.data, self.nlink, self.attrs = mode, b"", 1, {}

def some():
    return f"{rnd.choice(['.', 'a', 'b'])}/{rank}.{rnd.randrange(12)}"

def at(name):
    return f"{path}/{name}"

def check(what, told, known):
    if told != known:
        print(f"rank {rank} seed {seed}: {what}: told {told!r}, but {known!r} after", *log[-12:], sep="\n  ", flush=True)
        os._exit(1)

def gone(name):
    names.pop(name).nlink -= 1

def error_of(call, *args):
    try:
        call(*args)
        return 0
    except OSError as e:
        return e.errno

def create():
    name, mode = some(), rnd.choice([0o600, 0o644, 0o4755])
    there = name in names
    flags = os.O_RDWR | os.O_CREAT | (os.O_EXCL if rnd.random() < 0.7 else 0)
    log.append(f"create {name} excl {bool(flags & os.O_EXCL)}")
    try:
        fd = os.open(at(name), flags, mode)
    except FileExistsError:
        check("create", "exists", "exists" if there and flags & os.O_EXCL else "made")
        return
    check("create", "made", "exists" if there and flags & os.O_EXCL else "made")
    if not there:
        names[name] = File(mode)
    opened.append((fd, names[name]))
    if rnd.random() < 0.5:
        write()

def write():
    if not opened:
        return
    fd, f = rnd.choice(opened)
    data = bytes([rnd.randrange(256)]) * rnd.choice([1, 1000, 70000])
    log.append(f"write {len(data)} to {[n for n in names if names[n] is f]}")
    if not rnd.randrange(5):
        f.mode &= 0o777
    os.pwrite(fd, data, len(f.data))
    f.data += data
    f.mode &= ~0o6000 if os.getuid() else 0o7777

def close():
    if opened:
        fd, f = opened.pop(rnd.randrange(len(opened)))
        log.append(f"close {[n for n in names if names[n] is f]}")
        os.close(fd)

def look_at_opened():
    if opened:
        fd, f = rnd.choice(opened)
        log.append(f"fstat {[n for n in names if names[n] is f]}")
        st = os.fstat(fd)
        check("fstat", (st.st_size, st.st_nlink), (len(f.data), f.nlink))
        check("read", os.pread(fd, len(f.data) + 1, 0), f.data)

def look():
    name = some()
    log.append(f"stat {name}")
    try:
        st = os.stat(at(name))
        told = (st.st_size, st.st_nlink)
    except FileNotFoundError:
        told = None
    check(f"stat {name}", told, (len(names[name].data), names[name].nlink) if name in names else None)

def unlink():
    name = some()
    log.append(f"unlink {name}")
    check("unlink", error_of(os.unlink, at(name)), 0 if name in names else errno.ENOENT)
    if name in names:
        gone(name)

def link():
    a, b = some(), some()
    log.append(f"link {a} {b}")
    told = error_of(os.link, at(a), at(b))
    if told == errno.ENOENT and a in names:
        # Linux counts a name less after each unlink, also if another rank's listing has told it the new count before. Asked, it knows better.
        os.stat(at(a))
        told = error_of(os.link, at(a), at(b))
    check("link", told, errno.ENOENT if a not in names else errno.EEXIST if b in names else 0)
    if a in names and b not in names:
        names[b] = names[a]
        names[b].nlink += 1

def rename():
    a, b = some(), some()
    log.append(f"rename {a} {b}")
    check("rename", error_of(os.rename, at(a), at(b)), 0 if a in names else errno.ENOENT)
    if a not in names or names.get(b) is names[a]:
        return
    if b in names:
        gone(b)
    names[b] = names.pop(a)

def truncate():
    name, size = some(), rnd.choice([0, 10, 100000])
    log.append(f"truncate {name} {size}")
    check("truncate", error_of(os.truncate, at(name), size), 0 if name in names else errno.ENOENT)
    if name in names:
        names[name].data = names[name].data[:size].ljust(size, b"\0")

def attribute():
    name, value = some(), str(rnd.random()).encode()
    log.append(f"setxattr {name}")
    check("setxattr", error_of(os.setxattr, at(name), "user.x", value), 0 if name in names else errno.ENOENT)
    if name in names:
        names[name].attrs["user.x"] = value
        check("getxattr", os.getxattr(at(name), "user.x"), value)

def nameless():
    name = some()
    log.append(f"tmpfile as {name}")
    fd = os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"tmp")
    rc = error_of(lambda: os.link(f"/proc/self/fd/{fd}", at(name), src_dir_fd=fd))
    check("link of a file without a name", rc, errno.EEXIST if name in names else 0)
    if name not in names:
        names[name] = File(0o600)
        names[name].data = b"tmp"
    os.close(fd)

def directory():
    name = at(f"{rank}.dir")
    log.append("mkdir, create in it, rmdir")
    os.mkdir(name)
    fd = os.open(f"{name}/x", os.O_CREAT | os.O_WRONLY)
    check("rmdir", error_of(os.rmdir, name), errno.ENOTEMPTY)
    os.unlink(f"{name}/x")
    check("rmdir", error_of(os.rmdir, name), 0)
    os.close(fd)

def listing():
    log.append("list")
    for d in (".", "a", "b"):
        check(f"list {d}", sorted(n for n in os.listdir(at(d)) if n.startswith(rank + ".")),
              sorted(n[len(d) + 1:] for n in names if n.startswith(d + "/")))

weights = {create: 10, write: 4, close: 8, look_at_opened: 4, look: 8, unlink: 9, link: 2, rename: 2, truncate: 1, attribute: 1, nameless: 1, directory: 1, listing: 1}
ops = [op for op, n in weights.items() for _ in range(n)]
done = 0
while not os.path.exists(stop):
    try:
        rnd.choice(ops)()
    except OSError as e:
        check("error", str(e), None)
    done += 1
while opened:
    close()
listing()
with open(left, "w") as out:
    json.dump({"done": done, "names": {n: [len(f.data), f.nlink, sum(f.data)] for n, f in names.items()}}, out)
"""


class Crowd:
    def __init__(self, store, path):
        self.stop = os.path.join(store.dir, "stop")
        self.left = [os.path.join(store.dir, f"left-{rank}") for rank in range(RANKS)]
        seed = int(os.environ.get("FP_SEED") or int.from_bytes(os.urandom(3), "little"))
        print(f"FP_SEED={seed}")
        self.procs = [subprocess.Popen([sys.executable, "-c", PROGRAM, path, str(rank), str(seed + rank), self.stop, self.left[rank]],
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(RANKS)]

    def run(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until and all(p.poll() is None for p in self.procs):
            time.sleep(0.1)

    def end(self):
        """What is left, by name."""
        with open(self.stop, "w"):
            pass
        said = [p.communicate(timeout=60 * SLOW)[0] for p in self.procs]
        assert said == [""] * RANKS, "\n".join(said)
        names = {}
        for left in self.left:
            with open(left) as f:
                one = json.load(f)
            assert one["done"] > 100
            names.update(one["names"])
        return names

    def kill(self):
        for p in self.procs:
            if p.poll() is None:
                p.kill()
            p.wait(20)


@pytest.fixture
def crowd(store):
    path = store.mounts[0].at("dir")
    for name in ("", "a", "b"):
        os.mkdir(os.path.join(path, name))
    one = Crowd(store, path)
    yield one
    one.kill()


def verify(path, names):
    there = {}
    for d in (".", "a", "b"):
        for n in os.listdir(f"{path}/{d}"):
            if os.path.isfile(f"{path}/{d}/{n}"):
                with open(f"{path}/{d}/{n}", "rb") as f:
                    data = f.read()
                there[f"{d}/{n}"] = [len(data), os.stat(f"{path}/{d}/{n}").st_nlink, sum(data)]
    assert there == names


@pytest.mark.limit(120)
def test_all_that_programs_are_told_agrees(store, crowd):
    crowd.run(10)
    names = crowd.end()
    verify(store.mounts[0].at("dir"), names)
    verify(store.add_mount().at("dir"), names)


@pytest.mark.limit(180)
def test_all_that_programs_are_told_agrees_whatever_happens(store, crowd):
    crowd.run(3)
    for _ in range(2):
        store.manager.kill()
        time.sleep(0.3 * SLOW)
        store.restart_manager()
        crowd.run(2)
    second = store.add_mount()
    crowd.run(2)
    second.unmount()
    wait_until("the first mount to be alone", 20, lambda: len(store.status()["mounts"]) == 1)
    crowd.run(3)
    verify_on = store.add_mount()
    crowd.run(1)
    verify(verify_on.at("dir"), crowd.end())
