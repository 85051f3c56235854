"""Who may talk to the store: strangers are refused within a second, with one line, and take no memory."""

import os
import shutil
import socket
import struct
import subprocess
import time

import pytest

from harness import tlspsk
from harness.daemons import SLOW, Store, bin_path, wait_until
from harness.files import read_file, write_file

MIB = 1 << 20


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def run(program, *args, seconds=15):
    started = time.monotonic()
    r = subprocess.run([bin_path(program), *args], capture_output=True, text=True, timeout=seconds * SLOW)
    return r, time.monotonic() - started


def rss(daemon):
    with open(f"/proc/{daemon.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024


def still_works(store):
    store.fpctl("status")
    path = store.mounts[0].at("works")
    write_file(path, b"yes", sync=True)
    assert read_file(path) == b"yes"


@pytest.mark.short
@pytest.mark.expect_log(r"key|auth|handshake|refused")
def test_wrong_key_is_refused(store):
    other = Store.make_key(os.path.join(store.dir, "other-key"))
    r, took = run("fpctl", "status", f"--manager={store.addr}", f"--key={other}")
    assert r.returncode == 1 and took < 1.5 * SLOW
    assert "key" in r.stderr and r.stderr.count("\n") == 1
    mnt = store.make_dir("m")
    r, took = run("fp-mount", f"--manager={store.addr}", f"--key={other}", "--pool=16MiB", "--foreground", mnt)
    assert r.returncode == 1 and "key" in r.stderr and r.stderr.count("\n") == 1 and took < 8 * SLOW
    bdir = store.make_dir("b")
    r, took = run("fp-benefactor", f"--manager={store.addr}", f"--key={other}", f"--dir={bdir}", "--size=64MiB",
                  "--listen=127.0.0.1:0")
    assert r.returncode == 1 and "key" in r.stderr and took < 8 * SLOW
    assert r.stderr.count("ERROR") == 1
    still_works(store)


@pytest.mark.short
@pytest.mark.parametrize("program,args", [
    ("fp-manager", ["--dir={d}/x", "--listen=127.0.0.1:0"]),
    ("fp-benefactor", ["--dir={d}/x", "--size=64MiB", "--manager=127.0.0.1:1"]),
    ("fp-mount", ["--manager=127.0.0.1:1", "{d}/x"]),
    ("fpctl", ["status", "--manager=127.0.0.1:1"])])
def test_key_that_others_can_read_or_that_is_none(native, program, args):
    os.mkdir(f"{native}/x")
    args = [a.format(d=native) for a in args]
    key = Store.make_key(f"{native}/key")
    secret = open(key).read().strip()
    for mode in (0o644, 0o640, 0o604):
        os.chmod(key, mode)
        r, _ = run(program, *args, f"--key={key}")
        assert r.returncode == 1 and r.stderr.count("\n") == 1, r.stderr
        assert key in r.stderr and "600" in r.stderr and secret not in r.stderr
    os.chmod(key, 0o600)
    r, _ = run(program, *args, f"--key={native}/none")
    assert r.returncode == 1 and f"{native}/none" in r.stderr and r.stderr.count("\n") == 1
    for text in ("", "short\n", secret[:-1] + "\n", "g" * 64 + "\n", secret + secret + "\n"):
        with open(key, "w") as f:
            f.write(text)
        r, _ = run(program, *args, f"--key={key}")
        assert r.returncode == 1 and r.stderr.count("\n") == 1, r.stderr
        assert not text.strip() or text.strip() not in r.stderr
    r, _ = run(program, *args, f"--key={secret}")
    assert r.returncode in (1, 2) and secret not in r.stderr + r.stdout


@pytest.mark.short
@pytest.mark.parametrize("program,args", [
    ("fp-manager", ["--dir={d}/x", "--listen=127.0.0.1:0"]),
    ("fp-benefactor", ["--dir={d}/x", "--size=64MiB", "--manager=127.0.0.1:1"]),
    ("fp-mount", ["--manager=127.0.0.1:1", "{d}/x"]),
    ("fpctl", ["status", "--manager=127.0.0.1:1"])])
def test_key_that_this_user_may_not_read(native, as_root, program, args):
    os.chmod(native, 0o755)
    os.mkdir(f"{native}/x")
    os.chown(f"{native}/x", 65534, 65534)
    key = Store.make_key(f"{native}/key")
    here = shutil.copy(bin_path(program), native)  # the tree may be where only its owner can look
    # /dev/fuse of this run is everybody's, as udev has it.
    own_fuse = 'mknod "$0/fuse" c 10 229 && chmod 666 "$0/fuse" && mount --bind "$0/fuse" /dev/fuse && exec "$@"'
    r = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", own_fuse, native, "setpriv", "--reuid=65534", "--regid=65534",
                        "--clear-groups", here, f"--key={key}", *[a.format(d=native) for a in args]],
                       capture_output=True, text=True, timeout=15 * SLOW)
    assert r.returncode == 1 and r.stderr.count("\n") == 1, r.stderr
    assert key in r.stderr and "as the owner of the key or as root" in r.stderr and "--key" in r.stderr


def listeners(store):
    return [store.addr] + [b["address"] for b in store.status()["benefactors"]]


@pytest.mark.short
@pytest.mark.expect_log(r".")
def test_stranger_is_cut_off_within_a_second(store):
    """Garbage, HTTP, a hello in the clear, half a TLS record, and silence."""
    hello = struct.pack("<IHHHHiQII", 0x31465046, 1, 1, 0, 0, 0, 1, 0, 0) + bytes(8)
    for where in listeners(store):
        for what in (os.urandom(500), b"GET / HTTP/1.0\r\n\r\n", hello, b"\x16\x03\x01\x02\x00\x01", b"\x16", b""):
            s = socket.create_connection(address(where), timeout=5 * SLOW)
            started = time.monotonic()
            s.sendall(what)
            got = b""
            try:
                while data := s.recv(4096):
                    got += data
            except ConnectionResetError:
                pass
            assert time.monotonic() - started < 1.5 * SLOW, f"{what[:20]} at {where}"
            assert len(got) < 200, "not more than an alert"
            s.close()
    still_works(store)


@pytest.mark.expect_log(r".")
def test_each_refusal_is_one_line(store):
    for what, pattern in ((os.urandom(300), r"127\.0\.0\.1:\d+"), (b"", r"127\.0\.0\.1:\d+")):
        before = len(store.manager.text().splitlines())
        s = socket.create_connection(address(store.addr))
        s.sendall(what)
        me = f"127.0.0.1:{s.getsockname()[1]}"
        wait_until("a line about the stranger", 3,
                   lambda: [x for x in store.manager.text().splitlines()[before:] if me in x])
        s.close()
        time.sleep(0.3)
        assert len([x for x in store.manager.text().splitlines()[before:] if me in x]) == 1


@pytest.mark.short
@pytest.mark.expect_log(r".")
def test_many_silent_connections_take_no_memory_and_nobody_is_kept_out(store):
    where = address(store.addr)
    before = rss(store.manager)
    socks = []
    for i in range(300):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(where)
        socks.append(s)
        if i % 100 == 50:
            store.fpctl("status", "--timeout=5s")
    assert rss(store.manager) - before < 16 * MIB
    still_works(store)
    for s in socks:
        s.close()
    wait_until("descriptors to be given back", 3,
               lambda: len(os.listdir(f"/proc/{store.manager.pid}/fd")) < 60)


@pytest.mark.expect_log(r".")
def test_flood_of_garbage_is_bounded(store):
    before = rss(store.manager)
    for _ in range(200):
        s = socket.create_connection(address(store.addr))
        try:
            s.sendall(os.urandom(20000))
        except OSError:
            pass
        s.close()
    assert rss(store.manager) - before < 24 * MIB
    assert len(store.manager.text().splitlines()) < 400
    still_works(store)


@pytest.mark.expect_log(r".")
def test_old_protocol_version_is_refused(store):
    """A peer with the right key whose frames are of another version: refused with a line that says so."""
    if not tlspsk.available():
        pytest.skip("openssl is not installed")
    started = time.monotonic()
    c = tlspsk.PskClient(store.addr, store.key)
    c.send(struct.pack("<IHHHHiQIIQ", 0x31465046, 9, 1, 0, 0, 0, 1, 0, 0, 0))
    c.rest()
    assert time.monotonic() - started < 3 * SLOW
    store.manager.wait_log(r"version", 3)
    still_works(store)


@pytest.mark.short
def test_the_key_is_nowhere_to_be_seen(store):
    secret = open(store.key).read().strip()
    still_works(store)
    for d in store.daemons():
        with open(f"/proc/{d.pid}/cmdline", "rb") as f:
            assert secret.encode() not in f.read()
        with open(f"/proc/{d.pid}/environ", "rb") as f:
            assert secret.encode() not in f.read()
        assert secret not in d.text()
        with open(f"/proc/{d.pid}/smaps") as f:
            assert any("dd" in line.split() and line.startswith("VmFlags") for line in f), "the key's page is not dumped"
    for top, _, files in os.walk(store.dir):
        for name in files:
            path = os.path.join(top, name)
            if path != store.key and os.path.isfile(path) and os.path.getsize(path) < 4 * MIB and not path.startswith(store.mounts[0].path):
                assert secret.encode() not in open(path, "rb").read(), path


@pytest.mark.short
def test_local_socket_is_for_the_owner_only(store, as_root):
    for b in store.status()["benefactors"]:
        path = b["local_path"]
        st = os.stat(path)
        assert st.st_mode & 0o077 == 0 and st.st_uid == os.geteuid()
        os.chmod(path, 0o777)  # even so: the peer's credentials decide
        for part in (store.dir, os.path.dirname(path)):
            os.chmod(part, 0o755)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setgid(65534)
                os.setuid(65534)
                s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                s.settimeout(3)
                try:
                    s.connect(path)
                    code = 0 if s.recv(100) == b"" else 2
                except PermissionError:
                    code = 0
                except ConnectionError:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    still_works(store)


@pytest.mark.expect_log(r"another store|UUID|belongs")
def test_benefactor_of_another_store_is_refused(new_store):
    a, b = new_store().up(benefactors=1, mounts=0), new_store().up(benefactors=1, mounts=0)
    d = a.benefactors[0]
    d.term()
    r, took = run("fp-benefactor", f"--manager={b.addr}", f"--key={b.key}", f"--dir={d.dir}", "--size=1GiB",
                  "--listen=127.0.0.1:0")
    assert r.returncode == 1 and r.stderr.count("ERROR") == 1 and "store" in r.stderr and took < 5 * SLOW
