"""Load on a store, and the proof afterwards that nothing promised was lost.

    work = Stress(store, [m.path for m in store.mounts], workers=4)     # stressgen.py processes, spread over the mounts
    ... kill things ...
    work.stop()                 # each worker finishes its operation; a strict worker that met an error fails the test
    work.verify(mount.path)     # all that was fsynced or closed is there, byte for byte

verify() reads through any mount of the store; kept="sync" counts fsync alone (after a power loss), kept="close" close
too. Names for which an unlink or rename was under way may be in either state.
"""

import json
import os
import signal
import subprocess
import sys

from .daemons import LIBC, PR_SET_PDEATHSIG, SLOW
from .files import content, first_difference, read_file


def die_with_us():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Stress:
    def __init__(self, store, dirs, workers=4, tolerant=False, first_seed=1):
        self.dir = os.path.join(store.dir, "journals")
        os.makedirs(self.dir, exist_ok=True)
        self.workers = []
        for i in range(workers):
            journal = os.path.join(self.dir, f"{first_seed + i}")
            cmd = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "stressgen.py"),
                   dirs[i % len(dirs)], journal, str(first_seed + i)] + (["tolerant"] if tolerant else [])
            self.workers.append((subprocess.Popen(cmd, start_new_session=True, preexec_fn=die_with_us), journal))

    def alive(self):
        return [p for p, _ in self.workers if p.poll() is None]

    def progress(self):
        """Lines in all journals: grows while work is done."""
        total = 0
        for _, journal in self.workers:
            try:
                with open(journal, "rb") as f:
                    total += f.read().count(b"\n")
            except FileNotFoundError:
                pass
        return total

    def kill(self):
        for p, _ in self.workers:
            p.kill()
        for p, _ in self.workers:
            p.wait(30)

    def stop(self, seconds=40):
        """Ends the workers; their figures, added up. Asserts that none has met an error or wrong bytes."""
        for p, _ in self.workers:
            p.terminate()
        failed = []
        for p, journal in self.workers:
            try:
                code = p.wait(seconds * SLOW)
            except subprocess.TimeoutExpired:
                p.kill()
                code = "no end"
            if code != 0:
                failed.append(f"worker {journal}: {code}, last: {self.last(journal)}")
        assert not failed, "\n".join(failed)
        return self.stats()

    @staticmethod
    def last(journal):
        with open(journal) as f:
            return "".join(f.readlines()[-3:])

    def entries(self):
        for _, journal in self.workers:
            if not os.path.exists(journal):
                continue  # it has not done anything yet
            with open(journal) as f:
                for line in f:
                    if line.endswith("\n"):  # the last one may be cut by kill -9
                        yield json.loads(line)

    def stats(self):
        total = {}
        for e in self.entries():
            if e[0] == "stat":
                for k, v in e[1].items():
                    total[k] = max(total.get(k, 0), v) if k == "longest_s" else total.get(k, 0) + v
        return total

    def errors(self):
        return [e[1:] for e in self.entries() if e[0] == "err"]

    def promised(self, kept):
        """{name: [key, size, sure]}; sure is False when the name may be gone or moved."""
        files = {}
        for e in self.entries():
            assert e[0] != "bad", e[1]
            if e[0] == "new":
                files[e[1]] = [e[2], -1, True]
            elif e[0] in ("sync", "close") and e[1] in files:
                if e[0] == "sync" or kept == "close":
                    files[e[1]][1] = max(files[e[1]][1], e[2])
            elif e[0] in ("gone", "move") and e[1] in files:
                files[e[1]][2] = False
                if e[0] == "move":
                    key, size, _ = files[e[1]]
                    files[e[2]] = [key, size, False]
                else:  # a rename of it may have failed before, and left both names in doubt: none of them has to be there
                    for other, f in files.items():
                        if f[0] == files[e[1]][0] and other != e[1]:
                            f[1] = files[e[1]][1] = -1
            elif e[0] == "moved":
                files.pop(e[1], None)
                files[e[2]][2] = kept == "close"
        return files

    def verify(self, base, kept="close"):
        """Returns how many files and bytes were looked at."""
        looked = [0, 0]
        files = self.promised(kept)
        for name, (key, size, sure) in files.items():
            path = os.path.join(base, name)
            if not os.path.lexists(path):
                assert not sure or size < 0, f"{name} (key {key}, {size} bytes promised) is gone"
                continue
            data = read_file(path)
            assert len(data) >= size, f"{name} (key {key}): {len(data)} bytes, {size} promised"
            if size > 0:
                at = first_difference(data[:size], content(key, 0, size))
                assert at is None, f"{name} (key {key}): byte {at} of {size} promised ones is wrong"
            self.look_at_tail(name, key, size, data)
            looked[0] += 1
            looked[1] += len(data)
        self.look_for_moved(base, files)
        return tuple(looked)

    @staticmethod
    def look_at_tail(name, key, size, data):
        """What was written and not promised may be there or not, piece by piece; other bytes must not."""
        start = max(size, 0)
        want = content(key, start, len(data) - start)
        if data[start:] == want:
            return
        wrong = [i for i, (a, b) in enumerate(zip(data[start:], want)) if a != b and a != 0]
        assert not wrong, f"{name} (key {key}): byte {start + wrong[0]} is neither what was written nor zero"

    @staticmethod
    def look_for_moved(base, files):
        """Of a rename that was under way one of the two names is there."""
        by_key = {}
        for name, (key, size, sure) in files.items():
            by_key.setdefault(key, []).append((name, size, sure))
        for key, names in by_key.items():
            if len(names) > 1 and max(s for _, s, _ in names) >= 0:
                assert any(os.path.lexists(os.path.join(base, n)) for n, _, _ in names), f"none of {names} is there"
