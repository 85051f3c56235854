"""pytest fixtures and hooks: limits, clean-up, unexpected log lines. Imported by every conftest.py.

Each test has a limit (60 s, or @pytest.mark.limit(seconds)), kept in two steps. SIGALRM raises in the test; but a test
that sits in a system call of a mount that hangs would not notice, so a moment later a thread kills the mounts, which
makes their system calls fail. Nothing outlives the run: daemons die with it, mounts are detached, namespaces deleted,
also after Ctrl-C.

    store     a factory-made store of a manager, 2 benefactors and a mount, for one test
    new_store a function: an empty Store; the test starts what it wants
    shared    the same as store, for all tests of a module; d is a fresh directory in it for each test. With FP_TEST_DIR
              set d is there instead: test_posix_*.py on a native file system, to test the tests
    several   a store with MOUNTS (of the module) mounts of this node (and shared: with MOUNT_ARGS, if it has any), for all
              tests of a module; dirs: a fresh directory in it, by each mount
    targets   file systems that are not ours (targets.py): .dir(), .slow(), .loop(), .gluster()
    nodes     a function: n network namespaces; new_store(nodes) puts daemons there
    slurm     a real Slurm (slurm.py) for all tests of a module; by_ssh: the same, with an sshd on each node
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import pytest

from . import daemons, nodes as netns, slurm as batch, sshd, targets as foreign
from .daemons import PACE, SLOW, Store
from .lockers import Lockers

LIVE = []  # every Store that exists
IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
# run-pytest.sh runs twice for a user with sudo: "no" leaves tests that need root to the other run, "only" is that run.
ROOT_TESTS = os.environ.get("FP_ROOT_TESTS")
ELSEWHERE = os.environ.get("FP_TEST_DIR")


def pytest_configure(config):
    config.addinivalue_line("markers", "short: runs under the sanitizers too")
    config.addinivalue_line("markers", "limit(seconds): how long the test may take")
    config.addinivalue_line("markers", "expect_log(pattern...): ERROR lines that belong to the test")
    daemons.hold()
    # Two mpiruns of one user at a time make and remove one directory in /tmp, and may fail at that.
    os.environ["TEST_MPI_TMP"] = tempfile.mkdtemp(prefix="fp-mpi-")
    os.umask(0o022)  # other users look into what is made here, whatever files of this user are like
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # ip, mkfs.ext4, losetup: not in the PATH of every root shell
    missing = [p for p in ("fp-manager", "fp-benefactor", "fp-mount", "fpctl", "fp-store")
               if not os.access(daemons.bin_path(p), os.X_OK)]
    if missing and not ELSEWHERE:
        pytest.exit(f"not built in {daemons.BIN}: {', '.join(missing)}: run make", 4)
    if not os.path.exists("/dev/fuse"):
        pytest.exit("/dev/fuse is missing: modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN", 4)
    sweep(config)
    if os.environ.get("FP_FAILED_TESTS") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failed(os.environ["FP_FAILED_TESTS"], str(config.rootpath)))


def sweep(config):
    """Before, what runs that were killed have left; after, what those of our processes left that had to be killed."""
    if hasattr(config, "workerinput"):  # one of several processes: the first of them does it
        return
    daemons.sweep()
    if os.geteuid() == 0 and shutil.which("ip"):
        netns.sweep()
        batch.sweep()


def pytest_unconfigure(config):
    shutil.rmtree(os.environ.get("TEST_MPI_TMP", ""), ignore_errors=True)
    sweep(config)
    daemons.let_go()


def pytest_sessionfinish(session, exitstatus):
    for store in list(LIVE):
        store.remove()


class Failed:
    """In the process that hears of all tests: what run-pytest.sh may run again, a line for each."""

    def __init__(self, path, root):
        self.path, self.root = path, root

    def pytest_runtest_logreport(self, report):
        if report.failed:
            with open(os.open(self.path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as f:  # not made: root may not make what a user has in /tmp
                f.write(os.path.join(self.root, report.nodeid) + "\n")


def pytest_report_header(config):
    return f"programs: {daemons.BIN}"


def pytest_collection_modifyitems(config, items):
    if not ROOT_TESTS:
        return
    here, elsewhere = [], []
    for item in items:
        needs_root = not {"as_root", "nodes", "slurm"}.isdisjoint(item.fixturenames)
        (here if needs_root == (ROOT_TESTS == "only") else elsewhere).append(item)
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = here


class Watchdog:
    """Both steps of the limit of one phase of a test."""

    def __init__(self, seconds, what):
        self.seconds, self.what = seconds, what
        self.over, self.begun = threading.Event(), time.monotonic()

    def too_long(self, grace=0):
        took = time.monotonic() - self.begun
        return took > self.seconds + grace and took > self.seconds * SLOW + grace

    def __enter__(self):
        def on_alarm(signum, frame):
            if self.too_long():
                raise TimeoutError(f"{self.what}: no end within {time.monotonic() - self.begun:.0f} s")
        signal.signal(signal.SIGALRM, on_alarm)
        # Again and again: the limit may have moved, or the exception is swallowed.
        signal.setitimer(signal.ITIMER_REAL, self.seconds + 0.1, 5)
        self.thread = threading.Thread(target=self._second_step, daemon=True)
        self.thread.start()

    def _second_step(self):
        while not self.too_long(grace=4):
            if self.over.wait(1):
                return
        for store in list(LIVE):
            for m in store.mounts:
                m.shoot()
        for target in list(foreign.LIVE):
            target.shoot()

    def __exit__(self, *exc):
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.over.set()


def limit_of(item):
    mark = item.get_closest_marker("limit")
    return mark.args[0] if mark else 60


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item):
    with Watchdog(60, f"set-up of {item.name}"):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    with Watchdog(limit_of(item), item.name):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    with Watchdog(90, f"end of {item.name}"):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and IN_CI and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped, which is a failure where CI is set: {report.longrepr[-1]}"
    if report.failed:
        for store in LIVE:
            for d in store.daemons():
                report.sections.append((f"log of {d.name}", d.tail()))
        if isinstance(getattr(item, "funcargs", {}).get("slurm"), batch.Slurm):
            item.funcargs["slurm"].cancel()


def check(problems):
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def stop(store):
    problems = store.stop()
    LIVE.remove(store)
    left = daemons.mounts_below(store.dir)
    if left:
        problems.append(f"left mounted: {left}")
    return problems


@pytest.fixture(autouse=True)
def _unexpected_lines(request):
    """Stores that live longer than one test: their log lines are looked at after each, and what sanitizers say on nodes of a Slurm."""
    before = {id(s): list(s.expected) for s in LIVE}
    for mark in request.node.iter_markers("expect_log"):
        for s in LIVE:
            for pattern in mark.args:
                s.expect(pattern)
    yield
    cluster = request.node.funcargs.get("slurm")
    check([line for s in LIVE for line in s.problems()] + (cluster.reports.new() if isinstance(cluster, batch.Slurm) else []))
    for s in LIVE:
        s.expected = before.get(id(s), s.expected)


@pytest.fixture
def new_store(request):
    made = []

    def make(nodes=None):
        store = Store(nodes)
        for mark in request.node.iter_markers("expect_log"):
            for pattern in mark.args:
                store.expect(pattern)
        made.append(store)
        LIVE.append(store)
        return store

    yield make
    check([p for store in made for p in stop(store)])


def mount_args(request):
    """Of the module; --close stands over FP_CLOSE."""
    return getattr(request.module, "MOUNT_ARGS", ())


@pytest.fixture
def start(new_store, request):
    """A function: a store, and a mount or more that declare these aux-apps; args are the mount's, all else is Store.up's."""
    def make(*declared, mounts=1, args=(), pool="64MiB", **kw):
        s = new_store().up(mounts=0, **kw)
        for _ in range(mounts):
            s.add_mount(*[f"--auxapp={d}" for d in declared], *mount_args(request), *args, pool=pool, wait=False)
        for m in s.mounts:
            m.wait_ready()
        return s
    return make


@pytest.fixture
def store(new_store):
    return new_store().up()


@pytest.fixture
def two_targets(store):
    return [store.make_dir(name) for name in ("first", "second")]


@pytest.fixture
def target(store):
    """A plain directory; what is drained of the store lies below it as in the store."""
    return store.make_dir("target")


@pytest.fixture
def manager(new_store):
    """A manager alone; .store is what more can be added to."""
    s = new_store()
    m = s.start_manager()
    m.store = s
    return m


@pytest.fixture
def benefactors(manager):
    """A function: n benefactors of the manager."""
    return lambda n=2, **kw: [manager.store.add_benefactor(**kw) for _ in range(n)]


@pytest.fixture
def mount(manager, benefactors):
    """A function: a mount of the manager's store; the first call brings 2 benefactors up."""
    def add(**kw):
        if not manager.store.benefactors:
            benefactors(2)
        return manager.store.add_mount(**kw)
    return add


@contextlib.contextmanager
def store_for_a_module(**up):
    s = Store()
    LIVE.append(s)
    try:
        s.up(**up)
    except BaseException:
        s.remove()
        LIVE.remove(s)
        raise
    yield s
    check(stop(s))


@pytest.fixture(scope="module")
def shared(request):
    if ELSEWHERE:
        yield None
        return
    with store_for_a_module(mount_args=mount_args(request)) as s:
        yield s


@pytest.fixture(scope="module")
def several(request):
    with store_for_a_module(mounts=request.module.MOUNTS, mount_args=mount_args(request)) as s:
        yield s


def revive(store):
    """After a test whose limit killed the mounts: the next test gets working ones."""
    for m in store.mounts:
        if not m.alive():
            daemons.unmount(m.path)
            m.start()


@pytest.fixture
def d(shared):
    """A fresh directory in the shared store."""
    if shared:
        revive(shared)
    path = tempfile.mkdtemp(dir=ELSEWHERE or shared.mounts[0].path)
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def dirs(several, request):
    """A fresh directory in it, as each mount sees it."""
    revive(several)
    name = re.sub(r"[^\w-]", "-", request.node.name)
    os.mkdir(several.mounts[0].at(name))
    return [m.at(name) for m in several.mounts]


@pytest.fixture
def lockers():
    """A function: a process that locks what it is told to."""
    made = Lockers()
    yield made
    made.end()


@pytest.fixture
def native():
    """A fresh directory on the native file system, to compare with."""
    path = daemons.free_name("fp-test")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def nodes():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root, or sudo that asks for no password")
    if not shutil.which("ip"):
        pytest.skip("ip (iproute2) is not installed")
    made = []

    def make(n=4):
        made.append(netns.Nodes(n))
        return made[-1]

    yield make
    for n in made:
        n.remove()


class CheckedTargets(foreign.Targets):
    """Says what a machine lacks."""

    @staticmethod
    def _needs(*tools):
        if os.geteuid() != 0:
            pytest.skip("needs root, or sudo that asks for no password")
        if foreign.missing(tools):
            pytest.skip(f"not installed: {', '.join(foreign.missing(tools))}")

    def loop(self, **kw):
        self._needs("mkfs.ext4", "losetup")
        try:
            return super().loop(**kw)
        except subprocess.CalledProcessError:
            pytest.skip("no loop devices here")

    def gluster(self, **kw):
        self._needs(*foreign.GlusterTarget.TOOLS)
        return super().gluster(**kw)


@pytest.fixture
def targets():
    """Tests that use .loop() or .gluster() ask for as_root, too."""
    made = CheckedTargets()
    yield made
    check(made.end())


@pytest.fixture(scope="module")
def slurm(request):
    """A Slurm of four nodes (SLURM of the module: other ones) for all tests of a module."""
    lacks = batch.missing()
    if lacks:
        pytest.skip(lacks)
    cluster = batch.Slurm(**getattr(request.module, "SLURM", {}))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def by_ssh(slurm):
    """Its nodes, which let their user in by ssh; Slurm is left alone."""
    if sshd.missing():
        pytest.skip(sshd.missing())
    sshd.start(slurm)
    return slurm


@pytest.fixture
def as_root():
    if os.geteuid() != 0:
        pytest.skip("needs root, or sudo that asks for no password")


def settle(seconds):
    """A pause that is part of what is tested (never one to wait for something: that is wait_until)."""
    time.sleep(seconds * PACE)


@pytest.fixture
def stress():
    """A function that starts a Stress (stress.py); what still runs at the end of the test is killed before the store ends."""
    from .stress import Stress
    made = []

    def start(store, **kw):
        dirs = kw.pop("dirs", None) or [m.path for m in store.mounts]
        made.append(Stress(store, dirs, **kw))
        return made[-1]

    yield start
    for one in made:
        one.kill()
