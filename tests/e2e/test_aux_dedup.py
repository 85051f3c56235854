"""dedup on real mounts: what is stored is the unique share and no more, what is deleted comes back exactly, and nobody reads wrong bytes meanwhile."""

import concurrent.futures
import errno
import glob
import itertools
import os
import random
import re
import signal
import sqlite3
import subprocess
import threading
import time

import pytest

from harness.aux import MIB, TOP, app, text, turn_dedup_off, unique, used, wait_app, wait_empty
from harness.daemons import SLOW, wait_until
from harness.files import assert_same, pwrite_all, read_file, write_file
from harness.images import Image

APPS = os.environ.get("FP_APPS") or os.path.join(TOP, "apps")
MPI = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "apps", "heat3d", "mpi.sh")
CHUNK = MIB + 4096  # on the device: a chunk of 1 MiB, and the header of its record
MOUNT_ARGS = ["--close=publish"]  # with behind, what is rewritten without a pause finds less of the version before
FIXED = "dedup chunking=fixed size=1MiB pays=0%"


def ckptgen(path, *options, ranks=2, check=True):
    """Bytes that were new, of each step."""
    run = subprocess.run([MPI, str(ranks), os.path.join(APPS, "ckptgen"), "--dir", path, *options], capture_output=True, text=True,
                         timeout=50 * SLOW)
    assert not check or run.returncode == 0, run.stdout + run.stderr
    return [int(n) for n in re.findall(r"new_bytes=(\d+)", run.stdout)]


# ---------------------------------------------------------------- the unique share


@pytest.mark.parametrize("layout", [[], ["--shared"], ["--in-place"], ["--in-place", "--shared"]], ids=["own", "shared", "own-again", "shared-again"])
@pytest.mark.parametrize("ratio", ["0", "0.25", "0.5", "0.75", "1"])
def test_stored_is_exactly_the_unique_share(start, ratio, layout):
    """Units of 1 MiB, 2 ranks, 3 checkpoints: a unit that is new costs one chunk, all else nothing."""
    s = start(FIXED)
    new = ckptgen(s.mounts[0].path, "--size", "8m", "--steps", "3", "--ratio", ratio, "--verify", *layout)
    assert len(new) == 3 and new[0] == 16 * MIB
    units = 16 if "--in-place" in layout else sum(new) // MIB  # rewritten: what the versions before had is gone
    wait_until("the chunks of the versions before to be gone", 10, lambda: used(s) <= units * CHUNK)
    assert used(s) == units * CHUNK
    for f in glob.glob(s.mounts[0].at("ckpt*")):
        os.unlink(f)
    wait_empty(s)


@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.75, 1.0])
def test_content_defined_chunking_comes_close(start, ratio):
    """The default, at units of 256 KiB that don't lie where chunks do: an edge of what is new costs at most two pieces and what can't be named
    with the slices that a map may have."""
    s = start("dedup")
    new = ckptgen(s.mounts[0].path, "--size", "16m", "--unit", "256k", "--steps", "3", "--ratio", str(ratio), "--verify", ranks=1)
    edges = 2 * sum(n // (256 << 10) for n in new[1:])
    assert used(s) <= (sum(new) + edges * (64 << 10)) * 1.01 + 48 * 4096
    assert used(s) >= sum(new)


@pytest.mark.parametrize("options", ["", "chunking=fixed size=64KiB", "scope=store", "scope=store chunking=fixed size=64KiB"])
@pytest.mark.parametrize("ratio", ["0", "0.25", "0.5", "0.75", "1"])
def test_metadata_is_at_most_half_a_percent(start, options, ratio):
    """All of the manager's data base, the tables of an empty one too."""
    s = start(f"dedup {options}")
    total = sum(ckptgen(s.mounts[0].path, "--size", "48m", "--unit", "192k", "--steps", "4", "--ratio", ratio, ranks=1))
    logical = 4 * 48 * MIB
    s.mounts[0].unmount()
    s.manager.term()
    path = glob.glob(os.path.join(s.dir, "manager", "*.db"))[0]
    db = sqlite3.connect(path)
    pages, = db.execute("PRAGMA page_count").fetchone()
    free, = db.execute("PRAGMA freelist_count").fetchone()
    page, = db.execute("PRAGMA page_size").fetchone()
    db.close()
    used_bytes = (pages - free) * page
    print(f"{used_bytes} bytes of metadata for {logical} written, {total} stored")
    assert used_bytes <= 0.005 * logical, f"{used_bytes} for {logical} bytes, {total} of them new"


@pytest.mark.short
def test_zeros_cost_nothing(start):
    s = start("dedup")
    m = s.mounts[0]
    write_file(m.at("z"), bytes(8 * MIB), sync=True)
    assert used(s) == 0
    mixed = bytes(MIB // 2) + unique(1, MIB // 2) + bytes(3 * MIB)
    write_file(m.at("mixed"), mixed, sync=True)
    assert used(s) <= MIB // 2 + 4096
    assert_same(read_file(m.at("z")), bytes(8 * MIB))
    assert_same(read_file(m.at("mixed")), mixed)
    assert os.stat(m.at("z")).st_size == 8 * MIB


@pytest.mark.short
def test_moved_data_is_found(start):
    """All pages shifted, as in process images: the default finds them."""
    s = start("dedup")
    m, data = s.mounts[0], unique(2, 8 * MIB)
    write_file(m.at("img_1"), data, sync=True)
    one = used(s)
    moved = unique(3, 5 * 4096) + data
    write_file(m.at("img_2"), moved, sync=True)
    assert used(s) - one < 0.15 * len(data)
    assert_same(read_file(m.at("img_2")), moved)
    layout = s.layout("/img_2")
    assert layout["shared_chunks"] > 0 and layout["saved_bytes"] > 0
    fixed = s.add_mount("--auxapp=dedup chunking=fixed size=4KiB")
    write_file(fixed.at("fix_1"), data, sync=True)
    before = used(s)
    write_file(fixed.at("fix_2"), unique(4, 1000) + data, sync=True)
    assert used(s) - before > len(data), "fixed pieces find nothing that moved by less than a piece: why cdc is the default"


def found_by_dupratio(tmp_path, image, row):
    for step in (1, 2):
        write_file(tmp_path / str(step), image.bytes(step))
    out = subprocess.run([os.path.join(APPS, "dupratio"), tmp_path / "1", tmp_path / "2"], capture_output=True, text=True, check=True,
                         timeout=60 * SLOW).stdout
    return float(re.search(rf"^{row} +([\d.]+)", out, re.MULTILINE)[1]) / 100


def found_in_image(s, image):
    """Share of the second image that was neither stored nor zeros."""
    m = s.mounts[0]
    write_file(m.at("img_1"), image.bytes(1), sync=True)
    first, data = used(s), image.bytes(2)
    write_file(m.at("img_2"), data, sync=True)
    assert_same(read_file(m.at("img_2")), data)
    new = (used(s) - first) / len(data)
    assert new >= 1 - image.stays(2) - image.pages("zero", 2) * 4096 / len(data), "less than what is new"
    return 1 - new - image.pages("zero", 2) * 4096 / len(data)


@pytest.mark.limit(120)
@pytest.mark.parametrize("grows, least", [(0, 0.88), (219, 0.78)], ids=["in-place", "moved"])
def test_successive_process_images(start, tmp_path, grows, least):
    """What of the pages that stay the default finds: of real images 90 and 84 %. Fixed pieces of 64 KiB find next to nothing of what has moved.
    tools/dupratio says the same without a store."""
    image = Image(3, 10000, grows)
    found = found_in_image(start("dedup"), image)
    print(f"{found:.3f} of the image found, {image.stays(2):.3f} of it stay")
    assert found >= least * image.stays(2)
    assert abs(found - found_by_dupratio(tmp_path, image, "cdc 16KiB")) < 0.01
    if grows:
        assert found_in_image(start("dedup chunking=fixed size=64KiB"), image) < 0.05


@pytest.mark.parametrize("options", ["", "scope=store"])
def test_where_nothing_repeats_nothing_is_lost(start, options):
    """Restart files of solvers: each number has changed. What is stored is the data and the headers of its chunks."""
    s = start(f"dedup {options}")
    for step in range(2):
        write_file(s.mounts[0].at(f"melt.{step}.restart"), unique(80 + step, 9 * MIB + 12345), sync=True)
    assert used(s) <= 2 * (9 * CHUNK + 12345 + 8192)


def test_the_whole_store_is_compared_with(start):
    """Names that have nothing in common, in other directories, by another mount."""
    s = start("dedup scope=store", mounts=2)
    a, b = s.mounts
    data = unique(5, 6 * MIB)
    os.mkdir(a.at("one"))
    os.mkdir(a.at("two"))
    write_file(a.at("one", "x"), data, sync=True)
    before = used(s)
    write_file(b.at("two", "entirely-different"), data[MIB:] + data[:MIB], sync=True)
    assert used(s) - before < 0.1 * len(data)
    os.unlink(a.at("one", "x"))
    assert_same(read_file(a.at("two", "entirely-different")), data[MIB:] + data[:MIB])
    os.unlink(b.at("two", "entirely-different"))
    wait_empty(s)


def test_the_step_may_be_in_the_name_of_the_directory(start):
    """chk_0001/rank_0 and chk_0002/rank_0; and numbers in names that are no steps."""
    s = start("dedup")
    m = s.mounts[0]
    ranks = [unique(60 + r, 2 * MIB) for r in range(3)]
    for step in range(2):
        os.makedirs(m.at("run", f"chk_{step:04}"))
        for r, data in enumerate(ranks):
            write_file(m.at("run", f"chk_{step:04}", f"rank_{r}"), data, sync=True)
    assert used(s) == 6 * CHUNK
    for step in range(8, 12):
        for r, data in enumerate(ranks):
            write_file(m.at(f"node3-step{step}.rank{r}.h5"), data, sync=True)
    assert used(s) == 12 * CHUNK


@pytest.mark.parametrize("layout", ["chk_{step:04}_rank{rank}", "step_{step:04}/rank_{rank}.dat", "chk.{step}.{rank}.tmp"])
def test_the_step_before_of_each_rank_is_found(start, layout):
    """Also by writers that rename when they are done."""
    s = start("dedup")
    ranks = [unique(70 + r, 4 * MIB) for r in range(3)]

    def write_step(step):
        for rank, data in enumerate(ranks):
            path = s.mounts[0].at(layout.format(step=step, rank=rank))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_file(path, data, sync=True)
            if path.endswith(".tmp"):
                os.rename(path, path[:-4])
        return used(s)
    first = write_step(7)
    ranks = [data[:MIB + 100] + b"0123456789" + data[MIB + 110:] for data in ranks]
    assert first == 12 * CHUNK and write_step(8) - first < MIB


def test_pattern_says_what_the_version_before_is(start):
    s = start("dedup pattern=state-*.img")
    m, data = s.mounts[0], unique(6, 4 * MIB)
    write_file(m.at("state-alpha.img"), data, sync=True)
    before = used(s)
    write_file(m.at("state-beta.img"), data, sync=True)
    write_file(m.at("other-beta.img"), data, sync=True)
    assert_same(read_file(m.at("state-beta.img")), data)
    assert used(s) - before <= len(data) * 1.02, "of the two only the one that does not match is stored, at most"
    s = start("dedup pattern=set-*/state")
    m = s.mounts[0]
    for name in ("set-a", "set-b"):
        os.mkdir(m.at(name))
        write_file(m.at(name, "state"), data, sync=True)
    assert used(s) == 4 * CHUNK


@pytest.mark.parametrize("hash_", ["sha256", "xxh3", "xxh3 chunking=fixed size=64KiB"])
def test_other_digests(start, hash_):
    s = start(f"dedup hash={hash_}")
    m, data = s.mounts[0], unique(7, 4 * MIB)
    write_file(m.at("c1"), data, sync=True)
    one = used(s)
    write_file(m.at("c2"), data[:2 * MIB] + b"?" + data[2 * MIB + 1:], sync=True)
    assert used(s) - one < 0.15 * len(data)
    os.unlink(m.at("c1"))
    assert_same(read_file(m.at("c2")), data[:2 * MIB] + b"?" + data[2 * MIB + 1:])


def one_is_kept(mount, name, size, steps=16):
    """Each version under its name, then the one before it is deleted; a fifth changes, in small places everywhere. Yields after each."""
    rnd = random.Random(9)
    data = bytearray(rnd.randbytes(size))
    for step in range(steps):
        for _ in range(4 * size // MIB):
            at = rnd.randrange(size // 4096 - 8) * 4096
            data[at:at + 32768] = rnd.randbytes(32768)
        write_file(mount.at(name(step)), bytes(data))
        if step and name(step - 1) != name(step):
            os.unlink(mount.at(name(step - 1)))
        yield step
    assert_same(read_file(mount.at(name(steps - 1))), bytes(data))


@pytest.mark.parametrize("declared", [[], ["dedup"], ["dedup scope=store"], ["dedup", "compress"]], ids=["none", "dedup", "store", "compressed"])
def test_what_fits_without_dedup_fits_with_it(start, declared):
    """Old chunks that are in use for little more and more must not fill the store: 26 MiB in 64, so that two versions have room."""
    s = start(*declared, benefactors=1, size="64MiB")
    for _ in one_is_kept(s.mounts[0], lambda step: f"chk_{step:04}", 26 * MIB):
        pass
    if declared:
        wait_app(s, "dedup", "thin chunks", lambda a: a["counters"]["stored anew bytes"] > 26 * MIB)
    wait_until("the versions before to be gone", 10, lambda: used(s) <= 1.6 * 26 * MIB)


def at_once(n, fn):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(fn, range(n)))


def test_what_ranks_write_together_fits_with_dedup(start):
    """Of the first step a little less than half of each chunk is left, so that each of four ranks would store it anew: there is room for three."""
    s = start("dedup", benefactors=1, size="80MiB")
    m, size, ready = s.mounts[0], 10 * MIB, threading.Barrier(4)
    first = [unique(rank, size) for rank in range(4)]
    at_once(4, lambda rank: write_file(m.at(f"c_1_{rank}"), first[rank], sync=True))
    second = [b"".join(unique(100 + 16 * rank + i, MIB * 54 // 100) + data[i * MIB + MIB * 54 // 100:(i + 1) * MIB] for i in range(10))
              for rank, data in enumerate(first)]
    at_once(4, lambda rank: write_file(m.at(f"c_2_{rank}"), second[rank], sync=True))
    for rank in range(4):
        os.unlink(m.at(f"c_1_{rank}"))

    def third(rank):
        fd = os.open(m.at(f"c_3_{rank}"), os.O_WRONLY | os.O_CREAT)
        ready.wait(30)
        pwrite_all(fd, second[rank], 0)
        os.close(fd)

    at_once(4, third)
    for rank in range(4):
        assert_same(read_file(m.at(f"c_3_{rank}")), second[rank])
    # Holds are given up for want of space: what was to refer to them is given to the aux-app again.
    assert wait_app(s, "dedup", "figures", lambda a: a["bytes_in"] >= 120 * MIB)["counters"]["stored anew bytes"] > MIB


@pytest.mark.parametrize("name", ["chk_{:04}", "chk"], ids=["new-names", "one-name"])
def test_space_is_bounded_where_one_version_is_kept(start, name):
    """Also under one name: what of a chunk is in use is what was before the truncation."""
    s = start("dedup")
    for step in one_is_kept(s.mounts[0], name.format, 16 * MIB):
        wait_until("the version before to be gone", 10, lambda: used(s) <= 1.75 * 16 * MIB)
        assert step != 1 or used(s) < 1.4 * 16 * MIB, "the second version finds all that it has of the first"


def test_thin_chunks_are_referred_to_if_that_is_wanted(start):
    s = start("dedup thin=0%")
    for _ in one_is_kept(s.mounts[0], "chk_{:04}".format, 16 * MIB):
        pass
    assert used(s) > 1.75 * 16 * MIB
    assert wait_app(s, "dedup", "figures", lambda a: a["counters"]["new bytes"] > 0)["counters"]["stored anew bytes"] == 0


def test_it_turns_itself_off_and_says_so(start):
    s = start("dedup")
    m = s.mounts[0]
    for step in range(3):
        write_file(m.at(f"c{step}"), unique(100 + step, 40 * MIB))
    assert wait_app(s, "dedup", "off", lambda a: a["counters"]["on"] == 0)["counters"]["new bytes"] > 64 * MIB
    m.wait_log(r"dedup.*off: only", 3)


PAUSE = 512 * MIB  # docs/AUXAPPS.md, dedup: the first one after it has turned itself off


def test_off_the_host_gets_no_window_until_duplicates_are_looked_for_and_found(start):
    s = start("dedup", mounts=2)
    m, other = s.mounts
    a = turn_dedup_off(s, m)
    assert app(s, "dedup", other)["counters"]["on"] == 1  # each for itself
    small = [unique(i, MIB // 2) for i in range(20)]
    for i, data in enumerate(small):
        write_file(m.at(f"small{i}"), data)
    write_file(m.at("big"), unique(9, 32 * MIB), sync=True)
    wait_app(s, "dedup", "passed over", lambda b: b["passed_chunks"] >= a["passed_chunks"] + 52, mount=m)
    now = app(s, "dedup", m)
    assert (now["chunks"], now["bytes_in"]) == (a["chunks"], a["bytes_in"])
    assert now["passed_bytes"] - a["passed_bytes"] == 42 * MIB
    for i, data in enumerate(small):
        assert_same(read_file(other.at(f"small{i}")), data)
    assert_same(read_file(other.at("big")), unique(9, 32 * MIB))
    write_file(m.at("zeros"), unique(1, MIB) + bytes(3 * MIB) + unique(2, MIB), sync=True)
    assert s.layout(m.at("zeros"))["stored_bytes"] <= 2 * CHUNK
    assert_same(read_file(other.at("zeros")), unique(1, MIB) + bytes(3 * MIB) + unique(2, MIB))
    for f in glob.glob(m.at("small*")) + [m.at("big"), m.at("zeros")]:
        os.unlink(f)
    # duplicates: found within the pause, and three versions
    come = a["bytes_in"] + a["passed_bytes"] + 47 * MIB  # what was written till now
    data = unique(10, 32 * MIB)
    for version in range(1 + (PAUSE + 128 * MIB) // len(data) + 6):
        write_file(m.at("same"), data, sync=True)
        if version > 12 and version % 3 == 0:
            time.sleep(1.1)
            if app(s, "dedup", m)["counters"]["on"] == 1:
                break
    else:
        raise AssertionError(f"not found again: {app(s, 'dedup', m)}")
    m.wait_log(r"dedup.*on again", 3)
    come += (version + 1) * len(data)
    passed = wait_app(s, "dedup", "all versions", lambda b: b["bytes_in"] + b["passed_bytes"] >= come, mount=m)["passed_chunks"]
    before = used(s)
    write_file(m.at("same_1"), data, sync=True)
    write_file(m.at("same_2"), data, sync=True)
    assert used(s) - before <= len(data) + 2 * MIB
    assert_same(read_file(other.at("same_2")), data)
    come += 2 * len(data)
    assert wait_app(s, "dedup", "both", lambda b: b["bytes_in"] + b["passed_bytes"] >= come, mount=m)["passed_chunks"] == passed


@pytest.mark.parametrize("chain", [("dedup", "compress"), ("dedup", "checksum")])
def test_off_the_other_stages_get_every_window(start, chain):
    s = start(*chain)
    m = s.mounts[0]
    turn_dedup_off(s, m)
    first, second = app(s, "dedup"), app(s, chain[1])
    data = text(1, 16 * MIB)
    write_file(m.at("t"), data, sync=True)
    wait_app(s, chain[1], "the windows", lambda a: a["chunks"] >= second["chunks"] + 16)
    wait_app(s, "dedup", "passed over", lambda a: a["passed_chunks"] >= first["passed_chunks"] + 16)
    assert app(s, "dedup")["chunks"] == first["chunks"]
    assert app(s, chain[1])["passed_chunks"] == 0
    if chain[1] == "compress":
        assert s.layout(m.at("t"))["stored_bytes"] < len(data) / 4
    else:
        assert s.fpctl("verify", m.at("t")).returncode == 0
        assert os.getxattr(m.at("t"), "user.fp.checksum")
    assert_same(read_file(m.at("t")), data)


def test_off_a_change_by_hand_brings_all_windows_back(start):
    s = start("dedup")
    m = s.mounts[0]
    a = turn_dedup_off(s, m)
    s.fpctl("auxapps", "set", "dedup", "deadline=9s")
    write_file(m.at("x"), unique(3, 8 * MIB), sync=True)
    wait_app(s, "dedup", "windows again", lambda b: b["chunks"] >= a["chunks"] + 8)
    # it is off, and says so again
    for i in range(16):
        write_file(m.at(f"x{i}"), unique(30 + i, 8 * MIB), sync=True)
    wait_app(s, "dedup", "passed over again", lambda b: b["passed_chunks"] >= a["passed_chunks"] + 32)


def test_required_each_window_passes_it_though_it_is_off(start):
    s = start("dedup required")
    m = s.mounts[0]
    for step in range(6):
        write_file(m.at(f"c{step}"), unique(100 + step, 32 * MIB), sync=True)
    a = wait_app(s, "dedup", "off", lambda a: a["counters"]["on"] == 0 and a["chunks"] >= 192)
    assert a["passed_chunks"] == 0


# ---------------------------------------------------------------- deletion


def versions(n, size=3 * MIB):
    """Successive contents: a third changes from each to the next."""
    rnd = random.Random(8)
    state, out = bytearray(rnd.randbytes(size)), []
    for _ in range(n):
        out.append(bytes(state))
        for _ in range(4):
            at = rnd.randrange(size - size // 12)
            state[at:at + size // 12] = rnd.randbytes(size // 12)
    return out


def test_checkpoints_deleted_in_every_order(start):
    """Newer ones refer to the chunks of older ones: those that are left are right, and when all are gone every byte is back."""
    s = start("dedup", mounts=2)
    m, other = s.mounts
    states = versions(3)
    for k, order in enumerate(itertools.permutations(range(3))):
        for i, data in enumerate(states):
            write_file(m.at(f"t{k}_{i}"), data, sync=True)
        left = set(range(3))
        for i in order:
            os.unlink((m if i % 2 else other).at(f"t{k}_{i}"))
            left.remove(i)
            for n in left:
                assert_same(read_file(other.at(f"t{k}_{n}")), states[n], f"{n} after {order}")
    wait_empty(s)


def test_deleted_by_another_mount_while_it_is_compared_with(start):
    """The version before goes at any moment of the next one's writing."""
    s = start("dedup", mounts=2)
    m, other = s.mounts
    states = versions(4, 4 * MIB)
    for turn in range(10):
        write_file(m.at("c_0"), states[0], sync=turn % 2 == 0)
        fd = os.open(m.at("c_1"), os.O_WRONLY | os.O_CREAT)
        for off in range(0, 4 * MIB, MIB):
            if off == turn % 5 * MIB:
                os.unlink(other.at("c_0"))
            pwrite_all(fd, states[1][off:off + MIB], off)
        if turn % 5 == 4:
            os.unlink(other.at("c_0"))
        os.close(fd)
        assert_same(read_file(other.at("c_1")), states[1], f"turn {turn}")
        os.unlink(other.at("c_1"))
    wait_empty(s)


def test_rewritten_in_place(start):
    """O_TRUNC: the version before is compared with, and then gone. What opens the file meanwhile sees no mixture."""
    s = start("dedup")
    m = s.mounts[0]
    for data in versions(5):
        write_file(m.at("state"), data, sync=True)
        assert_same(read_file(m.at("state")), data)
    assert s.layout("/state")["size_bytes"] == 3 * MIB
    counters = wait_app(s, "dedup", "duplicates", lambda a: a["counters"].get("duplicate bytes", 0) > 4 * MIB)["counters"]
    assert counters.get("versions missed", 0) == 0
    os.unlink(m.at("state"))
    wait_empty(s)


def test_rewritten_while_somebody_has_it_open(start):
    """O_TRUNC again and again without a pause: each version is compared with the one before, although the file is never closed by all."""
    s = start("dedup")
    m = s.mounts[0]
    write_file(m.at("state"), unique(1, MIB))
    reader = os.open(m.at("state"), os.O_RDONLY)
    for data in versions(20):
        write_file(m.at("state"), data)
    os.close(reader)
    assert_same(read_file(m.at("state")), data)
    got = wait_app(s, "dedup", "all versions", lambda a: a["bytes_in"] == 61 * MIB)["counters"]
    assert got["duplicate bytes"] > 0.5 * 60 * MIB, got  # of two thirds; the rest is thin, or at the edge of what is new
    os.unlink(m.at("state"))
    wait_empty(s)


@pytest.mark.parametrize("flags", [0, os.O_TRUNC])
def test_rewritten_from_its_beginning_beside_a_reader(start, flags):
    """Without O_TRUNC, too: each version is compared with the one before, which is in place, although the file is never closed by all."""
    s = start("dedup")
    m = s.mounts[0]
    states = versions(12)
    write_file(m.at("state"), states[0])
    reader = os.open(m.at("state"), os.O_RDONLY)
    for data in states:
        fd = os.open(m.at("state"), os.O_WRONLY | flags)
        pwrite_all(fd, data, 0)
        os.close(fd)
        assert_same(os.pread(reader, len(data), 0), data)
    os.close(reader)
    got = wait_app(s, "dedup", "all versions", lambda a: a["bytes_in"] == 39 * MIB)["counters"]
    assert got["duplicate bytes"] > 0.5 * 36 * MIB, got
    os.unlink(m.at("state"))
    wait_empty(s)


def test_written_beside_and_renamed_over(start):
    s = start("dedup")
    m = s.mounts[0]
    for data in versions(4):
        write_file(m.at("state.tmp"), data, sync=True)
        os.rename(m.at("state.tmp"), m.at("state"))
        assert_same(read_file(m.at("state")), data)
    assert wait_app(s, "dedup", "duplicates", lambda a: a["counters"].get("duplicate bytes", 0) > 2 * MIB)
    os.unlink(m.at("state"))
    wait_empty(s)


def test_truncated_and_cloned_parts_keep_their_chunks(start):
    s = start("dedup")
    m = s.mounts[0]
    a, b = versions(2)
    write_file(m.at("c_1"), a, sync=True)
    write_file(m.at("c_2"), b, sync=True)
    os.truncate(m.at("c_1"), MIB + 5)
    assert_same(read_file(m.at("c_1")), a[:MIB + 5])
    assert_same(read_file(m.at("c_2")), b)
    fd = os.open(m.at("c_2"), os.O_RDWR)
    pwrite_all(fd, text(9, 100000), 2 * MIB - 50000)
    os.close(fd)
    want = b[:2 * MIB - 50000] + text(9, 100000) + b[2 * MIB + 50000:]
    assert_same(read_file(m.at("c_2")), want)
    os.unlink(m.at("c_1"))
    assert_same(read_file(m.at("c_2")), want)
    os.unlink(m.at("c_2"))
    wait_empty(s)


def test_a_full_store_gives_held_space_back(start):
    """The version before is deleted by the user while the next one, which compares with it, needs its space."""
    s = start("dedup", size="64MiB", benefactors=1)
    s.expect(r"full|space")
    m = s.mounts[0]
    write_file(m.at("c_1"), unique(10, 40 * MIB), sync=True)
    fd = os.open(m.at("c_2"), os.O_WRONLY | os.O_CREAT)
    pwrite_all(fd, unique(11, 2 * MIB), 0)
    os.fsync(fd)
    os.unlink(m.at("c_1"))
    for i in range(1, 20):
        pwrite_all(fd, unique(11 + i, 2 * MIB), i * 2 * MIB)
    os.close(fd)
    assert_same(read_file(m.at("c_2")), b"".join(unique(11 + i, 2 * MIB) for i in range(20)))


def test_a_log_that_stays_open_keeps_no_checkpoints(start):
    """What a checkpoint was compared with is released with that checkpoint, whatever else the job has open, and whoever reads it."""
    s = start("dedup", benefactors=1)
    m = s.mounts[0]
    data = unique(10, 16 * MIB)
    with open(m.at("log"), "w") as log, open(m.at("log")):
        print("began", file=log, flush=True)
        write_file(m.at("c_1"), data, sync=True)
        with open(m.at("c_1"), "rb") as watcher:
            write_file(m.at("c_2"), data[:MIB] + unique(11, 15 * MIB), sync=True)
            assert watcher.read() == data
        print("wrote", file=log, flush=True)
        os.unlink(m.at("c_1"))
        wait_until("the space of the first checkpoint", 10, lambda: used(s) < 19 * MIB)
        fd = os.open(m.at("c_2"), os.O_RDONLY)
        write_file(m.at("c_3"), unique(12, MIB), sync=True)
        os.unlink(m.at("c_2"))
        os.close(fd)
        wait_until("the space of the second", 10, lambda: used(s) < 3 * MIB)


def held_by_one_of_two(start):
    """40 of 64 MiB that nothing but the first mount's holds keep: a checkpoint compares with them, and they are deleted."""
    s = start("dedup", size="64MiB", benefactors=1, mounts=2)
    a = s.mounts[0]
    s.expect(r"full|space")
    log = open(a.at("log"), "w")
    write_file(a.at("c_1"), unique(10, 40 * MIB), sync=True)
    fd = os.open(a.at("c_2"), os.O_RDWR | os.O_CREAT)
    pwrite_all(fd, unique(11, 2 * MIB) + unique(10, 40 * MIB)[:3 * MIB], 0)
    os.fsync(fd)
    os.unlink(a.at("c_1"))
    return s, log, fd


def test_another_mount_gets_held_space(start):
    """It fills the store: not ENOSPC while there is space that somebody holds and does not need."""
    s, log, fd = held_by_one_of_two(start)
    b, want = s.mounts[1], unique(12, 36 * MIB)
    write_file(b.at("other"), want, sync=True)
    assert_same(read_file(b.at("other")), want)
    pwrite_all(fd, unique(10, 40 * MIB)[10 * MIB:12 * MIB], 5 * MIB)  # compared with the first one, which is gone
    os.fsync(fd)
    os.close(fd)
    log.close()
    assert_same(read_file(s.mounts[0].at("c_2")), unique(11, 2 * MIB) + unique(10, 40 * MIB)[:3 * MIB] + unique(10, 40 * MIB)[10 * MIB:12 * MIB])


def test_a_mount_that_does_not_answer_holds_nobody_up_for_long(start):
    """What it refers to may be the only copy of what its programs have written: it keeps that, and ENOSPC comes in time."""
    s, log, fd = held_by_one_of_two(start)
    a, b = s.mounts
    begun = time.monotonic()
    a.freeze()
    try:
        with pytest.raises(OSError) as e:
            write_file(b.at("other"), unique(12, 36 * MIB), sync=True)
    finally:
        a.send(signal.SIGCONT)
    assert e.value.errno == errno.ENOSPC
    assert time.monotonic() - begun < 20 * SLOW
    pwrite_all(fd, unique(13, MIB), 5 * MIB)
    os.fsync(fd)
    os.close(fd)
    log.close()
    assert_same(read_file(a.at("c_2")), unique(11, 2 * MIB) + unique(10, 40 * MIB)[:3 * MIB] + unique(13, MIB))


@pytest.mark.parametrize("scope", ["file", "store"])
def test_two_jobs_in_a_store_that_is_just_large_enough(start, scope):
    """Each deletes its last checkpoint when half of the next one is written. What both hold of deleted ones is more than the space that is left."""
    s = start(f"dedup scope={scope} pays=0%", size="96MiB", benefactors=1, mounts=2)
    s.expect(r"full|space")
    failed = []

    def job(m, base):
        last = None
        try:
            for step in range(8):
                data = unique(base + step, 9 * MIB) + unique(base, 3 * MIB)
                fd = os.open(m.at(f"{base}_{step}"), os.O_RDWR | os.O_CREAT)
                pwrite_all(fd, data[:6 * MIB], 0)
                os.fsync(fd)
                if last:
                    os.unlink(last)
                pwrite_all(fd, data[6 * MIB:], 6 * MIB)
                os.close(fd)
                last = m.at(f"{base}_{step}")
                assert_same(read_file(last), data)
        except BaseException as e:
            failed.append(e)

    with open(s.mounts[0].at("log"), "w"), open(s.mounts[1].at("log2"), "w"):
        jobs = [threading.Thread(target=job, args=(m, 1000 * (i + 1))) for i, m in enumerate(s.mounts)]
        for t in jobs:
            t.start()
        for t in jobs:
            t.join()
    assert not failed, failed


# ---------------------------------------------------------------- memory and other options


def test_memory_is_for_all_files_together(start):
    """48 files of 9 MiB that are mostly holes, open at once, in pieces of 4 KiB: 48 * 512 * 45 bytes. What fits into 1 MiB is found."""
    s = start("dedup chunking=fixed size=4KiB memory=1MiB pays=0%")
    s.expect("memory: all of it is in use")
    m, n = s.mounts[0], 48
    before = {}

    def sparse(rank):
        return unique(100 + rank, 2 * MIB)

    for step in (1, 2):
        fds = [os.open(m.at(f"c_{step}.rank{r}"), os.O_WRONLY | os.O_CREAT) for r in range(n)]
        for at in (0, 1):
            for r, fd in enumerate(fds):
                pwrite_all(fd, sparse(r)[at * MIB:(at + 1) * MIB], at * 8 * MIB)
        for fd in fds:
            os.fsync(fd)
        counters = wait_app(s, "dedup", "this step", lambda a: a["bytes_in"] == step * n * 2 * MIB)["counters"]
        assert counters.get("index bytes", 0) <= MIB
        for fd in fds:
            os.close(fd)
        before[step] = counters
    assert before[2]["versions cut short"] > 0
    assert before[2]["duplicate bytes"] > 16 * MIB
    for r in (0, n - 1):
        assert_same(read_file(m.at(f"c_2.rank{r}")), sparse(r)[:MIB] + bytes(7 * MIB) + sparse(r)[MIB:])


@pytest.mark.expect_log("fp-mount: ERROR")
@pytest.mark.parametrize("words, line", [
    ("dedup memory=1PiB", "give a size from 1MiB to 64GiB"),
    ("dedup size=2MiB", "give a size from 4KiB to 1MiB"),
    ("dedup size=5000", "power of two"),
    ("dedup chunking=fixed size=5000", "multiple of 4KiB"),
])
def test_sizes_that_make_no_sense_are_refused(new_store, words, line):
    s = new_store().up(mounts=0)
    with pytest.raises(AssertionError):
        s.add_mount(f"--auxapp={words}")
    failed = s.mounts[-1]
    failed.ended_as_told = True
    assert failed.wait() != 0
    assert line in failed.text()


def test_more_memory_than_the_host_may_have_is_told(new_store):
    s = new_store().up(mounts=0)
    s.expect("aux-apps may take")
    s.add_mount("--auxapp=dedup memory=200MiB", "--aux-memory=128MiB").wait_log("aux-apps may take 200 MiB of memory .*128 MiB")


# ---------------------------------------------------------------- seen by its user


def test_what_fpctl_says(start):
    s = start("dedup")
    m, data = s.mounts[0], unique(40, 4 * MIB)
    write_file(m.at("c_1"), data, sync=True)
    write_file(m.at("c_2"), data, sync=True)
    one, two = s.layout("/c_1"), s.layout("/c_2")
    assert one["shared_chunks"] == two["shared_chunks"] == 4
    assert one["saved_bytes"] + two["saved_bytes"] == 8 * MIB - used(s)
    a = wait_app(s, "dedup", "both files", lambda a: a["bytes_in"] == 8 * MIB)
    assert a["bytes_out"] == 4 * MIB and a["counters"]["duplicate bytes"] == 4 * MIB
    assert app(s, "dedup", m)["state"] == "running"
