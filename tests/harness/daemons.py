"""Real daemons under test: started, watched, killed.

Every daemon runs in a session of its own, dies with the test run (PDEATHSIG), writes its log lines to a file of its
own, and says through a ready-fd when and where it listens. Ports are bound to 0. A Store is a manager with its
benefactors and mounts; everything it has is below one directory, and stop() leaves nothing of it.

A store in network namespaces is the same, with daemons started inside one (nodes.py): the mount namespace stays ours,
so all mounts are seen from here.
"""

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import time

BIN = os.environ.get("FP_BIN") or os.path.join(os.path.dirname(__file__), "..", "..", "build", "bin")
BIN = os.path.abspath(BIN)
SANITIZED = os.path.basename(os.path.dirname(BIN)) in ("asan", "tsan")
PACE = 6 if SANITIZED else 1  # factor for how long a test lets things go on


class Patience:
    """Factor for all limits (seconds * SLOW): 1 on a machine that is ours, more where programs queue for the processors, so
    that a limit fails for what hangs and not for who else is there. Bounded, as what hangs must be seen."""

    def __mul__(self, seconds):
        with open("/proc/loadavg") as f:
            words = f.read().split()
        queue = max(float(words[0]), float(words[3].split("/")[0]))  # of the last minute; now
        return seconds * PACE * min(max(1.0, queue / os.cpu_count()), 10.0)

    __rmul__ = __mul__


SLOW = Patience()
SCRATCH = os.environ.get("FP_SCRATCH", "/var/tmp")
MIB = 1 << 20

REPORT_BEGINS = re.compile(r"^(WARNING: ThreadSanitizer|==\d+==ERROR: )")  # a sanitizer's
REPORT_LINES = 80
BAD_LINE = re.compile(r"^fp[a-z-]*: ERROR: |AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error: |^SUMMARY: ")
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000


def bin_path(name):
    return os.path.join(BIN, name)


def wait_until(what, seconds, test, step=0.02):
    """Polls test() until it gives something true, and returns that; what: words, or what makes them when it fails."""
    begun = time.monotonic()
    while True:
        got = test()
        if got:
            return got
        took = time.monotonic() - begun
        if took > seconds and took > seconds * SLOW:
            raise AssertionError(f"not within {took:.1f} s: {what() if callable(what) else what}")
        time.sleep(step)


def is_mounted(path):
    with open("/proc/self/mountinfo") as f:
        return any(line.split()[4] == path for line in f)


def of_a_test(path):
    """The path, if it is one that a test may have made: an empty name, or one of the machine's own mounts, would take the machine apart."""
    parts = [p for p in os.path.normpath(path).split("/") if p]
    own = path.startswith(os.path.join(SCRATCH, "fp-test-")) and ".." not in parts
    if not own and (not os.path.isabs(path) or len(parts) < 2 or parts[0] in ("proc", "sys", "dev", "run")):
        raise ValueError(f"{path!r} is no directory of a test")
    return path


def unmount(path):
    """Whatever state the mount is in, it is gone afterwards."""
    of_a_test(path)
    for _ in range(8):
        if not is_mounted(path):
            return
        if LIBC.umount2(path.encode(), 2) != 0:
            subprocess.run(["fusermount3", "-uz", path], capture_output=True, timeout=10)


def free_name(prefix):
    """A directory name that no other run uses."""
    n = 0
    while True:
        path = os.path.join(SCRATCH, f"{prefix}-{os.getpid()}-{n}")
        try:
            os.mkdir(path, 0o755)
            return path
        except FileExistsError:
            n += 1


WHOLE_RUN = ("FP_CLOSE", "FP_VERSIONS")  # options that a run of all tests may be given: FP_CLOSE=behind make check-e2e


class Daemon:
    """One process. name is unique in its store; args go behind what every daemon gets."""

    def __init__(self, program, name, logdir, args, env=None, netns=None, fault=None):
        self.program, self.name, self.args = program, name, list(args)
        self.env, self.netns, self.fault = env or {}, netns, fault
        self.log = os.path.join(logdir, name + ".log")
        self.proc = None
        self.ready = None
        self.ended_as_told = False
        self.seen = 0  # bytes of the log that were checked

    def _in_child(self):
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if self.netns:
            fd = os.open("/run/netns/" + self.netns, os.O_RDONLY)
            if LIBC.setns(fd, CLONE_NEWNET) != 0:
                os._exit(125)
            os.close(fd)

    def start(self, wait=True, seconds=10):
        r, w = os.pipe()
        env = {k: v for k, v in os.environ.items() if not k.startswith("FP_") or k in WHOLE_RUN}
        env.update(self.env)
        if self.fault:
            env["FP_FAULTS"] = self.fault
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(
                [bin_path(self.program), *self.args, f"--ready-fd={w}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, pass_fds=[w],
                start_new_session=True, preexec_fn=self._in_child)
        os.close(w)
        self.ready_fd, self.ended_as_told = r, False
        return self.wait_ready(seconds) if wait else self

    def wait_ready(self, seconds=10):
        """Until the ready line; raises with the log when the process has ended instead."""
        text, begun = b"", time.monotonic()
        os.set_blocking(self.ready_fd, False)
        while b"\n" not in text:
            try:
                got = os.read(self.ready_fd, 4096)
            except BlockingIOError:
                got = None
            took = time.monotonic() - begun
            if got == b"" or (took > seconds and took > seconds * SLOW):
                os.close(self.ready_fd)
                raise AssertionError(f"{self.name} is not ready ({'gone' if got == b'' else 'silent'}):\n{self.tail()}")
            text += got or b""
            if got is None:
                time.sleep(0.002)
        os.close(self.ready_fd)
        self.ready = text.decode().strip()
        return self

    @property
    def pid(self):
        return self.proc.pid

    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def send(self, sig):
        os.kill(self.pid, sig)

    def freeze(self):
        """SIGSTOP, and no thread runs any more: one that was being woken could still take a request, and never answer it."""
        self.send(signal.SIGSTOP)

        def stopped():
            states = []
            for task in os.listdir(f"/proc/{self.pid}/task"):
                with open(f"/proc/{self.pid}/task/{task}/stat") as f:
                    states.append(f.read().rsplit(")", 1)[1].split()[0])
            return all(state == "T" for state in states)
        wait_until(f"{self.name} to stop", 10, stopped, 0.002)

    def kill(self, sig=signal.SIGKILL, seconds=15):
        """Sends sig, waits for the end, returns the exit code as Popen has it."""
        self.ended_as_told = True
        if self.alive():
            self.send(sig)
        return self.wait(seconds)

    def term(self, seconds=15):
        return self.kill(signal.SIGTERM, seconds)

    def wait(self, seconds=15):
        try:
            return self.proc.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end within {seconds} s:\n{self.tail()}") from None

    def end(self):
        """At the end of a test: SIGTERM, then SIGKILL. Returns what was wrong, or None."""
        if self.proc is None:
            return None
        wrong = None
        if self.alive():
            self.ended_as_told = True
            self.send(signal.SIGTERM)
            try:
                self.proc.wait(20 * SLOW)
            except subprocess.TimeoutExpired:
                wrong = f"{self.name} did not end on SIGTERM"
            told = self.proc.returncode == 1 and "written data was lost while" in self.text()  # a line that a test must expect
            if self.proc.returncode not in (0, None) and not told:
                wrong = f"{self.name}: exit {self.proc.returncode} after SIGTERM"
        elif not self.ended_as_told:
            wrong = f"{self.name} had ended by itself: exit {self.proc.returncode}"
        self.shoot()
        return wrong

    def shoot(self):
        if self.proc is None:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            self.proc.wait(10)
        except subprocess.TimeoutExpired:
            pass

    def text(self):
        try:
            with open(self.log, errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def tail(self, lines=25):
        return "\n".join(self.text().splitlines()[-lines:])

    def new_bad_lines(self):
        """ERROR lines and sanitizers' reports since the last call; a race may show only once in a hundred runs, so its stacks are kept."""
        text = self.text()
        lines, self.seen = text[self.seen:].splitlines(), len(text)
        bad, report_ends = [], 0
        for i, line in enumerate(lines):
            if REPORT_BEGINS.search(line):
                report_ends = i + REPORT_LINES
            if i < report_ends or BAD_LINE.search(line):
                bad.append(f"{self.name}: {line}")
        return bad

    def wait_log(self, pattern, seconds=5, start=0):
        found = re.compile(pattern)
        return wait_until(f"/{pattern}/ in the log of {self.name}:\n{self.tail()}", seconds,
                          lambda: found.search(self.text(), start))


class Mount(Daemon):
    """fp-mount, and the directory it serves."""

    path = None

    def at(self, *names):
        return os.path.join(self.path, *names)

    def unmount(self, seconds=15):
        """As a user would: fusermount3 -u, and the daemon ends."""
        self.ended_as_told = True
        if any("convert" in a for a in self.args if a.startswith("--auxapp=")):
            self.unmount_between_looks()
        else:
            subprocess.run(["fusermount3", "-u", self.path], check=True, timeout=20 * SLOW)
        code = self.wait(seconds)
        assert code == 0, f"exit {code} after fusermount3 -u:\n{self.tail()}"

    def unmount_between_looks(self):
        """A coordinator that looks through files keeps the mount busy for milliseconds, and docs/CONVERT.md says: try again."""
        def gone():
            done = subprocess.run(["fusermount3", "-u", self.path], capture_output=True, text=True, timeout=20 * SLOW)
            assert done.returncode == 0 or "busy" in done.stderr, done.stderr
            return done.returncode == 0
        wait_until(f"fusermount3 -u {self.path}, which is busy", 10, gone, 0.1)

    def end(self):
        wrong = super().end()
        unmount(self.path)
        return wrong

    def shoot(self):
        super().shoot()
        unmount(self.path)


class Store:
    """A manager, its benefactors and mounts, and their files."""

    def __init__(self, nodes=None):
        self.dir = free_name("fp-test")
        self.logs = os.path.join(self.dir, "log")
        os.mkdir(self.logs)
        self.key = self.make_key(os.path.join(self.dir, "key"))
        self.manager, self.benefactors, self.mounts, self.others = None, [], [], []
        self.nodes = nodes
        self.expected = []

    @staticmethod
    def make_key(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, os.urandom(32).hex().encode() + b"\n")
        os.close(fd)
        return path

    def daemons(self):
        return [d for d in [self.manager, *self.benefactors, *self.mounts, *self.others] if d]

    def expect(self, pattern):
        """Lines that match are no failure of this test."""
        self.expected.append(re.compile(pattern))

    def _where(self, node):
        """(netns, address) of a node number of the nodes fixture; None: this machine's loopback."""
        if self.nodes is None or node is None:
            return None, "127.0.0.1"
        return self.nodes.netns(node), self.nodes.addr(node)

    def start_manager(self, *args, node=0, fault=None, wait=True):
        netns, addr = self._where(node)
        path = os.path.join(self.dir, "manager")
        os.makedirs(path, exist_ok=True)
        self.manager = Daemon("fp-manager", "manager", self.logs, [
            f"--dir={path}", f"--listen={addr}:0", f"--key={self.key}", *args], netns=netns, fault=fault)
        self.manager.start(wait=wait)
        if wait:
            self.addr = self.manager.ready
            self.manager.args[1] = f"--listen={self.addr}"  # the same port when it is started again
        return self.manager

    def node_name(self, node):
        return f"node{node if node is not None else 0}"

    def add_benefactor(self, *args, size="1GiB", backend="dir", node=None, path=None, fault=None, wait=True):
        netns, addr = self._where(node)
        name = f"benefactor-{len(self.benefactors) + 1}"
        path = path or os.path.join(self.dir, name)
        os.makedirs(path, exist_ok=True)
        if not any(a.startswith("--device-timeout") for a in args):  # others use the device: what they do to it fails no test
            args = (*args, "--device-timeout=10min")
        b = Daemon("fp-benefactor", name, self.logs, [
            f"--manager={self.addr}", f"--dir={path}", f"--size={size}", f"--backend={backend}",
            f"--listen={addr}:0", f"--key={self.key}", f"--node={self.node_name(node)}", *args],
            netns=netns, fault=fault)
        b.dir, b.node = path, node
        self.benefactors.append(b)
        return b.start(wait=wait)

    def add_mount(self, *args, node=None, pool="64MiB", fault=None, wait=True):
        netns, _ = self._where(node)
        name = f"mount-{len(self.mounts) + 1}"
        path = os.path.join(self.dir, "mnt" + name[5:])
        os.makedirs(path, exist_ok=True)
        m = Mount("fp-mount", name, self.logs, [
            f"--manager={self.addr}", f"--key={self.key}", f"--node={self.node_name(node)}", f"--pool={pool}",
            "--foreground", f"--mountpoint={path}", *args], netns=netns, fault=fault)
        m.path, m.node = path, node
        self.mounts.append(m)
        return m.start(wait=wait)

    def up(self, benefactors=2, mounts=1, size="1GiB", backend="dir", **kw):
        """The usual store; benefactors and mounts are all of one node."""
        self.start_manager(*kw.get("manager_args", ()))
        for _ in range(benefactors):
            self.add_benefactor(size=size, backend=backend)  # one after the other: the manager numbers them as they come
        for _ in range(mounts):
            self.add_mount(*kw.get("mount_args", ()), pool=kw.get("pool", "64MiB"), wait=False)
        for m in self.mounts:
            m.wait_ready()
        return self

    def make_dir(self, name):
        """A directory beside those of the daemons: a target, or what is to be staged in."""
        path = os.path.join(self.dir, name)
        os.mkdir(path)
        return path

    # --- looking ------------------------------------------------------------

    def _fpctl(self, args):
        netns = self.nodes.netns(0) if self.nodes else None
        cmd = [bin_path("fpctl"), *args, f"--manager={self.addr}", f"--key={self.key}"]
        return ["nsenter", f"--net=/run/netns/{netns}", *cmd] if netns else cmd

    def fpctl(self, *args, check=True, seconds=15):
        r = subprocess.run(self._fpctl(args), capture_output=True, text=True, timeout=seconds * SLOW)
        assert not check or r.returncode == 0, f"fpctl {args}: exit {r.returncode}: {r.stderr}"
        return r

    def begin_fpctl(self, *args):
        """One that goes on while the test does something else."""
        return subprocess.Popen(self._fpctl(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def status(self):
        return json.loads(self.fpctl("status", "--json").stdout)

    def layout(self, path, *args):
        return json.loads(self.fpctl("stat", path, "--json", *args).stdout)

    def wait_status(self, what, seconds, test):
        def look():
            return test(self.status())
        return wait_until(what, seconds, look, 0.05)

    def restart_manager(self):
        return self.manager.start()

    # --- the end ------------------------------------------------------------

    def problems(self):
        """Unexpected log lines since the last call."""
        lines = [line for d in self.daemons() for line in d.new_bad_lines()]
        return [line for line in lines if not any(e.search(line) for e in self.expected)]

    def stop(self):
        """Ends all, in the order in which data flows; returns what was wrong."""
        wrong = [d.end() for group in (self.mounts, self.benefactors, [self.manager] if self.manager else [], self.others)
                 for d in group]
        wrong = [w for w in wrong if w] + self.problems()
        self.remove()
        return wrong

    def remove(self):
        for d in self.daemons():
            d.shoot()
        for line in mounts_below(self.dir):
            unmount(line)
        if not os.environ.get("FP_KEEP_LOGS"):
            shutil.rmtree(self.dir, ignore_errors=True)


def mounts_below(path):
    of_a_test(path)
    with open("/proc/self/mountinfo") as f:
        points = [line.split()[4] for line in f]
    return sorted((p for p in points if p.startswith(path + "/")), reverse=True)


def lock_path(pid):
    return os.path.join(SCRATCH, f"fp-test-{pid}.lock")


@functools.cache
def hold():
    """Until this process ends, all that has its pid in its name is its own, also for those who do not see it, in a container."""
    with contextlib.suppress(PermissionError):  # another user's process with this pid has left one, and only that user can remove it
        f = open(lock_path(os.getpid()), "w", encoding="utf-8")
        fcntl.flock(f, fcntl.LOCK_EX)
        return f


def let_go():
    with contextlib.suppress(OSError):
        os.unlink(lock_path(os.getpid()))


def is_over(pid):
    """Whatever has this pid in its name is left of a run that was killed."""
    if os.path.exists(f"/proc/{pid}"):
        return False
    try:
        with open(lock_path(pid), encoding="utf-8") as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(lock_path(pid))
    except BlockingIOError:
        return False
    except OSError:
        pass  # it had none, or it is another user's
    return True


def sweep():
    """Removes what runs that were killed have left: directories of processes that are gone, their mounts, namespaces."""
    for name in os.listdir(SCRATCH):
        m = re.fullmatch(r"fp-test-(\d+)(-\d+|\.lock)", name)
        if m and is_over(m[1]) and not name.endswith(".lock"):
            path = os.path.join(SCRATCH, name)
            for point in mounts_below(path):
                unmount(point)
            shutil.rmtree(path, ignore_errors=True)
