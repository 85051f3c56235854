"""A real Slurm of several nodes on this machine.

Each node, and the one that users log in to (number 0, with munged and slurmctld), has a network, processes, a host name, shared memory and a root
file system of its own: an overlay over the real one, with private /tmp and /srv (the SSD), so that nothing of the machine is touched. The directories
/lustre (the parallel file system), /home and /opt/fpstore are the same on all. Everything is below one directory, and stop() leaves nothing of it.

A node crashes by a cut of its network and SIGKILL of its first process, which ends all others of it in the same moment; its memory and its SSD are gone.

Jobs are those of an ordinary user, who is known inside only. Names of nodes have our pid in them, since control groups of several runs lie side by side.
"""

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import time

from .daemons import BIN, LIBC, PR_SET_PDEATHSIG, SLOW, free_name, is_over, of_a_test, wait_until
from .mpijob import APPS
from .nodes import Nodes
from .reports import Reports

TOOLS = ("slurmctld", "slurmd", "srun", "sbatch", "munged", "unshare", "nsenter", "ip")
USER, UID = "ada", 5001
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
OURS = ("fp-job-watch", "fp-job", "fp-mount", "fp-benefactor", "fp-manager", "fp-auxhost")  # on the nodes of a job
PATHS = "/opt/fpstore/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The first process of a node: DIR is that of the cluster, NAME the node's, OPT what becomes /opt/fpstore.
NODE = r"""
set -eu
dir=$1 name=$2 opt=$3 apps=$4
mount --make-rprivate /
mount -t proc proc /proc
hostname "$name"
ip link set lo up
# What other tests have mounted would stay here when they unmount it: a disk that has lost its power could not be mounted anew.
awk -v tests="${dir%/*}/fp-test-" '$3 ~ /^fuse/ || index($2, tests) == 1 {print $2}' /proc/self/mounts | tac | xargs -r -n1 umount -l || true
top=$dir/node/$name
mkdir -p "$top"
mount -t tmpfs -o mode=755,size=64g none "$top"
mkdir "$top/upper" "$top/work" "$top/root" "$top/ssd"
mount -t overlay overlay -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/root"
cd "$top/root"
mount --rbind /sys sys
mount -t tmpfs -o mode=755 none dev
while read -r d major minor; do mknod -m 666 "dev/$d" c "$major" "$minor"; done <<< 'null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
fuse 10 229'
mkdir -m 1777 dev/shm
mkdir dev/pts
mount -t tmpfs -o mode=1777 none dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 none dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for i in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${i%:*}" "dev/${i#*:}"; done
mount -t proc proc proc
for d in run tmp; do mount -t tmpfs -o mode=1777 none $d; done
mkdir -p "./$dir" lustre opt/fpstore opt/apps reports srv AggregateSSDstore
chmod 777 AggregateSSDstore
mount --bind "$dir" "./$dir"
mount --bind "$dir/lustre" lustre
mount --bind "$dir/home" home
mount --bind "$dir/reports/$name" reports
mount --bind "$opt" opt/fpstore
[ ! -d "$apps" ] || mount --bind "$apps" opt/apps
mount --bind "$top/ssd" srv
chmod 1777 srv
cp "$dir/etc/hosts" etc/hosts
cat "$dir/etc/passwd" >> etc/passwd
rm -rf etc/fpstore
# As root of its namespace, and not of a process: the kernel lets none that is confined to a directory have a user namespace.
mount --move . /
mount --make-rshared .
exec chroot . /bin/bash "$dir/etc/init.sh" "$name"
"""

# Its second half, at home in the node's own root.
INIT = r"""
export SLURM_CONF=@DIR@/etc/slurm.conf PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /
trap 'exit 0' TERM
if [ "$1" = @LOGIN@ ]; then
    munged --foreground --force --num-threads=2 --key-file=@DIR@/etc/munge.key --socket=@DIR@/run/munge.sock --pid-file=@DIR@/run/munged.pid \
        --log-file=@DIR@/log/munged.log --seed-file=@DIR@/run/munge.seed &
    until [ -S @DIR@/run/munge.sock ]; do sleep 0.02; done
    slurmctld -D -i -f $SLURM_CONF >>@DIR@/log/slurmctld.out 2>&1 &
else
    while :; do [ ! -e /mnt/slurmd.env ] || . /mnt/slurmd.env; slurmd -D -f $SLURM_CONF -N "$1" >>@DIR@/log/slurmd.$1.out 2>&1; sleep 0.2; done &
fi
: > @DIR@/run/up.$1
while :; do wait -n || sleep 0.2; done
"""

# Of the daemons, slurmd alone; it is there again when this ends.
SYSTEMCTL = """#!/bin/sh
[ "$*" = "restart slurmd" ] || exit 1
old=$(cat /run/slurmd.pid)
kill "$old"
for i in $(seq 200); do
    new=$(cat /run/slurmd.pid 2>/dev/null)
    [ -z "$new" ] || [ "$new" = "$old" ] || exit 0
    sleep 0.05
done
exit 1
"""

CONF = """
ClusterName=fptest
SlurmctldHost={login}({addr})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/run/munge.sock
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmctldPidFile={dir}/run/slurmctld.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdSpoolDir=/run/slurmd
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile={dir}/log/slurmd.%n.log
PlugStackConfig={dir}/etc/plugstack.conf
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
MpiDefault=pmix
ReturnToService=2
KillWait={kill_wait}
SlurmdTimeout={slurmd_timeout}
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
"""


def missing():
    """What this machine lacks; "" if there is all."""
    if os.geteuid() != 0:
        return "a Slurm of its own needs root, or sudo that asks for no password"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacks = [t for t in TOOLS if not shutil.which(t, path=path)]
    return f"not installed: {', '.join(lacks)}" if lacks else ""


class Slurm:
    def __init__(self, nodes=4, cpus=None, extra="", kill_wait=5, slurmd_timeout=3, files=None, families="4"):
        """extra: lines of slurm.conf; files: more beside it, by their names; families: of the nodes' addresses (nodes.py)."""
        self.count, self.cpus = nodes, cpus or os.cpu_count()
        self.dir = free_name("fp-test")
        self.names = [f"q{os.getpid()}-{i}" for i in range(nodes + 1)]
        self.procs = {}
        self.net = None
        self.conf = os.path.join(self.dir, "etc", "slurm.conf")
        try:
            self.net = Nodes(nodes + 1, families)
            self._write(extra, kill_wait, slurmd_timeout)
            self.reports = Reports(os.path.join(self.dir, "reports"), os.path.join(self.dir, "etc"), self.names)
            for name, text in (files or {}).items():
                self._file(os.path.join("etc", name), text)
            for i in range(nodes + 1):
                self.start_node(i)
            self.wait_nodes()
        except BaseException:
            self.stop()
            raise

    # --- bringing it up -----------------------------------------------------

    def _file(self, name, text, mode=0o644):
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)

    def _write(self, extra, kill_wait, slurmd_timeout):
        os.chmod(self.dir, 0o755)
        for name in ("etc", "run", "log", "state", "node", "home", "lustre"):
            os.mkdir(os.path.join(self.dir, name), 0o755)
        home = os.path.join(self.dir, "home", USER)
        os.mkdir(home, 0o755)
        os.chown(home, UID, UID)
        os.chmod(os.path.join(self.dir, "lustre"), 0o1777)
        self._file("etc/munge.key", os.urandom(64).hex(), 0o600)
        self._file("etc/plugstack.conf", "# none\n")
        # Without this the barrier in MPI_Init is by a tree, and where there are many more tasks than processors some have gone on while one still waited
        # before it: a message of theirs crashed that one (mca_btl_tcp calls address 0). Not seen by a ring.
        self._file("etc/mpi.conf", "PMIxCollFence=ring\n")
        self._file("etc/passwd", f"{USER}:x:{UID}:{UID}::/home/{USER}:/bin/bash\n")
        lines = [f"{addr.partition('/')[0]} {name}\n" for i, name in enumerate(self.names) for addr in self.net.addrs(i)]
        self._file("etc/hosts", "127.0.0.1 localhost\n" + "".join(lines))
        self._file("etc/init.sh", INIT.replace("@DIR@", self.dir).replace("@LOGIN@", self.names[0]))
        groups = os.path.isdir("/sys/fs/cgroup/cpuset") and os.path.isdir("/sys/fs/cgroup/freezer")
        self._file("etc/cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainCores=yes\n" if groups else "CgroupPlugin=disabled\n")
        text = CONF.format(dir=self.dir, login=self.names[0], addr=self.net.addr(0), kill_wait=kill_wait, slurmd_timeout=slurmd_timeout)
        text += "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup,task/affinity\n" if groups else "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/affinity\n"
        text += "CommunicationParameters=EnableIPv6\n" if "6" in self.net.families else ""
        text += extra + "\n"
        for i in range(1, self.count + 1):
            text += (f"NodeName={self.names[i]} NodeAddr={self.net.addr(i)} CPUs={self.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={self.cpus} "
                     "ThreadsPerCore=1 RealMemory=2000\n")
        self._file("etc/slurm.conf", text + "PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE\n")

    def start_node(self, i):
        def in_child():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        self.net.restore(i)
        up = os.path.join(self.dir, "run", f"up.{self.names[i]}")
        if os.path.exists(up):
            os.unlink(up)
        with open(os.path.join(self.dir, "log", f"node.{i}.out"), "ab") as log:
            self.procs[i] = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.net.netns(i)}", "unshare", "-m", "-u", "-i", "-p", "-f", "--kill-child", "--propagation", "private",
                 "bash", "-c", NODE, "node", self.dir, self.names[i], os.path.dirname(BIN), APPS],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=in_child)
        wait_until(f"node {i}: " + log.name, 10, lambda: os.path.exists(up))

    def wait_nodes(self, seconds=20):
        """Until the controller takes all nodes for ready."""
        def ready():
            r = self.login("sinfo", "-hN", "-t", "idle", "-o", "%N", user="root", check=False, seconds=3)
            return len(set(r.stdout.split())) == self.count
        wait_until(lambda: f"a node is not ready:\n{self.logs()}", seconds, ready, 0.1)

    def logs(self, lines=15):
        """The ends of all logs."""
        text = []
        for name in sorted(os.listdir(os.path.join(self.dir, "log"))):
            with open(os.path.join(self.dir, "log", name), errors="replace") as f:
                text.append(f"--- {name}\n" + "".join(f.readlines()[-lines:]))
        return "\n".join(text)

    # --- doing something in it ----------------------------------------------

    def first_process(self, i):
        """Of node i, as this machine numbers it."""
        with open(f"/proc/{self.procs[i].pid}/task/{self.procs[i].pid}/children") as f:
            return int(f.read().split()[0])

    def _enter(self, i, user):
        drop = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"] if user != "root" else []
        env = ["env", "-i", f"HOME=/home/{USER}" if drop else "HOME=/root", f"USER={user}", f"LOGNAME={user}", f"PATH={PATHS}", "LC_ALL=C.UTF-8", "SHELL=/bin/bash",
               f"SLURM_CONF={self.conf}", "SLURM_TIME_FORMAT=%s", "TMPDIR=/srv", *self.reports.words]
        return ["nsenter", "-t", str(self.first_process(i)), "-m", "-u", "-i", "-n", "-p", "-r", "-w", *drop, *env]

    def on(self, i, *argv, user=USER, check=True, seconds=30, cwd=None, env=()):
        """A command on node i, to its end; as the user, in his home directory, unless told otherwise."""
        words = [*self._enter(i, user), *env, "sh", "-c", 'cd "$0" && exec "$@"', cwd or (f"/home/{USER}" if user != "root" else "/"), *argv]
        r = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds * SLOW)
        assert not check or r.returncode == 0, f"{argv} on node {i}: exit {r.returncode}\n{r.stdout}{r.stderr}"
        return r

    def login(self, *argv, **kw):
        """A command where users log in."""
        return self.on(0, *argv, **kw)

    def begin(self, i, *argv, user=USER, env=()):
        """A command on node i that goes on."""
        words = [*self._enter(i, user), *env, "sh", "-c", 'cd "$0" && exec "$@"', f"/home/{USER}", *argv]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def home(self, *names):
        return os.path.join(self.dir, "home", USER, *names)

    def lustre(self, *names):
        return os.path.join(self.dir, "lustre", *names)

    def write(self, name, text, mode=0o755):
        """A file of the user, in his home directory."""
        with open(self.home(name), "w") as f:
            f.write(text)
        os.chown(self.home(name), UID, UID)
        os.chmod(self.home(name), mode)
        return name

    def read(self, name):
        with open(self.home(name), errors="replace") as f:
            return f.read()

    def read_etc(self, name):
        with open(os.path.join(self.dir, "etc", name)) as f:
            return f.read()

    # --- jobs ---------------------------------------------------------------

    def sbatch(self, script, *args):
        """The job's number. Its output is in job-NUMBER.out of the home directory."""
        r = self.login("sbatch", "--parsable", "--output=job-%j.out", *args, script)
        return int(r.stdout.split(";")[0])

    def job(self, number):
        """What the controller says of it."""
        text = self.login("scontrol", "-o", "show", "job", str(number), user="root").stdout
        return dict(re.findall(r"(\w+)=(\S*)", text))

    def output(self, number):
        try:
            return self.read(f"job-{number}.out")
        except FileNotFoundError:
            return ""

    def wait_file(self, name, number, seconds=60):
        """Until the job has made this file in the home directory; it is taken away."""
        wait_until(lambda: f"{name} of job {number}: {self.job(number)['JobState']}\n{self.output(number)}", seconds,
                   lambda: os.path.exists(self.home(name)) or self.job(number)["JobState"] in ENDED, 0.05)
        assert os.path.exists(self.home(name)), f"job {number} has ended without {name}:\n{self.output(number)}"
        os.unlink(self.home(name))

    def wait_state(self, number, *states, seconds=60):
        """Until it is in one of these states; returns what the controller says."""
        def look():
            j = self.job(number)
            return j if j["JobState"] in states else None
        return wait_until(lambda: f"job {number} to be {states}: {self.job(number)['JobState']}\n{self.output(number)}", seconds, look, 0.1)

    def end_of(self, number, seconds=60):
        """Until it has ended; its exit code (128 + signal), and its output."""
        j = self.wait_state(number, *ENDED, seconds=seconds)
        code, sig = (int(n) for n in j["ExitCode"].split(":"))
        return (128 + sig if sig else code), self.output(number)

    def cancel(self):
        """All jobs: what a test that has failed left would hold the nodes of those after it."""
        with contextlib.suppress(AssertionError, OSError, subprocess.SubprocessError, IndexError):
            self.login("scancel", "-u", USER, user="root")

    def run(self, text, *args, seconds=60):
        """A script as a job, to its end."""
        self.write("job.sh", text)
        return self.end_of(self.sbatch("job.sh", *args), seconds)

    def up(self, text, *args, seconds=60):
        """A job that makes a file `up` and then waits for a file `go`; its number, when it waits."""
        for name in ("up", "go"):
            if os.path.exists(self.home(name)):
                os.unlink(self.home(name))
        self.write("job.sh", text)
        number = self.sbatch("job.sh", *args)
        self.wait_file("up", number, seconds)
        return number

    def go(self):
        self.write("go", "")

    def processes(self, i, name, word=""):
        """Pids of the user's processes of this name on node i, as that node counts; with this word in their call."""
        out = self.on(i, "ps", "-o", "pid=,comm=,args=", "-u", str(UID), user="root", check=False).stdout
        return [int(line.split()[0]) for line in out.splitlines() if line.split()[1] == name and word in line.split(None, 2)[2].split() + [""]]

    def script(self, i):
        """Pid of the batch script that runs on node i: not of one that it has forked, which has its name until it becomes another program, and is gone a moment later."""
        words = [line.split() for line in self.on(i, "ps", "-o", "pid=,ppid=,comm=", "-u", str(UID), user="root", check=False).stdout.splitlines()]
        parents = {int(pid): int(parent) for pid, parent, name in words if name == "slurm_script"}
        pid, = (pid for pid, parent in parents.items() if parent not in parents)
        return pid

    def kill(self, i, *pids, signal=9, check=True):
        self.on(i, "kill", f"-{int(signal)}", *map(str, pids), user="root", check=check)

    # --- an administrator's work --------------------------------------------

    def machine(self):
        """Makes of all nodes what a guide for administrators expects: /etc/slurm, a /usr/local that they share (DESTDIR is the directory root of ours), and systemctl restart slurmd."""
        os.makedirs(os.path.join(self.dir, "root/usr/local/sbin"))
        self._file("root/usr/local/sbin/systemctl", SYSTEMCTL, 0o755)
        for i in range(self.count + 1):
            self.on(i, "sh", "-c", f"rm -rf /etc/slurm; ln -s {self.dir}/etc /etc/slurm; mount --bind {self.dir}/root/usr/local /usr/local", user="root")

    def reconfigure(self, text):
        """Another slurm.conf, which the controller has read when this returns."""
        self._file("etc/slurm.conf", text)
        self.login("scontrol", "reconfigure", user="root")
        self.wait_nodes()

    def restart_slurmd(self, i, *env):
        """Of node i, with these variables from now on."""
        script = "old=$(cat /run/slurmd.pid); echo \"export $*\" > /mnt/slurmd.env; kill $old; until new=$(cat /run/slurmd.pid) && [ \"$new\" != $old ]; do sleep 0.05; done 2>/dev/null"
        self.on(i, "sh", "-c", script, "sh", *env, user="root")

    # --- what goes wrong ----------------------------------------------------

    def take_fusermount3(self, *nodes):
        """As on many clusters: it is there, and is not setuid; and nobody but root may write to the directory of stores."""
        for i in nodes:
            self.on(i, "sh", "-ec", "touch /usr/bin/not-there; chmod 755 /usr/bin/not-there; mount --bind /usr/bin/not-there /usr/bin/fusermount3; chmod 755 /AggregateSSDstore", user="root")

    def give_fusermount3(self, *nodes):
        for i in nodes:
            self.on(i, "sh", "-ec", "umount /usr/bin/fusermount3; rm /usr/bin/not-there; chmod 777 /AggregateSSDstore", user="root")

    def take_directory(self, *nodes):
        """As on all clusters before an administrator has come."""
        for i in nodes:
            self.on(i, "rmdir", "/AggregateSSDstore", user="root")

    def kill_ours(self, i):
        """All of our processes on node i at once, so that none can clean up after another."""
        self.kill(i, *(pid for name in OURS for pid in self.processes(i, name)), check=False)  # what the first is above of, Slurm may kill before we do

    @contextlib.contextmanager
    def stand_in(self, i, program, script):
        """Meanwhile on node i this script is started in place of one of our programs, which is /tmp/real for it."""
        path = f"/opt/fpstore/bin/{program}"
        self.on(i, "sh", "-c", 'cp "$0" /tmp/real; printf "#!/bin/sh\\n%s\\n" "$1" > /tmp/stand-in; chmod 755 /tmp/stand-in; mount --bind /tmp/stand-in "$0"', path, script, user="root")
        try:
            yield
        finally:
            self.on(i, "sh", "-c", f"umount {path}; rm /tmp/real /tmp/stand-in", user="root")

    def crash(self, i):
        """Like a loss of power: others hear nothing more of it, not even that its connections are closed."""
        self.net.cut(i)
        self.procs[i].kill()
        self.procs[i].wait(10)

    def left_over(self, i):
        """What of the user's is on node i: processes, mounts, files."""
        left = []
        with open(f"/proc/{self.first_process(i)}/mountinfo") as f:
            left += [f"mount {line.split()[4]}" for line in f if re.search(r" - fuse", line)]
        script = (f"ps -o pid=,args= -u {UID} | sed 's/^/process /'; (find /tmp /srv /run /dev/shm /AggregateSSDstore -mindepth 1 -uid {UID}; "
                  f"find /var/tmp -xdev -name 'fp-test-*' -prune -o -uid {UID} -print) 2>/dev/null | sed 's/^/file /'")
        return left + self.on(i, "sh", "-c", script, user="root").stdout.splitlines()

    def nothing_left(self, seconds=10, nodes=None, but=None):
        """Until nothing of the user is on any node, that where users log in among them; `but`: a directory that may be."""
        def left():
            return [f"node {i}: {x}" for i in nodes or range(self.count + 1) for x in self.left_over(i) if not but or not f"{x}/".startswith(f"file {but}/")]
        wait_until(lambda: "nothing to be left:\n" + "\n".join(left()), seconds, lambda: not left(), 0.1)

    # --- the end ------------------------------------------------------------

    def stop(self):
        for p in self.procs.values():
            p.kill()
        for p in self.procs.values():
            p.wait(20)
        if self.net:
            self.net.remove()
        remove_groups(self.names)
        if not os.environ.get("FP_KEEP_LOGS"):
            shutil.rmtree(of_a_test(self.dir), ignore_errors=True)


def remove_groups(names):
    """Control groups of nodes that are gone, from below; those that are in use a moment longer are tried again."""
    for top in [t for name in names for t in [*glob.glob(f"/sys/fs/cgroup/*/slurm_{name}"), *glob.glob(f"/sys/fs/cgroup/**/fpstore.{name}.*", recursive=True)]]:
        for _ in range(50):
            for path, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass
            if not os.path.isdir(top):
                break
            time.sleep(0.05)


def sweep():
    """Control groups of runs that were killed; as root."""
    for top in [*glob.glob("/sys/fs/cgroup/*/slurm_q*-*"), *glob.glob("/sys/fs/cgroup/**/fpstore.q*-*.*", recursive=True)]:
        m = re.search(r"/(?:slurm_|fpstore\.)(q(\d+)-\d+)(?:\.\d+)?$", top)
        if m and is_over(m[2]):
            remove_groups([m[1]])
