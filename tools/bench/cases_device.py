"""Emulated devices: how near to what is named they are. Imported by bench.py for its cases."""

import json
import os
import subprocess
import time

from cases import Result, case
from store import MIB, BenchError

SECONDS = 10
THREADS = 8
PAPER = 0.57  # per cent: how near the paper's emulator is to the device
X25E = {"write": 175e6, "read": 250e6, "write-iops": 3300, "read-iops": 35000}


def off(name, measured, named):
    """One result per run: how many per cent it is off."""
    return Result(name, "%", [abs(m / named - 1) * 100 for m in measured], [], ("most", PAPER), "",
                  {"named": named, "measured": [float(f"{m:.8g}") for m in measured],
                   "measured_by_named": [round(m / named, 5) for m in measured]})


def device(env, where):
    """What fp-benefactor's back end does, without a store around it."""
    r = subprocess.run([env.app("devbench"), "emulated:x25e,over=memory", where, str(SECONDS), str(THREADS)], capture_output=True, text=True,
                       timeout=8 * SECONDS, check=False)
    if r.returncode != 0:
        raise BenchError(r.stderr.strip() or f"devbench: exit {r.returncode}")
    return json.loads(r.stdout)


def through_a_mount(env, runs):
    """Bytes per second that a program sees in the middle of a file: of writing until fsync is back, and of reading; SECONDS of each."""
    seen = {"write": [], "read": []}
    block = os.urandom(4 * MIB)
    warm = 64 * MIB

    def timed(total, move):
        start = time.monotonic()
        for _ in range(total // len(block)):
            move()
        return start

    with env.store(backend="emulated:x25e,over=memory", size=6 * 1024 * MIB, chunk_size=len(block)) as store:
        path = os.path.join(store.mnt, "f")

        def write(total):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            timed(warm, lambda: os.write(fd, block))
            os.fsync(fd)
            start = timed(total, lambda: os.write(fd, block))
            os.fsync(fd)
            os.close(fd)
            return total / (time.monotonic() - start)

        def compare(fd):
            if os.read(fd, len(block)) != block:
                raise BenchError("what is read is not what was written")

        def read(total):
            fd = os.open(path, os.O_RDONLY)
            timed(warm, lambda: compare(fd))
            start = timed(total, lambda: compare(fd))
            end = time.monotonic()
            os.close(fd)
            return total / (end - start)

        for _ in range(runs):
            free = store.free_bytes()
            seen["write"].append(write(int(X25E["write"] * SECONDS)))
            write(int(X25E["read"] * SECONDS) + 4 * warm)  # what is read ahead is not at the end of the file
            store.mount_stop()
            store.mount_start()  # nothing is in its pool
            seen["read"].append(read(int(X25E["read"] * SECONDS)))
            os.unlink(path)
            store.settle(free)
    return seen


@case("emulated-x25e-write", "emulated-x25e-read", "emulated-x25e-write-iops", "emulated-x25e-read-iops", "emulated-x25e-store-write",
      "emulated-x25e-store-read")
def emulated_x25e(env):
    """Of the device by itself: records of 1 MiB one after the other, 4 KiB at random. Through a mount: a file, in chunks of 4 MiB, each with a header of 4 KiB."""
    where = env.path("device")
    os.makedirs(where)
    runs = [device(env, where) for _ in range(min(env.runs, 3))]
    for name, named in X25E.items():
        yield off(f"emulated-x25e-{name}", [r[name] for r in runs], named)
    for name, measured in through_a_mount(env, min(env.runs, 3)).items():
        yield off(f"emulated-x25e-store-{name}", measured, X25E[name])


DISK = 85e6  # the paper's


@case("emulated-disk-write", "emulated-disk-read")
def emulated_disk(env):
    """fp-slowfs, which stands for the parallel file system: one program, 1 MiB at a time."""
    source, path = env.path("disk"), env.path("pfs")
    seen = {"write": [], "read": []}
    block = os.urandom(MIB)
    os.makedirs(source)
    os.makedirs(path)
    slow = subprocess.Popen([os.path.join(env.bin, "fp-slowfs"), "--foreground", f"--emulate=write={DISK / 1e6:.0f}MB/s,read={DISK / 1e6:.0f}MB/s", source, path])
    try:
        until = time.monotonic() + 10
        while not os.path.ismount(path):
            if slow.poll() is not None or time.monotonic() > until:
                raise BenchError("fp-slowfs does not mount")
            time.sleep(0.02)
        total = int(DISK * SECONDS) // MIB
        for _ in range(min(env.runs, 3)):
            for how, flags in (("write", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), ("read", os.O_RDONLY)):
                fd = os.open(os.path.join(path, "f"), flags, 0o644)
                start = time.monotonic()
                for _ in range(total):
                    if how == "write":
                        os.write(fd, block)
                    elif os.read(fd, MIB) != block:
                        raise BenchError("what is read is not what was written")
                seen[how].append(total * MIB / (time.monotonic() - start))
                os.close(fd)
    finally:
        subprocess.run(["fusermount3", "-u", path], stderr=subprocess.DEVNULL, check=False)
        slow.terminate()
        slow.wait(10)
    for how, measured in seen.items():
        yield off(f"emulated-disk-{how}", measured, DISK)
