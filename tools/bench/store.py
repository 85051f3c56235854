"""A store for the benchmarks: daemons started one by one, so that their pids are known (for
profiles, memory, restarts of the mount alone), and stopped by pid whatever happens.

fp-store up does the same for people; it is measured by up-4, and not used for the rest
because a benchmark changes the pool, the chunk size and the back end, and restarts the mount
under a store that stays up.
"""

import json
import os
import secrets
import select
import shutil
import signal
import sqlite3
import subprocess
import time

MIB = 1 << 20
READY_S = 15
STOP_S = 15


class BenchError(Exception):
    """Something that makes a benchmark impossible; one line for the user."""


def tail_of(path, lines=5):
    try:
        with open(path, errors="replace") as f:
            return " | ".join(line.strip() for line in f.readlines()[-lines:])
    except OSError:
        return ""


def is_mounted(path):
    with open("/proc/self/mounts") as f:
        return any(line.split()[1] == path for line in f)


def be_nice(pid, nice):
    """Of the process and, where the kernel shares time between sessions first (autogroup), of its session."""
    if nice == 0:
        return
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    try:
        with open(f"/proc/{pid}/autogroup", "w") as f:
            f.write(str(nice))
    except OSError:
        pass


class Daemon:
    """One program with --ready-fd. `ready` is the line it wrote."""

    def __init__(self, argv, log, nice=0):
        self.name = os.path.basename(argv[0])
        self.log = log
        self.ready = None
        self.read_fd, write_fd = os.pipe()
        self.started = time.monotonic()
        with open(log, "ab") as out:
            self.proc = subprocess.Popen(
                argv + [f"--ready-fd={write_fd}"], pass_fds=[write_fd], stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True)
        os.close(write_fd)
        be_nice(self.pid, nice)

    @property
    def pid(self):
        return self.proc.pid

    def wait_ready(self, limit_s=READY_S):
        text = b""
        until = self.started + limit_s
        while not text.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read_fd], [], [], left)[0]:
                raise BenchError(f"{self.name}: not ready within {limit_s} s: {tail_of(self.log)}")
            piece = os.read(self.read_fd, 4096)
            if not piece:
                raise BenchError(f"{self.name}: ended at start: {tail_of(self.log)}")
            text += piece
        self.ready_s = time.monotonic() - self.started
        os.close(self.read_fd)
        self.read_fd = -1
        self.ready = text.decode().strip()
        return self.ready

    def cpu_s(self):
        """Seconds of processor time, user and system, so far."""
        try:
            with open(f"/proc/{self.pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def pids(self):
        """Of the program and what it has started, such as fp-auxhost."""
        found = [self.pid]
        for pid in found:
            for tid in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{tid}/children") as f:
                    found += [int(x) for x in f.read().split()]
        return found

    def run_on(self, cores):
        """Its threads that were put nowhere alone run on these cores."""
        for tid in os.listdir(f"/proc/{self.pid}/task"):
            if len(os.sched_getaffinity(int(tid))) > 1 or len(cores) > 1:
                os.sched_setaffinity(int(tid), cores)

    def status_bytes(self, field):
        with open(f"/proc/{self.pid}/status") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
        raise BenchError(f"{self.name}: no {field} in its status")

    def stop(self, sig=signal.SIGTERM):
        if self.read_fd >= 0:
            os.close(self.read_fd)
            self.read_fd = -1
        for s in (sig, signal.SIGKILL):
            if self.proc.poll() is None:
                self.proc.send_signal(s)
                try:
                    self.proc.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    pass
        return self.proc.returncode


class Store:
    """Manager, benefactors, one mount; a context manager. Everything lies below root."""

    def __init__(self, bin_dir, root, backend="dir", size=4096 * MIB, pool=128 * MIB, chunk_size=MIB,
                 benefactors=1, mounted=True, mount_args=(), nice=0):
        self.bin = bin_dir
        self.root = root
        self.backend, self.size, self.pool, self.chunk_size = backend, size, pool, chunk_size
        self.want_benefactors, self.want_mount = benefactors, mounted
        self.mount_args = list(mount_args)
        self.nice = nice
        self.mnt = os.path.join(root, "mnt")
        self.mnt_beside = os.path.join(root, "mnt2")
        self.key = os.path.join(root, "key")
        self.manager = self.mount = self.beside = None
        self.benefactors = []

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def program(self, name):
        path = os.path.join(self.bin, name)
        if not os.access(path, os.X_OK):
            raise BenchError(f"{path} is not built: make all")
        return path

    def path(self, *names):
        return os.path.join(self.root, *names)

    def start(self, name, number, args):
        log = self.path(f"{name}{number or ''}.log")
        return Daemon([self.program(name), f"--key={self.key}"] + args, log, self.nice)

    def up(self):
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.mnt)
        fd = os.open(self.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as f:
            f.write(secrets.token_hex(32) + "\n")
        self.manager_start()
        for i in range(1, self.want_benefactors + 1):
            os.makedirs(self.path(f"bnf{i}"), mode=0o700)
            self.benefactors.append(self.start("fp-benefactor", i, [
                f"--manager={self.manager.ready}", f"--dir={self.path(f'bnf{i}')}",
                f"--size={self.size // MIB}MiB", f"--backend={self.backend}", "--listen=127.0.0.1:0"]))
        for b in self.benefactors:
            b.wait_ready()
        if self.want_mount:
            self.mount_start()

    def manager_start(self):
        os.makedirs(self.path("mgr"), mode=0o700, exist_ok=True)
        self.manager = self.start("fp-manager", 0, [
            f"--dir={self.path('mgr')}", "--listen=127.0.0.1:0", f"--chunk-size={self.chunk_size // 1024}KiB"])
        self.manager.wait_ready()

    def start_mount(self, number, mnt, args):
        os.makedirs(mnt, exist_ok=True)
        mount = self.start("fp-mount", number, [
            f"--manager={self.manager.ready}", f"--pool={self.pool // MIB}MiB", "--foreground", *args, mnt])
        try:
            mount.wait_ready()
        except BenchError:
            mount.stop()
            raise
        if not is_mounted(mnt):
            mount.stop()
            raise BenchError(f"fp-mount says ready, but nothing is mounted on {mnt}")
        return mount

    @staticmethod
    def stop_mount(mount, mnt):
        if is_mounted(mnt):
            subprocess.run(["fusermount3", "-u", mnt], stderr=subprocess.DEVNULL, check=False)
        if mount:
            try:
                mount.proc.wait(STOP_S)
            except subprocess.TimeoutExpired:
                pass
            mount.stop()
        if is_mounted(mnt):
            subprocess.run(["fusermount3", "-uz", mnt], stderr=subprocess.DEVNULL, check=False)

    def mount_start(self):
        self.mount = self.start_mount(0, self.mnt, self.mount_args)

    def mount_stop(self):
        self.stop_mount(self.mount, self.mnt)
        self.mount = None

    def mount_beside(self, args):
        """A second mount of the store, on mnt_beside: what is compared can take turns without a remount."""
        self.beside = self.start_mount(2, self.mnt_beside, args)

    def mount_again(self, args):
        """The mount with other options, unless it has them already."""
        if self.mount is None or self.mount_args != list(args):
            self.mount_stop()
            self.mount_args = list(args)
            self.mount_start()

    def keep_off(self, core):
        """Nothing of the store runs on this core but the threads that were put there alone: those of the service cores."""
        for d in self.daemons():
            for tid in os.listdir(f"/proc/{d.pid}/task"):
                if len(os.sched_getaffinity(int(tid))) > 1:
                    os.sched_setaffinity(int(tid), set(range(os.cpu_count())) - {core})

    def auxapps(self):
        """What fpctl auxapps knows of those of the mount (not of the one beside it), by name. Figures are up to a second old."""
        r = subprocess.run([self.program("fpctl"), "auxapps", "--json", f"--manager={self.manager.ready}", f"--key={self.key}"],
                           capture_output=True, text=True, timeout=20, check=False)
        if r.returncode != 0:
            raise BenchError(f"fpctl auxapps: {r.stderr.strip()}")
        return {a["name"]: a for a in json.loads(r.stdout)["auxapps"] if a["mountpoint"] == self.mnt}

    def down(self):
        self.stop_mount(self.beside, self.mnt_beside)
        self.beside = None
        self.mount_stop()
        for b in self.benefactors:
            b.stop()
        self.benefactors = []
        if self.manager:
            self.manager.stop()
            self.manager = None

    def daemons(self):
        return [d for d in [self.manager, *self.benefactors, self.mount, self.beside] if d]

    def cpu_s(self):
        return {d.name: d.cpu_s() for d in self.daemons()}

    def free_bytes(self):
        v = os.statvfs(self.mnt)
        return v.f_bfree * v.f_frsize

    def settle(self, free_before, limit_s=6):
        """Waits until what was deleted is free again, so that one run does not pay for the last."""
        until = time.monotonic() + limit_s
        while self.free_bytes() < free_before and time.monotonic() < until:
            time.sleep(0.05)

    def database(self):
        return sqlite3.connect(f"file:{self.path('mgr', 'store.db')}?mode=ro", uri=True, timeout=10)

    def database_bytes(self):
        """Pages in use: as the file would be after a checkpoint of the WAL and a VACUUM of free pages."""
        db = self.database()
        try:
            (count,), (free,), (page,) = (
                db.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "freelist_count", "page_size"))
        finally:
            db.close()
        return (count - free) * page
