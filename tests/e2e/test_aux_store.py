"""Aux-apps declared through fp-store, and what the user is told of them: wrong changes, chains that make no sense, relative paths."""

import glob
import json
import os
import re
import subprocess

import pytest

from harness.aux import apps, stored, text
from harness.daemons import SLOW, bin_path
from harness.files import content, read_file, write_file

MIB = 1 << 20
LIB = os.path.join(os.path.dirname(os.path.dirname(bin_path("fpctl"))), "lib", "auxapps")


def run(program, *args, cwd="/"):
    env = {k: v for k, v in os.environ.items() if not k.startswith("FP_")}
    return subprocess.run([bin_path(program), *args], capture_output=True, text=True, timeout=60 * SLOW, env=env, cwd=cwd)


@pytest.fixture
def up(native):
    base, mnt = f"{native}/store", f"{native}/mnt"

    def start(*auxapps, cwd="/"):
        args = [word for text in auxapps for word in ("--auxapp", text)]
        return run("fp-store", "up", f"--dir={base}", f"--mount={mnt}", "--benefactors=2", "--size=256MiB", "--pool=64MiB", *args, cwd=cwd)

    start.mnt, start.dir = mnt, base
    yield start
    run("fp-store", "down", f"--dir={base}", f"--mount={mnt}")


def test_fp_store_declares_aux_apps_and_a_relative_path_is_found(up):
    r = up("dedup size=64KiB", "examples/rot13.so", cwd=LIB)
    assert r.returncode == 0, r.stderr
    write_file(f"{up.mnt}/f", content(1, 0, 3 * MIB), sync=True)
    assert read_file(f"{up.mnt}/f") == content(1, 0, 3 * MIB)
    apps = json.loads(run("fpctl", "auxapps", "--json", up.mnt).stdout)["auxapps"]
    assert [(a["name"], a["state"]) for a in apps] == [("dedup", "running"), ("rot13", "running")]
    assert apps[0]["declared"] == "dedup size=64KiB" and apps[1]["declared"] == f"{LIB}/examples/rot13.so"


def test_what_came_of_a_change_is_told(up):
    assert up("compress level=1").returncode == 0
    done = run("fpctl", "auxapps", "set", "compress", "level=3", up.mnt)
    assert done.returncode == 0 and "level=3: done" in done.stdout, done.stderr
    for change, why in (("level=99", "level=99: give a number from -7 to 19"), ("nothing=1", "nothing"),
                        ("queue=banana", "queue=banana: give how many chunks may wait"), ("cores=0", "cores=0: give a number of cores")):
        refused = run("fpctl", "auxapps", "set", "compress", change, up.mnt)
        assert refused.returncode == 1 and f"{change} is refused" in refused.stderr, change
        assert re.search(rf"{change}: refused: .*{why}", refused.stdout), refused.stdout
    unknown = run("fpctl", "auxapps", "set", "nosuch", "level=1", up.mnt)
    assert unknown.returncode == 1 and "no mount of this store has an aux-app 'nosuch'" in unknown.stderr
    assert run("fpctl", "auxapps", "set", "compress", up.mnt).returncode == 2
    app, = json.loads(run("fpctl", "auxapps", "--json", up.mnt).stdout)["auxapps"]
    assert app["change"].startswith("cores=0: refused")


def test_a_chain_that_makes_no_sense_is_warned_of(up):
    assert up("compress", "dedup").returncode == 0
    logs = [open(path, encoding="utf-8").read() for path in glob.glob(f"{up.dir}/log/*mount*")]
    assert any("dedup comes after compress" in text for text in logs)


def test_declared_in_fp_conf(new_store):
    """Lines of [mount], in their order, quoted as on the command line."""
    s = new_store().up(mounts=0)
    conf = os.path.join(s.dir, "fp.conf")
    write_file(conf, b"[manager]\nchunk-size = 1MiB\n[mount]\nauxapp = dedup size=64KiB\nauxapp = compress level=2 codec=\"lz4\"\n")
    m = s.add_mount(f"--config={conf}")
    assert [(a["name"], a["declared"], a["state"]) for a in apps(s)] == [
        ("dedup", "dedup size=64KiB", "running"), ("compress", 'compress level=2 codec="lz4"', "running")]
    data = text(1, 3 * MIB)
    for name in ("step_1", "step_2"):
        write_file(m.at(name), data, sync=True)
        assert read_file(m.at(name)) == data
    assert 0 < stored(s, "/step_1") < len(data) / 2, "compress is at work"
    assert s.layout("/step_2")["shared_chunks"] == 3, "so is dedup"


@pytest.mark.expect_log("fp-mount: ERROR")
def test_a_mistake_in_fp_conf_ends_the_start_with_a_line(new_store):
    s = new_store().up(mounts=0)
    conf = os.path.join(s.dir, "fp.conf")
    write_file(conf, b"[mount]\nauxapp = dedup\nauxapp = compress levle=2\n")
    m = s.add_mount(f"--config={conf}", wait=False)
    m.ended_as_told = True
    assert m.wait() != 0
    assert "levle" in m.text() and "level" in m.text(), m.text()
