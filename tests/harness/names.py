"""Calls on names, made at once by processes of several mounts, and whether there is one order of them that explains every result.

The names are few: three in each of two directories. Each process makes random calls on them and records when each began and ended, by the clock of this
machine, which all mounts share, and what came of it. The checker then looks for an order (linearizability: M. Herlihy and J. Wing, 1990). It goes through
the beginnings and ends in time and keeps every state in which the names may be at that moment, together with how far each call under way has come; a call
that ends with a result that it can have from none of them has no place in any order (as G. Lowe, Testing for Linearizability, 2017).

Each call is one step, but for those that are two on one node as well: link(2) finds the file, then makes the name; a call in a directory (fill, drain)
finds the directory, then makes or removes what is in it; stat(2) finds the inode, then copies its attributes. In between others may move what was found.
In exact mode a call that takes a name from an inode, or gives it one, changes its links first and then the name, as the kernel's own file systems do: who
looks it up meanwhile finds it, with the new number of links, as often as it looks; who would change a name in the same directory waits.

What was made but has not told its inode (mkdir, symlink) gets one when it is first seen, which must be its own.

exact=False is for several mounts: it takes, in addition, what docs/CONSISTENCY.md says (M7), and no more. st_nlink is looked at when all calls have ended.
"""

import contextlib
import errno
import itertools
import os
import random
import stat
import time

from . import forks
from .files import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2

NAMES = [f"{d}/{n}" for d in "ab" for n in "xyz"]
FILE, LINK, DIR = "file", "link", "dir"
RENAMES = ("rename", "noreplace", "exchange")
MAKES = ("create", "mkdir", "symlink")
LOOKS = ("stat", "open", "readlink")  # they find what has a name without a lock
KINDS = ["create", "open", "mkdir", "rmdir", "unlink", "link", "link", "symlink", "rename", "rename", "rename", "noreplace", "exchange", "stat", "stat",
         "readlink", "fill", "drain"]
HEAD = "never-there/"  # of the targets of symbolic links: they lead nowhere


class Call:
    """One call: what, on which names; when; what came of it (an errno, and what it told)."""

    def __init__(self, what, p, q=None, label=None, begin=0, end=0, error=0, told=None):
        self.what, self.p, self.q, self.label = what, p, q, label
        self.begin, self.end, self.error, self.told = begin, end, error, told

    def __repr__(self):
        to = f" {self.q}" if self.q else ""
        return f"[{self.begin}..{self.end}] {self.what} {self.p}{to}: {errno.errorcode.get(self.error, 'ok')} {self.told or ''} #{self.label}"

    def make(self, root):
        p, q = f"{root}/{self.p}", f"{root}/{self.q}"
        if self.what in ("create", "open"):
            fd = os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY if self.what == "create" else os.O_RDONLY, 0o644)
            self.told = os.fstat(fd).st_ino
            os.close(fd)
        elif self.what == "stat":
            self.told = seen(os.lstat(p))
        elif self.what == "readlink":
            self.told = os.readlink(p)
        elif self.what == "symlink":
            os.symlink(f"{HEAD}{self.label}", p)
        elif self.what in ("noreplace", "exchange"):
            renameat2(p, q, RENAME_NOREPLACE if self.what == "noreplace" else RENAME_EXCHANGE)
        elif self.what in ("fill", "drain"):
            (os.mkdir if self.what == "fill" else os.rmdir)(f"{p}/c")
        elif self.what in ("link", "rename"):
            getattr(os, self.what)(p, q)
        else:
            getattr(os, self.what)(p)

    def run(self, root):
        self.begin = time.monotonic_ns()
        try:
            self.make(root)
        except OSError as e:
            self.error = e.errno
        self.end = time.monotonic_ns()


def seen(st):
    kind = FILE if stat.S_ISREG(st.st_mode) else LINK if stat.S_ISLNK(st.st_mode) else DIR
    return st.st_ino, kind, st.st_nlink


# -------------------------------------------------------------- what one call does to the names

class State:
    """names: (label or None, ...) in the order of NAMES; full: labels of the directories that have something in them; early: (label, how many links more,
    directories that are locked) of calls that have changed links and not yet the names. Never changed."""

    __slots__ = ("names", "full", "inos", "early", "key")

    def __init__(self, names, full, inos, early=()):
        self.names, self.full, self.inos, self.early = names, full, inos, early
        self.key = (names, full, inos, early)

    def at(self, name):
        return self.names[NAMES.index(name)]

    def put(self, *pairs):
        names = list(self.names)
        for name, label in pairs:
            names[NAMES.index(name)] = label
        return State(tuple(names), frozenset(f for f in self.full if f in names), self.inos, self.early)

    def fill(self, label, yes):
        return State(self.names, self.full | {label} if yes else self.full - {label}, self.inos, self.early)

    def bind(self, label, ino):
        """The same, with this inode for what has this label. None: it has another one."""
        known = dict(self.inos)
        if label in known:
            return self if known[label] == ino else None
        if ino in known.values():
            return None
        return State(self.names, self.full, self.inos | {(label, ino)}, self.early)

    def begun(self, entry):
        return State(self.names, self.full, self.inos, tuple(sorted((*self.early, entry))))

    def without(self, entry):
        left = list(self.early)
        left.remove(entry)
        return State(self.names, self.full, self.inos, tuple(left))

    def count(self, label):
        """Its links, if it is no directory; 0: it takes no new ones."""
        return self.names.count(label) + sum(more for one, more, _ in self.early if one == label)

    def is_locked(self, c):
        return any(name and name[0] in dirs for _, _, dirs in self.early for name in (c.p if c.what != "link" else None, c.q))


class Model:
    """kinds: label -> kind, of all that is there at first or that calls make."""

    def __init__(self, kinds, exact):
        self.kinds, self.exact = dict(kinds), exact

    def kind(self, label):
        return self.kinds.get(label) if label is not None else None

    def is_dir(self, label):
        return self.kind(label) == DIR

    def clash(self, c, src, dst):
        """What the kernel says of a rename from what it has found."""
        if src is None:
            return errno.ENOENT
        if c.what == "noreplace" and dst is not None:
            return errno.EEXIST
        if c.what == "exchange":
            return errno.ENOENT if dst is None else 0
        if dst is None or src == dst:
            return 0
        if self.is_dir(src) != self.is_dir(dst):
            return errno.ENOTDIR if self.is_dir(src) else errno.EISDIR
        return 0

    def rename(self, s, c):
        src, dst = s.at(c.p), s.at(c.q)
        error = self.clash(c, src, dst)
        if error or src == dst:
            return error, s
        if c.what == "exchange":
            return 0, s.put((c.p, dst), (c.q, src))
        if dst in s.full:
            return errno.ENOTEMPTY, s
        return 0, s.put((c.p, None), (c.q, src))

    def look(self, s, c, label):
        """stat, open and readlink, of what is there."""
        kind = self.kind(label)
        if c.what == "readlink":
            return (errno.EINVAL, s) if kind != LINK else (0, s if c.error or c.told == f"{HEAD}{label}" else None)
        if c.what == "open":
            if kind == LINK:
                return errno.ENOENT, s
            return 0, None if c.error else s.bind(label, c.told)
        if c.error:
            return 0, s
        return 0, s.bind(label, c.told[0]) if c.told[1] == kind else None

    def links(self, s, label):
        if self.kind(label) == DIR and label in s.names:
            return 2 + (label in s.full)
        return s.names.count(label)

    def atomic(self, s, c):
        """(error, state after it) of a call of one step. State None: it would have told something else."""
        here = s.at(c.p)
        if c.what in MAKES:
            if here is not None:
                return errno.EEXIST, s
            s = s.put((c.p, c.label))
            return 0, s.bind(c.label, c.told) if c.what == "create" and not c.error else s
        if c.what in RENAMES:
            return self.rename(s, c)
        if here is None:
            return errno.ENOENT, s
        if c.what in ("stat", "open", "readlink"):
            return self.look(s, c, here)
        if c.what == "unlink":
            return (errno.EISDIR, s) if self.is_dir(here) else (0, s.put((c.p, None)))
        assert c.what == "rmdir"
        if not self.is_dir(here):
            return errno.ENOTDIR, s
        return (errno.ENOTEMPTY, s) if here in s.full else (0, s.put((c.p, None)))

    def find(self, s, c):
        """The first of two steps: (error, label)."""
        here = s.at(c.p)
        if c.what == "link" or here is None:
            return errno.ENOENT if here is None else 0, here
        return {DIR: 0, FILE: errno.ENOTDIR, LINK: errno.ENOENT}[self.kind(here)], here

    def second(self, s, c, found):
        if c.what == "link":
            if s.at(c.q) is not None:
                return errno.EEXIST, s
            if self.is_dir(found):
                return errno.EPERM, s
            return (0, s.put((c.q, found))) if s.count(found) else (errno.ENOENT, s)
        if not s.count(found):
            return errno.ENOENT, s  # it was removed
        if c.what == "fill":
            return (errno.EEXIST, s) if found in s.full else (0, s.fill(found, True))
        return (0, s.fill(found, False)) if found in s.full else (errno.ENOENT, s)

    def steps(self, s, c, done):
        """The states and the progress that the next step of this call may lead to. Progress: () at first, None at the end, else what was found."""
        if c.error == errno.ESTALE and not self.exact:
            return [(s, None)]  # it has changed nothing
        if self.exact and c.what == "stat" and done:
            return [(s, None)] if c.told[2] in self.may_show(s, done[0]) else []
        if self.exact and c.what not in LOOKS:
            return self.in_two(s, c, done)
        return self.one_step(s, c, done)

    def one_step(self, s, c, done):
        if c.what not in ("link", "fill", "drain"):
            error, after = self.atomic(s, c)
            then = (s.at(c.p),) if self.exact and c.what == "stat" and not error else None
            out = [(after, then)] if error == c.error and after is not None else []
            if not self.exact and c.what in RENAMES and c.error:
                out += self.mixture(s, c, done)
            return out
        if done == ():
            error, found = self.find(s, c)
            if error:
                return [(s, None)] if error == c.error else []
            return [(s, (found,))]
        error, after = self.second(s, c, done[0])
        return [(after, None)] if error == c.error else []

    def may_show(self, s, label):
        """The links that stat may tell of what it has found."""
        if self.kind(label) != DIR:
            return (s.count(label),)
        return (self.links(s, label),) if s.count(label) or label not in s.names else (0, 1)  # taken one by one

    def in_two(self, s, c, done):
        """Links, then names. done ends with what was begun: (label, links more, directories)."""
        if done and isinstance(done[-1], tuple):
            return [(after, then) for after, then in self.one_step(s.without(done[-1]), c, done[:-1])]
        if s.is_locked(c) and c.what not in ("fill", "drain") and (done or c.what != "link"):
            return []  # until the other has ended
        out = []
        for after, then in self.one_step(s, c, done):
            label, more = next(((x, after.names.count(x) - s.names.count(x)) for x in (*s.names, *after.names) if x is not None and then is None and
                                after.names.count(x) != s.names.count(x) and x != c.label), (None, 0))
            if label is None:
                out.append((after, then))
            else:
                entry = (label, more, tuple(sorted({n[0] for n in (c.p if c.what != "link" else None, c.q) if n})))
                out.append((s.begun(entry), (*done, entry)))
        return out

    def mixture(self, s, c, done):
        """M7: the kernel looks up one name, then the other, and may give an error from these two, before it asks."""
        if done == ():
            return [(s, (s.at(c.p),))]
        return [(s, None)] if self.clash(c, done[0], s.at(c.q)) == c.error else []


# -------------------------------------------------------------- the search

class NoOrder(AssertionError):
    pass


def closure(configs, pending, model, must):
    """All that can be reached from these by steps of calls under way; then those in which call `must` has ended, without it."""
    todo, reached, ended = list(configs.values()), dict(configs), {}
    while todo:
        state, progress = todo.pop()
        if progress[must] is None:
            rest = {i: p for i, p in progress.items() if i != must}
            ended[key_of(state, rest)] = (state, rest)
            continue
        for i, done in progress.items():
            if done is None:
                continue
            for after, then in model.steps(state, pending[i], done):
                config = (after, {**progress, i: then})
                k = key_of(*config)
                if k not in reached:
                    reached[k] = config
                    todo.append(config)
    return ended


def key_of(state, progress):
    return state.key, tuple(sorted((i, -1 if p is None else p) for i, p in progress.items() if p != ()))


def check(first, calls, want, exact=False):
    """first, want: trees (tree() below) before and after all calls. Raises NoOrder. Returns in how many states the names may have been at most."""
    labels = {ino: -1 - i for i, ino in enumerate(sorted({ino for ino, _, _, _ in first.values()}))}
    kinds = {labels[ino]: kind for ino, kind, _, _ in first.values()}
    kinds.update({c.label: {"create": FILE, "mkdir": DIR, "symlink": LINK}[c.what] for c in calls if c.what in MAKES})
    model = Model(kinds, exact)
    targets = {target: labels[ino] for ino, kind, _, target in first.values() if kind == LINK}
    for c in calls:  # of those that were there before, the target has another label
        if c.what == "readlink" and c.told in targets:
            c.told = f"{HEAD}{targets[c.told]}"
    names = tuple(labels[first[n][0]] if n in first else None for n in NAMES)
    full = frozenset(labels[ino] for ino, kind, links, _ in first.values() if kind == DIR and links == 3)
    state = State(names, full, frozenset((label, ino) for ino, label in labels.items()))
    configs, pending, most = {0: (state, {})}, {}, 1
    events = sorted([(c.begin, 0, i) for i, c in enumerate(calls)] + [(c.end, 1, i) for i, c in enumerate(calls)])
    for n, (_, is_end, i) in enumerate(events):
        if not is_end:
            pending[i] = calls[i]
            configs = {k: (s, {**p, i: ()}) for k, (s, p) in configs.items()}
            continue
        before, configs = configs, closure(configs, pending, model, i)
        most = max(most, len(configs))
        if not configs:
            raise NoOrder(explain(calls, events[:n], before, pending, i))
        del pending[i]
    for s, _ in configs.values():
        if is_tree(model, s, want):
            return most
    raise NoOrder(f"the names end as {want}, and not as {[s.names for s, _ in configs.values()]}, after {calls[-20:]}")


def is_tree(model, s, want):
    for name in NAMES:
        label, there = s.at(name), want.get(name)
        if (label is None) != (there is None):
            return False
        if label is None:
            continue
        ino, kind, links, target = there
        s = s.bind(label, ino)
        if s is None or kind != model.kind(label) or links != model.links(s, label):
            return False
        if kind == LINK and label >= 0 and target != f"{HEAD}{label}":
            return False
    return True


def explain(calls, events, configs, pending, i):
    last = [calls[j] for _, is_end, j in events[-24:] if is_end]
    states = [(dict((n, x) for n, x in zip(NAMES, s.names) if x is not None), sorted(s.full), {j: p for j, p in progress.items() if p != ()})
              for s, progress in itertools.islice(configs.values(), 8)]
    return (f"no order gives {calls[i]}\nended before it: " + "\n  ".join(map(repr, [""] + last)) + "\nunder way: " +
            "\n  ".join(f"{j} {c!r}" for j, c in pending.items()) + f"\nthe names were one of {len(configs)}: " + "\n  ".join(map(repr, [""] + states)))


# -------------------------------------------------------------- processes that make them

def tree(root):
    """name -> (inode, kind, links, target of a link)."""
    got = {}
    for d in "ab":
        for n in os.listdir(f"{root}/{d}"):
            path = f"{root}/{d}/{n}"
            st = os.lstat(path)
            got[f"{d}/{n}"] = (*seen(st), os.readlink(path) if stat.S_ISLNK(st.st_mode) else None)
            assert not stat.S_ISDIR(st.st_mode) or len(os.listdir(path)) == st.st_nlink - 2
    return got


def clear(root, rnd, share):
    """Some of it goes."""
    for n in NAMES:
        path = f"{root}/{n}"
        if rnd.random() >= share or not os.path.lexists(path):
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(f"{path}/c")
            os.rmdir(path)
        else:
            os.unlink(path)


def prepare(root, rnd):
    """A random tree. No file has a name elsewhere."""
    clear(root, rnd, 0.5)
    for n in NAMES:
        if not os.path.lexists(f"{root}/{n}"):
            what = rnd.choice(["", "create", "create", "mkdir", "mkdir", "fill"])
            for step in {"": [], "fill": ["mkdir", "fill"]}.get(what, [what]):
                Call(step, n, label=0).make(root)


def some_call(rnd, names, label):
    what = rnd.choice(KINDS)
    p = rnd.choice(names)
    return Call(what, p, rnd.choice([n for n in names if n != p]) if what in RENAMES or what == "link" else None, label)


def worker(root, names, first_label, count, rnd, at_ns):
    calls = []
    while time.monotonic_ns() < at_ns:
        pass
    for i in range(count):
        calls.append(some_call(rnd, names, first_label + i))
        calls[-1].run(root)
    return calls


def at_once(roots, names, count, seed, turn=0):
    """The calls of one process for each of these, `count` each. Labels are never used again."""
    at_ns = time.monotonic_ns() + 20_000_000

    def work(i, root):
        return lambda: worker(root, names, (turn * len(roots) + i) * count + 1, count, random.Random(f"{seed} {turn} {i}"), at_ns)
    return forks.collect([forks.begin(work(i, root)) for i, root in enumerate(roots)])


def rounds(roots, seconds, seed, count=25, exact=False, processes=2):
    """Rounds of `count` calls by each of `processes` processes of each mount, for so long, and three at least: all calls. Raises NoOrder."""
    rnd, all_calls, until = random.Random(seed), [], time.monotonic() + seconds
    for d in "ab":
        os.mkdir(f"{roots[0]}/{d}")
    for turn in itertools.count():
        if turn >= 3 and time.monotonic() > until:
            return all_calls
        prepare(rnd.choice(roots), rnd)
        before = tree(rnd.choice(roots))
        names = rnd.sample(NAMES, rnd.choice([2, 3, 6]))
        calls = at_once(list(roots) * processes, names, count, seed, turn)
        trees = [tree(r) for r in roots]
        assert all(t == trees[0] for t in trees), f"round {turn}: the mounts see different names: {trees}"
        try:
            check(before, calls, trees[0], exact)
        except NoOrder as e:
            raise NoOrder(f"round {turn}: {e}\nbefore: {before}") from None
        all_calls += calls
