"""Aux-apps that change data on its way to the store: compress, encrypt, rot13, and chains. What is read is what was written, on any mount."""

import errno
import mmap
import os
import random
import re
import shutil
import subprocess
import sys
import time

import pytest

from harness.aux import MIB, app, example, host_pid, stored, text, unique, used, wait_app, wait_empty
from harness.daemons import SLOW
from harness.files import Twin, assert_same, content, pread_all, pwrite_all, read_file, seed_of_run, write_file


@pytest.fixture
def key(tmp_path):
    return make_key(tmp_path / "data.key", "5a")


def make_key(path, byte):
    path.write_text(byte * 32 + "\n")
    path.chmod(0o600)
    return path


def cold(mount):
    mount.unmount()
    mount.start()


# ---------------------------------------------------------------- compress


@pytest.mark.short
def test_compressed_data_reads_back_everywhere(start):
    s = start("compress")
    m, data = s.mounts[0], text(1, 5 * MIB + 12345)
    write_file(m.at("f"), data, sync=True)
    assert stored(s, "/f") < len(data) / 4
    assert_same(read_file(m.at("f")), data, "same mount")
    other = s.add_mount()
    assert host_pid(other) is None, "a mount without aux-apps has no host until it meets what needs one"
    assert_same(read_file(other.at("f")), data, "a mount without aux-apps")
    assert host_pid(other) is not None
    cold(m)
    assert_same(read_file(m.at("f")), data, "mounted again")
    a = wait_app(s, "compress", "chunks read", lambda a: a["chunks_read"] >= 6)
    assert a["state"] == "running" and a["failures"] == 0
    os.unlink(m.at("f"))
    wait_empty(s)


@pytest.mark.parametrize("options", ["codec=lz4", "level=9 shuffle=8", "codec=lz4 shuffle=4", "level=1 cores=2"])
def test_options_of_compress(start, options):
    s = start(f"compress {options}")
    m = s.mounts[0]
    mixed = text(2, MIB) + unique(3, MIB) + bytes(MIB) + text(4, 700001)
    write_file(m.at("f"), mixed, sync=True)
    cold(m)
    assert_same(read_file(m.at("f")), mixed)


def test_what_does_not_compress_is_stored_as_it_is(start):
    s = start("compress")
    m, data = s.mounts[0], unique(5, 8 * MIB)
    write_file(m.at("f"), data, sync=True)
    assert used(s) == 8 * (MIB + 4096), "a chunk, and the header of its record"
    other = s.add_mount()
    assert_same(read_file(other.at("f")), data)
    assert host_pid(other) is None, "nothing to undo: no host"


@pytest.mark.parametrize("chunk", ["64KiB", "256KiB", "4MiB", "16MiB"])
def test_chunk_sizes(start, chunk, key):
    s = start("dedup", "compress", f"encrypt key={key}", manager_args=[f"--chunk-size={chunk}"], pool="128MiB")
    m, data = s.mounts[0], text(6, 17 * MIB + 999)
    write_file(m.at("f1"), data)
    write_file(m.at("f2"), data[:9 * MIB] + b"!" + data[9 * MIB + 1:], sync=True)
    cold(m)
    assert_same(read_file(m.at("f1")), data)
    assert_same(read_file(m.at("f2")), data[:9 * MIB] + b"!" + data[9 * MIB + 1:])
    assert s.layout("/f2")["shared_chunks"] > 0
    for name in ("f1", "f2"):
        os.unlink(m.at(name))
    wait_empty(s)


def test_parts_of_coded_chunks(start):
    """Reads, overwrites and truncates of any ranges of what is stored compressed."""
    s = start("compress")
    m, data = s.mounts[0], bytearray(text(7, 6 * MIB))
    write_file(m.at("f"), data, sync=True)
    cold(m)
    fd = os.open(m.at("f"), os.O_RDWR)
    for off, n in ((0, 1), (MIB - 1, 2), (3 * MIB + 4097, 65537), (len(data) - 5, 100), (1, 2 * MIB)):
        assert_same(pread_all(fd, n, off), data[off:off + n], f"[{off}, +{n})")
    for off, piece in ((100, b"x" * 10), (2 * MIB - 3, unique(8, 70000)), (5 * MIB, text(9, MIB))):
        pwrite_all(fd, piece, off)
        data[off:off + len(piece)] = piece
    assert_same(pread_all(fd, len(data), 0), data, "before it is stored")
    os.fsync(fd)
    os.ftruncate(fd, 3 * MIB + 17)
    del data[3 * MIB + 17:]
    os.ftruncate(fd, 4 * MIB)
    data += bytes(4 * MIB - len(data))
    os.close(fd)
    cold(m)
    assert_same(read_file(m.at("f")), data)


@pytest.mark.parametrize("chain", [["compress"], ["dedup"], ["dedup size=4KiB scope=store", "compress level=-1 shuffle=none"]])
def test_random_calls_as_on_a_native_file_system(start, native, chain):
    s = start(*chain)
    twin = Twin(s.mounts[0].at("t"), os.path.join(native, "t"), seed_of_run())
    twin.run(250)
    twin.close()
    cold(s.mounts[0])
    assert_same(read_file(s.mounts[0].at("t")), read_file(os.path.join(native, "t")))


def test_mmap(start):
    s = start("dedup", "compress")
    m, data = s.mounts[0], text(10, 3 * MIB)
    write_file(m.at("f"), data)
    fd = os.open(m.at("f"), os.O_RDWR)
    with mmap.mmap(fd, len(data)) as view:
        assert_same(view[:], data)
        view[MIB:MIB + 20] = b"written by a mapping"
        view.flush()
    os.fsync(fd)
    os.close(fd)
    cold(m)
    assert_same(read_file(m.at("f")), data[:MIB] + b"written by a mapping" + data[MIB + 20:])


RANK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from harness.aux import text
from harness.files import pwrite_all
rank, path, piece = int(sys.argv[2]), sys.argv[3], 47001
data = text(11, 8 << 20)
fd = os.open(path, os.O_WRONLY)
for off in range(rank * piece, len(data), 4 * piece):
    pwrite_all(fd, data[off:off + piece], off)
os.close(fd)
"""


def test_ranks_write_one_file(start):
    """Four ranks on two mounts, interleaved at offsets that are no multiple of anything."""
    s = start("dedup", "compress")
    s.add_mount("--auxapp=dedup", "--auxapp=compress")
    for name in ("f1", "f2"):
        write_file(s.mounts[0].at(name), b"")
        tests = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
        ranks = [subprocess.Popen([sys.executable, "-c", RANK, tests, str(i), s.mounts[i % 2].at(name)]) for i in range(4)]
        assert [r.wait(50 * SLOW) for r in ranks] == [0] * 4
    for m in s.mounts:
        cold(m)
        assert_same(read_file(m.at("f1")), text(11, 8 * MIB))
        assert_same(read_file(m.at("f2")), text(11, 8 * MIB))
    os.unlink(s.mounts[0].at("f1"))
    assert_same(read_file(s.mounts[1].at("f2")), text(11, 8 * MIB))
    os.unlink(s.mounts[0].at("f2"))
    wait_empty(s)


def test_remote_benefactor(nodes, new_store, key):
    """Chunks go to another node and come back from there; the reader is a third one."""
    s = new_store(nodes(3))
    s.start_manager(node=0)
    s.add_benefactor(node=1)
    m = s.add_mount("--auxapp=dedup", "--auxapp=compress", f"--auxapp=encrypt key={key}", node=0)
    other = s.add_mount(f"--auxapp=encrypt key={key}", node=2)
    data = text(12, 6 * MIB) + unique(13, 2 * MIB)
    write_file(m.at("c1"), data)
    write_file(m.at("c2"), data, sync=True)
    assert_same(read_file(other.at("c2")), data)
    assert s.layout("/c2")["saved_bytes"] > 6.5 * MIB
    cold(m)
    assert_same(read_file(m.at("c1")), data)


@pytest.fixture
def anothers(tmp_path):
    """A function: a copy of the plugin directory that belongs to another user, behind a directory that is closed to all others."""
    def make(modes):
        home = tmp_path / "home"
        top = os.path.join(home, "lib", "auxapps")
        shutil.copytree(os.path.dirname(os.path.dirname(example("rot13"))), top)
        for path, names, files in os.walk(home):
            for one in [path] + [os.path.join(path, f) for f in files]:
                os.chown(one, 65534, 65534)
                if modes == "umask 077":
                    os.chmod(one, 0o700 if one == path else 0o600)
        home.chmod(0o700)
        return top
    return make


@pytest.mark.parametrize("modes", ["home 0700", "umask 077"])
def test_plugins_of_another_user_are_loaded_when_a_chunk_needs_them(as_root, start, anothers, modes):
    """Root's mount from a user's tree: what nobody declared is loaded long after the host has given up its privileges."""
    top = anothers(modes)
    s = start("compress")
    data = text(21, 2 * MIB)
    write_file(s.mounts[0].at("f"), data, sync=True)
    other = s.add_mount(f"--auxapp-dir={top}", "--auxapp=checksum")
    assert_same(read_file(other.at("f")), data, "a mount that runs another aux-app")
    plain = s.add_mount(f"--auxapp-dir={top}")
    assert host_pid(plain) is None
    assert_same(read_file(plain.at("f")), data, "a mount that declared nothing")
    for m in (other, plain):
        pid = host_pid(m)
        with open(f"/proc/{pid}/maps") as f:
            assert f"{top}/compress.so" in f.read()
        for t in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{t}/status") as f:
                lines = dict(line.split(":", 1) for line in f)
            assert int(lines["CapEff"], 16) == 0, f"thread {t} has privileges while no plugin is loaded"


# ---------------------------------------------------------------- encrypt


@pytest.mark.expect_log(r"encrypt|key file is needed|can't be read")
def test_encrypted_data_needs_the_key(start, key, tmp_path):
    s = start(f"encrypt key={key}")
    m, data = s.mounts[0], text(14, 3 * MIB)
    write_file(m.at("f"), data, sync=True)
    assert_same(read_file(m.at("f")), data)
    for b in s.benefactors:
        for top, _, names in os.walk(b.dir):
            for n in names:
                if os.path.isfile(os.path.join(top, n)):
                    with open(os.path.join(top, n), "rb") as f:
                        assert b"residual" not in f.read(), "plain text on the device"
    without = s.add_mount()
    with pytest.raises(OSError) as e:
        read_file(without.at("f"))
    assert e.value.errno == errno.EIO
    without.wait_log(r"aux-app 'encrypt' is needed", 3)
    without.wait_log(r"a key file is needed", 3)
    wrong = s.add_mount(f"--auxapp=encrypt key={make_key(tmp_path / 'wrong.key', '11')}")
    with pytest.raises(OSError) as e:
        read_file(wrong.at("f"))
    assert e.value.errno == errno.EIO
    wrong.wait_log(r"encrypt.*(another|wrong) key", 3)
    right = s.add_mount(f"--auxapp=encrypt key={key}")
    assert_same(read_file(right.at("f")), data)


def envelopes(store):
    """The first 32 bytes of each coded chunk on the devices."""
    found = []
    for b in store.benefactors:
        for top, _, names in os.walk(b.dir):
            for n in names:
                if os.path.isfile(os.path.join(top, n)):
                    with open(os.path.join(top, n), "rb") as f:
                        found += re.findall(rb"FPE1.{28}", f.read(), re.DOTALL)
    return found


def test_sums_beside_encrypted_data_are_keyed(start, key):
    """Equal data: with a sum of the data alone, both chunks would have the same one."""
    s = start("compress", f"encrypt key={key}")
    m, data = s.mounts[0], text(19, MIB)
    write_file(m.at("f"), data, sync=True)
    write_file(m.at("g"), data, sync=True)
    two = envelopes(s)
    assert len(two) == 2 and all(e[4:6] == b"\x01\x01" for e in two), "version 1, keyed"
    assert two[0][16:22] != two[1][16:22] and two[0][22:24] == two[1][22:24], "another sum, the same secret"
    plain = s.add_mount("--auxapp=compress")
    write_file(plain.at("h"), data, sync=True)
    assert [e[4:6] for e in envelopes(s)].count(b"\x01\x00") == 1
    cold(m)
    assert_same(read_file(m.at("f")) + read_file(m.at("h")), data + data)


def test_digests_of_plain_data_beside_encrypted_are_warned_of(start, key):
    s = start("dedup", "compress", f"encrypt key={key}")
    s.mounts[0].wait_log(r"WARN: --auxapp: dedup comes before encrypt and sees the plain data", 1)
    assert "compress comes before" not in s.mounts[0].text()
    s.add_mount(f"--auxapp=encrypt key={key}", "--auxapp=dedup").wait_log(r"WARN: --auxapp: dedup comes after encrypt", 1)


@pytest.mark.expect_log(r"key|encrypt|aux-app")
@pytest.mark.parametrize("keyfile", ["", " key={}/none"])
def test_no_mount_without_the_key(new_store, keyfile, tmp_path):
    s = new_store().up(mounts=0)
    m = s.add_mount("--auxapp=encrypt" + keyfile.format(tmp_path), wait=False)
    assert m.kill(0) == 1
    assert "key" in m.text() and not os.path.ismount(m.path)


@pytest.mark.short
def test_chain_of_dedup_compress_encrypt(start, key):
    s = start("dedup", "compress", f"encrypt key={key}")
    m = s.mounts[0]
    data = text(15, 4 * MIB) + unique(16, 2 * MIB) + bytes(2 * MIB)
    write_file(m.at("ckpt_1"), data, sync=True)
    one = used(s)
    assert one < 3.5 * MIB, "zeros cost nothing, text is compressed"
    data2 = data[:MIB] + text(17, MIB) + data[2 * MIB:]
    write_file(m.at("ckpt_2"), data2, sync=True)
    assert used(s) - one < 0.5 * MIB
    cold(m)
    assert_same(read_file(m.at("ckpt_1")), data)
    assert_same(read_file(m.at("ckpt_2")), data2)
    os.unlink(m.at("ckpt_1"))
    assert_same(read_file(m.at("ckpt_2")), data2)
    os.unlink(m.at("ckpt_2"))
    wait_empty(s)


# ---------------------------------------------------------------- an aux-app of one's own


@pytest.mark.parametrize("chain", [[example("rot13")], [example("rot13"), "compress"]], ids=["alone", "compress"])
def test_rot13(start, chain):
    """Undone in the reverse order; overwritten in the middle; read by a mount that finds it by its name, also when the writer is gone."""
    s = start(*chain)
    m, data = s.mounts[0], text(18, 3 * MIB + 12345)
    write_file(m.at("f"), data, sync=True)
    assert_same(read_file(m.at("f")), data)
    fd = os.open(m.at("f"), os.O_RDWR)
    pwrite_all(fd, b"x" * 2000, MIB - 777)
    os.close(fd)
    data = data[:MIB - 777] + b"x" * 2000 + data[MIB + 1223:]
    assert_same(read_file(m.at("f")), data)
    cold(m)
    assert_same(read_file(m.at("f")), data)
    if len(chain) == 1:
        with_dir = s.add_mount(f"--auxapp-dir={os.path.dirname(example('rot13'))}")
        assert_same(read_file(with_dir.at("f")), data, "a mount that finds it by its name")
        m.unmount()
        assert_same(read_file(with_dir.at("f")), data, "the writer is gone")


@pytest.mark.expect_log(r"rot13|can't be read")
def test_a_missing_aux_app_is_named(start):
    s = start(example("rot13"))
    write_file(s.mounts[0].at("f"), text(19, MIB), sync=True)
    other = s.add_mount()
    with pytest.raises(OSError) as e:
        read_file(other.at("f"))
    assert e.value.errno == errno.EIO
    other.wait_log(r"rot13", 3)
    write_file(other.at("g"), content(1, 0, MIB), sync=True)
    assert_same(read_file(other.at("g")), content(1, 0, MIB), "all else goes on")


def test_windows_in_pieces(start):
    """Scattered small writes reach aux-apps as packed ranges."""
    s, rnd = start("dedup", "compress"), random.Random(20)
    m, size = s.mounts[0], 4 * MIB
    want = bytearray(size)
    fd = os.open(m.at("f"), os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    for _ in range(3):
        for _ in range(60):
            off, n = rnd.randrange(size - 9000), rnd.randrange(1, 9000)
            piece = text(rnd.randrange(9), n)
            pwrite_all(fd, piece, off)
            want[off:off + n] = piece
        os.fsync(fd)
        assert_same(pread_all(fd, size, 0), want)
    os.close(fd)
    cold(m)
    assert_same(read_file(m.at("f")), want)


def test_nothing_is_asked_of_aux_apps_for_small_things(start):
    """Files without data, and names, cost no chunk."""
    s = start("compress")
    m = s.mounts[0]
    for i in range(20):
        write_file(m.at(f"e{i}"), b"")
        os.rename(m.at(f"e{i}"), m.at(f"r{i}"))
    time.sleep(1.2)
    assert app(s, "compress")["chunks"] == 0
