"""Every start-up mistake: one line that says what to do, exit code 1 (2 for the command line), nothing left running."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from harness.daemons import SLOW, Store, bin_path, is_mounted, unmount, wait_until
from harness.files import write_file


def fails(program, *args, code=1, says=(), seconds=15, env=None):
    e = {k: v for k, v in os.environ.items() if not k.startswith("FP_")}
    e.update(env or {})
    r = subprocess.run([bin_path(program), *args], capture_output=True, text=True, timeout=seconds * SLOW, env=e)
    lines = [x for x in r.stderr.splitlines() if ": INFO: " not in x and ": WARN: " not in x]
    assert r.returncode == code, f"exit {r.returncode}: {r.stderr}"
    assert len(lines) == 1, r.stderr
    assert re.match(rf"{program}: ERROR: ", lines[0]), r.stderr
    for what in ([says] if isinstance(says, str) else says):
        assert re.search(what, lines[0]), f"/{what}/ not in: {lines[0]}"
    return lines[0]


@pytest.fixture
def key(native):
    return Store.make_key(f"{native}/key")


# --- manager ----------------------------------------------------------------


def test_manager_port_taken(native, key):
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    where = "127.0.0.1:%d" % s.getsockname()[1]
    fails("fp-manager", f"--dir={native}/m", f"--listen={where}", f"--key={key}", says=[where, "listen"])


def test_manager_address_not_ours(native, key):
    fails("fp-manager", f"--dir={native}/m", "--listen=203.0.113.7:0", f"--key={key}", says="203.0.113.7")


NO_HOST = r"nohost\.invalid cannot be resolved"


def test_host_that_has_no_address(manager, native, key):
    """Every option that takes an address."""
    fails("fp-manager", f"--dir={native}/m", "--listen=nohost.invalid:0", f"--key={key}", says=[NO_HOST, "--listen"])
    benefactor = ["fp-benefactor", f"--dir={native}/b", "--size=64MiB", f"--key={manager.store.key}", "--start-timeout=500ms"]
    fails(*benefactor, f"--manager={manager.store.addr}", "--listen=nohost.invalid:0", says=[NO_HOST, "--listen"])
    fails(*benefactor, "--manager=nohost.invalid:7420", says=[NO_HOST, "--manager"])
    os.mkdir(f"{native}/mnt")
    fails("fp-mount", "--manager=nohost.invalid:7420", f"--key={key}", "--pool=16MiB", "--start-timeout=500ms",
          f"{native}/mnt", says=[NO_HOST, "--manager"])
    fails("fpctl", "--manager=nohost.invalid:7420", f"--key={key}", "status", says=[NO_HOST, "--manager"])


def test_manager_directory_not_writable(native, key, as_root):
    os.chmod(native, 0o755)
    os.mkdir(f"{native}/m", 0o555)
    os.chown(key, 65534, 65534)
    program = shutil.copy(bin_path("fp-manager"), native)  # another user may not get to where the programs are
    r = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program,
                        f"--dir={native}/m", "--listen=127.0.0.1:0", f"--key={key}"], capture_output=True, text=True,
                       timeout=15 * SLOW)
    assert r.returncode == 1 and r.stderr.count("\n") == 1 and f"{native}/m" in r.stderr


def test_manager_directory_is_a_file_or_its_parent_is_missing(native, key):
    write_file(f"{native}/file", b"")
    fails("fp-manager", f"--dir={native}/file", "--listen=127.0.0.1:0", f"--key={key}", says=f"{native}/file")
    fails("fp-manager", f"--dir={native}/no/where", "--listen=127.0.0.1:0", f"--key={key}", says=f"{native}/no")


@pytest.mark.short
def test_second_manager_on_the_same_directory(manager):
    s = manager.store
    fails("fp-manager", f"--dir={s.dir}/manager", "--listen=127.0.0.1:0", f"--key={s.key}", says="another|runs|in use")
    s.fpctl("status")


def test_manager_database_of_something_else(native, key):
    os.mkdir(f"{native}/m")
    subprocess.run([bin_path("fp-manager"), f"--dir={native}/m", "--listen=bad"], capture_output=True)
    d = subprocess.Popen([bin_path("fp-manager"), f"--dir={native}/m", "--listen=127.0.0.1:0", f"--key={key}"],
                         stderr=subprocess.DEVNULL)
    db = wait_until("a database", 5, lambda: [f for f in os.listdir(f"{native}/m") if f.endswith((".db", ".sqlite"))])
    d.terminate()
    d.wait(10 * SLOW)
    for name in os.listdir(f"{native}/m"):
        if name.startswith(db[0]) and name != db[0]:
            os.unlink(f"{native}/m/{name}")
    write_file(f"{native}/m/{db[0]}", b"this is no database " * 500)
    fails("fp-manager", f"--dir={native}/m", "--listen=127.0.0.1:0", f"--key={key}", says=db[0])


# --- benefactor -------------------------------------------------------------


def bnf(s, *args, **kw):
    return fails("fp-benefactor", f"--manager={s.addr}", f"--key={s.key}", "--listen=127.0.0.1:0", *args, **kw)


def test_benefactor_not_enough_space(manager, native):
    bnf(manager.store, f"--dir={native}/b", "--size=900TiB", says=["900", "size|free|space"])


def test_benefactor_directory_missing_or_a_file(manager, native):
    write_file(f"{native}/file", b"")
    bnf(manager.store, f"--dir={native}/file", "--size=64MiB", says=f"{native}/file")
    bnf(manager.store, f"--dir={native}/no/where", "--size=64MiB", says=f"{native}/no")


def test_benefactor_directory_in_use(store):
    bnf(store, f"--dir={store.benefactors[0].dir}", "--size=1GiB", says="in use|another")


def test_benefactor_directory_copied(store):
    """Two of one identity would each hold chunks that the other lacks. The one that is there stays, and is not disturbed."""
    first = store.benefactors[0]
    copy = f"{store.dir}/copy"
    subprocess.run(["cp", "-a", first.dir, copy], check=True)
    bnf(store, f"--dir={copy}", "--size=1GiB", "--node=elsewhere", "--start-timeout=1500ms", says=["identity", "copied"])
    assert "gone" not in first.text()
    assert [b["state"] for b in store.status()["benefactors"]] == ["ok", "ok"]


def test_benefactor_directory_moved(store):
    """To another path on another node, as when an SSD moves: its chunks are found there."""
    path = store.mounts[0].at("f")
    data = os.urandom(6 << 20)
    os.setxattr(store.mounts[0].path, "user.fp.stripe", b"2")
    write_file(path, data, sync=True)
    first = store.benefactors[0]
    number, = [b["id"] for b in store.status()["benefactors"] if b["address"] == first.ready]  # which of them the manager has heard of first is open
    assert first.term() == 0
    os.rename(first.dir, f"{store.dir}/moved")
    store.add_benefactor("--node=elsewhere", path=f"{store.dir}/moved")
    s = store.wait_status("both benefactors", 5, lambda s: all(b["state"] == "ok" for b in s["benefactors"]) and s)
    assert {b["id"]: b["node"] for b in s["benefactors"]} == {1: "node0", 2: "node0", number: "elsewhere"}
    store.mounts[0].unmount()
    store.mounts[0].start()
    with open(path, "rb") as f:
        assert f.read() == data


def test_benefactor_no_manager(native, key):
    started = time.monotonic()
    fails("fp-benefactor", "--manager=127.0.0.1:1", f"--key={key}", f"--dir={native}/b", "--size=64MiB",
          "--start-timeout=1s", says=["127.0.0.1:1", "manager"])
    assert time.monotonic() - started < 5 * SLOW


def test_benefactor_port_taken(manager, native):
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    where = "127.0.0.1:%d" % s.getsockname()[1]
    st = manager.store
    fails("fp-benefactor", f"--manager={st.addr}", f"--key={st.key}", f"--listen={where}", f"--dir={native}/b",
          "--size=64MiB", says=where)


def test_benefactor_read_only_directory(manager, native, as_root):
    os.mkdir(f"{native}/b")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", f"{native}/b"], check=True)
    try:
        bnf(manager.store, f"--dir={native}/b", "--size=64MiB", says=[f"{native}/b", "[Rr]ead-only"])
    finally:
        unmount(f"{native}/b")


# --- what is left of a refused start ------------------------------------------


def busy_port():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    return s, "127.0.0.1:%d" % s.getsockname()[1]


@pytest.mark.parametrize("there", [False, True])
def test_refused_manager_leaves_nothing(native, there):
    """Neither directory nor key; what was there before stays."""
    taken, where = busy_port()
    left = []
    if there:
        os.mkdir(f"{native}/m")
        write_file(f"{native}/m/mine", b"")
        left = ["m"]
    for listen, says in ((where, "another program"), ("nohost.invalid:0", "resolved"), ("203.0.113.7:0", "--listen")):
        fails("fp-manager", f"--dir={native}/m", f"--listen={listen}", f"--key={native}/key", "--create-key", says=says)
        assert os.listdir(native) == left
        assert not there or os.listdir(f"{native}/m") == ["mine"]
    taken.close()


def test_refused_manager_leaves_a_store_alone(manager):
    taken, where = busy_port()
    s = manager.store
    assert manager.term() == 0
    fails("fp-manager", f"--dir={s.dir}/manager", f"--listen={where}", f"--key={s.key}", says=where)
    assert "store.db" in os.listdir(f"{s.dir}/manager")
    s.restart_manager()
    s.fpctl("status")
    taken.close()


@pytest.mark.parametrize("there", [False, True])
def test_refused_benefactor_leaves_nothing(manager, native, there):
    taken, where = busy_port()
    if there:
        os.mkdir(f"{native}/b")
    s = manager.store
    good = ["--size=64MiB", "--listen=127.0.0.1:0", f"--manager={s.addr}", "--start-timeout=300ms"]
    for change, says in ((f"--listen={where}", "taken"), ("--size=900TiB", "free"), ("--manager=127.0.0.1:1", "no manager")):
        fails("fp-benefactor", f"--dir={native}/b", f"--key={s.key}", *good, change, says=says)
        assert os.listdir(native) == (["b"] if there else [])
        assert not there or os.listdir(f"{native}/b") == []
    taken.close()


# --- mount ------------------------------------------------------------------


def mnt(s, *args, **kw):
    return fails("fp-mount", f"--manager={s.addr}", f"--key={s.key}", "--pool=16MiB", "--foreground", *args, **kw)


def test_mountpoint_missing_or_a_file(manager, native):
    write_file(f"{native}/file", b"")
    mnt(manager.store, f"{native}/no", says=[f"{native}/no", "mkdir"])
    mnt(manager.store, f"{native}/file", says=[f"{native}/file", "directory"])


@pytest.mark.short
def test_mountpoint_busy(store):
    mnt(store, store.mounts[0].path, says=[store.mounts[0].path, "mounted"])
    assert os.listdir(store.mounts[0].path) == []


@pytest.mark.short
def test_stale_mount_left_by_a_crash_is_cleaned(store):
    m = store.mounts[0]
    write_file(m.at("f"), b"kept", sync=True)
    m.kill()
    assert is_mounted(m.path)
    with pytest.raises(OSError):
        os.listdir(m.path)
    m.start()
    assert os.listdir(m.path) == ["f"]


def test_mount_no_manager(native, key):
    os.mkdir(f"{native}/m")
    started = time.monotonic()
    fails("fp-mount", "--manager=127.0.0.1:1", f"--key={key}", "--pool=16MiB", "--start-timeout=1s", f"{native}/m",
          says=["127.0.0.1:1"])
    assert time.monotonic() - started < 5 * SLOW


def test_ctrl_c_while_waiting_for_the_manager(native, key):
    """On its way into the background too: no process stays that mounts when the manager is there at last."""
    os.mkdir(f"{native}/m")
    p = subprocess.Popen([bin_path("fp-mount"), "--manager=127.0.0.1:1", f"--key={key}", "--pool=16MiB", "--start-timeout=60s",
                          f"{native}/m"], stderr=subprocess.DEVNULL)
    child = wait_until("its child", 5, lambda: subprocess.run(["pgrep", "-P", str(p.pid)], capture_output=True).stdout.split())
    p.send_signal(signal.SIGINT)
    assert p.wait(5 * SLOW) != 0

    def gone():
        try:
            with open(f"/proc/{int(child[0])}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
        except FileNotFoundError:
            return True
    wait_until("the child to be gone", 5, gone)


@pytest.mark.parametrize("how", [[], ["--foreground"]])
def test_reason_is_on_the_terminal_and_in_the_log(native, key, how):
    os.mkdir(f"{native}/m")
    line = fails("fp-mount", "--manager=127.0.0.1:1", f"--key={key}", "--pool=16MiB", "--start-timeout=300ms",
                 f"--log={native}/log", *how, f"{native}/m", says=["127.0.0.1:1"])
    with open(f"{native}/log") as f:
        assert f.read() == line + "\n"


def test_no_dev_fuse(manager, native, as_root):
    """In a mount namespace of its own, /dev/fuse is hidden."""
    os.mkdir(f"{native}/m")
    s = manager.store
    r = subprocess.run(["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev && exec "$@"', "sh", bin_path("fp-mount"),
                        f"--manager={s.addr}", f"--key={s.key}", "--pool=16MiB", "--foreground", f"{native}/m"],
                       capture_output=True, text=True, timeout=15 * SLOW)
    assert r.returncode == 1 and r.stderr.count("\n") == 1 and "/dev/fuse" in r.stderr and "modprobe" in r.stderr


@pytest.mark.short
def test_background_mount_returns_when_usable(store):
    """Without --foreground the program returns, and the mount is there; fusermount3 -u ends the daemon."""
    path = store.make_dir("bg")
    subprocess.run([bin_path("fp-mount"), f"--manager={store.addr}", f"--key={store.key}", "--pool=16MiB", path],
                   check=True, timeout=15 * SLOW, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    try:
        write_file(os.path.join(path, "f"), b"x")
        mounts = store.wait_status("both mounts", 3, lambda s: len(s["mounts"]) == 2 and s["mounts"])
        pid = next(m["pid"] for m in mounts if m["mountpoint"] == path)
    finally:
        subprocess.run(["fusermount3", "-u", path], check=True, timeout=20 * SLOW)
    wait_until("the daemon to end", 10, lambda: not os.path.exists(f"/proc/{pid}"))
    store.wait_status("one mount", 5, lambda s: sum(m["connected"] for m in s["mounts"]) == 1)


@pytest.mark.short
def test_mount_8_helper(store, as_root, native):
    """As mount(8) calls it: mount.fuse.fpstore SOURCE DIR -o options."""
    helper = f"{native}/mount.fuse.fpstore"
    os.symlink(bin_path("fp-mount"), helper)
    os.mkdir(f"{native}/m")
    subprocess.run([helper, store.addr, f"{native}/m", "-o", f"rw,noatime,key={store.key},pool=16MiB"], check=True,
                   timeout=15 * SLOW, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        write_file(f"{native}/m/f", b"x")
        assert os.listdir(store.mounts[0].path) == ["f"]
    finally:
        subprocess.run(["fusermount3", "-u", f"{native}/m"], check=True, timeout=20 * SLOW)
    store.wait_status("one mount", 5, lambda s: sum(m["connected"] for m in s["mounts"]) == 1)


# --- the command line -------------------------------------------------------

SIZES = ["3.5", "512Mb", "1K", "1 G", "-1", "0x10", "1e3", "", "1GiBB", "99999999999999999999", "1,5GiB", "NaN"]


@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_strict(native, size):
    fails("fp-benefactor", "--manager=127.0.0.1:1", f"--dir={native}/b", f"--size={size}", code=2, says="size")


def test_3_5_tb_is_3_500_000_000_000_bytes(manager, native):
    bnf(manager.store, f"--dir={native}/b", "--size=3.5TB", says="3.2 TiB")


@pytest.mark.parametrize("program,args,says", [
    ("fp-manager", ["--dirr=/x"], "did you mean '--dir'"),
    ("fp-manager", [], "dir"),
    ("fp-manager", ["--dir=/x", "--listen=host"], "listen"),
    ("fp-manager", ["--dir=/x", "--chunk-size=100000"], "chunk-size"),
    ("fp-manager", ["--dir=/x", "--session-timeout=5"], "session-timeout"),
    ("fp-benefactor", ["--manager=127.0.0.1:1", "--dir=/x", "--size=1GiB", "--backend=ssd"], "backend"),
    ("fp-benefactor", ["--manager=127.0.0.1:1", "--dir=/x", "--size=1GiB", "--backend=emulated:wirte=175MB/s"], "did you mean write"),
    ("fp-store", ["up", "--backend=emulated:x25e,over=disk"], "over=disk"),
    ("fp-benefactor", ["--manager=127.0.0.1:1", "--dir=/x", "--size=1GiB", "--advertise=node0:7420"], "without a port"),
    ("fp-mount", ["/mnt"], "manager"),
    ("fp-mount", ["--manager=127.0.0.1:1", "--pool=1MiB", "/mnt"], "pool"),
    ("fp-mount", ["--manager=127.0.0.1:1", "--cores=9-1", "/mnt"], "cores"),
    ("fp-mount", ["--manager=127.0.0.1:1", "-o", "pol=1GiB", "/mnt"], "pool"),
    ("fpctl", ["statsu"], "did you mean"),
    ("fpctl", [], "--help"),
    ("fpctl", ["df", "--all"], "df has no option --all"),
    ("fpctl", ["stat"], "PATH is missing: fpctl stat PATH"),
    ("fpctl", ["stat", "/a", "/b"], "unexpected argument '/b'"),
    ("fpctl", ["auxapp"], r"fpctl auxapp new NAME"),
    ("fp-store", ["upp"], "did you mean"),
    ("fp-store", ["up", "--benefactors=0"], "benefactors"),
    ("fp-store", ["up", "--size=1K"], "size"),
])
def test_usage_mistakes(program, args, says):
    fails(program, *args, code=2, says=says)


def test_environment_and_file(native, key):
    fails("fp-manager", f"--dir={native}/m", code=2, env={"FP_LISTEN": "nonsense"}, says="FP_LISTEN")
    conf = f"{native}/fp.conf"
    write_file(conf, b"log-level = info\n\n[manager]\nlisten = 127.0.0.1:0\nchunk-sise = 1MiB\n")
    fails("fp-manager", f"--dir={native}/m", f"--config={conf}", code=2, says=[r"fp\.conf:5", "chunk-size"])
    write_file(conf, b"[manager]\ndir = /x\nlisten = 1\n")
    fails("fp-manager", f"--config={conf}", code=2, says=r"fp\.conf:3")


@pytest.mark.parametrize("program", ["fp-manager", "fp-benefactor", "fp-mount", "fpctl", "fp-store"])
def test_help_and_version(program):
    for option in ("--help", "--version"):
        r = subprocess.run([bin_path(program), option], capture_output=True, text=True, timeout=10 * SLOW)
        assert r.returncode == 0 and program in r.stdout and r.stderr == ""


def test_help_of_one_command():
    def says(*args):
        r = subprocess.run([bin_path("fpctl"), *args], capture_output=True, text=True, timeout=10 * SLOW)
        assert r.returncode == 0 and r.stderr == ""
        return r.stdout

    of_stat = says("--manager", "127.0.0.1:1", "stat", "--help")
    assert of_stat.startswith("Usage: fpctl stat PATH [OPTION]...") and "--all" in of_stat and "--watch" not in of_stat
    assert "--all" not in says("auxapps", "set", "-h") and "Usage: fpctl auxapps [PATH]" in says("auxapps", "--help")


def test_benefactor_told_to_end_while_it_starts(native, store):
    """At any moment: also between its hello to the manager and the answer."""
    def start(i):
        return subprocess.Popen([bin_path("fp-benefactor"), f"--dir={native}/b{i}", "--size=64MiB", f"--key={store.key}", f"--node=n{i}",
                                 f"--manager={store.addr}", "--listen=127.0.0.1:0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    for i in range(40):
        p = start(i)
        time.sleep(0.002 * i)
        p.terminate()
        assert p.wait(20 * SLOW) in (0, 1, -signal.SIGTERM)
