"""fp-convert on the way back: HDF5, netCDF-4 and ADIOS2 files in, raw files of ranks out, each checked by NumPy; and what it says where it can't."""

import ctypes
import glob
import os
import sys
import subprocess

import numpy as np
import pytest

from harness.daemons import SLOW, bin_path

h5py = pytest.importorskip("h5py")


def run(*args, env=None):
    return subprocess.run([bin_path("fp-convert"), "run", *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW, env=dict(os.environ, **(env or {})))


def convert(*args, env=None):
    done = run(*args, env=env)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stderr


def refused(*args, env=None):
    done = run(*args, env=env)
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    return done.stderr


def split(n, parts, i):
    start = i * (n // parts) + min(i, n % parts)
    return start, n // parts + (i < n % parts)


def part(a, grid, rank, ghost):
    """The block of a rank, with zeros where ghost cells lie outside of the array."""
    at = np.unravel_index(rank, grid)
    cut = [split(n, p, i) for n, p, i in zip(a.shape, grid, at, strict=True)]
    wide = np.pad(a, [(g, g) for g in ghost])
    return wide[tuple(slice(start, start + count + 2 * g) for (start, count), g in zip(cut, ghost, strict=True))]


SCHEMA = """fpschema: 1
byte_order: {order}
header: {header}
ranks: {{grid: {grid}}}
dims: {{z: 17, y: 10, x: 23}}
datasets:
  - {{name: /fields/t, type: float64, dims: [z, y, x], ghost: {ghost}}}
  - {{name: /flags, type: uint8, dims: [y, x], block: whole}}
"""


@pytest.fixture
def arrays(tmp_path):
    t = np.random.default_rng(7).random((17, 10, 23))
    flags = np.arange(230, dtype="u1").reshape(10, 23)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("fields/t", data=t.astype(">f8"), chunks=(5, 4, 8), compression="gzip", shuffle=True, fletcher32=True)
        f["fields/t"].attrs["units"] = "K"
        f["flags"] = flags
    return t, flags


def test_hdf5_to_raw_files_of_any_number_of_ranks_and_back(tmp_path, arrays):
    t, flags = arrays
    for n, (grid, ghost, order, header) in enumerate([((1, 1, 1), (0, 0, 0), "little", 0), ((2, 3, 2), (1, 2, 0), "big", 96), ((17, 1, 5), (2, 0, 3), "little", 5)]):
        schema = tmp_path / f"s{n}.yaml"
        schema.write_text(SCHEMA.format(order=order, header=header, grid=list(grid), ghost=list(ghost)))
        convert("--from=hdf5", "--to=raw", f"--schema={schema}", f"--out={tmp_path}/raw{n}", "--memory=1MiB", tmp_path / "a.h5")
        ranks = int(np.prod(grid))
        assert sorted(os.listdir(tmp_path / f"raw{n}")) == sorted(f"rank_{r}.raw" for r in range(ranks))
        for r in range(ranks):
            mine = part(t, grid, r, ghost)
            expected = bytes(header) + mine.astype("<f8" if order == "little" else ">f8").tobytes() + flags.tobytes()
            assert (tmp_path / f"raw{n}/rank_{r}.raw").read_bytes() == expected, (grid, r)
        convert("--from=raw", f"--schema={schema}", f"--out={tmp_path}/back{n}.h5", *sorted(glob.glob(f"{tmp_path}/raw{n}/*")))
        with h5py.File(tmp_path / f"back{n}.h5") as f:
            assert np.array_equal(f["fields/t"][()], t) and np.array_equal(f["flags"][()], flags)


def test_a_directory_is_replaced_by_another(tmp_path, arrays):
    for n, grid in enumerate(([2, 1, 1], [1, 3, 1])):
        schema = tmp_path / f"s{n}.yaml"
        schema.write_text(SCHEMA.format(order="little", header=0, grid=grid, ghost=[0, 0, 0]))
        args = ["--from=hdf5", "--to=raw", f"--schema={schema}", f"--out={tmp_path}/raw", tmp_path / "a.h5"]
        if n:
            assert "--replace" in refused(*args)
        convert(*args, *(["--replace"] if n else []))
        assert len(os.listdir(tmp_path / "raw")) == max(grid)
    assert not [f for f in os.listdir(tmp_path) if f.startswith(".")]


def test_what_a_schema_of_raw_files_does_not_fit_leaves_nothing(tmp_path, arrays):
    schema = tmp_path / "s.yaml"
    schema.write_text("fpschema: 1\nranks: {grid: [2, 1, 1]}\ndatasets:\n  - {name: /fields/t, type: float64, dims: [17, 10, 23]}\n")
    before = sorted(os.listdir(tmp_path))
    said = refused("--from=hdf5", "--to=raw", f"--schema={schema}", f"--out={tmp_path}/raw", tmp_path / "a.h5")
    assert "/flags" in said and "schema" in said
    assert sorted(os.listdir(tmp_path)) == before


def test_parts_that_only_wrote_are_put_together_again(tmp_path):
    """fp-convert run --only writes parts, which from=hdf5 takes as one array."""
    u = np.arange(12 * 7, dtype="<i4").reshape(12, 7)
    schema = tmp_path / "s.yaml"
    schema.write_text("fpschema: 1\nranks: {grid: [3, 1]}\ndatasets:\n  - {name: /u, type: int32, dims: [12, 7]}\n")
    files = [tmp_path / f"rank_{r}.raw" for r in range(3)]
    for r, path in enumerate(files):
        path.write_bytes(u[4 * r : 4 * r + 4].tobytes())
    for n, only in enumerate(([files[1]], [files[0], files[2]])):
        convert("--from=raw", f"--schema={schema}", f"--out={tmp_path}/part{n}.h5", *(f"--only={o}" for o in only), *files)
    convert("--from=hdf5", f"--out={tmp_path}/all.h5", tmp_path / "part0.h5", tmp_path / "part1.h5")
    with h5py.File(tmp_path / "all.h5") as f:
        assert np.array_equal(f["u"][()], u) and "fp_boxes" not in f["u"].attrs
    joined = subprocess.run([bin_path("fp-convert"), "join", f"--out={tmp_path}/vds.h5", f"{tmp_path}/part0.h5", f"{tmp_path}/part1.h5"], capture_output=True, text=True, timeout=60 * SLOW)
    assert joined.returncode == 0, joined.stderr
    convert("--from=hdf5", f"--out={tmp_path}/flat.h5", tmp_path / "vds.h5")
    with h5py.File(tmp_path / "flat.h5") as f:
        assert np.array_equal(f["u"][()], u) and not f["u"].is_virtual
    assert "in no block" in refused("--from=hdf5", f"--out={tmp_path}/half.h5", tmp_path / "part1.h5")


def test_netcdf4_and_hdf5_of_h5py_keep_dimensions_and_attributes(tmp_path):
    with h5py.File(tmp_path / "n.nc", "w") as f:
        f.create_dataset("u", data=np.arange(6.0).reshape(2, 3), maxshape=(None, 3), chunks=(1, 3))
        f["x"], f["c"], f["b"] = np.arange(3) * 0.5, np.arange(3) * (1 + 2j), np.array([True, False])
        f["x"].make_scale("x")
        f["u"].dims[1].attach_scale(f["x"])
        f["u"].attrs.update(units="m/s", levels=np.array([1, 2, 3]))
        f["text"] = "no numbers"
        f["u"].attrs["names"] = ["p", "q"]
        f["u"].attrs["matrix"] = np.eye(2)
        f.create_group("g").attrs["of"] = "a group"
        f["again"] = h5py.SoftLink("/u")
    said = convert("--from=hdf5", f"--out={tmp_path}/o.h5", tmp_path / "n.nc")
    assert "/text" in said and "passed over" in said
    for words in ("/u: 2 attributes are passed over (matrix, ...)", "group /g: its attributes are passed over, 1 of them", "1 link is passed over"):
        assert words in said, said
    with h5py.File(tmp_path / "o.h5") as f:
        assert sorted(f) == ["b", "c", "u", "x"]
        assert f["u"].maxshape == (None, 3) and f["u"].dims[1][0] == f["x"]
        assert f["u"].attrs["units"] == "m/s" and list(f["u"].attrs["levels"]) == [1, 2, 3]
        assert np.array_equal(f["c"][()], np.arange(3) * (1 + 2j)) and list(f["b"][()]) == [1, 0]


def test_damaged_hdf5_names_file_dataset_and_reason(tmp_path, arrays):
    with h5py.File(tmp_path / "a.h5") as f:
        chunk = f["fields/t"].id.get_chunk_info(3)
    data = bytearray((tmp_path / "a.h5").read_bytes())
    data[chunk.byte_offset + chunk.size // 2] ^= 0xFF
    (tmp_path / "bad.h5").write_bytes(data)
    said = refused("--from=hdf5", f"--out={tmp_path}/o.h5", tmp_path / "bad.h5")
    assert "bad.h5" in said and "/fields/t" in said and "checksum" in said
    (tmp_path / "bad.h5").write_bytes(data[: len(data) // 2])
    assert "truncated" in refused("--from=hdf5", f"--out={tmp_path}/o.h5", tmp_path / "bad.h5")
    assert not os.path.exists(tmp_path / "o.h5")


# ---------------------------------------------------------------- ADIOS2


def adios_library():
    """libadios2_c of the Python package, which brings one."""
    sys.path.append(os.path.join(os.environ.get("FP_DEPS", ""), "adios2"))  # tools/deps.sh
    adios2 = pytest.importorskip("adios2")
    found = os.environ.get("FP_ADIOS2_LIB") or next(iter(glob.glob(os.path.dirname(adios2.__file__) + "/libadios2_c.so")), None)
    if not found:
        pytest.skip("the package adios2 has no C library")
    return adios2, {"FP_ADIOS2_LIB": found}


def test_without_adios2_it_says_so(tmp_path):
    os.mkdir(tmp_path / "d.bp")
    said = refused("--from=adios", f"--out={tmp_path}/o.h5", tmp_path / "d.bp", env={"FP_ADIOS2_LIB": f"{tmp_path}/none.so"})
    assert "ADIOS2 is not installed" in said and "FP_ADIOS2_LIB" in said


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
def test_adios_dumps_of_several_writers_and_steps(tmp_path, engine):
    adios2, env = adios_library()
    mode = adios2.bindings.Mode
    u = np.random.default_rng(3).random((3, 9, 8))
    io = adios2.Adios().declare_io("out")
    io.set_engine(engine)
    names = {"fields/u": io.define_variable("fields/u", u[0], [9, 8], [0, 0], [5, 8]), "once": io.define_variable("once", np.zeros(4, "i4"), [4], [0], [4])}
    names |= {"late": io.define_variable("late", np.zeros(2, "c16"), [2], [0], [2]), "step": io.define_variable("step", np.zeros(1, "i8"))}
    local = io.define_variable("local", np.zeros(3), [], [], [3])
    for name, value in {"fields/u/units": "K", "title": "of two writers", "n": np.array([1, -2], "i2")}.items():
        io.define_attribute(name, value)
    out = io.open(f"{tmp_path}/d.bp", mode.Write)
    for k in range(3):
        out.begin_step()
        for y, n in ((0, 5), (5, 4)):
            names["fields/u"].set_selection([[y, 0], [n, 8]])
            out.put(names["fields/u"], np.ascontiguousarray(u[k, y : y + n]), mode.Sync)
        if k == 0:
            out.put(names["once"], np.arange(4, dtype="i4"), mode.Sync)
        else:
            out.put(names["late"], np.array([k, 1j * k]), mode.Sync)
        out.put(names["step"], np.array([7 * k]), mode.Sync)
        out.put(local, np.arange(3.0), mode.Sync)
        out.end_step()
    out.close()
    files = [f"{tmp_path}/d.bp/{f}" for f in sorted(os.listdir(f"{tmp_path}/d.bp"))]
    for n, inputs in enumerate(([f"{tmp_path}/d.bp"], files)):
        said = convert("--from=adios", f"--out={tmp_path}/o{n}.h5", *inputs, env=env)
        assert "/local" in said and "passed over" in said
        with h5py.File(f"{tmp_path}/o{n}.h5") as f:
            assert np.array_equal(f["fields/u"][()], u) and f["fields/u"].maxshape[0] is None
            assert np.array_equal(f["once"][()], np.arange(4)) and np.array_equal(f["late"][()], [[1, 1j], [2, 2j]]) and list(f["step"]) == [0, 7, 14]
            assert f["fields/u"].attrs["units"] == "K" and f.attrs["title"] == "of two writers" and list(f.attrs["n"]) == [1, -2]


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
@pytest.mark.parametrize("whole", [True, False])
def test_adios_elements_that_no_writer_has_written_are_said_and_not_made_up(tmp_path, engine, whole):
    """Of a variable that is not in every step: BP4 does not say who wrote it."""
    adios2, env = adios_library()
    mode = adios2.bindings.Mode
    some = np.arange(512, dtype="u1").reshape(2, 256)  # every value that a byte has
    io = adios2.Adios().declare_io("out")
    io.set_engine(engine)
    always = io.define_variable("always", np.zeros(2), [2], [0], [2])
    v = io.define_variable("some", some[0], [256], [0], [128])
    out = io.open(f"{tmp_path}/d.bp", mode.Write)
    for k in range(4):
        out.begin_step()
        out.put(always, np.array([k, -k], "f8"), mode.Sync)
        for start in (0, 128) if k in (0, 2) else ():
            if whole or (k, start) != (2, 128):
                v.set_selection([[start], [128]])
                out.put(v, np.ascontiguousarray(some[k // 2, start : start + 128]), mode.Sync)
        out.end_step()
    out.close()
    if not whole:
        said = refused("--from=adios", f"--out={tmp_path}/o.h5", f"{tmp_path}/d.bp", env=env)
        assert "/some" in said and "in no block" in said and not os.path.exists(tmp_path / "o.h5")
        return
    convert("--from=adios", f"--out={tmp_path}/o.h5", f"{tmp_path}/d.bp", env=env)
    with h5py.File(f"{tmp_path}/o.h5") as f:
        assert np.array_equal(f["some"][()], some) and np.array_equal(f["always"][()], [[k, -k] for k in range(4)])


def fortran_dump(library, path, engine, parts):
    """As a program in Fortran writes it, whose bindings call the same functions: a variable t of 6 x 4 in that order, of which each part is (start, values)."""
    c = ctypes.CDLL(library)
    for name in ("init_config_glue_serial", "declare_io", "define_variable", "open"):
        getattr(c, f"adios2_{name}").restype = ctypes.c_void_p
    of = lambda *n: (ctypes.c_size_t * len(n))(*n)  # noqa: E731
    adios = ctypes.c_void_p(c.adios2_init_config_glue_serial(b"", b"Fortran"))
    io = ctypes.c_void_p(c.adios2_declare_io(adios, b"out"))
    assert c.adios2_set_engine(io, engine.encode()) == 0
    v = ctypes.c_void_p(c.adios2_define_variable(io, b"t", 2, ctypes.c_size_t(2), of(6, 4), of(0, 0), of(6, 4), 0))
    out = ctypes.c_void_p(c.adios2_open(io, path.encode(), 1))
    for start, values in parts:
        assert c.adios2_set_selection(v, ctypes.c_size_t(2), of(*start), of(*values.shape[::-1])) == 0
        assert c.adios2_put(out, v, np.ascontiguousarray(values).ctypes.data_as(ctypes.c_void_p), 5) == 0
    assert c.adios2_close(out) == 0 and c.adios2_finalize(adios) == 0


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
def test_adios_dumps_of_fortran_are_whole_or_refused(tmp_path, engine):
    _, env = adios_library()
    t = np.random.default_rng(5).random((4, 6))
    parts = [((0, 0), t[:, :2]), ((2, 0), t[:, 2:])]
    fortran_dump(env["FP_ADIOS2_LIB"], f"{tmp_path}/all.bp", engine, parts)
    convert("--from=adios", f"--out={tmp_path}/o.h5", f"{tmp_path}/all.bp", env=env)
    with h5py.File(f"{tmp_path}/o.h5") as f:
        assert np.array_equal(f["t"][()], t)
    fortran_dump(env["FP_ADIOS2_LIB"], f"{tmp_path}/part.bp", engine, parts[:1])
    said = refused("--from=adios", f"--out={tmp_path}/p.h5", f"{tmp_path}/part.bp", env=env)
    assert "/t" in said and "in no block" in said
