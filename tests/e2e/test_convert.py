"""Aux-app convert on real mounts: dumps become HDF5 files while they are in the store, by one node or several, and only these are drained."""

import contextlib
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from harness.aux import MIB, used, wait_app
from harness.conversions import Dumps, mark, processes, temporaries, wait_mark
from harness.daemons import SLOW, wait_until
from harness.files import write_file

pytest.importorskip("h5py")
TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
QUICK = ("--ckpt-quiet=500ms", "--ckpt-late=3s")


def end_of(store, path, *args):
    r = store.fpctl("checkpoints", "--json", path, *args)
    return json.loads(r.stdout)["checkpoints"]


@pytest.fixture
def dumps(new_store):
    """A function: a store, its dumps, and mounts, each of a node of its own, that declare convert; more: its options."""
    def make(more="", mounts=1, declare=True, args=(), shape=(64, 50), benefactors=1):
        s = new_store().up(benefactors=benefactors, mounts=0, manager_args=QUICK)
        d = Dumps(s, *shape)
        for i in range(mounts):
            s.add_mount(*([f"--auxapp={d.words(more)}"] if declare else []), *args, node=i)
        return d
    return make


def test_a_dump_becomes_hdf5_and_a_set_of_its_own(dumps):
    d = dumps("compress=deflate:3 checksum=fletcher32 xdmf=on")
    m, = d.store.mounts
    d.write(7, [m])
    wait_mark(m, "run/dump_0007", "done run/dump_0007.h5$")
    d.check(m.at("run/dump_0007.h5"), 7)
    d.dump_is_intact(m, 7)
    assert os.path.exists(m.at("run/dump_0007.xmf"))
    assert temporaries(m.path) == []
    assert os.getxattr(m.at("run/dump_0007.h5"), "user.fp.converted") == b"dump_0007.h5"
    assert os.getxattr(m.at("run/dump_0007"), "user.fp.set").startswith(b"complete ")
    of_dump, of_result = (os.getxattr(m.at(p), "user.fp.set").split(b" ", 1)[1] for p in ("run/dump_0007", "run/dump_0007.h5"))
    assert of_dump != of_result, "the result is a set of its own"

    def levels():
        sets = end_of(d.store, m.at("run"))
        return len(sets) == 2 and all((one["step"], one["state"]) == (7, "complete") and one["level"] in ("local", "shared", "near") for one in sets) and sets
    wait_until("two sets that are complete and have a level", 20, levels, 0.1)
    wait_app(d.store, "convert", "its counters", lambda a: any("converted" in str(c) for c in json.dumps(a).split(",")))


def cores_of(pid):
    """Where each thread of a process may run; none if it has ended."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with contextlib.suppress(OSError):
            with open(path, encoding="ascii") as f:
                found += re.findall(r"^Cpus_allowed_list:\s*(\S+)", f.read(), re.M)
    return found


def test_nothing_of_it_leaves_the_service_cores(dumps):
    d = dumps("compress=deflate:9", args=("--cores=1",), shape=(1024, 1024))
    m, = d.store.mounts
    d.write(7, [m])
    running, nice = set(), set()

    def is_done():
        for pid in processes(m):
            running.update(cores_of(pid))
            with contextlib.suppress(ProcessLookupError):
                nice.add(os.getpriority(os.PRIO_PROCESS, pid) - os.getpriority(os.PRIO_PROCESS, m.pid))
        return (mark(m, "run/dump_0007") or "").startswith("done ")
    wait_until("the conversion to have run and ended", 40, is_done, 0.002)
    watching, = processes(m, "watch")
    assert running == {"1"} and set(cores_of(watching)) == {"1"}
    assert nice == {min(10, 19 - os.getpriority(os.PRIO_PROCESS, m.pid))}, "programs that write wait for the mount, and nobody for a conversion"


def test_what_is_not_marked_yet_is_waited_for(dumps):
    """The coordinator stands still: nothing says in the store that there is something to convert."""
    d = dumps()
    m, = d.store.mounts
    watching, = wait_until("the coordinator", 20, lambda: processes(m, "watch"), 0.1)
    assert d.store.fpctl("conversions", m.path, "--wait", "--timeout=20s", check=False).returncode == 0
    os.kill(watching, signal.SIGSTOP)
    try:
        d.write(7, [m])
        late = d.store.fpctl("conversions", m.path, "--wait", "--timeout=4s", check=False, seconds=20)
        assert late.returncode == 3 and "has not looked at all that was closed" in late.stderr, late
    finally:
        os.kill(watching, signal.SIGCONT)
    assert d.store.fpctl("conversions", m.path, "--wait", "--timeout=60s", check=False, seconds=70).returncode == 0
    assert (mark(m, "run/dump_0007") or "").startswith("done ")


def test_a_file_that_is_of_no_set_is_converted_alone(dumps, new_store):
    s = new_store().up(benefactors=1, mounts=0, manager_args=QUICK)
    d = Dumps(s, ranks=1)
    m = s.add_mount(f"--auxapp={d.words(pattern='out/*.raw')} into=made")
    os.mkdir(m.at("out"))
    os.mkdir(m.at("made"))
    with open(d.schema, encoding="utf-8") as f:
        text = "".join(line for line in f if not line.startswith("rank"))
    write_file(d.schema, text.encode())
    write_file(m.at("out/final.raw"), d.bytes_of(1, 0))
    wait_mark(m, "out/final.raw", "done made/final.h5$")
    d.check(m.at("made/final.h5"), 1)


def test_a_dump_that_is_not_to_be_kept_goes_when_its_result_is_there(dumps):
    d = dumps("keep=none")
    m, = d.store.mounts
    d.write(3, [m])
    wait_until("the dump to be gone", 20, lambda: not os.path.exists(m.at("run/dump_0003")))
    d.check(m.at("run/dump_0003.h5"), 3)
    d.write(4, [m], ranks=(0, 1, 2))
    write_file(m.at("run/dump_0004/rank_3.raw"), d.bytes_of(4, 3)[:1000])
    wait_mark(m, "run/dump_0004", "failed ")
    assert len(os.listdir(m.at("run/dump_0004"))) == 4, "what could not be converted stays"


def test_a_torn_dump_that_is_not_to_be_kept_stays_whatever_bytes_its_name_has(new_store):
    """What was left out is said with the path, which is no UTF-8."""
    s = new_store().up(benefactors=1, mounts=0, manager_args=QUICK)
    m = s.add_mount("--auxapp=convert from=group to=hdf5 pattern=run/*/out.fpd keep=none")
    local, there = os.path.join(s.dir, "out.fpd"), m.at("run/d\udce9p/out.fpd")
    writer = "import sys, fpdump\nimport numpy as np\nwith fpdump.Writer(sys.argv[1]) as f:\n" \
             "    for step in 1, 2:\n        with f.group(step):\n            f.put('/t', np.arange(1000.0))\n"
    subprocess.run([sys.executable, "-c", writer, local], env=os.environ | {"PYTHONPATH": f"{TOP}/tools/fpdump", "PYTHONDONTWRITEBYTECODE": "1"}, check=True, timeout=50 * SLOW)
    with open(local, "rb") as f:
        torn = f.read()[:12000]  # in the second step
    os.makedirs(os.path.dirname(there))
    write_file(there, torn)

    def text():
        try:
            return os.getxattr(there, "user.fp.convert")
        except OSError:
            return b""
    wait_until(lambda: f"it to be done: {text()}\n{m.tail(8)}", 20, lambda: text().startswith(b"done "))
    assert b"left out: " in text() and b"step 2" in text(), text()
    time.sleep(1)
    assert os.path.exists(there), "the whole groups of a stream that is torn are in no other file"


def test_what_people_should_know_of_results_is_in_the_log_once(dumps):
    d = dumps("chunk=8x8x8")
    m, = d.store.mounts
    for step in 7, 8:
        d.write(step, [m])
        wait_mark(m, d.dir_of(step), "done ")
    wait_until("the line", 10, lambda: "the shape of chunks has 3 dimensions" in m.text())
    assert m.text().count("the shape of chunks") == 1, m.text()


def test_a_dump_that_is_written_anew_is_converted_anew(dumps):
    d = dumps()
    m, = d.store.mounts
    d.write(7, [m])
    wait_mark(m, "run/dump_0007", "done ")
    d.write(7, [m], version=1)
    assert not mark(m, "run/dump_0007").startswith("done"), "what was made of what was there before is not it"
    wait_until("the result of the second", 20, lambda: d.is_whole(m.at("run/dump_0007.h5"), 7, 1), 0.1)
    wait_mark(m, "run/dump_0007", "done ")


def test_a_dump_that_was_changed_by_a_mount_without_convert_is_converted_anew(dumps):
    d = dumps()
    m, = d.store.mounts
    d.write(7, [m])
    wait_mark(m, "run/dump_0007", "done ")
    m.unmount()
    other = d.store.add_mount()
    d.write(7, [other], version=2)
    wait_until("the second to be complete", 20, lambda: os.getxattr(other.at("run/dump_0007"), "user.fp.set").startswith(b"complete "), 0.1)
    other.unmount()
    m.start()
    wait_until("the result of the second", 20, lambda: d.is_whole(m.at("run/dump_0007.h5"), 7, 2), 0.1)


def test_what_is_no_result_of_the_dump_stays_under_its_name(dumps):
    d = dumps()
    m, = d.store.mounts
    os.mkdir(m.at("run"))
    write_file(m.at("run/dump_0007.h5"), b"somebody's own")
    d.write(7, [m])
    wait_mark(m, "run/dump_0007", "failed run/dump_0007.h5 is there already")
    with open(m.at("run/dump_0007.h5"), "rb") as f:
        assert f.read() == b"somebody's own"
    d.dump_is_intact(m, 7)
    os.unlink(m.at("run/dump_0007.h5"))
    d.write(7, [m], version=1)
    wait_mark(m, "run/dump_0007", "done ")
    d.check(m.at("run/dump_0007.h5"), 7, 1)


def test_two_dumps_do_not_get_one_name(new_store):
    s = new_store().up(mounts=0, manager_args=QUICK)
    d = Dumps(s)
    m = s.add_mount(f"--auxapp={d.words('into=h5', pattern='*/dump_*/rank_*.raw')}")
    os.mkdir(m.at("h5"))
    d.write(7, [m])
    wait_mark(m, "run/dump_0007", "done h5/dump_0007.h5$")
    os.makedirs(m.at("again/dump_0007"))
    for rank in range(d.ranks):
        write_file(m.at("again/dump_0007", f"rank_{rank}.raw"), d.bytes_of(7, rank, 1))
    wait_mark(m, "again/dump_0007", "failed .*is the result of run/dump_0007")
    d.check(m.at("h5/dump_0007.h5"), 7)


@pytest.mark.limit(120)
def test_two_dumps_that_are_converted_at_once_do_not_get_one_name(new_store):
    """By two nodes, each of which has seen that the name is free. What is not converted is not removed either."""
    s = new_store().up(mounts=0, manager_args=QUICK)
    d = Dumps(s, 1600, 2000)
    more = "into=h5 keep=none join=one compress=deflate:9"
    mounts = [s.add_mount(f"--auxapp={d.words(more, pattern='*/dump_*/rank_*.raw')}", node=i) for i in (0, 1)]
    dirs = ["a", "b"]
    os.mkdir(mounts[0].at("h5"))
    for top, m in zip(dirs, mounts):
        os.makedirs(m.at(top, "dump_0007"))
    for rank in range(d.ranks):
        for version, (top, m) in enumerate(zip(dirs, mounts)):
            write_file(m.at(top, "dump_0007", f"rank_{rank}.raw"), d.bytes_of(7, rank, version))
    wait_until("two conversions at once", 30, lambda: all(processes(m) for m in mounts), 0.01)

    def failed():
        return [i for i in (0, 1) if mark(mounts[i], f"{dirs[i]}/dump_0007").startswith("failed ")]
    last, = wait_until("one of them to have no name", 60, failed, 0.1)
    first = 1 - last
    assert f"is the result of {dirs[first]}/dump_0007" in mark(mounts[last], f"{dirs[last]}/dump_0007")
    wait_until("the dump that has a result to be gone", 30, lambda: not os.path.exists(mounts[first].at(dirs[first], "dump_0007")), 0.1)
    d.check(mounts[0].at("h5/dump_0007.h5"), 7, first)
    assert sorted(os.listdir(mounts[0].at(dirs[last], "dump_0007"))) == [f"rank_{rank}.raw" for rank in range(d.ranks)]
    assert temporaries(mounts[0].path) == []


def test_results_are_no_dumps_and_take_the_place_of_none(new_store, tmp_path):
    """HDF5 made anew from HDF5: a pattern that names its own results, and results that would have the names of dumps."""
    import h5py
    s = new_store().up(mounts=0, manager_args=QUICK)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["t"] = list(range(1000))
    data = (tmp_path / "a.h5").read_bytes()
    m = s.add_mount("--auxapp=convert from=hdf5 to=hdf5 pattern=out/*.h5 compress=deflate:1")
    os.mkdir(m.at("out"))
    write_file(m.at("out/final.h5"), data)
    wait_mark(m, "out/final.h5", "failed the result would have the name of the dump")
    with open(m.at("out/final.h5"), "rb") as f:
        assert f.read() == data
    m.unmount()
    other = s.add_mount("--auxapp=convert from=hdf5 to=hdf5 pattern=*/*.h5 into=packed compress=deflate:1")
    os.mkdir(other.at("packed"))
    os.mkdir(other.at("more"))
    write_file(other.at("more/b.h5"), data)
    wait_mark(other, "more/b.h5", "done packed/b.h5$")
    with h5py.File(other.at("packed/b.h5"), "r", locking=False) as f:
        assert f["t"].compression == "gzip" and list(f["t"]) == list(range(1000))
    time.sleep(2)
    assert mark(other, "packed/b.h5") == "", "a result is no dump"


def test_why_a_dump_is_not_converted_names_file_dataset_and_byte(dumps):
    d = dumps()
    m, = d.store.mounts
    d.write(7, [m], ranks=(0, 1, 2))
    write_file(m.at("run/dump_0007/rank_3.raw"), d.bytes_of(7, 3)[:7000])
    text = wait_mark(m, "run/dump_0007", "failed ")
    assert "rank_3.raw" in text and "dataset /" in text and "byte " in text, text
    assert not os.path.exists(m.at("run/dump_0007.h5")) and temporaries(m.path) == []
    d.write(7, [m], ranks=(3,))  # repaired
    wait_mark(m, "run/dump_0007", "done ")
    d.check(m.at("run/dump_0007.h5"), 7)


@pytest.mark.expect_log("convert", "schema", "aux-app")
@pytest.mark.parametrize("words,why", [
    ("to=hdf5 schema={schema}", "which files are dumps"),
    ("pattern=run/*", "need schema=FILE"),
    ("schema=rel.yaml pattern=run/*", "schema"),
    ("schema={good} pattern=/run/*", "paths in the store"),
    ("schema={good} pattern=run/* to=netcdf join=vds", "join=vds is for to=hdf5"),
    ("schema={schema} pattern=run/*", "(schema|bad.yaml)"),
    ("schema={psi} pattern=run/* to=netcdf3", "psi.yaml: dataset /psi: line 3, column 5: netCDF has no complex numbers"),
])
def test_what_can_not_work_is_refused_at_the_mount(new_store, words, why):
    s = new_store().up(benefactors=1, mounts=0)
    d = Dumps(s)
    bad = os.path.join(s.dir, "bad.yaml")
    write_file(bad, b"fpschema: 1\ndims: {x: 3}\ndatasets:\n  - {name: /t, type: float63, dims: [x]}\n")
    psi = os.path.join(s.dir, "psi.yaml")
    write_file(psi, b"fpschema: 1\ndatasets:\n  - {name: /psi, type: complex64, dims: [4]}\n")
    with pytest.raises(AssertionError):
        s.add_mount(f"--auxapp=convert {words.format(schema=bad, good=d.schema, psi=psi)}")
    m = s.mounts[-1]
    m.ended_as_told = True
    assert m.wait() != 0

    assert re.search(why, m.text()), m.text()


@pytest.mark.limit(120)
@pytest.mark.parametrize("join,parts", [("auto", 2), ("one", 0)])
def test_a_dump_of_two_nodes(dumps, join, parts):
    d = dumps(f"join={join}", mounts=2)
    a, b = d.store.mounts
    d.write(7, [a, b])
    for m in (a, b):
        wait_mark(m, "run/dump_0007", "done run/dump_0007.h5$", 40)
        d.check(m.at("run/dump_0007.h5"), 7)
    assert len(glob.glob(a.at("run/dump_0007.h5.*.piece"))) == parts
    assert temporaries(a.path) == []
    d.write(7, [a, b], version=1)
    wait_until("the result of the second", 40, lambda: d.is_whole(b.at("run/dump_0007.h5"), 7, 1), 0.2)


@pytest.mark.limit(120)
@pytest.mark.parametrize("how", ["one node", "join=one"])
def test_parts_go_when_the_dump_is_converted_whole(dumps, how):
    """The same dump, by a node alone or by another declaration; what has the name of a part and is none stays."""
    d = dumps(mounts=2)
    a, b = d.store.mounts
    d.write(7, [a, b])
    wait_mark(a, "run/dump_0007", "done run/dump_0007.h5$", 40)
    assert len(glob.glob(a.at("run/dump_0007.h5.*.piece"))) == 2
    write_file(a.at("run/dump_0007.h5.mine.piece"), b"somebody's own")
    if how == "one node":
        d.write(7, [a], version=1)
    else:
        b.unmount()
        a.unmount()
        a = d.store.add_mount(f"--auxapp={d.words('join=one')}", node=0)
        b = d.store.add_mount(f"--auxapp={d.words('join=one')}", node=1)
        d.write(7, [a, b], version=1)
    wait_until("the result of the second", 40, lambda: d.is_whole(a.at("run/dump_0007.h5"), 7, 1), 0.2)
    wait_mark(a, "run/dump_0007", "done run/dump_0007.h5$", 40)
    assert [os.path.basename(p) for p in glob.glob(a.at("run/dump_0007.h5.*.piece"))] == ["dump_0007.h5.mine.piece"]
    d.check(a.at("run/dump_0007.h5"), 7, 1)


@pytest.mark.limit(120)
def test_only_what_was_made_is_drained(dumps):
    d = dumps(declare=False, mounts=0)
    target = d.store.make_dir("target")
    m = d.store.add_mount(f"--auxapp={d.words()}", f"--auxapp=drain to={target} every=2 pattern=run/dump_{{step}}.h5")
    for step in (1, 2, 3, 4):
        d.write(step, [m])
        wait_mark(m, d.dir_of(step), "done ", 30)
    wait_until("every second of the results", 60, lambda: {os.path.relpath(p, target) for p in glob.glob(f"{target}/**/*", recursive=True) if os.path.isfile(p)}
               == {"run/dump_0002.h5", "run/dump_0004.h5"}, 0.2)
    for step in (2, 4):
        d.check(os.path.join(target, d.result_of(step)), step)


@pytest.mark.limit(120)
def test_steps_that_are_named_are_drained_in_whatever_order_they_come(dumps):
    """every= counts what is complete; results= chooses by the digits of the step."""
    d = dumps(declare=False, mounts=0)
    counted, named = d.store.make_dir("counted"), d.store.make_dir("named")
    m = d.store.add_mount(f"--auxapp={d.words()}", f"--auxapp=drain to={counted} every=2 pattern=run/dump_{{step}}.h5")
    assert d.store.fpctl("drain", "set", f"to={named} every=none results=run/dump_*2.h5*", m.path).returncode == 0
    for step in (1, 3, 2, 4):
        d.write(step, [m])
        wait_mark(m, d.dir_of(step), "done ", 30)

    def files(target):
        return {os.path.relpath(p, target) for p in glob.glob(f"{target}/**/*", recursive=True) if os.path.isfile(p)}
    wait_until(lambda: f"what was counted, {files(counted)}, and what was named, {files(named)}", 60,
               lambda: files(counted) == {"run/dump_0003.h5", "run/dump_0004.h5"} and files(named) == {"run/dump_0002.h5"}, 0.2)
    d.check(os.path.join(named, d.result_of(2)), 2)


@pytest.mark.limit(120)
def test_a_result_of_parts_is_drained_with_its_parts(dumps):
    d = dumps(declare=False, mounts=0)
    target = d.store.make_dir("target")
    for i in range(2):
        d.store.add_mount(f"--auxapp={d.words()}", f"--auxapp=drain to={target} every=1 pattern=run/dump_{{step}}.h5", node=i)
    for m in d.store.mounts:
        wait_until("its coordinator", 10, lambda m=m: processes(m, "watch"))
    d.write(2, d.store.mounts)
    path = os.path.join(target, d.result_of(2))
    wait_until("the result in the target", 60, lambda: d.is_whole(path, 2), 0.2)
    assert len(glob.glob(f"{path}.*.piece")) == 2
    assert not os.path.exists(os.path.join(target, d.dir_of(2)))


@pytest.mark.limit(120)
def test_a_mount_that_ends_in_the_midst_goes_on_when_it_is_there_again(dumps):
    d = dumps("compress=deflate:9", shape=(1600, 2000))
    m, = d.store.mounts
    d.write(7, [m])
    wait_until("a conversion", 30, lambda: processes(m), 0.01)
    begun = time.monotonic()
    m.term(30)
    assert time.monotonic() - begun < 15 * SLOW
    assert processes(m) == [] and processes(m, "watch") == []
    m.start()
    wait_mark(m, "run/dump_0007", "done ", 60)
    d.check(m.at("run/dump_0007.h5"), 7)
    assert temporaries(m.path) == []


def test_what_is_done_is_left_alone_by_the_next_mount(dumps):
    d = dumps()
    m, = d.store.mounts
    for step in (1, 2):
        d.write(step, [m])
        wait_mark(m, d.dir_of(step), "done ")
    before = [os.stat(m.at(d.result_of(step))).st_ino for step in (1, 2)]
    m.unmount()
    m.start()
    d.write(3, [m])
    wait_mark(m, d.dir_of(3), "done ")
    assert [os.stat(m.at(d.result_of(step))).st_ino for step in (1, 2)] == before
    assert all(mark(m, d.dir_of(step)).startswith("done ") for step in (1, 2))


def test_a_result_takes_no_space_of_its_own_beside_dedup(new_store):
    """Chunks of the HDF5 file begin where those of the store do, so what the dump has is found in it."""
    s = new_store().up(benefactors=1, mounts=0, manager_args=QUICK)
    d = Dumps(s, 2048, 1024, 2)  # 8 MiB of doubles and 4 of integers for each rank
    m = s.add_mount("--auxapp=dedup scope=store chunking=fixed size=1MiB pays=0%", f"--auxapp={d.words()}")
    d.write(7, [m])
    wait_mark(m, "run/dump_0007", "done ")
    d.check(m.at("run/dump_0007.h5"), 7)
    assert os.path.getsize(m.at("run/dump_0007.h5")) > 24 * MIB
    wait_until(lambda: f"what both have to be kept once: {used(s)} bytes are used", 10, lambda: used(s) < 26 * MIB)
