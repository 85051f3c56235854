"""How far draining is: what fpctl checkpoints and fpctl drain --wait show while it goes on, and no longer."""

import json
import os
import pty
import re
import select
import subprocess
import time

from harness.daemons import SLOW, bin_path, wait_until
from harness.files import content, write_file

MIB = 1 << 20
BAR = r"\[[#.]{16}\] +\d+ %"


def make_set(m, step, mib=12):
    os.makedirs(m.at(f"run/chk_{step}"))
    for rank in range(2):
        write_file(m.at(f"run/chk_{step}/rank_{rank}"), content(rank, step, mib // 2 * MIB))


def shown(store, m, step):
    rows = json.loads(store.fpctl("checkpoints", m.at("run"), "--json").stdout)["checkpoints"]
    return next(r for r in rows if r["step"] == step)


def test_a_set_that_is_drained_shows_how_far_it_is(new_store, targets):
    s = new_store().up(benefactors=2, mounts=1, manager_args=("--ckpt-quiet=500ms",))
    m, disk = s.mounts[0], targets.slow(emulate="write=2MB/s")
    make_set(m, 1)
    wait_until("the set", 20, lambda: shown(s, m, 1)["state"] == "complete")
    assert shown(s, m, 1)["drain"] is None
    s.fpctl("drain", m.at("run/chk_1"), f"--to={disk.path}", "--now")
    goes_on = BAR + r"  \S+ [kM]B/s  .* left to " + re.escape(disk.path)
    seen, text, until = [], "", time.monotonic() + 90 * SLOW
    while time.monotonic() < until:
        row = shown(s, m, 1)
        if row["drain"] is None and row["files_drained"]:
            break
        if row["drain"]:
            seen.append(row["drain"])
            if row["drain"]["rate"] and row["drain"]["bytes_done"]:
                now = s.fpctl("checkpoints", m.at("run")).stdout
                text = now if re.search(goes_on, now) else text  # it may be done by now
        time.sleep(0.1)
    assert (row["drain"], row["files_drained"], row["level"]) == (None, 2, "drained")
    done = [d["bytes_done"] for d in seen]
    assert all(0 <= d["bytes_done"] <= d["bytes"] == 12 * MIB and d["to"] == disk.path for d in seen)
    assert any(0 < n < 12 * MIB for n in done), done
    assert any(d["rate"] and d["left_s"] for d in seen), seen
    assert max(d["rate"] for d in seen) < 20_000_000, "the device takes 2 MB/s"
    assert text, "no look at it while it went on"
    assert not re.search(BAR, s.fpctl("checkpoints", m.at("run")).stdout)


def on_a_terminal(store, *args, seconds=90):
    """Exit code, what came on stdout, and what the terminal was sent."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen([bin_path("fpctl"), *args, f"--manager={store.addr}", f"--key={store.key}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=theirs, close_fds=True)
    os.close(theirs)
    sent, until = b"", time.monotonic() + seconds * SLOW
    while time.monotonic() < until:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                sent += os.read(ours, 4096)
            except OSError:  # its end
                break
    out = p.communicate(timeout=10 * SLOW)[0]
    os.close(ours)
    return p.returncode, out.decode(), sent.decode()


def test_who_waits_on_a_terminal_sees_one_line_that_is_taken_away(new_store, targets):
    s = new_store().up(benefactors=1, mounts=1)
    m, disk = s.mounts[0], targets.slow(emulate="write=2MB/s")
    for k in range(3):
        write_file(m.at(f"file_{k}"), content(1, k, 2 * MIB))
    code, out, sent = on_a_terminal(s, "drain", *(m.at(f"file_{k}") for k in range(3)), f"--to={disk.path}", "--now", "--wait", "--timeout=60s")
    assert code == 0, sent
    assert re.fullmatch(r"job 1: done: 3 of 3 files, .*\n", out), out
    assert re.search(r"\rjob 1: " + BAR, sent) and "\n" not in sent, sent
    assert sent.endswith("\r\x1b[K"), sent
    assert all(len(line.split("\x1b")[0]) < 80 for line in sent.split("\r"))
