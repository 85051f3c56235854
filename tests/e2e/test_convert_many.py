"""Sets of more files than a command line holds: by hand, by the list of another program; and on a mount, by lists that the coordinator makes."""

import os
import resource
import subprocess

import pytest

from harness.conversions import Dumps, mark, processes, temporaries, wait_mark
from harness.daemons import SLOW, bin_path, wait_until
from harness.files import write_file

np = pytest.importorskip("numpy")
h5py = pytest.importorskip("h5py")
SCHEMA = """\
fpschema: 1
ranks: {{grid: [{n}]}}
rank: "rank_{{rank}}{more}.raw"
dims: {{x: {all}}}
datasets:
  - {{name: /t, type: float64, dims: [x]}}
"""
EACH = 2  # elements of a file
PARTS = 40
QUICK = ("--ckpt-quiet=500ms", "--ckpt-late=3s")


def write_dump(top, n, more="", ranks=None):
    os.makedirs(top, exist_ok=True)
    for rank in range(n) if ranks is None else ranks:
        write_file(os.path.join(top, f"rank_{rank}{more}.raw"), np.arange(EACH * rank, EACH * (rank + 1), dtype="<f8").tobytes())


def write_schema(path, n, more=""):
    write_file(path, SCHEMA.format(n=n, all=n * EACH, more=more).encode())
    return path


def is_whole(path, n):
    with h5py.File(path, "r", locking=False) as f:
        return np.array_equal(f["t"][()], np.arange(n * EACH))


def run(*args, command="run", **more):
    return subprocess.run([bin_path("fp-convert"), command, *map(str, args)], capture_output=True, timeout=60 * SLOW, check=False, **more)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """20,000 files, and how fp-convert is told what is in them."""
    top = tmp_path_factory.mktemp("many")
    write_dump(top / "d", 20000)
    return top, ["--from=raw", f"--schema={write_schema(str(top / 's.yaml'), 20000)}"]


def find(top, pattern="rank_*"):
    return subprocess.run(["find", top / "d", "-name", pattern, "-print0"], stdout=subprocess.PIPE, check=True, timeout=60).stdout


def write_list(path, data):
    write_file(str(path), data)
    return path


@pytest.mark.parametrize("files", [None, 256])
def test_a_set_is_what_find_has_found(many, files):
    """From a file, and from standard input; with fewer descriptors than inputs."""
    top, words = many
    names = find(top)
    few = None if files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    for given, source in ((write_list(top / "list", names), None), ("-", names)):
        r = run(*words, f"--files0-from={given}", "--replace", f"--out={top}/o.h5", input=source or b"", preexec_fn=few)
        assert r.returncode == 0, r.stderr
        assert is_whole(top / "o.h5", 20000)


def test_a_schema_is_looked_at_with_all_files_of_a_set(many):
    """From standard input, as find writes it; one that is missing is named."""
    top, words = many
    names = find(top)
    schema = words[1].split("=")[1]
    r = run("check", "--files0-from=-", schema, input=names, command="schema")
    assert r.returncode == 0 and b"[x=40000]  20000 blocks  320000 bytes" in r.stdout, (r.stdout, r.stderr)
    r = run("check", "--files0-from=-", schema, input=b"".join(n + bytes(1) for n in names.split(b"\0") if n and not n.endswith(b"rank_777.raw")), command="schema")
    assert r.returncode == 1 and b"777" in r.stderr, r.stderr
    r = run("guess", "--files0-from=-", input=names, command="schema")
    assert r.returncode == 0 and b"fpschema: 1" in r.stdout, r.stderr


def test_a_list_adds_to_what_is_given_as_words(many):
    top, words = many
    names = find(top).split(b"\0")[:-1]
    r = run(*words, os.fsdecode(names[0]), f"--files0-from={write_list(top / 'rest', b''.join(n + bytes(1) for n in names[1:]))}", f"--out={top}/words.h5")
    assert r.returncode == 0 and is_whole(top / "words.h5", 20000), r.stderr


def test_parts_of_long_lists_make_a_whole(many):
    """More parts than join keeps open with so few descriptors; in each, ten ranks are side by side."""
    top, words = many
    every = write_list(top / "every", find(top))
    parts = []
    for i in range(PARTS):
        some = write_list(top / f"only{i}", b"".join(os.fsencode(top / f"d/rank_{rank}.raw") + bytes(1) for rank in range(20000) if rank // 10 % PARTS == i))
        parts.append(top / f"part{i}.h5")
        r = run(*words, f"--files0-from={every}", f"--only0-from={some}", f"--out={parts[-1]}")
        assert r.returncode == 0, r.stderr
    r = run(f"--files0-from={write_list(top / 'parts', b''.join(os.fsencode(p) + bytes(1) for p in parts))}", f"--out={top}/joined.h5", command="join",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    assert r.returncode == 0 and is_whole(top / "joined.h5", 20000), r.stderr
    r = run(*words, f"--files0-from={every}", f"--only0-from={write_list(top / 'strange', b'rank_1.raw' + bytes(1))}", f"--out={top}/no.h5")
    assert r.returncode == 1 and b"none of the inputs" in r.stderr


@pytest.mark.parametrize("text,why", [
    (b"", b"no file is in the list"),
    (b"a\0\0b\0", b"byte 2: the name here is empty"),
    (b"a\0b", b"byte 2: no NUL byte ends the last name"),
    (b"a\nb\n", b"in lines"),
])
def test_what_is_no_list_is_a_mistake_in_the_call(tmp_path, text, why):
    given = write_list(tmp_path / "list", text)
    for command, words in (("run", ("--from=npy",)), ("join", ())):
        r = run(*words, f"--files0-from={given}", f"--out={tmp_path}/o.h5", command=command)
        assert r.returncode == 2 and why in r.stderr and b"--help" in r.stderr, r.stderr
    r = run("--from=npy", "x.npy", f"--only0-from={given}", f"--out={tmp_path}/o.h5")
    assert r.returncode == 2 and why in r.stderr, r.stderr
    assert os.listdir(tmp_path) == ["list"]


def test_lists_that_can_not_be_read_or_not_at_once_are_refused(tmp_path):
    for words, why in ((("--files0-from=nowhere",), b"can't be opened"), ((f"--files0-from={tmp_path}",), b"can't be read"), ((), b"INPUT is missing"),
                       (("--files0-from=-", "--only0-from=-"), b"can't both read standard input"), (("--files0-from=-", "--mpi"), b"not for --mpi")):
        r = run("--from=npy", *words, f"--out={tmp_path}/o.h5", input=b"a\0")
        assert r.returncode == 2 and why in r.stderr, r.stderr


MORE = "-of-an-application-that-gives-its-files-names-of-some-length"


@pytest.mark.limit(180)
@pytest.mark.parametrize("mounts,n", [(1, 3000), (2, 1200)])
def test_a_dump_of_more_files_than_a_command_line_holds(new_store, mounts, n):
    """Two mounts: in parts. Programs that the coordinators start have 128 KiB for all their words, and the names of the files are more."""
    s = new_store().up(benefactors=1, mounts=0, manager_args=QUICK)
    d = Dumps(s)
    write_schema(d.schema, n, MORE)
    for i in range(mounts):
        m = s.add_mount(f"--auxapp={d.words()}", node=i)
        watch, = wait_until("its coordinator", 10, lambda m=m: processes(m, "watch"))
        resource.prlimit(watch, resource.RLIMIT_STACK, (512 << 10, 512 << 10))
    assert n * len(s.mounts[0].at("run/dump_0007", f"rank_{MORE}.raw")) > 128 << 10
    for i, m in enumerate(s.mounts):
        write_dump(m.at("run/dump_0007"), n, MORE, range(i, n, mounts))
    for m in s.mounts:
        wait_mark(m, "run/dump_0007", "done run/dump_0007.h5$", 90)
        assert is_whole(m.at("run/dump_0007.h5"), n)
    assert sum(name.endswith(".piece") for name in os.listdir(s.mounts[0].at("run"))) == (mounts if mounts > 1 else 0)
    assert temporaries(s.mounts[0].path) == [] and mark(s.mounts[0], "run/dump_0007").startswith("done ")
