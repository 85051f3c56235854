"""Data through real aux-apps: whatever they make of it, programs of any mount read what was written.

Duplicates, zeros, patterns and noise, written in pieces, over each other, truncated, read back before they are published;
compared with a byte array on the mount that wrote, on one without aux-apps, and after both have been started again.
"""

import os
import random
import signal
import threading
import time

import pytest

from harness.files import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, fallocate, seed_of_run

MIB = 1 << 20
SIZE = 6 * MIB


def key_file(store):
    path = os.path.join(store.dir, "data.key")
    with open(path, "wb") as f:
        f.write(bytes(range(32)).hex().encode() + b"\n")
    os.chmod(path, 0o600)
    return path


def declared(store, chain):
    args = []
    for words in chain:
        args += ["--auxapp", words.format(key=key_file(store))]
    return args


class Model:
    """A file and what should be in it."""

    def __init__(self, path, rnd):
        self.path, self.rnd, self.bytes = path, rnd, bytearray()
        self.noise = rnd.randbytes(SIZE)

    def some(self, n):
        what = self.rnd.randrange(4)
        if what == 0:
            return bytes(n)
        if what == 1:  # written before, maybe elsewhere
            at = self.rnd.randrange(0, SIZE - n + 1) & ~4095
            return self.noise[at:at + n]
        if what == 2:
            return (b"pattern of %d " % self.rnd.randrange(9) * (n // 10 + 1))[:n]
        return self.rnd.randbytes(n)

    def write(self, fd):
        off = self.rnd.randrange(SIZE - 1)
        if self.rnd.randrange(2):
            off &= ~65535
        n = min(SIZE - off, self.rnd.choice((100, 5000, 70000, MIB, 2 * MIB)))
        data = self.some(n)
        assert os.pwrite(fd, data, off) == n
        if len(self.bytes) < off + n:
            self.bytes.extend(bytes(off + n - len(self.bytes)))
        self.bytes[off:off + n] = data

    def truncate(self, fd):
        size = self.rnd.randrange(len(self.bytes) + 1)
        os.ftruncate(fd, size)
        del self.bytes[size:]

    def read(self, fd):
        off = self.rnd.randrange(SIZE)
        n = self.rnd.choice((1, 4096, 131072, 3 * MIB))
        assert os.pread(fd, n, off) == self.bytes[off:off + n], (self.path, off, n)

    def check(self, path):
        with open(path, "rb") as f:
            assert f.read() == self.bytes, path

    def work(self, ops):
        for _ in range(ops):
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            for _ in range(self.rnd.randrange(1, 12)):
                self.rnd.choice((self.write, self.write, self.write, self.read, self.read, self.truncate))(fd)
            if self.rnd.randrange(3) == 0:
                os.fsync(fd)
            os.close(fd)


CHAINS = {
    "dedup": ["dedup scope=store size=4KiB pays=0%"],
    "compress": ["compress"],
    "encrypt": ["encrypt key={key}"],
    "all": ["dedup scope=store pays=0%", "compress level=1", "encrypt key={key}"],
}


@pytest.mark.limit(180)
@pytest.mark.parametrize("name", CHAINS)
def test_what_aux_apps_make_of_data_reads_as_it_was_written(new_store, name):
    s = new_store().up(mounts=0)
    m = s.add_mount(*declared(s, CHAINS[name]))
    # A mount that declares nothing finds coders by their names; the key it must be given.
    plain = s.add_mount(*(declared(s, CHAINS[name]) if "encrypt" in str(CHAINS[name]) else []))
    seed = seed_of_run()
    files = [Model(m.at(f"f{i}"), random.Random(seed * 10 + i)) for i in range(3)]
    threads = [threading.Thread(target=f.work, args=(25,)) for f in files]
    failed = []
    threading.excepthook = lambda a: failed.append(a.exc_value)
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed
    for i, f in enumerate(files):
        f.check(m.at(f"f{i}"))
        f.check(plain.at(f"f{i}"))
    m.unmount()
    again = s.add_mount(*declared(s, CHAINS[name]))
    for i, f in enumerate(files):
        f.check(again.at(f"f{i}"))


def used(store):
    return sum(b["used_bytes"] for b in store.status()["benefactors"])


@pytest.mark.parametrize("scope", ["file", "store"])
def test_duplicates_and_zeros_take_no_space(new_store, scope):
    """The next step of a checkpoint, most of it as before, some of it moved, some of it zeros."""
    s = new_store().up(mounts=0)
    m = s.add_mount("--auxapp", f"dedup scope={scope} pays=0%")
    data = random.Random(1).randbytes(16 * MIB)
    with open(m.at("ckpt.0001"), "wb") as f:
        f.write(data)
    s.wait_status("the first step is counted", 5, lambda st: used(s) >= 16 * MIB)
    first = used(s)
    step = data[:3 * MIB] + bytes(2 * MIB) + data[3 * MIB:] + random.Random(2).randbytes(MIB)
    with open(m.at("ckpt.0002"), "wb") as f:
        f.write(step)
    with open(m.at("ckpt.0002"), "rb") as f:
        assert f.read() == step
    time.sleep(2)  # keep-alive
    assert used(s) - first < 2 * MIB, (first, used(s))
    os.unlink(m.at("ckpt.0001"))
    time.sleep(2)
    with open(m.at("ckpt.0002"), "rb") as f:
        assert f.read() == step


def hosts_of(mount):
    """Processes that mount has started."""
    out = []
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/stat") as f:
                words = f.read().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if words[1] == str(mount.pid):
            out.append(int(pid))
    return out


@pytest.mark.limit(120)
@pytest.mark.expect_log(r"aux|host")
def test_killed_host_costs_nothing(new_store):
    s = new_store().up(mounts=0)
    m = s.add_mount("--auxapp", "dedup scope=store pays=0% failures=100", "--auxapp", "compress failures=100")
    seed = seed_of_run()
    files = [Model(m.at(f"f{i}"), random.Random(seed * 10 + i)) for i in range(2)]
    threads = [threading.Thread(target=f.work, args=(25,)) for f in files]
    failed, kills = [], 0
    threading.excepthook = lambda a: failed.append(a.exc_value)
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        time.sleep(0.3)
        for pid in hosts_of(m):
            os.kill(pid, signal.SIGKILL)
            kills += 1
    for t in threads:
        t.join()
    assert not failed, failed
    assert kills > 0
    for i, f in enumerate(files):
        f.check(m.at(f"f{i}"))


def test_file_cut_to_nothing_is_compared_with_what_it_was(new_store):
    """A checkpoint that is written again under its name, with O_TRUNC."""
    s = new_store().up(mounts=0)
    m = s.add_mount("--auxapp", "dedup pays=0%")
    data = random.Random(1).randbytes(8 * MIB)
    for i in range(3):
        with open(m.at("state"), "wb") as f:
            f.write(data[:i * 1000] + data)
    time.sleep(2)
    assert used(s) < 10 * MIB
    with open(m.at("state"), "rb") as f:
        assert f.read() == data[:2000] + data


def test_holds_do_not_make_a_store_full(new_store):
    """Chunks of an earlier step that is deleted meanwhile: what the next one does not refer to makes room for it."""
    s = new_store().up(mounts=0, benefactors=1, size="160MiB")
    m = s.add_mount("--auxapp", "dedup pays=0%")
    rnd = random.Random(4)
    data = rnd.randbytes(70 * MIB)
    with open(m.at("ckpt.0001"), "wb") as f:
        f.write(data)
    new = rnd.randbytes(110 * MIB)
    with open(m.at("ckpt.0002"), "wb") as f:
        f.write(data[:2 * MIB])
        os.fsync(f.fileno())
        os.unlink(m.at("ckpt.0001"))
        f.write(new)
    with open(m.at("ckpt.0002"), "rb") as f:
        assert f.read() == data[:2 * MIB] + new


@pytest.mark.limit(120)
@pytest.mark.parametrize("chunk", ["64KiB", "16MiB"])
def test_smallest_and_largest_chunks(new_store, chunk):
    """Encrypted noise of the largest chunk is longer than the largest chunk."""
    s = new_store().up(mounts=0)
    m = s.add_mount(*declared(s, CHAINS["all"]))
    os.setxattr(m.path, "user.fp.chunk_size", chunk.encode())
    rnd = random.Random(6)
    noise = rnd.randbytes(33 * MIB)
    for name in ("a", "b"):
        with open(m.at(name), "wb") as f:
            f.write(noise[:20 * MIB] + bytes(3 * MIB) + noise[20 * MIB:] + b"pattern" * 99999)
    again = s.add_mount(*declared(s, CHAINS["encrypt"]))
    for name in ("a", "b"):
        with open(again.at(name), "rb") as f:
            assert f.read() == noise[:20 * MIB] + bytes(3 * MIB) + noise[20 * MIB:] + b"pattern" * 99999


@pytest.mark.limit(120)
@pytest.mark.parametrize("chunk", ["1MiB", "16MiB"])
def test_chunks_of_another_node(nodes, new_store, chunk):
    """The benefactor is elsewhere: what aux-apps leave goes, and comes back, over the network."""
    s = new_store(nodes(2))
    s.start_manager()
    s.add_benefactor(node=1)
    m = s.add_mount(*declared(s, CHAINS["all"]), node=0)
    os.setxattr(m.path, "user.fp.chunk_size", chunk.encode())
    seed = seed_of_run()
    f = Model(m.at("f"), random.Random(seed))
    f.work(25)
    f.check(m.at("f"))
    f.check(s.add_mount(*declared(s, CHAINS["encrypt"]), node=1).at("f"))


def test_copies_and_holes_of_coded_chunks(new_store):
    """copy_file_range shares chunks, whatever is in them; a hole cuts data, not coded bytes."""
    s = new_store().up(mounts=0)
    m = s.add_mount(*declared(s, CHAINS["all"]))
    data = bytearray(b"".join(b"line %d\n" % i for i in range(400000)))
    with open(m.at("a"), "wb") as f:
        f.write(data)
    src, dst = os.open(m.at("a"), os.O_RDWR), os.open(m.at("b"), os.O_RDWR | os.O_CREAT, 0o644)
    done = 0
    while done < len(data) - 12345:
        done += os.copy_file_range(src, dst, len(data) - 12345 - done, 12345 + done, 777 + done)
    fallocate(src, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 1000001, 1500000)
    data_b = bytes(777) + bytes(data[12345:])
    data[1000001:2500001] = bytes(1500000)
    assert os.pread(src, len(data) + 1, 0) == data
    assert os.pread(dst, len(data), 0) == data_b
    os.close(src)
    os.close(dst)
    os.unlink(m.at("a"))
    with open(m.at("b"), "rb") as f:
        assert f.read() == data_b
