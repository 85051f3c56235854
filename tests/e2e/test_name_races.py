"""Names that several mounts change at the same moment: it ends as on one node (harness/names.py looks for an order of random calls)."""

import collections
import contextlib
import errno
import multiprocessing
import os
import random
import tempfile
import threading
import time

import pytest

from harness import names
from harness.daemons import PACE, SLOW
from harness.files import RENAME_EXCHANGE, renameat2, seed_of_run
from harness.names import DIR, FILE, LINK, Call

MOUNTS = 3
SECONDS = 12


# -------------------------------------------------------------- any calls

def shares(calls):
    return collections.Counter(errno.errorcode.get(c.error, "ok") for c in calls)


@pytest.mark.limit(120)
def test_any_calls_have_an_order(dirs):
    """6 processes of 3 mounts: create, open, mkdir, rmdir, unlink, link, symlink, rename with its flags, stat, readlink, and calls in a directory of these."""
    calls = names.rounds(dirs, SECONDS * PACE, seed_of_run())
    n = shares(calls)
    print(f"{len(calls)} calls: {dict(n)}")
    assert n["ok"] > len(calls) / 8 and n["ENOENT"] and n["EEXIST"], "too few to tell anything"
    assert n["ESTALE"] < len(calls) / 20, "seldom, says CONSISTENCY.md"
    assert sum(a.begin < b.begin < a.end for a, b in zip(calls, calls[len(calls) // 2:])) > 0 or len(calls) > 300


@pytest.mark.limit(120)
def test_the_check_takes_what_one_node_does():
    """The same on tmpfs, without what several mounts may do."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        names.rounds([d] * 3, 2 * PACE, seed_of_run(), exact=True)


def spoilt(calls, rnd):
    """One result is another one. False: it may be right, too."""
    c = rnd.choice([c for c in calls if c.what in ("create", "rename", "exchange", "unlink", "stat")])
    c.error = 0 if c.error else {"create": errno.EEXIST, "exchange": errno.EINVAL, "stat": errno.ENOENT}.get(c.what, errno.ENOENT)
    c.told = {"create": 4711, "stat": (4711, FILE, 1)}.get(c.what) if not c.error else None


@pytest.mark.limit(120)
def test_the_check_finds_wrong_results():
    """One wrong result among 150 calls of tmpfs; some can't be told from right ones (an error of what was removed at that time)."""
    rnd, found = random.Random(seed_of_run()), 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        for i in "ab":
            os.mkdir(f"{d}/{i}")
        for turn in range(20):
            names.prepare(d, rnd)
            before = names.tree(d)
            calls = names.at_once([d] * 3, rnd.sample(names.NAMES, 3), 50, turn, turn)
            after = names.tree(d)
            names.check(before, calls, after, exact=True)
            spoilt(calls, rnd)
            with contextlib.suppress(names.NoOrder):
                names.check(before, calls, after, exact=False)
                continue
            found += 1
    assert found >= 12, f"only {found} of 20"


def tree_of(**there):
    """a_x=(1, FILE, 1) …"""
    return {n.replace("_", "/"): (*what, "never-there/99" if what[1] == LINK else None) for n, what in there.items()}


def order(before, calls, after, exact=False):
    """Is there one? All calls are made at once unless they say otherwise."""
    for c in calls:
        c.end = c.end or 9
    for label, c in enumerate(calls, 1):
        c.label = label
    with contextlib.suppress(names.NoOrder):
        names.check(before, calls, after, exact)
        return True
    return False


def test_the_check_itself():
    one, other = tree_of(a_x=(1, FILE, 1)), tree_of(b_y=(1, FILE, 1))
    both, empty, moved = tree_of(a_x=(1, FILE, 2), b_y=(1, FILE, 2)), {}, ("rename", "a/x", "b/y")
    assert order(one, [Call("link", "a/x", "b/y")], both) and not order(one, [Call("link", "a/x", "b/y")], one)
    assert order(one, [Call("unlink", "a/x"), Call("link", "a/x", "b/y")], other)
    assert not order(one, [Call("unlink", "a/x"), Call("link", "a/x", "b/y", begin=10, end=12)], other), "the first was over before"
    assert not order(one, [Call("unlink", "a/x"), Call("unlink", "a/x")], empty), "twice"
    assert order(one, [Call("unlink", "a/x"), Call("unlink", "a/x", error=errno.ENOENT)], empty)
    assert not order(one, [Call("unlink", "a/x", error=errno.ENOENT)], one)
    assert order(both, [Call(*moved)], both) and not order(both, [Call(*moved)], other)
    assert not order(one, [Call(*moved)], one), "nothing was done"
    assert not order(one, [Call(*moved), Call(*moved)], other), "nothing was done, as what it was to move had been moved there"
    assert not order(empty, [Call("create", "a/x", told=5), Call("create", "a/x", told=6)], tree_of(a_x=(6, FILE, 1))), "two winners"
    made = tree_of(b_y=(7, DIR, 2))
    assert order(empty, [Call("mkdir", "a/x"), Call(*moved)], made)
    assert not order(empty, [Call("mkdir", "a/x"), Call(*moved)], tree_of(b_y=(7, DIR, 2), a_x=(8, DIR, 2))), "made twice"
    assert not order(empty, [Call("mkdir", "a/x", error=errno.ESTALE), Call(*moved)], made), "made although it failed"
    assert not order(tree_of(b_y=(7, DIR, 3)), [Call("mkdir", "a/x"), Call(*moved)], tree_of(b_y=(8, DIR, 2))), "over what was not empty"
    assert not order(one, [Call("stat", "a/x", told=(2, FILE, 1))], one) and not order(one, [Call("stat", "a/x", told=(1, FILE, 2))], one, exact=True)
    assert order(one, [Call("stat", "a/x", told=(1, FILE, 0)), Call("unlink", "a/x")], empty, exact=True), "removed since it was found"
    gone, still = tree_of(a_x=(1, DIR, 2)), [Call("stat", "a/x", told=(1, DIR, n), begin=b, end=b + 1) for n, b in ((1, 2), (0, 4), (0, 6))]
    assert order(gone, [Call("rmdir", "a/x"), *still], empty, exact=True), "its links are taken, then its name"
    assert not order(gone, [Call("rmdir", "a/x", end=5), *still], empty, exact=True), "rmdir was over when the last one found it"
    assert not order(gone, [Call("rmdir", "a/x", begin=5), *still], empty, exact=True), "rmdir had not begun when the first one had lost its link"
    assert not order(gone, [Call("rmdir", "a/x"), *still, Call("stat", "a/x", told=(1, DIR, 2), begin=8, end=9)], empty, exact=True), "it came back"
    assert not order(gone, [Call("rmdir", "a/x"), *still, Call("rmdir", "a/x", begin=3, end=4)], empty, exact=True), "removed twice"
    assert not order(gone, [Call("rmdir", "a/x"), *still, Call("mkdir", "a/x", begin=2, end=3)], gone, exact=True), "made while the one before was seen"
    assert not order(gone, [Call("rmdir", "a/x"), *still, Call("fill", "a/x", begin=3, end=4)], empty, exact=True), "it took something when it was going"
    assert not order(gone, [Call("rmdir", "a/x", error=errno.ENOTEMPTY), *still], gone, exact=True), "nobody has removed it"
    less = [Call("stat", "a/x", told=(1, FILE, n), begin=b, end=b + 1) for n, b in ((2, 1), (1, 3), (1, 5))]
    assert order(both, [Call("unlink", "a/x"), *less], other, exact=True) and not order(both, [Call("unlink", "a/x", end=4), *less], other, exact=True)
    assert not order(both, [Call("unlink", "a/x"), *less, Call("stat", "b/y", told=(1, FILE, 2), begin=5, end=6)], other, exact=True), "of the same file"
    more = [Call("stat", "a/x", told=(1, FILE, 2), begin=1, end=2), Call("stat", "b/y", error=errno.ENOENT, begin=3, end=4)]
    assert order(one, [Call("link", "a/x", "b/y"), *more], both, exact=True) and not order(one, [Call("link", "a/x", "b/y", end=2), *more], both, exact=True)
    mixed = [Call("noreplace", "a/x", "b/y", error=errno.EEXIST), Call(*moved, begin=1, end=2)]
    assert order(one, mixed, other) and not order(one, mixed, other, exact=True), "M7"


# -------------------------------------------------------------- what the random calls seldom meet

FORK = multiprocessing.get_context("fork")


@contextlib.contextmanager
def beside(*loops):
    """Processes that repeat these calls until the end of the block; what fails in them is their own affair."""
    over = FORK.Event()

    def run(f):
        i = 0
        while not over.is_set():
            with contextlib.suppress(OSError):
                f(i)
                i += 1

    made = [FORK.Process(target=run, args=(f,), daemon=True) for f in loops]
    for p in made:
        p.start()
    try:
        yield
    finally:
        over.set()
        for p in made:
            p.join(30 * SLOW)
            assert p.exitcode == 0


def late(f, rest, *loops):
    """What f() gives, in a process that comes late to whatever it has waited for, so that these loops get between a look-up of the kernel and its call.
    rest: seconds that it has now and then; 0: it comes later still."""
    cpu, out = {max(os.sched_getaffinity(0))}, FORK.SimpleQueue()

    def run():
        os.sched_setaffinity(0, cpu)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        out.put(f())

    def hog(i):
        os.sched_setaffinity(0, cpu)
        until = time.monotonic() + (0.003 if rest else 0.02)
        while time.monotonic() < until:
            pass
        if rest:
            time.sleep(rest)

    p = FORK.Process(target=run, daemon=True)
    with beside(hog, *loops):
        p.start()
        p.join(30 * SLOW)
        if p.is_alive():  # other work of this machine leaves it nothing: it has been late for long enough
            os.sched_setscheduler(p.pid, os.SCHED_OTHER, os.sched_param(0))
            os.sched_setaffinity(p.pid, os.sched_getaffinity(0))
        p.join(60 * SLOW)
    assert p.exitcode == 0
    return out.get()


def look_for_the_next(there):
    """A look-up of each name that is to come, until it is there."""
    def look(i):
        os.lstat(f"{there}/{i}")
    return look


@pytest.mark.limit(120)
def test_mkdir_of_what_another_mount_moves_at_once_makes_one(dirs):
    """Programs of the first mount find it where it has been moved, and rename other things, while mkdir returns."""
    for n in "abcd":
        os.mkdir(f"{dirs[0]}/{n}")
    os.mkdir(f"{dirs[0]}/c/x")

    def move(i):
        os.rename(f"{dirs[1]}/a/x", f"{dirs[1]}/b/{i}")

    def busy(i):
        os.rename(f"{dirs[0]}/{'cd'[i % 2]}/x", f"{dirs[0]}/{'dc'[i % 2]}/x")

    def make():
        made, tries, until = 0, 0, time.monotonic() + 6 * PACE
        while time.monotonic() < until or made < 5:
            try:
                tries += 1
                os.mkdir(f"{dirs[0]}/a/x")
                made += 1
            except OSError as e:
                assert e.errno in (errno.EEXIST, errno.ESTALE)  # and it has made none
        return made, tries

    made, tries = late(make, 0, move, look_for_the_next(f"{dirs[0]}/b"), busy)
    print(f"{tries} calls, {made} succeeded")
    assert len(os.listdir(f"{dirs[2]}/a") + os.listdir(f"{dirs[2]}/b")) == made


@pytest.mark.limit(120)
def test_a_directory_that_was_moved_while_another_was_removed_lives_on(dirs):
    """rmdir and rename of one mount, while another exchanges two directories: the one that is left can be used, by who has it open, too."""
    def exchange(i):
        renameat2(f"{dirs[1]}/x", f"{dirs[1]}/y", RENAME_EXCHANGE)

    def remove():
        removed, until = 0, time.monotonic() + 6 * PACE
        while time.monotonic() < until or removed < 5:
            for n in "xyz":
                os.makedirs(f"{dirs[0]}/{n}", exist_ok=True)
            fds = [os.open(f"{dirs[0]}/{n}", os.O_RDONLY) for n in "xy"]  # so that the kernel keeps what it knows of them
            with contextlib.suppress(OSError):
                if removed % 2 == 0:
                    os.rename(f"{dirs[0]}/z", f"{dirs[0]}/x")
                os.rmdir(f"{dirs[0]}/x")
                removed += 1
            left = os.listdir(dirs[0])
            for n in [] if {"x", "y"} <= set(left) else left:  # else it failed, and the exchanges go on
                os.mkdir(f"{dirs[0]}/{n}/c")
                os.rmdir(f"{dirs[0]}/{n}/c")
            for fd in fds:
                os.close(fd)
        return removed

    print(f"{late(remove, 0.001, exchange)} removed")


@pytest.mark.limit(120)
def test_a_name_that_is_replaced_is_always_there(dirs):
    """chmod, xattrs, stat and truncate find the file before or the one after, unless it is replaced twice during the call."""
    replaced, path = FORK.Array("q", 20000), f"{dirs[0]}/x"  # when the n-th replacement began; the next one begins after it has ended

    def replace(i):
        with open(f"{dirs[1]}/new", "w"):
            pass
        replaced[i] = time.monotonic_ns()
        os.replace(f"{dirs[1]}/new", f"{dirs[1]}/x")
        time.sleep(0.002)

    def during(begin, end):
        """Of those that began since, and the last one before."""
        return 1 + sum(begin <= t <= end for t in replaced if t)

    todo = [lambda: os.chmod(path, 0o600), lambda: os.setxattr(path, "user.a", b"1"), lambda: os.truncate(path, 0), lambda: os.utime(path, (1, 1)),
            lambda: os.listxattr(path), lambda: os.stat(path)]
    with open(path, "w"):
        pass
    until, n, wrong = time.monotonic() + 6 * PACE, 0, []
    with beside(replace):
        while time.monotonic() < until:
            begin = time.monotonic_ns()
            try:
                todo[n % len(todo)]()
            except OSError as e:
                wrong.append((n % len(todo), errno.errorcode[e.errno], begin, time.monotonic_ns()))
            n += 1
    assert not [w for w in wrong if during(*w[2:]) < 2 or w[1] not in ("ENOENT", "ESTALE")], f"{wrong} of {n}"
    print(f"{n} calls, {sum(t > 0 for t in replaced)} replacements, {len(wrong)} failed")
    assert n > 100 and len(wrong) < n / 20


# -------------------------------------------------------------- directories into each other

@pytest.mark.limit(120)
def test_directories_do_not_become_their_own_parents(dirs):
    """Each is to go into the next, in a circle, from three mounts at once: one call at least fails, and nothing gets lost."""
    wins = 0
    for turn in range(20):
        tops = [f"{root}/{turn}" for root in dirs]
        os.mkdir(tops[turn % 3])
        for n in "xyz":
            os.mkdir(f"{tops[turn % 3]}/{n}")
        calls = [Call("rename", n, f"{into}/{n}") for n, into in zip("xyz", "yzx")]
        barrier = threading.Barrier(3)

        def run(c, top):
            barrier.wait()
            c.run(top)

        threads = [threading.Thread(target=run, args=pair) for pair in zip(calls, tops)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60 * SLOW)
        assert all(c.error in (0, errno.EINVAL, errno.ENOENT, errno.ESTALE) for c in calls) and any(c.error for c in calls), f"round {turn}: {calls}"
        wins += sum(not c.error for c in calls)
        for top in tops:
            found = sorted(d for _, below, _ in os.walk(top) for d in below)
            assert found == list("xyz"), f"round {turn}: {found}: {calls}"
    assert wins >= 20
