"""No plain data ever passes an aux-app that must not be left out.

Writers write data of which each 4 KiB say what they are, through dedup, compress and encrypt, while everything is done to the chain that can be done: the host is
killed and crashes, aux-apps fail too often, are bypassed and taken in again, get other options and cores. Some of the data compresses and some does
not; of neither may anything be found on the devices: no block that says what it is, no chunk that is coded and not encrypted. What was
stored without an error reads right.

encrypt is declared without the word `required`: it says that itself.
"""

import ctypes
import errno
import hashlib
import mmap
import os
import random
import re
import signal
import struct
import subprocess
import threading
import time

import pytest

from harness.aux import MIB, app, host_pid, wait_app
from harness.daemons import LIBC, PACE, SLOW, bin_path, wait_until
from harness.files import seed_of_run

MARK = b"\x13PLAIN\xe7TEXT\x37"
EXPECTED = r"aux-?app|fp-auxhost|could not be stored|written data was lost|encrypt|refused"
FILE_BYTES = 3 * MIB + 12345
TGKILL = 234  # x86_64

pytestmark = pytest.mark.expect_log(EXPECTED)


def blocks(writer, n, size=FILE_BYTES):
    """Data of file n: half of its MiBs do not compress, half do, and some are as in the file before."""
    out = bytearray()
    for i in range(size // 4096 + 1):
        mib = i // 256
        step = n - 1 if (mib + n) % 3 == 0 else n
        rest = 4096 - len(MARK)
        if mib % 2:
            body = b"step %d of writer %d, block %d: " % (step, writer, i)
            out += MARK + (body * (rest // len(body) + 1))[:rest]
        else:
            out += MARK + random.Random(writer << 40 | step << 20 | i).randbytes(rest)
    return bytes(out[:size])


class Writer(threading.Thread):
    """Files one after the other; an error is allowed, wrong bytes are not. Kept by their sums: the bytes take Python a while to make."""

    def __init__(self, mount, number):
        super().__init__()
        self.mount, self.number, self.kept, self.errors, self.stopped, self.wrong = mount, number, {}, 0, False, None
        self.start()

    def run(self):
        try:
            n = 0
            while not self.stopped:
                self.write(n)
                n += 1
                time.sleep(0.02)
        except Exception as e:  # noqa: BLE001  (told by finish)
            self.wrong = repr(e)

    def path(self, n):
        return self.mount.at(f"w{self.number}_{n}")

    def write(self, n):
        try:
            fd = os.open(self.path(n), os.O_CREAT | os.O_WRONLY, 0o644)
            try:
                data = memoryview(blocks(self.number, n))
                whole = hashlib.sha1(data).digest()
                while data:
                    data = data[os.write(fd, data[:MIB // 2]):]
                os.fsync(fd)
            finally:
                os.close(fd)
            self.kept[n] = whole
        except OSError as e:
            if e.errno not in (errno.EIO, errno.ENOMEM):
                raise
            self.errors += 1
            time.sleep(0.1)

    def finish(self):
        self.stopped = True
        self.join(90 * PACE)
        assert not self.is_alive(), "a writer hangs"
        assert self.wrong is None, self.wrong


def where_wrong(got, want):
    """The 4 KiB blocks that are not what was written, and what they begin with."""
    wrong = [i for i in range(max(len(got), len(want)) // 4096 + 1) if got[i * 4096:][:4096] != want[i * 4096:][:4096]]
    return f"{len(got)} bytes of {len(want)}, blocks {wrong}, with {got[wrong[0] * 4096:][:16] if wrong else None}"


def read_right(writers):
    for w in writers:
        for n, whole in w.kept.items():
            with open(w.path(n), "rb") as f:
                got = f.read()
            if hashlib.sha1(got).digest() != whole:
                raise AssertionError(f"{w.path(n)}: {where_wrong(got, blocks(w.number, n))}")


def unmount(mount):
    """It ends with 1 if data was lost, as it was when encrypt had failed."""
    mount.ended_as_told = True
    subprocess.run(["fusermount3", "-u", mount.path], check=True, timeout=20 * SLOW)
    assert mount.wait() in (0, 1), mount.tail()


# ---------------------------------------------------------------- what lies on the devices


def coded_stages(view, at):
    """Names of the stages of the envelope that begins there, or None if there is none (include/fp/auxwire.h)."""
    if at + 32 > len(view):
        return None
    magic, version, stages, data, coded = struct.unpack_from("<IHHII", view, at)
    if magic != 0x31455046 or version & 0xff != 1 or not 1 <= stages <= 8 or not 0 < data <= 17 * MIB or not 0 < coded <= 17 * MIB:
        return None
    names = [view[at + 32 + 32 * i:at + 56 + 32 * i] for i in range(stages)]
    if not all(re.fullmatch(rb"[a-z][a-z0-9_-]*\0+", n) for n in names):
        return None
    return [n.rstrip(b"\0").decode() for n in names]


def plain_in(path):
    """(where plain data lies in this file or None, how many encrypted chunks it has)"""
    found = 0
    with open(path, "rb") as f:
        if os.fstat(f.fileno()).st_size == 0:
            return None, 0
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as view:
            at = view.find(MARK)
            if at >= 0:
                return f"{path} has plain data at {at}", 0
            at = view.find(b"FPE1")
            while at >= 0:
                names = coded_stages(view, at)
                if names and "encrypt" not in names:
                    return f"{path} has a chunk at {at} that only passed {names}", 0
                found += names is not None
                at = view.find(b"FPE1", at + 4)
    return None, found


def assert_no_plain_data(store):
    """Returns how many encrypted chunks there are."""
    total = 0
    for b in store.benefactors:
        for top, _, names in os.walk(b.dir):
            for name in names:
                path = os.path.join(top, name)
                if not os.path.isfile(path):  # a socket, or deleted meanwhile
                    continue
                wrong, found = plain_in(path)
                assert wrong is None, wrong
                total += found
    return total


# ---------------------------------------------------------------- what is done to the chain


class Chaos:
    def __init__(self, store, seed):
        self.store, self.mount, self.random, self.fpctls = store, store.mounts[0], random.Random(seed), []
        self.done = []

    def set(self, name, change):
        self.fpctls = [p for p in self.fpctls if p.poll() is None]
        cmd = [bin_path("fpctl"), "auxapps", "set", name, change, f"--manager={self.store.addr}", f"--key={self.store.key}"]
        self.fpctls.append(subprocess.Popen(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def kill(self, sig=signal.SIGKILL):
        pid = host_pid(self.mount)
        if pid:
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                pass

    def crash_a_thread(self):
        """A fatal signal in a thread of the host: blamed on the aux-app whose callback it is in."""
        pid = host_pid(self.mount)
        try:
            tids = [int(t) for t in os.listdir(f"/proc/{pid}/task")] if pid else []
        except FileNotFoundError:
            return
        if tids:
            LIBC.syscall(ctypes.c_long(TGKILL), ctypes.c_int(pid), ctypes.c_int(self.random.choice(tids)), ctypes.c_int(signal.SIGSEGV))

    def until_encrypt_has_failed(self):
        """So many deaths within a minute that all aux-apps are given up."""
        start = len(self.mount.text())

        def given_up():
            self.kill()
            return re.search("encrypt failed too often", self.mount.text()[start:])
        wait_until("encrypt to fail", 55, given_up, 0.01)

    def all_in_again(self):
        for name in self.random.sample(["dedup", "compress", "encrypt"], 3):
            self.set(name, "bypass=off")
            time.sleep(self.random.choice([0, 0, 0.05, 0.2, 0.5]))

    def one(self):
        name = self.random.choice(["dedup", "compress", "encrypt"])
        deed = self.random.choice(["kill", "kill", "crash", "on", "off", "off", "in", "word", "level"])
        self.done.append(f"{deed} {name}")
        if deed == "kill":
            self.kill()
        elif deed == "crash":
            self.crash_a_thread()
        elif deed in ("on", "off"):
            self.set(name, f"bypass={deed}")
        elif deed == "in":
            self.all_in_again()
        elif deed == "word":
            self.set(name, self.random.choice(["cores=1", "cores=1-2", "cores=2", "queue=2", "queue=30", "verify=on", "verify=off", "deadline=5s"]))
        elif deed == "level":
            self.set("compress", f"level={self.random.choice([1, 3])}")

    def finish(self):
        for p in self.fpctls:
            p.wait(30 * PACE)


@pytest.fixture
def chain(new_store, tmp_path):
    def make(*more):
        key = tmp_path / "data.key"
        key.write_text("5a" * 32 + "\n")
        key.chmod(0o600)
        s = new_store().up(mounts=0, size="4GiB")
        s.add_mount("--auxapp=dedup", "--auxapp=compress cores=1-2", f"--auxapp=encrypt key={key}{' ' if more else ''}{' '.join(more)}", pool="128MiB")
        return s
    return make


@pytest.mark.limit(300)
def test_no_plain_data_is_ever_stored(chain):
    seed = seed_of_run()
    s = chain()
    chaos, writers = Chaos(s, seed), [Writer(s.mounts[0], i) for i in range(3)]
    until = time.monotonic() + 30 * PACE
    while time.monotonic() < until:
        chaos.one()
        time.sleep(chaos.random.choice([0, 0.05, 0.2, 0.5, 1]))
    assert_no_plain_data(s)
    chaos.finish()
    chaos.all_in_again()
    chaos.finish()
    for name in ("dedup", "compress", "encrypt"):
        wait_app(s, name, "running", lambda a: a["state"] == "running", 20)
    before = [len(w.kept) for w in writers]
    wait_until("all to write again", 20, lambda: all(len(w.kept) > n for w, n in zip(writers, before)))
    for w in writers:
        w.finish()
    read_right(writers)
    assert assert_no_plain_data(s) > 10, "there is something to be found"
    unmount(s.mounts[0])
    s.mounts[0].start()
    read_right(writers)
    print(f"seed {seed}: {sum(len(w.kept) for w in writers)} files, {sum(w.errors for w in writers)} errors; {len(chaos.done)} deeds")


def test_a_child_that_executes_a_program_does_not_take_the_error_along(chain):
    """The descriptor it has inherited is closed then, and nobody sees what that says: fsync has to say it all the same."""
    s = chain()
    w = Writer(s.mounts[0], 0)
    Chaos(s, 1).until_encrypt_has_failed()
    w.finish()
    fd = os.open(s.mounts[0].at("f"), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    os.write(fd, blocks(1, 1))
    subprocess.run(["true"], check=True, close_fds=False)
    with pytest.raises(OSError, match="Errno 5"):
        os.fsync(fd)
    os.close(fd)
    unmount(s.mounts[0])


@pytest.mark.limit(240)
@pytest.mark.parametrize("word", ["", "required"])
def test_no_plain_data_while_encrypt_is_taken_in_again(chain, word):
    """encrypt has failed, the others run, and then it is to be used again: the host that runs does not have it yet."""
    s = chain(*([word] if word else []))
    chaos, writers = Chaos(s, 1), [Writer(s.mounts[0], i) for i in range(3)]
    for _ in range(2):
        chaos.until_encrypt_has_failed()
        assert_no_plain_data(s)
        for name in ("dedup", "compress"):
            chaos.set(name, "bypass=off")
            chaos.finish()
        wait_app(s, "compress", "running", lambda a: a["state"] == "running", 20)
        errors = [w.errors for w in writers]
        wait_until("writes to fail", 20, lambda: all(w.errors > n for w, n in zip(writers, errors)))
        before = [len(w.kept) for w in writers]
        chaos.set("encrypt", "bypass=off")
        wait_until("all to write again", 20, lambda: all(len(w.kept) > n for w, n in zip(writers, before)))
        chaos.finish()
        assert app(s, "encrypt")["state"] == "running"
        assert assert_no_plain_data(s) > 3
    for w in writers:
        w.finish()
    read_right(writers)
    unmount(s.mounts[0])
    assert_no_plain_data(s)


@pytest.mark.short
def test_encrypt_can_not_be_bypassed(chain):
    s = chain()
    run = s.fpctl("auxapps", "set", "encrypt", "bypass=on", check=False)
    assert run.returncode != 0 and "must not be stored without it" in run.stdout + run.stderr, run
    assert app(s, "encrypt")["state"] == "running"
    w = Writer(s.mounts[0], 0)
    wait_until("a file", 20, lambda: w.kept)
    w.finish()
    assert w.errors == 0
    assert assert_no_plain_data(s) > 1


@pytest.mark.short
def test_a_change_of_the_chain_is_told_when_it_is_done(chain):
    """`done` and `running` mean that a host runs with that chain, and not that one is going to."""
    s = chain()
    for value, state in (("on", "bypassed"), ("off", "running")):
        old = host_pid(s.mounts[0])
        run = s.fpctl("auxapps", "set", "compress", f"bypass={value}")
        assert f"bypass={value}: done" in run.stdout
        assert host_pid(s.mounts[0]) not in (None, old)
        assert app(s, "compress")["state"] == state
