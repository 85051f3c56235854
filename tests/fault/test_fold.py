"""Processes are killed while windows are folded (client/data/fold.c): files are what they were, and references exact."""

import os
import random

import pytest

from harness.daemons import wait_until
from harness.files import assert_same, content, read_file, seed_of_run, write_file

KIB, MIB = 1 << 10, 1 << 20


def patch(path, mirror, rnd, n):
    fd = os.open(path, os.O_RDWR)
    for _ in range(n):
        off = rnd.randrange(0, len(mirror) - 16 * KIB) & ~4095
        data = rnd.randbytes(16 * KIB)
        assert os.pwrite(fd, data, off) == len(data)
        mirror[off:off + len(data)] = data
    os.fsync(fd)
    os.close(fd)


@pytest.mark.limit(240)
@pytest.mark.parametrize("who", ["mount", "benefactor", "manager"])
def test_kills_while_windows_are_folded(new_store, who):
    store = new_store()
    store.expect(".")
    store.up(benefactors=2, size="128MiB", mount_args=("--fold=on",), manager_args=("--session-timeout=5s", "--orphan-grace=1s"))
    m, rnd = store.mounts[0], random.Random(seed_of_run())
    mirror = bytearray(content(1, 0, 24 * MIB))
    path = m.at("f")
    write_file(path, mirror, sync=True)
    for _ in range(3):
        for _ in range(4):
            patch(path, mirror, rnd, 400)
        slices = store.layout(path)["slices"]
        wait_until("the first windows to be folded", 30, lambda: store.layout(path)["slices"] < slices - 20, 0.02)
        if who == "mount":
            m.kill()
            m.start()
        elif who == "benefactor":
            store.benefactors[0].kill()
            store.benefactors[0].start()
        else:
            store.manager.kill()
            store.restart_manager()
        assert_same(read_file(path), mirror, f"after a kill of the {who}")
    patch(path, mirror, rnd, 600)

    def folded():
        st, layout = store.status(), store.layout(path)
        return (st["garbage_chunks"] == 0 and st["chunks"] == layout["chunks"] and st["slices"] == layout["slices"]
                and st["space"]["used_bytes"] <= 24 * MIB * 16 // 10)
    wait_until("all to be folded, and nothing else to be there", 90, folded, 0.2)
    assert_same(read_file(path), mirror, "at the end")
    os.unlink(path)
    store.wait_status("nothing used", 60, lambda s: s["chunks"] == 0 and s["space"]["used_bytes"] == 0)
