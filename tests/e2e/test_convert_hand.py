"""fp-convert by hand, on any file system: what it refuses to replace, and what it does not take for whole."""

import os
import signal
import subprocess
import time

import pytest

from harness.daemons import SLOW, bin_path, wait_until

np = pytest.importorskip("numpy")
h5py = pytest.importorskip("h5py")
SCHEMA = """\
fpschema: 1
ranks: {grid: [2, 1]}
rank: "rank_{rank}.raw"
dims: {x: 64, y: NY}
datasets:
  - {name: /t, type: float64, dims: [x, y]}
"""


@pytest.fixture
def dump(tmp_path):
    """A function: schema and files of a dump of 64 x ny."""
    def make(ny=32):
        whole = np.random.default_rng(7).random((64, ny))
        (tmp_path / "s.yaml").write_text(SCHEMA.replace("NY", str(ny)))
        (tmp_path / "d").mkdir()
        for rank in range(2):
            (tmp_path / "d" / f"rank_{rank}.raw").write_bytes(whole[32 * rank:32 * rank + 32].tobytes())
        return whole, sorted(str(p) for p in (tmp_path / "d").iterdir())
    return make


def run(tmp_path, *args, command="run", words=("--from=raw",)):
    if command == "run":
        words = (*words, f"--schema={tmp_path}/s.yaml")
    return subprocess.run([bin_path("fp-convert"), command, *(words if command == "run" else ()), *map(str, args)], capture_output=True, text=True, errors="surrogateescape", timeout=60 * SLOW, check=False)


def refused(r, *words):
    assert r.returncode == 1 and all(w in r.stderr for w in words), r.stderr


def test_replace_means_results_and_nothing_else(tmp_path, dump):
    _, files = dump()
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "a").write_text("precious")
    os.mknod(tmp_path / "device", 0o600 | 0o010000)  # a FIFO: anybody may make one
    os.symlink("elsewhere", tmp_path / "link")
    for name in ("tree", "device", "link"):
        refused(run(tmp_path, "--replace", f"--out={tmp_path}/{name}", *files), name, "not removed")
    refused(run(tmp_path, "--replace", f"--out={files[0]}", *files), "what is to be read")
    assert (tmp_path / "tree" / "sub" / "a").read_text() == "precious" and os.path.islink(tmp_path / "link")
    assert run(tmp_path, f"--out={tmp_path}/o.h5", *files).returncode == 0
    refused(run(tmp_path, "--to=raw", "--replace", f"--out={tmp_path}/tree", tmp_path / "o.h5", words=("--from=hdf5",)), "tree", "not removed")
    assert (tmp_path / "tree" / "sub" / "a").read_text() == "precious"
    for _ in range(2):  # a directory of raw files that a conversion has made is a result
        r = run(tmp_path, "--to=raw", "--replace", f"--out={tmp_path}/back", tmp_path / "o.h5", words=("--from=hdf5",))
        assert r.returncode == 0, r.stderr
    assert sorted(os.listdir(tmp_path / "back")) == ["rank_0.raw", "rank_1.raw"]
    for mine in ("NOTES", "output/energy.dat"):  # unless the program has put its own there
        os.makedirs(tmp_path / "back" / os.path.dirname(mine), exist_ok=True)
        (tmp_path / "back" / mine).write_text("precious")
        refused(run(tmp_path, "--to=raw", "--replace", f"--out={tmp_path}/back", tmp_path / "o.h5", words=("--from=hdf5",)), "back", "not removed")
        assert (tmp_path / "back" / mine).read_text() == "precious"
        os.unlink(tmp_path / "back" / mine)
    os.rmdir(tmp_path / "back" / "output")
    assert run(tmp_path, "--to=raw", "--replace", f"--out={tmp_path}/back", tmp_path / "o.h5", words=("--from=hdf5",)).returncode == 0
    assert not [n for n in os.listdir(tmp_path) if n.startswith(".fp-convert")]


def test_nothing_that_is_read_is_replaced(tmp_path, dump):
    """The schema, lists, and parts that are put together, by any name."""
    _, files = dump()
    out, parts = f"{tmp_path}/o.h5", [f"{tmp_path}/p{i}.h5" for i in range(2)]
    names = tmp_path / "names"
    names.write_bytes(b"".join(os.fsencode(str(f)) + b"\0" for f in files))
    for name in (tmp_path / "s.yaml", names):
        before = name.read_bytes()
        refused(run(tmp_path, "--replace", f"--out={name}", f"--files0-from={names}"), "what is to be read")
        assert name.read_bytes() == before
    for part, file in zip(parts, files):
        assert run(tmp_path, f"--out={part}", f"--only={file}", *files).returncode == 0
    os.symlink(parts[1], tmp_path / "another.h5")
    for name in (parts[0], f"{tmp_path}/another.h5"):
        sizes = [os.path.getsize(p) for p in parts]
        refused(run(tmp_path, "--replace", f"--out={name}", *parts, command="join"), "what is to be read")
        assert [os.path.getsize(p) for p in parts] == sizes
    r = run(tmp_path, f"--out={out}", f"--files0-from={names}", f"--files0-from={names}")
    assert r.returncode == 2 and "--files0-from" in r.stderr and "at most 1" in r.stderr, r.stderr


def test_an_xdmf_file_that_is_there_stays(tmp_path, dump):
    _, files = dump()
    (tmp_path / "o.xmf").write_text("precious")
    refused(run(tmp_path, "--xdmf", f"--out={tmp_path}/o.h5", *files), "o.xmf", "there already")
    assert (tmp_path / "o.xmf").read_text() == "precious" and not (tmp_path / "o.h5").exists()
    assert run(tmp_path, "--xdmf", "--replace", f"--out={tmp_path}/o.h5", *files).returncode == 0
    assert "o.h5:/t" in (tmp_path / "o.xmf").read_text()


def test_schema_check_says_what_a_conversion_of_these_files_would_refuse(tmp_path):
    for name, text in (("r0", b"abc"), ("r1", b"ab")):
        (tmp_path / name).write_bytes(text)
    for dims, start, more, want in ((4, 2, "", "overlaps the one at [0]"), (6, 4, "", "in no block, the first at [3]"), (6, 4, "gaps: fill, ", ""), (5, 3, "", "")):
        (tmp_path / "s.yaml").write_text(f"fpschema: 1\nranks: 2\ndatasets:\n  - {{name: /t, type: i1, dims: [{dims}], {more}block: [{{start: [0], count: [3]}}, {{start: [{start}], count: [2]}}]}}\n")
        r = run(tmp_path, "check", tmp_path / "s.yaml", tmp_path / "r0", tmp_path / "r1", command="schema")
        assert (r.returncode, want in r.stderr) == (1 if want else 0, True), r.stderr


def test_a_name_that_no_text_can_have_gets_no_xdmf_file(tmp_path, dump):
    _, files = dump()
    out = os.fsencode(tmp_path) + b"/o\xe4.h5"
    refused(run(tmp_path, "--xdmf", "--out=" + os.fsdecode(out), *files), "an XDMF file can't name it", "UTF-8")
    assert run(tmp_path, "--out=" + os.fsdecode(out), *files).returncode == 0 and os.path.exists(out)


def test_parts_that_are_not_all_of_one_result_are_no_whole(tmp_path, dump):
    whole, files = dump()
    for rank, one in enumerate(files):
        assert run(tmp_path, f"--only={one}", f"--out={tmp_path}/p{rank}.h5", *files).returncode == 0
    assert run(tmp_path, f"--out={tmp_path}/all.h5", *files).returncode == 0
    for wrong, why in (([0], "one is missing"), ([0, 0], "given twice")):
        refused(run(tmp_path, f"--out={tmp_path}/j.h5", *(tmp_path / f"p{i}.h5" for i in wrong), command="join"), why)
    refused(run(tmp_path, f"--out={tmp_path}/j.h5", tmp_path / "all.h5", command="join"), "it is no part")
    assert run(tmp_path, f"--out={tmp_path}/j.h5", tmp_path / "p0.h5", tmp_path / "p1.h5", command="join").returncode == 0
    with h5py.File(tmp_path / "j.h5", "r") as f:
        assert np.array_equal(f["t"][...], whole) and not [a for a in f["t"].attrs if a.startswith("fp_")]


@pytest.mark.limit(120)
def test_a_dump_that_is_changed_meanwhile_gives_no_result(tmp_path, dump):
    _, files = dump(60000)
    p = subprocess.Popen([bin_path("fp-convert"), "run", "--from=raw", f"--schema={tmp_path}/s.yaml", "--compress=deflate:9", f"--out={tmp_path}/o.h5", *files],
                         stderr=subprocess.PIPE, text=True)
    try:
        wait_until("the conversion to begin", 20, lambda: any(n.startswith(".fp-convert") for n in os.listdir(tmp_path)), 0.002)
        p.send_signal(signal.SIGSTOP)
        time.sleep(0.02)
        with open(files[1], "r+b") as f:
            f.write(b"x" * 8)
        p.send_signal(signal.SIGCONT)
        said = p.communicate(timeout=60 * SLOW)[1]
    finally:
        p.kill()
        p.wait()
    assert p.returncode == 1 and "rank_1.raw" in said and "changed while it was converted" in said, said
    assert not (tmp_path / "o.h5").exists() and not [n for n in os.listdir(tmp_path) if n.startswith(".fp-convert")]
