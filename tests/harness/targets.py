"""Targets: file systems that are not ours, for what is drained to and staged from. Real ones, with the ways in which they fail.

    targets   a fixture (fixtures.py): a factory; what it made is gone after the test, however that ended
        .dir()               a plain directory
        .slow(emulate=…)     a directory on a device of known speed (fp-slowfs); hangs, fails and counts when told to
        .loop(size_mib=64)   an ext4 of its own, small enough to fill; needs root
        .gluster()           a GlusterFS volume of one brick, which can be killed and started again; needs root and glusterfs-server

Each has .path, the directory to use. What hangs is let go, or killed, before anything waits for it.
"""

import os
import shutil
import signal
import subprocess

from .daemons import LIBC, PR_SET_PDEATHSIG, SCRATCH, SLOW, Daemon, free_name, is_mounted, unmount, wait_until
from .disk import Disk

LIVE = []  # every target that exists
CLONE_NEWNET = 0x40000000
GLUSTER_ADDR = "10.79.0.1"  # in a network namespace of its own


def usable(path):
    """Whether something can be made there; False as well where the file system is not back yet."""
    probe = os.path.join(path, ".usable")
    try:
        with open(probe, "wb") as f:
            f.write(b"x")
        os.unlink(probe)
        return True
    except OSError:
        return False


class DirTarget:
    """A directory of the file system that all tests use."""

    def __init__(self, base, name):
        self.path = os.path.join(base, name)
        os.mkdir(self.path)

    def shoot(self):
        """Whoever waits for the target does so no longer; it need not work afterwards."""

    def end(self):
        """Takes the target away; returns what was wrong, or None."""


class LoopTarget(Disk):
    """An ext4 that is soon full."""

    def fill(self, leave_bytes=0):
        """As another user of it would."""
        with open(os.path.join(self.path, "filler"), "ab") as f:
            fs = os.statvfs(self.path)
            free = fs.f_bavail * fs.f_frsize - leave_bytes
            if free > 0:
                os.posix_fallocate(f.fileno(), f.seek(0, 2), free)

    def make_room(self):
        os.unlink(os.path.join(self.path, "filler"))

    def read_only(self, on=True):
        subprocess.run(["mount", "-o", f"remount,{'ro' if on else 'rw'}", self.path], check=True, timeout=30 * SLOW)

    def shoot(self):
        pass

    def end(self):
        self.unmount()


# A run that is killed while something of it is open on a stopped file system does not come to its end: closing waits for an answer,
# and only the end of the run would kill who is to answer. So somebody else looks whether it is ending (PF_EXITING).
GUARD = r"""
while read -r stat <"/proc/$1/stat"; do
    set -- "$1" "$2" ${stat##*) }
    [ $(($9 & 4)) -eq 0 ] || break
    set -- "$1" "$2"
    sleep 1
done 2>/dev/null
kill -KILL "$2"
"""


class SlowTarget(Daemon):
    """A directory, .source, seen through fp-slowfs."""

    guard = None

    def __init__(self, base, name, emulate=None, logs=None):
        self.source, self.path = os.path.join(base, name + ".source"), os.path.join(base, name)
        os.mkdir(self.source)
        os.mkdir(self.path)
        args = [f"--emulate={emulate}"] if emulate else []
        super().__init__("fp-slowfs", name, logs or base, [*args, "--foreground", self.source, self.path])
        self.start()

    def hang(self):
        """Nothing is answered any more, until resume(). No process can be started meanwhile by one that has a file of it open: a
        copy of that is closed in the new process, and closing waits."""
        self._unguard()
        self.guard = subprocess.Popen(["sh", "-c", GUARD, "guard", str(os.getpid()), str(self.pid)], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.freeze()

    def resume(self):
        self._unguard()
        self.send(signal.SIGCONT)

    def _unguard(self):
        if self.guard:
            self.guard.kill()
            self.guard.wait(10)
        self.guard = None

    def fail(self, how=""):
        """As user.slowfs.fail of fp-slowfs(1) has it: "write=EIO,fsync=ENOSPC"; nothing: all works again."""
        os.setxattr(self.path, "user.slowfs.fail", how.encode())

    def count(self):
        text = os.getxattr(self.path, "user.slowfs.count").decode()
        return {name: int(n) for name, n in (word.split("=") for word in text.split())}

    def lose(self):
        """The server is gone: ENOTCONN for all that is open, and for all that is asked."""
        self.kill()

    def come_back(self):
        """Mounted again, at the same place; what was open stays lost."""
        unmount(self.path)
        self.start()

    def shoot(self):
        self._unguard()
        super().shoot()
        unmount(self.path)

    def end(self):
        self._unguard()
        if self.alive():
            self.resume()
        wrong = super().end()
        unmount(self.path)
        bad = self.new_bad_lines()
        return "\n".join(([wrong] if wrong else []) + bad) or None


# Runs as process 1 of namespaces of its own: everything that glusterd starts ends with it. The paths are those that are built into
# the programs. Copies of mounts of others would keep their file systems alive after they were unmounted; gsyncd, for
# replication to other sites, would be started twenty times before glusterd answers; here it looks as if it were not installed.
GLUSTER_INIT = r"""
set -eu
dir=$1 addr=$2 scratch=$3
while read -r _ point type _; do
    case $type:$point in fuse*|*:"$scratch"/fp-test-*) umount -l "$point" || true ;; esac
done </proc/self/mounts
mount -t tmpfs none /run
mkdir -p /run/gluster /var/lib/glusterd /var/log/glusterfs
mount --bind "$dir/lib" /var/lib/glusterd
mount --bind "$dir/log" /var/log/glusterfs
mount -t proc proc /proc
for f in /usr/lib/*/glusterfs/gsyncd /usr/libexec/glusterfs/gsyncd; do
    [ ! -e "$f" ] || mount --bind "$dir/absent" "$f"
done
ip link set lo up
ip addr add "$addr/32" dev lo
glusterd --no-daemon --volfile="$dir/glusterd.vol" --log-file="$dir/log/glusterd.log" &
wait $!
echo "glusterd has ended: $?"
"""

GLUSTERD_VOL = """
volume management
    type mgmt/glusterd
    option working-directory /var/lib/glusterd
    option transport-type socket
    option transport.socket.listen-port 24007
    option ping-timeout 0
    option event-threads 1
end-volume
"""


def die_with_us():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class GlusterTarget:
    """A volume of one brick, mounted. glusterd has directories, network, mounts and processes of its own: several at a time do not
    meet, and the machine's own GlusterFS, if it has one, is not touched. The mount is seen from here, as users see one."""

    TOOLS = ("glusterd", "gluster", "glusterfs", "unshare", "nsenter", "ip")

    def __init__(self, base, name, ping_seconds=5):
        self.dir, self.path = os.path.join(base, name + ".gluster"), os.path.join(base, name)
        for path in (self.dir, self.path, *(os.path.join(self.dir, d) for d in ("lib", "log", "brick"))):
            os.mkdir(path)
        self.brick = os.path.join(self.dir, "brick")
        with open(os.path.join(self.dir, "glusterd.vol"), "w") as f:
            f.write(GLUSTERD_VOL)
        with open(os.path.join(self.dir, "absent"), "w") as f:
            f.write("#!/nowhere/gsyncd\n")
        os.chmod(f.name, 0o755)
        self.outer = self.client = None
        try:
            self._start(ping_seconds)
        except BaseException:
            self.end()
            raise

    def _start(self, ping_seconds):
        with open(os.path.join(self.dir, "log", "init.log"), "ab") as log:
            self.outer = subprocess.Popen(
                ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "bash", "-c", GLUSTER_INIT, "gluster-init",
                 self.dir, GLUSTER_ADDR, SCRATCH],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_us)
        self.init = wait_until("process 1 of the namespaces", 10, self._init_pid)
        wait_until(lambda: f"glusterd to answer: {self.words()}", 30, self._answers, 0.1)
        self.gluster("volume", "create", "v", f"{GLUSTER_ADDR}:{self.brick}", "force")
        self.gluster("volume", "set", "v", "network.ping-timeout", str(ping_seconds))
        self.gluster("volume", "start", "v")
        self.mount()

    def _init_pid(self):
        assert self.outer.poll() is None, f"no namespaces: {self.words()}"
        with open(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children") as f:
            pids = f.read().split()
        return pids and int(pids[0])

    def _answers(self):
        assert self.outer.poll() is None, self.words()
        return self.gluster("pool", "list", check=False).returncode == 0

    def words(self):
        text = ""
        for name in ("init.log", "glusterd.log"):
            try:
                with open(os.path.join(self.dir, "log", name), errors="replace") as f:
                    text += "\n".join(f.read().splitlines()[-10:]) + "\n"
            except FileNotFoundError:
                pass
        return text

    def gluster(self, *args, check=True):
        r = subprocess.run(["nsenter", f"--target={self.init}", "--mount", "--net", "--pid", "gluster", "--mode=script", *args],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW)
        assert not check or r.returncode == 0, f"gluster {args}: {r.stdout} {r.stderr} {self.words()}"
        return r

    # --- the mount ----------------------------------------------------------

    def _in_client(self):
        die_with_us()
        if LIBC.setns(self.net, CLONE_NEWNET) != 0:
            os._exit(125)

    def mount(self):
        self.net = os.open(f"/proc/{self.init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.client = subprocess.Popen(
                ["glusterfs", "--no-daemon", f"--volfile-server={GLUSTER_ADDR}", "--volfile-id=v",
                 f"--log-file={self.dir}/log/client.log", self.path],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                preexec_fn=self._in_client)
        finally:
            os.close(self.net)
        self.wait_usable()

    def wait_usable(self, seconds=40):
        """Until files can be made: also some seconds after its brick is back."""
        wait_until(lambda: f"the volume to be mounted and usable: {self.words()}", seconds,
                   lambda: is_mounted(self.path) and usable(self.path), 0.1)

    def lose(self):
        """The client is gone: ENOTCONN for all that is open, and for all that is asked."""
        self.client.kill()
        self.client.wait(15 * SLOW)

    def come_back(self):
        unmount(self.path)
        self.mount()

    # --- the brick ----------------------------------------------------------

    def brick_pid(self):
        """Of the process that serves the brick, as seen from here; None: there is none."""
        ours = os.readlink(f"/proc/{self.init}/ns/pid")
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat") as f:
                    stat = f.read()
                if "(glusterfsd)" in stat and " Z " not in stat and os.readlink(f"/proc/{name}/ns/pid") == ours:
                    return int(name)
            except OSError:  # it ended meanwhile
                continue
        return None

    def kill_brick(self):
        os.kill(wait_until("a brick", 10, self.brick_pid), signal.SIGKILL)
        wait_until("the brick's end", 10, lambda: self.brick_pid() is None)

    def restart_brick(self):
        self.gluster("volume", "start", "v", "force")
        wait_until("a brick", 20, self.brick_pid)

    def hang(self):
        """The brick answers nothing; after ping_seconds the client gives it up, and says ENOTCONN until resume()."""
        os.kill(wait_until("a brick", 10, self.brick_pid), signal.SIGSTOP)

    def resume(self):
        os.kill(wait_until("a brick", 10, self.brick_pid), signal.SIGCONT)

    # --- the end ------------------------------------------------------------

    def processes(self):
        return [p for p in (self.client, self.outer) if p and p.poll() is None]

    def shoot(self):
        for p in self.processes():
            p.kill()
        unmount(self.path)

    def end(self):
        self.shoot()
        for p in (self.client, self.outer):
            try:
                if p:
                    p.wait(15 * SLOW)
            except subprocess.TimeoutExpired:
                return f"{p.args[0]} of {self.dir} does not end"
        return None


class Targets:
    """What the fixture gives."""

    def __init__(self):
        self.base, self.made = free_name("fp-test"), []

    def _add(self, kind, **kw):
        name = f"target-{len(self.made) + 1}"
        target = kind(self.base, name, **kw)
        self.made.append(target)
        LIVE.append(target)
        return target

    def dir(self):
        return self._add(DirTarget)

    def slow(self, emulate=None):
        return self._add(SlowTarget, emulate=emulate)

    def loop(self, size_mib=64):
        """CalledProcessError: no loop devices here."""
        return self._add(LoopTarget, size_mib=size_mib)

    def gluster(self, **kw):
        return self._add(GlusterTarget, **kw)

    def end(self):
        """Of all; returns what was wrong. What can't be unmounted now is detached, and goes with its last user."""
        wrong = []
        for target in reversed(self.made):
            try:
                wrong.append(target.end())
            except Exception as e:  # the others have to go as well
                wrong.append(f"{target.path}: {e}")
            LIVE.remove(target)
        shutil.rmtree(self.base, ignore_errors=True)
        return [w for w in wrong if w]


def missing(tools):
    return [tool for tool in tools if not shutil.which(tool)]
