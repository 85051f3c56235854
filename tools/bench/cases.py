"""The benchmarks: what is done, beside what, and what is to be reached.

A case is a function that yields Results; one that yields several (names in its decorator) is run when any
of them was asked for. Runs of ours and of the reference alternate (ours first, then the
reference first, and so on), so that a disk or a neighbour that gets slower in the middle hits both.
"""

import os
import shutil
import statistics
import subprocess
import time

import fill
from store import MIB, BenchError, Store

CASES = []  # (names, function)


def case(*names):
    def add(function):
        CASES.append((names, function))
        return function
    return add


class Result:
    """ours and ref: one figure per run. goal: ("ratio", x), ("share", x): the ratio is to be at most x, ("least", x), ("most", x) or None: report.

    paired: the runs of both took turns; the ratio is the median of those of each pair, so that what slows a machine for seconds is in both or in
    a few pairs."""

    def __init__(self, name, unit, ours, ref, goal, ref_name, extra=None, paired=False):
        self.name, self.unit, self.goal, self.ref_name = name, unit, goal, ref_name
        self.ours, self.ref = list(ours), list(ref)
        self.extra = extra or {}
        self.pair_ratios = [x / y for x, y in zip(self.ours, self.ref)] if paired else []

    @property
    def value(self):
        return statistics.median(self.ours)

    @property
    def ref_value(self):
        return statistics.median(self.ref) if self.ref else None

    @property
    def ratio(self):
        if self.pair_ratios:
            return statistics.median(self.pair_ratios)
        return self.value / self.ref_value if self.ref and self.ref_value else None

    @property
    def passed(self):
        if not self.goal:
            return None
        kind, bound = self.goal
        if kind == "ratio":
            return self.ratio >= bound
        if kind == "share":
            return self.ratio <= bound
        return self.value >= bound if kind == "least" else self.value <= bound

    def as_json(self):
        def short(x):
            return None if x is None else float(f"{x:.6g}")

        def spread(name, figures):
            """The half in the middle lies between these."""
            if len(figures) < 4:
                return {}
            low, _, high = statistics.quantiles(figures, n=4)
            return {f"{name}_p25": short(low), f"{name}_p75": short(high)}

        return {
            "name": self.name, "unit": self.unit, "ours": short(self.value), "ref": short(self.ref_value),
            "ratio": short(self.ratio), "runs": len(self.ours), "min": short(min(self.ours)),
            "max": short(max(self.ours)), "ref_min": short(min(self.ref, default=None)),
            "ref_max": short(max(self.ref, default=None)), "ref_name": self.ref_name,
            "target": None if not self.goal else {"kind": self.goal[0], "value": self.goal[1]}, "pass": self.passed,
            **spread("ours", self.ours), **spread("ref", self.ref), **spread("ratio", self.pair_ratios),
            "ours_runs": [short(x) for x in self.ours], "ref_runs": [short(x) for x in self.ref], **self.extra,
        }


def drop_caches(what=3):
    """Clean pages, dentries, inodes out of memory. Only root can."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write(str(what))
    except OSError as e:
        raise BenchError(f"cold caches need root (write to /proc/sys/vm/drop_caches): {e.strerror}") from e


def alternate(runs, one, other):
    """runs times each; two lists. one and other take the number of the run."""
    a, b = [], []
    for i in range(runs):
        for which in ((one, a), (other, b)) if i % 2 == 0 else ((other, b), (one, a)):
            which[1].append(which[0](i))
    return a, b


def mibs(r):
    return r["bytes"] / r["seconds"] / MIB


def rate(r):
    return r["ops"] / r["seconds"]


class Ours:
    """Work on the store's mount: observed (processor time, profile), cleaned up, settled."""

    def __init__(self, env, store, name):
        self.env, self.store, self.name = env, store, name
        self.free = store.free_bytes()
        self.cpu = {}

    def run(self, work, name=None, **args):
        before = self.store.cpu_s()
        with self.env.profile(self.store, name or self.name):
            r = self.env.io(work, **args)
        after = self.store.cpu_s()
        size = r["bytes"] / (1024 * MIB) if r["bytes"] else r["ops"] / 10000
        for d, t in after.items():
            self.cpu.setdefault(name or self.name, {}).setdefault(d, []).append((t - before.get(d, 0)) / size)
        return r

    def cpu_extra(self, name=None):
        """Processor seconds of each daemon per GiB, or per 10,000 operations."""
        per = self.cpu.get(name or self.name, {})
        return {"cpu_s": {d: round(statistics.median(t), 3) for d, t in per.items()}}

    def write(self, name=None, clean=True, **args):
        path = os.path.join(self.store.mnt, args.pop("file", "f"))
        r = self.run("write", name, path=path, **args)
        if clean:
            self.remove()
        return mibs(r)

    def check(self, size, jobs=1, shared=False, **args):
        """Writes once more and reads it back: a fast wrong answer is none."""
        self.write(name="check", clean=False, size=size, jobs=jobs, shared=shared, **args)
        self.env.io("read", path=os.path.join(self.store.mnt, "f"), size=size, jobs=jobs, shared=shared, verify=True)
        self.remove()

    def remove(self):
        for f in os.listdir(self.store.mnt):
            os.unlink(os.path.join(self.store.mnt, f))
        self.store.settle(self.free)


def native_write(env, directory, **args):
    os.makedirs(directory, exist_ok=True)
    r = env.io("write", path=os.path.join(directory, "f"), **args)
    shutil.rmtree(directory)
    if not directory.startswith("/dev/shm"):
        env.syncfs()
    return mibs(r)


# --- writing --------------------------------------------------------------------


def write_pair(env, name, backend, ref_name, native_dir, goal, ours_args, ref_args):
    with env.store(backend=backend, size=4 * env.file_bytes * ours_args.get("jobs", 1)) as store:
        ours = Ours(env, store, name)
        a, b = alternate(env.runs, lambda i: ours.write(size=env.file_bytes, **ours_args),
                         lambda i: native_write(env, native_dir, size=env.file_bytes, **ref_args))
        ours.check(size=env.file_bytes, **ours_args)
        yield Result(name, "MiB/s", a, b, goal, ref_name, ours.cpu_extra())


@case("write-1m-1w-close")
def write_close(env):
    yield from write_pair(env, "write-1m-1w-close", "dir", "native O_DIRECT", env.native, ("ratio", 0.85), {},
                          {"direct": True})


@case("write-1m-1w-fsync")
def write_fsync_1(env):
    yield from write_pair(env, "write-1m-1w-fsync", "dir", "native O_DIRECT+fsync", env.native, ("ratio", 0.85),
                          {"fsync": True}, {"direct": True, "fsync": True})


@case("write-1m-2w-fsync")
def write_fsync_2(env):
    yield from write_pair(env, "write-1m-2w-fsync", "dir", "native O_DIRECT+fsync", env.native, ("ratio", 0.85),
                          {"fsync": True, "jobs": 2}, {"direct": True, "fsync": True, "jobs": 2})


@case("write-1m-1w-memory")
def write_memory(env):
    yield from write_pair(env, "write-1m-1w-memory", "memory", "tmpfs", f"/dev/shm/fp-bench-{os.getpid()}",
                          ("ratio", 0.8), {}, {})


@case("write-behind-tmpfs", "write-behind-page-cache")
def write_behind(env):
    """Files that fit the pool, closed before they are stored (--close behind): memory against memory."""
    size = env.pool // 2
    for name, ref_name, native, least in (
            ("write-behind-tmpfs", "tmpfs", f"/dev/shm/fp-bench-{os.getpid()}", 1.0),
            ("write-behind-page-cache", "native page cache", env.native, 0.8)):
        with env.store(size=16 * size, mount_args=["--close=behind"]) as store:
            ours = Ours(env, store, name)
            # A run takes some 15 ms, less than a turn of a neighbour on this core: many, and compared pair by pair.
            a, b = alternate(3 * env.runs, lambda i: ours.write(size=size), lambda i: native_write(env, native, size=size))
            ours.check(size=size)
            yield Result(name, "MiB/s", a, b, ("ratio", least), ref_name, ours.cpu_extra(), paired=True)


@case("recall")
def recall(env):
    """From the first write of a file to its open on another mount: closed with its data in the pool, and synced before it is closed."""
    size = env.pool // 2
    piece = os.urandom(MIB)
    with env.store(size=16 * size, mount_args=["--close=behind"]) as store:
        store.mount_beside(["--close=behind"])

        def hand_over(i, sync):
            name = f"f{i}-{sync}"
            begun = time.monotonic()
            fd = os.open(os.path.join(store.mnt, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            for _ in range(size // MIB):
                os.write(fd, piece)
            if sync:
                os.fsync(fd)
            os.close(fd)
            fd = os.open(os.path.join(store.mnt_beside, name), os.O_RDONLY)
            took = time.monotonic() - begun
            if os.fstat(fd).st_size != size or os.pread(fd, MIB, size - MIB) != piece:
                raise BenchError("recall: the other mount does not see what was closed")
            os.close(fd)
            os.unlink(os.path.join(store.mnt, name))
            return size / took / MIB
        a, b = alternate(env.runs, lambda i: hand_over(i, False), lambda i: hand_over(i, True))
        yield Result("recall", "MiB/s", a, b, ("ratio", 0.9), "fsync before close", paired=True)


@case("write-64k-1w")
def write_64k(env):
    with env.store() as store:
        ours = Ours(env, store, "write-64k-1w")
        a, b = alternate(env.runs, lambda i: ours.write(size=env.file_bytes, block=65536),
                         lambda i: ours.write(name="1m", size=env.file_bytes))
        native = [native_write(env, env.native, size=env.file_bytes, block=65536) for _ in range(3)]
        yield Result("write-64k-1w", "MiB/s", a, b, ("ratio", 0.6), "ours 1 MiB",
                     {**ours.cpu_extra(), "native_page_cache": round(statistics.median(native))})


@case("write-malloc-1w")
def write_malloc(env):
    """Large writes from memory that begins 16 bytes behind a page, as what malloc gives does: the kernel cuts them into requests that begin nowhere in particular."""
    with env.store(backend="memory") as store:
        ours = Ours(env, store, "write-malloc-1w")
        a, b = alternate(env.runs, lambda i: ours.write(size=env.file_bytes, block=64 * MIB, odd=16),
                         lambda i: ours.write(name="aligned", size=env.file_bytes, block=64 * MIB))
        yield Result("write-malloc-1w", "MiB/s", a, b, ("ratio", 0.9), "ours, from a page on", ours.cpu_extra(), paired=True)


@case("write-4k-1w")
def write_4k(env):
    with env.store() as store:
        ours = Ours(env, store, "write-4k-1w")
        size = env.file_bytes // 4
        a, b = alternate(env.runs, lambda i: ours.write(size=size, block=4096),
                         lambda i: native_write(env, env.native, size=size, block=4096))
        yield Result("write-4k-1w", "MiB/s", a, b, None, "native page cache", ours.cpu_extra())


@case("n1-strided-1m-4w")
def n1_strided(env):
    with env.store() as store:
        ours = Ours(env, store, "n1-strided-1m-4w")
        each = env.file_bytes // 4
        a, b = alternate(env.runs, lambda i: ours.write(size=each, jobs=4, shared=True),
                         lambda i: ours.write(name="nn", size=each, jobs=4))
        ours.check(size=each, jobs=4, shared=True)
        yield Result("n1-strided-1m-4w", "MiB/s", a, b, ("ratio", 0.8), "ours, a file each", ours.cpu_extra())


# --- reading --------------------------------------------------------------------


def read_cold(env, name, jobs):
    with env.store() as store:
        ours = Ours(env, store, name)
        args = {"size": env.file_bytes, "jobs": jobs}
        ours.write(name="fill", clean=False, fsync=True, **args)
        os.makedirs(env.native, exist_ok=True)
        path = os.path.join(env.native, "f")
        env.io("write", path=path, direct=True, fsync=True, **args)

        def one(_):
            store.mount_stop()
            drop_caches()
            store.mount_start()
            return mibs(ours.run("read", path=os.path.join(store.mnt, "f"), verify=True, **args))

        def native(_):
            drop_caches()
            return mibs(env.io("read", path=path, verify=True, **args))

        a, b = alternate(env.runs, one, native)
        shutil.rmtree(env.native)
        yield Result(name, "MiB/s", a, b, ("ratio", 0.8), "native, cold", ours.cpu_extra())


@case("read-1m-1r-cold")
def read_cold_1(env):
    yield from read_cold(env, "read-1m-1r-cold", 1)


@case("read-1m-2r-cold")
def read_cold_2(env):
    yield from read_cold(env, "read-1m-2r-cold", 2)


# --- names ----------------------------------------------------------------------

NAMES = ("create-8p", "stat-8p", "unlink-8p")


def names_once(env, directory, run, into):
    """create, stat from cold dentries, stat again, unlink."""
    args = {"path": directory, "jobs": 8, "count": env.names_each}
    os.makedirs(directory)
    into["create-8p"].append(rate(run("create", name="create-8p", **args)))
    drop_caches(2)
    into["stat-8p"].append(rate(run("stat", name="stat-8p", shift=1, **args)))
    into["warm"].append(rate(run("stat", name="warm", shift=3, **args)))
    into["unlink-8p"].append(rate(run("unlink", name="unlink-8p", shift=5, **args)))
    os.rmdir(directory)


@case(*NAMES)
def names(env):
    with env.store(size=256 * MIB) as store:
        ours = Ours(env, store, "names")
        a, b = ({n: [] for n in (*NAMES, "warm")} for _ in range(2))
        os.makedirs(env.native, exist_ok=True)

        def native(work, name, **args):
            return env.io(work, **args)

        alternate(env.runs, lambda i: names_once(env, os.path.join(store.mnt, f"d{i}"), ours.run, a),
                  lambda i: names_once(env, os.path.join(env.native, f"d{i}"), native, b))
        for name, bound in zip(NAMES, (10000, 20000, 10000)):
            extra = ours.cpu_extra(name)
            if name == "stat-8p":
                extra["warm"] = round(statistics.median(a["warm"]))
            yield Result(name, "1/s", a[name], b[name], ("least", bound), "native", extra)


# --- sizes ----------------------------------------------------------------------


@case("rss-mount")
def rss_mount(env):
    with env.store() as store:
        each = env.file_bytes // 4
        path = os.path.join(store.mnt, "f")
        d = os.path.join(store.mnt, "d")
        os.mkdir(d)
        env.io("write", path=path, size=each, jobs=4)
        env.io("write", path=path + "n1", size=each, jobs=4, shared=True)
        env.io("read", path=path, size=each, jobs=4, verify=True)
        env.io("write", path=path + "small", size=each // 8, jobs=8, block=4096)
        env.io("create", path=d, jobs=8, count=2 * env.names_each)
        env.io("stat", path=d, jobs=8, count=2 * env.names_each, shift=1)
        peak = store.mount.status_bytes("VmHWM") / MIB
        pool = store.pool / MIB
        yield Result("rss-mount", "MiB", [peak], [pool], ("most", pool + 64), "the pool",
                     {"anonymous": round(store.mount.status_bytes("RssAnon") / MIB, 1)})


@case("bytes-per-chunk")
def bytes_per_chunk(env):
    files, each = 8, 128 * MIB
    chunk = 65536
    with env.store(chunk_size=chunk, size=2 * files * each) as store:
        before = store.database_bytes()
        r = env.io("write", path=os.path.join(store.mnt, "f"), size=each, jobs=files)
        chunks = r["bytes"] // chunk
        (known,) = store.database().execute("SELECT chunks FROM counters").fetchone()
        if known != chunks:
            raise BenchError(f"{chunks} chunks were written, and the manager knows {known}")
        yield Result("bytes-per-chunk", "B", [(store.database_bytes() - before) / chunks], [], ("most", 200), "",
                     {"chunks": chunks})


@case("bytes-per-file")
def bytes_per_file(env):
    with env.store(size=256 * MIB) as store:
        d = os.path.join(store.mnt, "d")
        os.mkdir(d)
        before = store.database_bytes()
        r = env.io("create", path=d, jobs=8, count=5000)
        yield Result("bytes-per-file", "B", [(store.database_bytes() - before) / r["ops"]], [], ("most", 500), "",
                     {"files": r["ops"]})


# --- starting -------------------------------------------------------------------


@case("up-4")
def up_4(env):
    root = env.path("up4")
    mnt = env.path("up4-mnt")
    program = os.path.join(env.bin, "fp-store")
    where = [f"--dir={root}", f"--mount={mnt}"]
    seconds = []

    def call(*args):
        r = subprocess.run([program, *args, *where], capture_output=True, text=True, timeout=60, check=False)
        if r.returncode != 0:
            raise BenchError(f"fp-store {args[0]}: {(r.stderr or r.stdout).strip()}")

    for _ in range(env.runs):
        try:
            start = time.monotonic()
            call("up", "--benefactors=4", "--size=256MiB")
            os.listdir(mnt)
            seconds.append(time.monotonic() - start)
        finally:
            call("down")
            shutil.rmtree(root, ignore_errors=True)
    yield Result("up-4", "s", seconds, [], ("most", 3.0), "")


@case("up-1m-files")
def up_1m_files(env):
    files = 1000000
    with Store(env.bin, env.path("store"), size=64 * MIB, pool=16 * MIB, mounted=False) as store:
        for b in store.benefactors:
            b.stop()
        store.benefactors = []
        store.manager.stop()
        database = store.path("mgr", "store.db")
        fill.fill(database, files)
        seconds, look_s = [], []
        for _ in range(env.runs):
            drop_caches()
            store.manager_start()
            seconds.append(store.manager.ready_s)
            store.manager.stop()
        drop_caches()
        store.manager_start()
        store.mount_start()
        start = time.monotonic()
        size = os.stat(os.path.join(store.mnt, f"dir0042/file{files // 2 - fill.PER_DIR * 8 + 1:07d}")).st_size
        look_s.append(time.monotonic() - start)
        if size != fill.CHUNK:
            raise BenchError(f"a file of the filled database has size {size}, not {fill.CHUNK}")
        if len(os.listdir(os.path.join(store.mnt, "dir0099"))) != fill.PER_DIR:
            raise BenchError("a directory of the filled database does not have all its names")
        yield Result("up-1m-files", "s", seconds, [], ("most", 5.0), "",
                     {"files": files, "database_mib": round(os.path.getsize(database) / MIB),
                      "first_stat_s": round(look_s[0], 4)})


def all_names():
    return [n for names_, _ in CASES for n in names_]
