"""tools/fpior/sweep.py: each comparison of the IOR paper really runs; what its table, its CSV and its plot say is what the runs said."""

import csv
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from harness.daemons import SLOW
from harness.mpijob import app, environment, version

FPIOR = app("fpior")
FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "tools", "fpior")
BLOCK = 1 << 20
OWN, SHARED = "a file each", "one file"
APIS = ("POSIX", "MPIIO", "HDF5", "NCMPI", "NETCDF4")

# Stands for mpirun: runs it, and keeps what fpior wrote in its summary, under the number of the run.
LAUNCHER = """#!/bin/bash
n=$(ls "$RUNS" | wc -l)
mpirun WORDS --bind-to none -n "$@" || exit
cp "$(sed 's/.*summaryFile=//' <<<"${@: -1}")" "$RUNS/$n.json"
"""

# What varies, and of each run: x, line, tasks, block, transfer, file per process, API.
WANTED = {
    "size": ("bytes per task", [(b, OWN, 2, b, min(b, BLOCK), 1, "POSIX") for b in (BLOCK >> 4, BLOCK >> 1, BLOCK * 2)]),
    "transfer": ("bytes of a call", [(t, line, 2, BLOCK, t, int(line == OWN), "POSIX") for line in (OWN, SHARED) for t in (1 << 12, 1 << 16, 1 << 20)]),
    "files": ("tasks", [(n, line, n, BLOCK, BLOCK, int(line == OWN), "POSIX") for line in (OWN, SHARED) for n in (1, 2)]),
    "ranks": ("tasks", [(n, SHARED, n, BLOCK, BLOCK, 0, "POSIX") for n in (1, 2)]),
    "apis": ("tasks", [(n, api, n, BLOCK, BLOCK, 0, api) for api in APIS for n in (1, 2)]),
}


@pytest.fixture
def sweep(native, tmp_path):
    launcher, runs = tmp_path / "launcher", tmp_path / "runs"
    launcher.write_text(LAUNCHER.replace("WORDS", "--oversubscribe" if version() < 5 else "--map-by :OVERSUBSCRIBE"), encoding="ascii")
    launcher.chmod(0o755)
    runs.mkdir()

    def run(name):
        done = subprocess.run([sys.executable, os.path.join(FOLDER, "sweep.py"), native, "--fpior", FPIOR, "--quick", "--tasks=2", f"--only={name}",
                               f"--out={tmp_path}/out", f"--mpirun={launcher}"], env=environment({"RUNS": str(runs)}), capture_output=True, text=True,
                              timeout=100 * SLOW, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert os.listdir(native) == [], "test files are gone"
        return done.stdout, [json.loads((runs / f"{i}.json").read_text(encoding="utf-8")) for i in range(len(os.listdir(runs)))], tmp_path / "out"
    return run


def points_of(path):
    """{(figure, line): [(x, y as it is said, where it is drawn)]} of a plot."""
    tag = "{http://www.w3.org/2000/svg}"
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == tag + "svg" and root.get("width") and root.get("viewBox")
    out = {}
    for panel in root.findall(f"{tag}g[@class='panel']"):
        for line in panel.findall(f"{tag}g[@class='line']"):
            circles = line.findall(f"{tag}circle")
            drawn = [(float(c.get("cx")), float(c.get("cy"))) for c in circles]
            assert [tuple(map(float, p.split(","))) for p in line.find(f"{tag}polyline").get("points").split()] == drawn, "the line goes by its points"
            out[panel.get("data-figure"), line.get("data-line")] = [(int(c.get("data-x")), float(c.get("data-y")), at) for c, at in zip(circles, drawn)]
    return out, root


def check_plot(path, rows):
    points, root = points_of(path)
    for column, figure in ((2, "write MiB/s"), (3, "read MiB/s")):
        for line in dict.fromkeys(r[1] for r in rows):
            want = sorted((r[0], r[column]) for r in rows if r[1] == line)
            assert [(x, pytest.approx(y, rel=1e-5)) for x, y in want] == [(x, y) for x, y, _ in points.pop((figure, line))]
    assert points == {}
    # Drawn where it says: by one scale per panel, from the bottom line, which is 0.
    for panel in root.findall("{*}g[@class='panel']"):
        frame = panel.find("{*}rect")
        bottom, height = float(frame.get("y")) + float(frame.get("height")), float(frame.get("height"))
        left, right = float(frame.get("x")), float(frame.get("x")) + float(frame.get("width"))
        top = max(float(t.text) for t in panel.findall("{*}text[@text-anchor='end']"))
        places = {}
        for c in panel.iter("{http://www.w3.org/2000/svg}circle"):
            assert (bottom - float(c.get("cy"))) / height == pytest.approx(float(c.get("data-y")) / top, abs=0.002)
            places.setdefault(int(c.get("data-x")), set()).add(float(c.get("cx")))
        order = [places[x] for x in sorted(places)]
        assert all(len(p) == 1 for p in order), "one place for each x"
        flat = [p.pop() for p in order]
        assert flat == sorted(flat) and left < flat[0] and flat[-1] < right


@pytest.mark.parametrize("name", WANTED)
def test_comparison(sweep, name):
    varies, wanted = WANTED[name]
    said, runs, out = sweep(name)
    assert len(runs) == len(wanted)
    with open(out / f"{name}.csv", encoding="utf-8", newline="") as f:
        head, *lines = csv.reader(f)
    assert head == [varies, "line", "write MiB/s", "read MiB/s"] and len(lines) == len(wanted)
    table = re.findall(r"^ +(\d+)  (.{12}) +([\d.]+) +([\d.]+)$", said, re.M)
    assert len(table) == len(wanted)
    rows = []
    for (x, line, tasks, block, transfer, own, api), run, cells, shown in zip(wanted, runs, lines, table):
        write, read = run["summary"]
        assert [(s["operation"], s["numTasks"], s["blockSize"], s["transferSize"], s["filePerProc"], s["API"]) for s in (write, read)] == [
            (phase, tasks, block, transfer, own, api) for phase in ("write", "read")]
        assert run["tests"][0]["Parameters"]["checkRead"] == 1 and run["tests"][0]["Parameters"]["reorderTasks"] == 1, "verified, by other tasks"
        assert write["xsizeMiB"] == read["xsizeMiB"] == pytest.approx(tasks * block / 2**20, abs=0.001)
        rows.append((x, line, write["bwMaxMIB"], read["bwMaxMIB"]))
        assert (int(cells[0]), cells[1], float(cells[2]), float(cells[3])) == rows[-1]
        assert (int(shown[0]), shown[1].strip(), float(shown[2]), float(shown[3])) == (x, line, *(pytest.approx(v, abs=0.06) for v in rows[-1][2:]))
    check_plot(out / f"{name}.svg", rows)


def test_a_run_that_fails_is_told(native, tmp_path):
    done = subprocess.run([sys.executable, os.path.join(FOLDER, "sweep.py"), f"{native}/nothing/there", "--fpior", FPIOR, "--quick", "--tasks=1",
                           "--only=ranks", f"--out={tmp_path}/out", "--mpirun=mpirun --bind-to none -n"], env=environment(), capture_output=True, text=True,
                          timeout=100 * SLOW, check=False)
    assert done.returncode == 1 and "No such file" in done.stderr and not os.path.exists(tmp_path / "out" / "ranks.csv")
