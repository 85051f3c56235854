"""tools/fpior, on a native folder: it must see what is wrong before it can say that a store is right."""

import csv
import hashlib
import json
import os
import pathlib
import re

import pytest

from harness.mpijob import app, good, here

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
    "-C -z -E", "-z -F -Z -X -1 -i 2", "-m -i 2 -g -l i -G 7 -e", "-u -F -D 2 -O stoneWallingWearOut=1", "-Y -x -N 2 -l random",
    "-a MPIIO -V -c -p -H -D 20", "-a HDF5 -c --hdf5.chunkSize=5000 --hdf5.collectiveMetadata -J 4k -n", "-O api=NCMPI,collective=1,repetitions=2",
    "-a=NETCDF4 -c -i2", "-c --posix.rangelocks -N 9 -j 9 -M 6m", "-C -C -Q 2 -k=1 -k=0 -O interIODelay=1,memoryPerTask=1m -vv --iorData"])
def test_options_of_ior(native, options):
    """Each way writes every byte where its check looks for it, and nothing is left."""
    out = good(here(3, FPIOR, "-wWrR", *SIZES, *options.split(), "-o", f"{native}/f"), "Max Write: ", "Max Read: ")
    size = 188004 * 3 * (2 if "-N 2" in options else 3) / 2**20
    assert f" {size:.1f} " in out
    assert os.listdir(native) == []


@pytest.mark.parametrize("options, said", [
    ("-S", "-S useStridedDatatype is an option of IOR that fpior does not have"), ("-a S3", "-a is one of POSIX"),
    ("-b 1m -t 3k", "multiple of transferSize"), ("--nonsense", "nonsense"), ("-O blockSize=zero", "blockSize does not take 'zero'"),
    ("stray", "'stray' is no option"), ("-M 101%", "-M takes a size"), ("-wWzz", "-z -z"), ("-f /nothing/there", "No such file"),
    ("-O stoneWallingWearOut=1", "is for -D")])
def test_what_is_not_done_is_refused(native, options, said):
    done = here(2, FPIOR, *options.split(), "-o", f"{native}/f")
    assert done.returncode == 2 and said in done.stdout and os.listdir(native) == []


@pytest.mark.parametrize("api, said", [
    ("POSIX", "-p and -V are of MPIIO alone"), ("MPIIO", "-J, -n, --hdf5.chunkSize"), ("HDF5", "-p and -V are of MPIIO alone")])
def test_options_of_another_api_are_passed_over(native, api, said):
    """One command line for all APIs, as IOR takes it."""
    more = ["--mpiio.preallocate", "--hdf5.setAlignment=4k", "--hdf5.noFill", "--mpiio.showHints"]
    out = good(here(2, FPIOR, "-a", api, "-wWrR", "-C", "-b", "64k", "-t", "16k", *more, "-o", f"{native}/f"), f"passed over with {api}: {re.escape(said)}")
    assert rows_of(out) == [("write", 0), ("read", 0)] and ("hints of" in out) == (api != "POSIX")


def rows_of(out):
    """access, iteration of each row of the table."""
    return [(r[0], int(r[-1])) for r in (line.split() for line in out.splitlines()) if r and r[0] in ("write", "read", "remove") and len(r) == 11]


# What IOR 4.1 wrote for these options (sha1 of all files, one after the other): the bytes and where they are.
OF_IOR = {"t": ("dfbd0f06ed4fafb8",) * 2, "o": ("1f073af55e07c254", "9790dc5abb95eaba"), "i": ("c873217c04a23b4f", "4836dbe4e5d0bb53"),
          "r": ("440355d15b536bd9", "613bae5e8eb19658")}


@pytest.mark.parametrize("packet", OF_IOR)
def test_the_bytes_of_ior(native, packet):
    for own, digest in enumerate(OF_IOR[packet]):
        options = ["--iorData", "-b", "64k", "-t", "16k", "-s", "2", "-G", "4000000077", "-l", packet, "-k", "-o", f"{native}/x", *["-F"] * own]
        good(here(3, FPIOR, "-w", "-R", "-C", *options))
        names = sorted(os.listdir(native))
        assert names == (["x.00000000", "x.00000001", "x.00000002"] if own else ["x"])
        assert hashlib.sha1(b"".join(pathlib.Path(native, n).read_bytes() for n in names)).hexdigest()[:16] == digest
        if not own:
            flip(f"{native}/x", 16384 + 4096)
            done = here(3, FPIOR, "-R", "-C", *options)
            assert done.returncode == 1 and "offset 20480:" in done.stdout, done.stdout
            os.unlink(f"{native}/x")


def test_a_file_of_ior_tells_its_signature(native):
    """Without -G: of the file's first words."""
    for packet in "to":
        options = ["--iorData", "-b", "64k", "-t", "16k", "-l", packet, "-k", "-o", f"{native}/x"]
        good(here(2, FPIOR, "-w", "-G", "77", *options))
        assert rows_of(good(here(2, FPIOR, "-R", "-C", *options))) == [("read", 0)]
    flip(f"{native}/x", 40000)
    assert here(2, FPIOR, "-R", "-C", *options).returncode == 1


SCRIPT = """An experiment; what stands here is no part of it: api=NOPE
IOR START
    testFile=DIR/one      # where
    blockSize=64k, transferSize = 16k
    segmentCount=2
    writeFile=1,keepFile=1
RUN
    # reads what the first wrote
    writeFile=0,readFile=1,checkRead=1
    reorderTasks=1,keepFile=0
RUN
    api=MPIIO,writeFile=1,collective=1
    repetitions=2, filePerProc=1
RUN
RUN
    testFile=DIR/five,numTasks=1
IOR STOP
api=NOPE
"""


def test_script(native):
    """Tests one after the other: each has what stood before it, also the command line; the summary has all, by their numbers."""
    with open(f"{native}/script", "w", encoding="ascii") as f:
        f.write(SCRIPT.replace("DIR", native))
    out = good(here(2, FPIOR, "-f", f"{native}/script", "-A", "31"))
    pairs = [(phase, n) for n in range(2) for phase in ("write", "read")]
    assert rows_of(out) == [("write", 0), ("read", 0), *pairs * 3]
    assert re.findall(r"^TestID +: (\d)", out, re.M) == list("01234")
    summary = [line.split() for line in out[out.index("Summary of all tests"):].splitlines()[2:-1]]
    head = out[out.index("Summary of all tests"):].splitlines()[1].split()
    got = [tuple(r[head.index(k)] for k in ("Operation", "Test#", "#Tasks", "reps", "fPP", "segcnt", "blksiz", "API", "RefNum")) for r in summary]
    assert all(len(r) == len(head) for r in summary)
    assert got == [("write", "0", "2", "1", "0", "2", "65536", "POSIX", "31"), ("read", "1", "2", "1", "0", "2", "65536", "POSIX", "31"),
                   *[(phase, str(n), "1" if n == 4 else "2", "2", "1", "2", "65536", "MPIIO", "31") for n in (2, 3, 4) for phase in ("write", "read")]]
    assert os.listdir(native) == ["script"]
    for text, said in (("api=POSIX\n", "no line IOR START"), ("IOR START\nnonsense=1\nIOR STOP\n", "'nonsense' is no option")):
        with open(f"{native}/script", "w", encoding="ascii") as f:
            f.write(text)
        done = here(2, FPIOR, "-f", f"{native}/script")
        assert done.returncode == 2 and said in done.stdout


def test_check_read_alone_is_the_timed_read(native):
    """As in IOR 4: a row, and wrong bytes in it are seen."""
    options = ["-b", "64k", "-t", "16k", "-G", "5", "-k", "-o", f"{native}/f"]
    good(here(2, FPIOR, "-w", *options))
    assert rows_of(good(here(2, FPIOR, "-R", *options))) == [("read", 0)]
    flip(f"{native}/f", 70000)
    done = here(2, FPIOR, "-R", *options)
    assert done.returncode == 1 and rows_of(done.stdout) == [("read", 0)] and "offset 70000:" in done.stdout
    assert rows_of(good(here(2, FPIOR, "-r", "-v", *options, "-k=0"))) == [("read", 0), ("remove", 0)]


@pytest.mark.parametrize("api", ["POSIX", "MPIIO -c"])
def test_deadline_and_its_status_file(native, api):
    """What a deadline has cut is read back as far as it was written; by collective calls, all end together."""
    options = ["-a", *api.split(), "-b", "4k", "-t", "4k", "-s", "100000", "-k", "-o", f"{native}/f", "-O", f"stoneWallingStatusFile={native}/status"]
    out = good(here(2, FPIOR, "-w", "-W", "-C", "-D", "1", *options, "-O", "stoneWallingWearOut=1,interIODelay=20000"))
    count = int(pathlib.Path(native, "status").read_text(encoding="ascii"))
    assert 2 <= count < 1000 and f" {count * 2 * 4096 / 2**20:.1f} " in out
    assert os.path.getsize(f"{native}/f") == count * 2 * 4096
    out = good(here(2, FPIOR, "-r", "-R", "-C", "-v", *options, "-G", "0"))
    assert f"check read: {count * 2 * 4096} bytes compared" in out


def test_random_blocks(native):
    """-z -z: as many transfers, of blocks that may be drawn twice; of a file that is there, within it."""
    good(here(2, FPIOR, "-w", "-k", "-b", "64k", "-t", "16k", "-o", f"{native}/f"))
    out = good(here(2, FPIOR, "-r", "-k", "-z", "-z", "-b", "64k", "-t", "16k", "-s", "10", "-vvvv", "-o", f"{native}/f"))
    offsets = [int(x) for x in re.findall(r"read: 16384 bytes at (\d+) ", out)]
    assert len(offsets) == 2 * 10 * 4 and {x // 65536 for x in offsets} == {0, 1}
    good(here(2, FPIOR, "-w", "-r", "-zz", "-b", "64k", "-t", "16k", "-s", "10", "-o", f"{native}/g"))


def test_figures_of_single_ranks(native):
    good(here(3, FPIOR, "-i", "2", "-o", f"{native}/f", "-O", f"saveRankPerformanceDetailsCSV={native}/ranks"))
    with open(f"{native}/ranks", encoding="ascii", newline="") as f:
        rows = list(csv.DictReader(f))
    assert [(r["access"], r["rank"]) for r in rows] == [(phase, str(k)) for _ in range(2) for phase in ("write", "read") for k in range(3)]
    for r in rows:
        whole, part = float(r["runtime-with-openclose"]), float(r["runtime"])
        assert whole >= part > 0 and float(r["throughput"]) == pytest.approx(2**20 / part, rel=1e-6)
        assert float(r["throughput-withopenclose"]) == pytest.approx(2**20 / whole, rel=1e-6)


def test_table_json_and_csv_say_the_same_bytes(native):
    out = good(here(2, FPIOR, "-b", "1m", "-t", "64k", "-i", "2", "-O", f"summaryFormat=JSON,summaryFile={native}/out.json", "-o", f"{native}/f"))
    with open(f"{native}/out.json", encoding="utf-8") as f:
        got = json.load(f)
    test = got["tests"][0]
    assert out == "" and [r["access"] for r in test["Results"]] == ["write", "read"] * 2
    for r in test["Results"]:
        assert r["bytes"] == 2 << 20 and r["bwMiB"] == pytest.approx(2 / r["totalTime"], rel=0.02)
        assert r["totalTime"] >= r["wrRdTime"] > 0
    assert test["Options"]["xfersize"] == "65536 bytes" and test["Options"]["aggregate filesize"] == "2 MiB"
    assert test["Parameters"]["transferSize"] == 65536 and test["Parameters"]["repetitions"] == 2
    assert got["summary"][0]["bwMaxMIB"] >= got["summary"][0]["bwMeanMIB"] >= got["summary"][0]["bwMinMIB"]
    assert got["summary"][0]["bwMaxMIB"] == test["max"]["writeMiB"] == max(r["bwMiB"] for r in test["Results"][::2])
    table = good(here(2, FPIOR, "-b", "1m", "-t", "64k", "-o", f"{native}/f"))
    head = next(line for line in table.splitlines() if re.match(r"access +bw", line))
    assert head.split() == "access bw(MiB/s) IOPS Latency(s) block(KiB) xfer(KiB) open(s) wr/rd(s) close(s) total(s) iter".split()
    row = next(line for line in table.splitlines() if line.startswith("write ")).split()
    assert len(row) == len(head.split()) and row[4:6] == ["1024.00", "64.00"] and float(row[1]) > 0
    assert rows_of(table) == [("write", 0), ("read", 0)], "remove is a row with -v, as in IOR"
    lines = list(csv.reader(good(here(2, FPIOR, "-b", "1m", "-t", "64k", "-O", "summaryFormat=CSV", "-o", f"{native}/f")).splitlines()))
    assert lines[0] == "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter".split(",")
    assert [(r[0], *r[4:6], *r[10:]) for r in lines[1:]] == [(phase, "1024.0000", "64.0000", "2", "0") for phase in ("write", "read")]
