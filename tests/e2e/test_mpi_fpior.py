"""tools/fpior, on a native folder: it must see what is wrong before it can say that a store is right."""

import json
import os
import re
import subprocess
import sys

import pytest

from harness.daemons import SLOW
from harness.mpijob import app, environment, good, here

FPIOR = app("fpior")
SIZES = ["-b", "188004", "-t", "47001", "-s", "3"]
APIS = ["POSIX", "MPIIO", "HDF5", "NCMPI", "NETCDF4"]


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x10]))


def data_at(path):
    """Where the data begins: HDF5 and netCDF have their own before it, in a file of offsets."""
    with open(path, "rb") as f:
        return f.read().index(b"".join(i.to_bytes(8, "little") for i in (0, 8, 16, 24)))


@pytest.mark.parametrize("api", APIS)
def test_a_wrong_byte_is_seen_and_shown(native, api):
    f = f"{native}/f"
    good(here(3, FPIOR, "-a", api, "-w", "-W", "-k", "-C", "-l", "o", *SIZES, "-o", f))
    flip(f, data_at(f) + 300007)  # the second block, of task 1; in the third transfer
    done = here(3, FPIOR, "-a", api, "-R", "-k", "-C", "-l", "o", *SIZES, "-o", f)
    assert done.returncode == 1
    assert re.search(rf"WRONG DATA: rank 0: {f}: offset 300007: expected 00\w*, got 10\w* .* of task 1\)", done.stdout), done.stdout
    assert "WRONG DATA in 1 transfers" in done.stdout


def test_data_of_another_place_or_task_is_seen(native):
    """Not only bits that flip: a piece of the same run in the wrong place, and a hole."""
    f = f"{native}/f"
    good(here(3, FPIOR, "-w", "-W", "-k", *SIZES, "-o", f))
    with open(f, "rb") as data:
        right = data.read()
    for at, piece in ((0, right[376008:380104]), (47001 * 4, right[47001 * 5:47001 * 6]), (1000, bytes(200))):
        with open(f, "wb") as data:
            data.write(right[:at] + piece + right[at + len(piece):])
        done = here(3, FPIOR, "-R", "-k", *SIZES, "-o", f)
        assert done.returncode == 1 and "WRONG DATA" in done.stdout, (at, done.stdout)


def test_a_short_file_is_an_error(native):
    f = f"{native}/f"
    good(here(2, FPIOR, "-w", "-k", *SIZES, "-o", f))
    os.truncate(f, os.path.getsize(f) - 1)
    done = here(2, FPIOR, "-R", *SIZES, "-o", f)
    assert done.returncode != 0 and "the file ends at" in done.stdout


@pytest.mark.parametrize("options", [
    "-C -z -E", "-z -F -Z -X -1 -i 2", "-m -i 2 -g -l i -G 7 -e", "-u -F -D 2 -O stoneWallingWearOut=1", "-Y -x -N 2", "-a MPIIO -V -c -p -H",
    "-a HDF5 -c --hdf5.chunkSize=5000 --hdf5.collectiveMetadata -J 4k -n", "-O api=NCMPI,collective=1,repetitions=2", "-a=NETCDF4 -c -i2"])
def test_options_of_ior(native, options):
    """Each way writes every byte where its check looks for it, and nothing is left."""
    out = good(here(3, FPIOR, "-wWrR", *SIZES, *options.split(), "-o", f"{native}/f"), "Max Write: ", "Max Read: ")
    size = 188004 * 3 * (2 if "-N 2" in options else 3) / 2**20
    assert f" {size:.1f} " in out
    assert os.listdir(native) == []


@pytest.mark.parametrize("options, said", [
    ("-f script", "-f scriptFile is an option of IOR that fpior does not have"), ("-a S3", "-a is one of POSIX"),
    ("-b 1m -t 3k", "multiple of transferSize"), ("--nonsense", "nonsense"), ("-O blockSize=zero", "blockSize does not take 'zero'"),
    ("stray", "'stray' is no option"), ("-N 9", "not so many tasks")])
def test_what_is_not_done_is_refused(native, options, said):
    done = here(1, FPIOR, *options.split(), "-o", f"{native}/f")
    assert done.returncode == 2 and said in done.stdout and os.listdir(native) == []


def test_table_and_json_say_the_same_bytes(native):
    out = good(here(2, FPIOR, "-b", "1m", "-t", "64k", "-i", "2", "-O", f"summaryFormat=JSON,summaryFile={native}/out.json", "-o", f"{native}/f"))
    with open(f"{native}/out.json", encoding="utf-8") as f:
        got = json.load(f)
    assert out == "" and [r["access"] for r in got["tests"][0]["Results"]] == ["write", "read"] * 2
    for r in got["tests"][0]["Results"]:
        assert r["bytes"] == 2 << 20 and r["bwMiB"] == pytest.approx(2 / r["totalTime"], rel=0.02)
        assert r["totalTime"] >= r["wrRdTime"] > 0
    assert got["summary"][0]["bwMaxMIB"] >= got["summary"][0]["bwMeanMIB"] >= got["summary"][0]["bwMinMIB"]
    table = good(here(2, FPIOR, "-b", "1m", "-t", "64k", "-o", f"{native}/f"))
    head = next(line for line in table.splitlines() if re.match(r"access +bw", line))
    assert head.split() == "access bw(MiB/s) IOPS Latency(s) block(KiB) xfer(KiB) open(s) wr/rd(s) close(s) total(s) iter".split()
    row = next(line for line in table.splitlines() if line.startswith("write ")).split()
    assert len(row) == len(head.split()) and row[4:6] == ["1024", "64.00"] and float(row[1]) > 0


def test_sweep(native):
    """One comparison of sweep.py: a row for each run, in the table and in the CSV."""
    script = os.path.join(os.path.dirname(__file__), "..", "..", "tools", "fpior", "sweep.py")
    done = subprocess.run([sys.executable, script, native, "--fpior", FPIOR, "--quick", "--tasks=2", "--only=files", f"--out={native}/out",
                           "--mpirun=mpirun --oversubscribe --bind-to none -n"], env=environment(), capture_output=True, text=True, timeout=50 * SLOW)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(f"{native}/out/files.csv", encoding="utf-8") as f:
        rows = [line.split(",") for line in f.read().splitlines()[1:]]
    assert [r[:2] for r in rows] == [["1", "a file each"], ["2", "a file each"], ["1", "one file"], ["2", "one file"]]
    assert all(float(x) > 0 for r in rows for x in r[2:])
    assert os.listdir(native) == ["out"]
