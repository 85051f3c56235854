"""fp-convert from each format to each: every element is compared with the array that was dumped, as h5py, netCDF4 and NumPy read the result. Without a store, in a directory."""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from harness import mpijob
from harness.daemons import SLOW, bin_path

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
MIB = 1 << 20
TYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16"]
WORDS = {"i": "int", "u": "uint", "f": "float", "c": "complex"}
TMP = ".fp-convert-"


def command(out, to, source, *inputs, schema=None, options=()):
    return [bin_path("fp-convert"), "run", f"--from={source}", f"--to={to}", f"--out={out}", *([f"--schema={schema}"] if schema else []), *options, *map(str, inputs)]


def convert(out, to, source, *inputs, fails=None, **more):
    """fails: the exit status that it is to have; then nothing new is in the directory of the result."""
    where = os.path.dirname(out)
    before = set(os.listdir(where))
    done = subprocess.run(command(out, to, source, *inputs, **more), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == (fails or 0), (done.returncode, done.stdout, done.stderr)
    if fails:
        assert set(os.listdir(where)) == before
    assert not [n for n in os.listdir(where) if n.startswith(TMP)]
    return done.stderr


def random_array(dtype, shape, seed=0):
    """Any bits that make numbers which compare equal to themselves."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def part(size, pieces, i):
    """The first and the next behind it of piece i: those in front have one more where it does not come out even."""
    each, more = divmod(size, pieces)
    lo = i * each + min(i, more)
    return lo, lo + each + (i < more)


def grid_of(ranks, dims, seed=0):
    """Any grid of so many ranks, of these dimensions."""
    rng = np.random.default_rng(seed)
    grid = [1] * dims
    for p in (2, 3, 5, 7):
        while ranks % p == 0:
            grid[rng.integers(dims)] *= p
            ranks //= p
    return grid


class Dump:
    """Files of ranks, their schema, and the arrays that are to come out."""

    def __init__(self, at, ranks=1, big=False, fortran=False, header=0, steps=1, step_header=0, count_fortran=False):
        self.at, self.ranks, self.big, self.fortran, self.header, self.steps, self.step_header, self.count_fortran = at, ranks, big, fortran, header, steps, step_header, count_fortran
        self.datasets = []

    def add(self, name, dtype, shape, grid=None, ghost=0, more=""):
        """shape is in the order of the schema; with steps, the arrays of all of them are stacked in front."""
        whole = random_array(dtype, (self.steps, *shape), len(self.datasets) + 1)
        self.datasets.append((name, np.dtype(dtype), shape, grid or grid_of(self.ranks, len(shape), len(self.datasets)) if shape else [], ghost, whole, more))
        return self

    def block(self, grid, shape, rank, ghost, array):
        place = np.unravel_index(rank, grid, order="F" if self.count_fortran else "C") if grid else ()
        bounds = [part(n, p, int(i)) for n, p, i in zip(shape, grid, place)]
        padded = np.pad(array, ghost, mode="wrap") if ghost and array.size else array
        return padded[tuple(slice(lo, hi + 2 * ghost) for lo, hi in bounds)]

    def write(self):
        self.at.mkdir()
        order = ">" if self.big else "<"
        for r in range(self.ranks):
            with open(self.at / f"rank_{r}.raw", "wb") as f:
                f.write(os.urandom(self.header))
                for k in range(self.steps):
                    f.write(os.urandom(self.step_header))
                    for _, dtype, shape, grid, ghost, whole, _ in self.datasets:
                        b = np.asarray(self.block(grid, shape, r, ghost, whole[k]))
                        f.write(b.astype(dtype.newbyteorder(order)).tobytes(order="F" if self.fortran else "C"))
        lines = ["fpschema: 1", f"byte_order: {'big' if self.big else 'little'}", f"order: {'fortran' if self.fortran else 'C'}", f"header: {self.header}",
                 f"steps: {self.steps}", f"step_header: {self.step_header}", f"ranks: {{count: {self.ranks}}}", 'rank: "rank_{rank}.raw"', "datasets:"]
        if self.count_fortran:
            lines[6] = f"ranks: {{grid: {self.datasets[0][3]}, order: fortran}}"
        for name, dtype, shape, grid, ghost, _, more in self.datasets:
            lines.append(f"  - {{name: {name}, type: {WORDS[dtype.kind]}{8 * dtype.itemsize}, dims: {list(shape)}, block: {{grid: {grid}}}, ghost: {ghost}{more}}}" if shape else
                         f"  - {{name: {name}, type: {WORDS[dtype.kind]}{8 * dtype.itemsize}, dims: []{more}}}")
        self.schema = self.at.parent / f"{self.at.name}.yaml"
        self.schema.write_text("\n".join(lines) + "\n")
        self.inputs = [str(self.at / f"rank_{r}.raw") for r in range(self.ranks)]
        return self

    def expected(self):
        for name, _, shape, _, _, whole, _ in self.datasets:
            arrays = [a.transpose() if self.fortran else a for a in whole]
            yield name, np.stack(arrays) if self.steps > 1 else np.asarray(arrays[0])

    def to(self, out, to="hdf5", **more):
        return convert(str(out), to, "raw", *self.inputs, schema=self.schema, **more)


def read_h5(path):
    with h5py.File(path) as f:
        names = []
        f.visititems(lambda n, o: names.append(n) if isinstance(o, h5py.Dataset) else None)
        return {"/" + n: f[n][()] for n in names}


def read_zstd(path):
    """h5py brings no zstd: chunks as they are stored, inflated by libzstd and sorted back here."""
    zstd, found, shrunk = ctypes.CDLL("libzstd.so.1"), {}, 0
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    with h5py.File(path) as f:
        for name, d in f.items():
            plist = d.id.get_create_plist()
            codes = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
            found[f"/{name}"] = whole = np.zeros(d.shape, d.dtype)
            for i in range(d.id.get_num_chunks() if codes else 0):
                at = d.id.get_chunk_info(i).chunk_offset
                mask, data = d.id.read_direct_chunk(at)
                done = {c for k, c in enumerate(codes) if not mask >> k & 1}  # what could not be made smaller is left as it is
                plain = stored = data[:-4] if 3 in done else data
                if 32015 in done:
                    plain = ctypes.create_string_buffer(int(np.prod(d.chunks)) * d.dtype.itemsize)
                    assert zstd.ZSTD_decompress(plain, ctypes.c_size_t(len(plain)), stored, ctypes.c_size_t(len(stored))) == len(plain)
                    shrunk += len(plain) - len(stored)
                plain = np.frombuffer(plain, "u1")
                if 2 in done:
                    plain = plain.reshape(d.dtype.itemsize, -1).T.copy()
                place = tuple(slice(a, min(a + c, n)) for a, c, n in zip(at, d.chunks, d.shape))
                whole[place] = np.frombuffer(plain.tobytes(), d.dtype).reshape(d.chunks)[tuple(slice(0, p.stop - p.start) for p in place)]
            if not codes:
                found[f"/{name}"] = d[()]
    assert shrunk > 0
    return found


def read_nc(path):
    found = {}

    def walk(group, prefix):
        for n, v in group.variables.items():
            v.set_auto_maskandscale(False)
            found[f"{prefix}/{n}"] = np.asarray(v[...])
        for n, g in group.groups.items():
            walk(g, f"{prefix}/{n}")

    with netCDF4.Dataset(path) as f:
        walk(f, "")
    return found


READERS = {"hdf5": read_h5, "netcdf": read_nc, "netcdf3": read_nc}


def same(got, name, expected):
    a = got[name]
    assert a.shape == expected.shape, (name, a.shape, expected.shape)
    assert (a.dtype.kind, a.dtype.itemsize) == (expected.dtype.kind, expected.dtype.itemsize), (name, a.dtype, expected.dtype)
    assert np.array_equal(a, expected), name


def all_same(got, dump):
    for name, expected in dump.expected():
        same(got, name, expected)


# --- raw --------------------------------------------------------------------


def all_dimensions(dump, most, types=TYPES):
    for n in range(most + 1):
        shape = tuple((101, 13, 7, 5, 4, 3, 3)[:n]) if n < 2 else tuple(sorted((9, 7, 5, 4, 4, 3, 3)[:n], reverse=True))
        grid = grid_of(dump.ranks, n, seed=n + dump.ranks) if n else None  # with more pieces than cells here and there
        dump.add(f"/dims{n}", types[n % len(types)], shape, grid)
    return dump


@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
@pytest.mark.parametrize("ranks", [1, 2, 6, 64])
def test_raw_of_0_to_7_dimensions(tmp_path, ranks, big):
    dump = all_dimensions(Dump(tmp_path / "dump", ranks, big), 7, ["f8", "i2", "f4", "u8", "c16", "i1", "u4", "f8"]).write()
    dump.to(tmp_path / "out.h5")
    all_same(read_h5(tmp_path / "out.h5"), dump)


@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
def test_raw_of_all_types(tmp_path, big):
    dump = Dump(tmp_path / "dump", 6, big, header=37)
    for t in TYPES:
        dump.add(f"/types/{t}", t, (11, 12, 13), ghost=1)
    dump.write().to(tmp_path / "out.h5")
    all_same(read_h5(tmp_path / "out.h5"), dump)


@pytest.mark.parametrize("fortran", [False, True], ids=["C", "fortran"])
@pytest.mark.parametrize("ghost", [0, 1, 3])
def test_raw_with_ghosts_steps_and_headers(tmp_path, ghost, fortran):
    dump = Dump(tmp_path / "dump", 12, ghost == 1, fortran, header=512, steps=4, step_header=20, count_fortran=fortran)
    dump.add("/t", "f8", (17, 12, 9), ghost=ghost).add("/flags", "u1", (17, 12, 9)).add("/plane", "i4", (23, 31), grid=[3, 4], ghost=ghost).add("/time_s", "f8", ())
    dump.write().to(tmp_path / "out.h5", options=["--memory=1MiB"])
    all_same(read_h5(tmp_path / "out.h5"), dump)


def test_raw_in_chunks_that_cross_blocks(tmp_path):
    dump = Dump(tmp_path / "dump", 8).add("/t", "f8", (61, 47, 33), grid=[2, 2, 2], ghost=1).write()
    dump.to(tmp_path / "out.h5", options=["--chunk=7x50x11", "--memory=1MiB"])
    all_same(read_h5(tmp_path / "out.h5"), dump)
    with h5py.File(tmp_path / "out.h5") as f:
        assert f["/t"].chunks == (7, 47, 11)


def test_rows_by_turns_are_put_between_each_other(tmp_path):
    whole = random_array("i4", (12, 10), 3)
    for r in range(3):
        whole[r::3].tofile(tmp_path / f"rank_{r}.raw")
    (tmp_path / "s.yaml").write_text("fpschema: 1\nranks: 3\ndatasets:\n  - name: /t\n    type: int32\n    dims: [12, 10]\n    block: ["
                                     + ", ".join(f"{{start: [{r}, 0], count: [4, 10], stride: [3, 1]}}" for r in range(3)) + "]\n")
    convert(f"{tmp_path}/out.h5", "hdf5", "raw", *(tmp_path / f"rank_{r}.raw" for r in range(3)), schema=tmp_path / "s.yaml")
    same(read_h5(tmp_path / "out.h5"), "/t", whole)


# --- sinks ------------------------------------------------------------------

HDF5 = [(), ("--compress=deflate",), ("--compress=deflate:9", "--shuffle=off"), ("--compress=zstd",), ("--compress=zstd:19", "--checksum=fletcher32"), ("--checksum=fletcher32",), ("--shuffle=on",)]


def mixture(at, types, **more):
    dump = Dump(at, 6, **more)
    for i, t in enumerate(types):
        dump.add(f"/v_{t}", t, (14, 9, 8) if i % 2 else (40, 33), ghost=i % 3)
    return dump.add("/single", types[0], ()).write()


@pytest.mark.parametrize("options", HDF5, ids=lambda o: ",".join(w[2:] for w in o) or "plain")
def test_hdf5_with_filters(tmp_path, options):
    dump = mixture(tmp_path / "dump", TYPES, big=True, steps=2)
    dump.to(tmp_path / "out.h5", options=options)
    with h5py.File(tmp_path / "out.h5") as f:
        filters = [f["/v_f8"].id.get_create_plist().get_filter(i)[0] for i in range(f["/v_f8"].id.get_create_plist().get_nfilters())]
    assert (32015 in filters) == any("zstd" in o for o in options)
    assert (1 in filters) == any("deflate" in o for o in options)
    assert (3 in filters) == any("fletcher32" in o for o in options)
    all_same(read_zstd(tmp_path / "out.h5") if 32015 in filters else read_h5(tmp_path / "out.h5"), dump)


@pytest.mark.parametrize("to,options", [("netcdf", ()), ("netcdf", ("--compress=deflate",)), ("netcdf", ("--checksum=fletcher32",)), ("netcdf3", ())])
@pytest.mark.parametrize("steps", [1, 3])
def test_netcdf(tmp_path, to, options, steps):
    dump = mixture(tmp_path / "dump", TYPES[:10], big=steps == 3, steps=steps)
    dump.to(tmp_path / "out.nc", to, options=options)
    all_same(read_nc(tmp_path / "out.nc"), dump)
    if steps > 1:
        with netCDF4.Dataset(tmp_path / "out.nc") as f:
            assert f.variables["v_f8"].get_dims()[0].isunlimited()


@pytest.mark.parametrize("to", ["netcdf", "netcdf3"])
def test_netcdf_of_7_dimensions(tmp_path, to):
    dump = all_dimensions(Dump(tmp_path / "dump", 6), 7, ["f8", "i4", "f4"]).write()
    dump.to(tmp_path / "out.nc", to)
    all_same(read_nc(tmp_path / "out.nc"), dump)


def test_attributes_and_dimensions_are_there(tmp_path):
    a = random_array("f8", (6, 8), 1)
    a.tofile(tmp_path / "rank_0.raw")
    (tmp_path / "s.yaml").write_text("fpschema: 1\nranks: 1\ndims: {y: 6, x: 8}\ndatasets:\n  - {name: /t, type: float64, dims: [y, x], units: K, "
                                     "attributes: {long_name: temperature, levels: [1, 2, 3], factor: 2.5}}\nattributes: {title: a title}\n")
    convert(f"{tmp_path}/out.h5", "hdf5", "raw", tmp_path / "rank_0.raw", schema=tmp_path / "s.yaml", options=["--xdmf=yes"])
    with h5py.File(tmp_path / "out.h5") as f:
        at = f["/t"].attrs
        assert at["units"] in ("K", b"K") and at["long_name"] in ("temperature", b"temperature") and list(at["levels"]) == [1, 2, 3] and at["factor"] == 2.5
        assert f.attrs["title"] in ("a title", b"a title") and [d[0].name for d in f["/t"].dims] == ["/y", "/x"]
    assert os.path.exists(tmp_path / "out.xmf")
    for to in ("netcdf", "netcdf3"):
        convert(f"{tmp_path}/{to}.nc", to, "raw", tmp_path / "rank_0.raw", schema=tmp_path / "s.yaml")
        with netCDF4.Dataset(tmp_path / f"{to}.nc") as f:
            v = f.variables["t"]
            assert v.dimensions == ("y", "x") and v.units == "K" and v.long_name == "temperature" and list(v.levels) == [1, 2, 3] and v.factor == 2.5 and f.title == "a title"


def fill_of(f, name):
    v = f.variables[name]
    v.set_auto_mask(False)
    return v.getncattr("_FillValue") if "_FillValue" in v.ncattrs() else None


@pytest.mark.parametrize("to", ["hdf5", "netcdf", "netcdf3"])
def test_the_fill_value_of_a_schema_is_that_of_the_variable(tmp_path, to):
    """As an attribute: elements that no rank has become it, also where a part of a tile is of a rank."""
    np.arange(6, dtype="f4").tofile(tmp_path / "rank_0.raw")
    (tmp_path / "s.yaml").write_text("fpschema: 1\nranks: 1\ndatasets:\n  - {name: /t, type: float32, dims: [4, 3], block: [{start: [1, 0], count: [2, 3]}], gaps: fill, "
                                     "attributes: {_FillValue: -999}}\n")
    convert(f"{tmp_path}/out", to, "raw", tmp_path / "rank_0.raw", schema=tmp_path / "s.yaml")
    expected = np.array([[-999] * 3, [0, 1, 2], [3, 4, 5], [-999] * 3], "f4")
    if to == "hdf5":
        with h5py.File(tmp_path / "out") as f:
            assert f["t"].fillvalue == -999 and f["t"].attrs["_FillValue"].dtype == "f4" and np.array_equal(f["t"][()], expected)
        return
    with netCDF4.Dataset(tmp_path / "out") as f:
        assert fill_of(f, "t") == -999 and fill_of(f, "t").dtype == "f4" and np.array_equal(f.variables["t"][:], expected)
    with netCDF4.Dataset(tmp_path / "out") as f:
        assert np.array_equal(np.ma.getmaskarray(f.variables["t"][:]), expected == -999)


def test_a_fill_value_that_is_a_text_is_refused_with_its_place_in_the_schema(tmp_path):
    np.zeros(4).tofile(tmp_path / "rank_0.raw")
    (tmp_path / "s.yaml").write_text("fpschema: 1\nranks: 1\ndatasets:\n  - name: /t\n    type: float64\n    dims: [4]\n    attributes:\n      _FillValue: missing\n")
    said = convert(f"{tmp_path}/out.nc", "netcdf", "raw", tmp_path / "rank_0.raw", schema=tmp_path / "s.yaml", fails=1)
    assert "line 8, column 19: " in said and "float64" in said and "another name" in said
    done = subprocess.run([bin_path("fp-convert"), "schema", "check", tmp_path / "s.yaml"], capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 1 and "line 8, column 19: " in done.stderr


@pytest.mark.parametrize("to", ["netcdf", "netcdf3"])
def test_a_dataset_may_have_the_name_of_a_dimension_that_it_is_not_of(tmp_path, to):
    """Before and behind those that are of it."""
    values = np.arange(12.0)
    values.tofile(tmp_path / "rank_0.raw")
    (tmp_path / "s.yaml").write_text("fpschema: 1\nranks: 1\ndims: {x: 4, y: 4}\ndatasets:\n"
                                     "  - {name: /x, type: float64, dims: [4]}\n  - {name: /u, type: float64, dims: [x]}\n  - {name: /y, type: float64, dims: [x]}\n")
    convert(f"{tmp_path}/out.nc", to, "raw", tmp_path / "rank_0.raw", schema=tmp_path / "s.yaml")
    with netCDF4.Dataset(tmp_path / "out.nc") as f:
        assert f.variables["u"].dimensions == ("x",) and f.variables["y"].dimensions == ("x",) and f.variables["x"].dimensions != ("x",)
        for i, name in enumerate("xuy"):
            assert np.array_equal(f.variables[name][:], values[4 * i:4 * i + 4]), name


@pytest.mark.parametrize("to", ["netcdf", "netcdf3"])
def test_attributes_that_the_library_keeps_for_itself_get_another_name(tmp_path, to):
    names = ["_NCProperties", "_IsNetcdf4", "_SuperblockVersion", "_Format", "_ARRAY_DIMENSIONS", "_Codecs", "_NCZARR_ATTR"]
    np.zeros(4).tofile(tmp_path / "rank_0.raw")
    given = ", ".join(f"{n}: mine" for n in names)
    (tmp_path / "s.yaml").write_text(f"fpschema: 1\nranks: 1\nattributes: {{{given}}}\ndatasets:\n  - {{name: /t, type: float64, dims: [4], attributes: {{{given}}}}}\n")
    said = convert(f"{tmp_path}/out.nc", to, "raw", tmp_path / "rank_0.raw", schema=tmp_path / "s.yaml")
    with netCDF4.Dataset(tmp_path / "out.nc") as f:
        for name in names:
            assert f.getncattr(f"original_{name.lstrip('_')}") == f.variables["t"].getncattr(f"original_{name.lstrip('_')}") == "mine", name
            assert name in said


@pytest.mark.parametrize("to", ["netcdf", "netcdf3"])
def test_no_fill_value_of_an_input_is_lost(tmp_path, to):
    """Of its variable's type it becomes the fill value; else it has another name, and the log says so."""
    with h5py.File(tmp_path / "in.h5", "w") as f:
        for name, dtype, value in (("same", "f4", np.float32(-1.5)), ("zero", "i4", np.int32(0)), ("wider", "i2", np.int64(-9)), ("text", "f8", "missing"), ("half", "i4", 0.5), ("list", "f8", [1.0, 2.0])):
            f.create_dataset(name, data=np.arange(5, dtype=dtype)).attrs["_FillValue"] = value
        f.create_dataset("exact", data=np.arange(5)).attrs["_FillValue"] = np.int64(-2**63 + 2)
        f.create_dataset("own", data=np.arange(5), fillvalue=2**62 + 1)
        f.attrs["_FillValue"] = "of all"
    said = convert(f"{tmp_path}/out.nc", to, "hdf5", tmp_path / "in.h5")
    with netCDF4.Dataset(tmp_path / "out.nc") as f:
        for name, dtype, value in (("same", "f4", -1.5), ("zero", "i4", 0), ("wider", "i2", -9), ("exact", "i8", -2**63 + 2), ("own", "i8", 2**62 + 1)):
            got = fill_of(f, name)
            assert got == value and got.dtype == dtype, name
            assert f"/{name}: " not in said
        for name, value in (("text", "missing"), ("half", 0.5), ("list", [1.0, 2.0])):
            assert fill_of(f, name) is None and np.array_equal(f.variables[name].getncattr("original_FillValue"), value), name
            assert f"/{name}: its attribute _FillValue is not one value of" in said and "it is written as original_FillValue" in said
        for name in f.variables:
            f.variables[name].set_auto_mask(False)
            assert np.array_equal(f.variables[name][:], np.arange(5)), name
        assert f.getncattr("_FillValue") in ("of all", b"of all")


@pytest.mark.parametrize("to", ["hdf5", "netcdf", "netcdf3"])
def test_every_source_to_every_format(tmp_path, to):
    """npy, npz, records of Fortran, process groups."""
    a = random_array("f8", (7, 5), 1)
    np.save(tmp_path / "a.npy", a.astype(">f8"))
    np.savez_compressed(tmp_path / "a.npz", a=a)
    mark = np.array([a.nbytes], "<i4").tobytes()
    (tmp_path / "rank_0.dat").write_bytes(mark + a.tobytes() + mark)
    (tmp_path / "s.yaml").write_text("fpschema: 1\nranks: 1\norder: fortran\ndatasets: [{name: /a, type: float64, dims: [5, 7]}]\n")
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools/fpdump"))
    import fpdump  # noqa: PLC0415
    sys.path.pop(0)
    for r in range(2):
        with fpdump.Writer(f"{tmp_path}/a.{r:04}.fpd", rank=r, ranks=2) as f, f.group(0):
            f.put("/a", a[3 * r:3 + 4 * r], shape=(7, 5), offset=(3 * r, 0))
    for source, names, schema in (("npy", ["a.npy"], None), ("npz", ["a.npz"], None), ("fortran", ["rank_0.dat"], tmp_path / "s.yaml"), ("group", ["a.0000.fpd", "a.0001.fpd"], None)):
        out = f"{tmp_path}/{source}.out"
        convert(out, to, source, *(tmp_path / n for n in names), schema=schema)
        got = READERS[to](out)["/a"]
        assert np.array_equal(got.reshape(a.shape), a), source


# --- HDF5 to raw, and back --------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 4, 12])
@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
def test_hdf5_becomes_raw_files_of_another_number_of_ranks(tmp_path, ranks, big):
    dump = Dump(tmp_path / "dump", 6).add("/t", "f8", (17, 12, 9), ghost=1).add("/n", "i4", (40, 33)).write()
    dump.to(tmp_path / "out.h5", options=["--compress=deflate"])
    other = Dump(tmp_path / "other", ranks, big, header=64).add("/t", "f8", (17, 12, 9)).add("/n", "i4", (40, 33)).write()
    back = tmp_path / "back"
    convert(str(back), "raw", "hdf5", tmp_path / "out.h5", schema=other.schema)
    names = sorted(os.listdir(back), key=lambda n: int(re.search(r"\d+", n)[0]))
    assert [int(re.fullmatch(r"rank_(\d+)\.raw", n)[1]) for n in names] == list(range(ranks))
    order = ">" if big else "<"
    for r in range(ranks):
        data, at = (back / names[r]).read_bytes(), 64
        for (name, dtype, shape, grid, _, _, _), (_, whole) in zip(other.datasets, dump.expected()):
            block = other.block(grid, shape, r, 0, whole)
            assert data[at:at + block.nbytes] == block.astype(dtype.newbyteorder(order)).tobytes(), (r, name)
            at += block.nbytes
        assert at == len(data)
    convert(f"{tmp_path}/again.h5", "hdf5", "raw", *(back / n for n in names), schema=other.schema)
    all_same(read_h5(tmp_path / "again.h5"), dump)


def test_hdf5_files_become_netcdf_and_other_chunks(tmp_path):
    dump = Dump(tmp_path / "dump", 6, big=True).add("/t", "f8", (17, 12, 9)).add("/n", "i4", (40, 33)).write()
    dump.to(tmp_path / "out.h5", options=["--compress=deflate", "--checksum=fletcher32"])
    convert(f"{tmp_path}/again.h5", "hdf5", "hdf5", tmp_path / "out.h5", options=["--chunk=5x5x5"])
    all_same(read_h5(tmp_path / "again.h5"), dump)
    for to in ("netcdf", "netcdf3"):
        convert(f"{tmp_path}/{to}.nc", to, "hdf5", tmp_path / "out.h5")
        all_same(read_nc(f"{tmp_path}/{to}.nc"), dump)


# --- several together -------------------------------------------------------


@pytest.mark.parametrize("to,options", [("hdf5", ()), ("hdf5", ("--compress=deflate",)), ("netcdf", ()), ("netcdf3", ())])
def test_ranks_of_mpi_write_one_result(tmp_path, to, options):
    dump = Dump(tmp_path / "dump", 8, big=True).add("/t", "f8", (64, 40, 33), ghost=1).add("/n", "i4", (101,)).add("/one", "f4", ()).write()
    out = str(tmp_path / "out")
    done = mpijob.here(3, *command(out, to, "raw", *dump.inputs, schema=dump.schema, options=["--mpi", *(["--chunk=16x16x16"] if to != "netcdf3" else []), *options]))
    assert done.returncode == 0, done.stdout
    all_same(READERS[to](out), dump)
    assert sorted(os.listdir(tmp_path)) == ["dump", "dump.yaml", "out"]


def test_a_rank_of_mpi_that_fails_leaves_nothing(tmp_path):
    dump = Dump(tmp_path / "dump", 8).add("/t", "f8", (64, 40, 33)).write()
    os.truncate(dump.inputs[5], 4096)
    done = mpijob.here(3, *command(tmp_path / "out", "hdf5", "raw", *dump.inputs, schema=dump.schema, options=["--mpi"]))
    assert done.returncode != 0 and "rank_5.raw" in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["dump", "dump.yaml"]


def test_ranks_of_mpi_that_do_not_see_the_same_make_nothing(tmp_path):
    """Two schemas that both fit the files, as two nodes may have them."""
    dump = Dump(tmp_path / "dump", 8).add("/t", "f8", (64, 40, 33)).write()
    with open(dump.schema) as f:
        text = f.read()
    (tmp_path / "other.yaml").write_text(text.replace("/t", "/u"))
    words = [command(tmp_path / "out", "hdf5", "raw", *dump.inputs, schema=schema, options=["--mpi"]) for schema in (dump.schema, tmp_path / "other.yaml")]
    done = mpijob.here(1, *words[0], ":", "-n", "1", *words[1])
    assert done.returncode != 0 and "the ranks do not agree on what is to be written" in done.stdout, done.stdout
    assert sorted(os.listdir(tmp_path)) == ["dump", "dump.yaml", "other.yaml"]


def test_parts_are_joined(tmp_path):
    dump = Dump(tmp_path / "dump", 6).add("/t", "f8", (17, 12, 9), ghost=1).add("/n", "i4", (41, 33)).write()
    parts = []
    for k in range(2):
        parts.append(f"{tmp_path}/part{k}.h5")
        dump.to(parts[-1], options=[f"--only={n}" for n in dump.inputs[k::2]])
    done = subprocess.run([bin_path("fp-convert"), "join", f"--out={tmp_path}/out.h5", *parts], capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 0, done.stderr
    all_same(read_h5(tmp_path / "out.h5"), dump)
    assert os.path.getsize(tmp_path / "out.h5") < 64 << 10


# --- bad input, interruptions, memory ---------------------------------------


def small(tmp_path, more=""):
    return Dump(tmp_path / "dump", 4).add("/t", "f8", (16, 12), grid=[2, 2], more=more).write()


def test_bad_input_says_file_dataset_and_byte(tmp_path):
    dump = small(tmp_path, ", nan: refuse")
    out = tmp_path / "out.h5"
    with open(dump.inputs[2], "r+b") as f:
        f.seek(88)
        f.write(np.float64("nan").tobytes())
    assert f"{dump.inputs[2]}: dataset /t: byte 88: " in dump.to(out, fails=1)
    inputs = dump.inputs
    dump.inputs = inputs[:3]
    assert "rank" in dump.to(out, fails=1)
    dump.inputs = inputs
    os.truncate(inputs[1], 100)
    assert f"{inputs[1]}: dataset /t: byte 100: " in dump.to(out, fails=1)


def test_a_name_that_is_taken_stays(tmp_path):
    dump = small(tmp_path)
    (tmp_path / "out.h5").write_text("mine")
    assert "--replace" in dump.to(tmp_path / "out.h5", fails=1)
    assert (tmp_path / "out.h5").read_text() == "mine"
    dump.to(tmp_path / "out.h5", options=["--replace"])
    all_same(read_h5(tmp_path / "out.h5"), dump)


def test_what_does_not_go_together_is_a_mistake_of_the_call(tmp_path):
    dump = small(tmp_path)
    for options in (["--compress=lz4"], ["--to=netcdf3", "--compress=deflate"], ["--to=netcdf3", "--chunk=4x4"], ["--chunk=4x"], ["--from=nothing"], ["--to=netcdf", "--xdmf=yes"]):
        dump.to(tmp_path / "out.h5", fails=2, options=options)


def large(tmp_path, mib):
    """A dump of so many MiB, in files of 8 ranks with ghosts at the ends of rows."""
    rows = mib * MIB // 8 // 1024
    block = np.arange(rows // 8 * 1026, dtype="f8").reshape(rows // 8, 1026)
    for r in range(8):
        (block + r).tofile(tmp_path / f"rank_{r}.raw")
    (tmp_path / "s.yaml").write_text(f"fpschema: 1\nranks: {{grid: [8, 1]}}\ndatasets: [{{name: /t, type: float64, dims: [{rows}, 1024], ghost: [0, 1]}}]\n")
    return [str(tmp_path / f"rank_{r}.raw") for r in range(8)], block


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_conversion_leaves_the_dump_alone(tmp_path, sig):
    inputs, block = large(tmp_path, 64)
    got, put = os.pipe()
    argv = command(tmp_path / "out.h5", "hdf5", "raw", *inputs, schema=tmp_path / "s.yaml", options=[f"--status-fd={put}", "--compress=deflate:9"])
    proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[put])
    os.close(put)
    with os.fdopen(got) as status:
        line = json.loads(status.readline())
        assert 0 < line["done"] < line["of"] == 64 * MIB
        proc.send_signal(sig)
        proc.communicate(timeout=60 * SLOW)
    assert proc.returncode == (-sig if sig == signal.SIGKILL else 128 + sig)
    left = {n for n in os.listdir(tmp_path) if not n.startswith("rank_") and n != "s.yaml"}
    assert all(n.startswith(TMP) for n in left) if sig == signal.SIGKILL else not left
    assert all(np.array_equal(np.fromfile(n, "f8").reshape(block.shape), block + r) for r, n in enumerate(inputs))


CHILD = "import resource, subprocess, sys\nrc = subprocess.call(sys.argv[1:])\nprint(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\nsys.exit(rc)"


@pytest.mark.parametrize("to,options", [("hdf5", ()), ("hdf5", ("--compress=zstd", "--chunk=100x700")), ("netcdf", ()), ("netcdf3", ())])
def test_memory_is_bounded_however_large_the_dump(tmp_path, to, options):
    memory = 6 * MIB
    inputs, block = large(tmp_path, 20 * memory // MIB)
    argv = command(tmp_path / "out", to, "raw", *inputs, schema=tmp_path / "s.yaml", options=[f"--memory={memory}", *options])
    # A small process between: what a process had before exec counts as its own.
    done = subprocess.run([sys.executable, "-S", "-c", CHILD, *argv], capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 <= memory + 64 * MIB
    if not options:
        got = READERS[to](tmp_path / "out")["/t"]
        for r in range(8):
            n = len(block)
            assert np.array_equal(got[r * n:(r + 1) * n], block[:, 1:-1] + r)
