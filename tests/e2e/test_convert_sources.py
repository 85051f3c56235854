"""What fp-convert reads: NumPy's arrays as NumPy writes them, records of Fortran as gfortran does, process-group streams of fpdump's writers. Results are read by h5py."""

import os
import subprocess
import sys

import numpy as np
import pytest

from harness.daemons import SLOW, bin_path

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
BUILD = os.environ.get("FP_BUILD") or f"{TOP}/build"
h5py = pytest.importorskip("h5py")


def convert(fmt, out, *inputs, schema=None, fails=False):
    args = [bin_path("fp-convert"), "run", f"--from={fmt}", "--to=hdf5", f"--out={out}", *([f"--schema={schema}"] if schema else []), *map(str, inputs)]
    done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW)
    if fails:
        assert done.returncode == 1 and not os.path.exists(out), (done.returncode, done.stdout, done.stderr)
    else:
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stderr


def same(h5, name, expected):
    got = h5[name][()]
    expected = np.asarray(expected)
    assert got.shape == expected.shape, name
    assert got.dtype.kind == expected.dtype.kind and got.dtype.itemsize == expected.dtype.itemsize, (name, got.dtype, expected.dtype)
    assert np.array_equal(got, expected), name


DTYPES = ["i1", "<i2", ">i4", "<i8", "u1", ">u2", "<u4", ">u8", "<f4", ">f4", "<f8", ">f8", "<c8", ">c16"]


def array(dtype, shape, seed=0):
    n = int(np.prod(shape))
    values = (np.arange(n, dtype="f8") * 7 + seed) % 120
    if np.dtype(dtype).kind == "c":
        values = values + 1j * (values[::-1] if n else values)
    return values.astype(dtype).reshape(shape)


def test_npy_of_all_types_orders_and_dimensions(tmp_path):
    arrays = {f"t{i}": array(t, (3, 5), i) for i, t in enumerate(DTYPES)}
    arrays |= {f"d{n}": array("<f8", tuple(range(2, 2 + n)) if n < 5 else (2,) * n, n) for n in range(8)}
    arrays |= {"fortran": np.asfortranarray(array("<f8", (3, 4, 5))), "bool": array("i4", (4, 4)) % 2 == 0, "one": np.arange(10.0)}
    for name, a in arrays.items():
        np.save(tmp_path / f"{name}.npy", a)
    convert("npy", f"{tmp_path}/out.h5", *(tmp_path / f"{name}.npy" for name in arrays))
    with h5py.File(f"{tmp_path}/out.h5") as f:
        assert sorted(f) == sorted(arrays)
        for name, a in arrays.items():
            same(f, name, a.T if name == "fortran" else a.astype("u1") if name == "bool" else a)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_stored_and_compressed(tmp_path, save):
    arrays = {f"t{i}": array(t, (31, 17), i) for i, t in enumerate(DTYPES)} | {"scalar": np.float64(2.5), "large": np.random.default_rng(1).random((300, 400, 5))}
    save(tmp_path / "all.npz", **arrays)
    convert("npz", f"{tmp_path}/out.h5", tmp_path / "all.npz")
    with h5py.File(f"{tmp_path}/out.h5") as f:
        assert sorted(f) == sorted(arrays)
        for name, a in arrays.items():
            same(f, name, a)


def test_npy_of_ranks_with_ghosts_and_a_schema(tmp_path):
    whole = array("<f8", (12, 9))
    padded = np.pad(whole, 1, constant_values=-1)
    for r in range(6):
        y, x = divmod(r, 3)
        np.save(tmp_path / f"rank_{r}.npy", padded[6 * y:6 * y + 8, 3 * x:3 * x + 5])
    (tmp_path / "s.yaml").write_text("fpschema: 1\nranks: {grid: [2, 3]}\ndatasets: [{name: /field/t, type: float64, dims: [12, 9], ghost: 1, units: K}]\n")
    convert("npy", f"{tmp_path}/out.h5", *(tmp_path / f"rank_{r}.npy" for r in range(6)), schema=tmp_path / "s.yaml")
    with h5py.File(f"{tmp_path}/out.h5") as f:
        same(f, "/field/t", whole)


def test_damaged_arrays_say_file_and_byte(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100.0))
    os.truncate(tmp_path / "a.npy", 700)
    said = convert("npy", f"{tmp_path}/out.h5", tmp_path / "a.npy", fails=True)
    assert f"{tmp_path}/a.npy" in said and "byte 700" in said
    np.savez(tmp_path / "a.npz", x=np.arange(100.0))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[300] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    said = convert("npz", f"{tmp_path}/out.h5", tmp_path / "a.npz", fails=True)
    assert f"{tmp_path}/a.npz" in said and "CRC-32" in said


# --- Fortran ----------------------------------------------------------------

RECORDS = """
program dump
    use iso_fortran_env
    integer :: r, k, i, j
    real(real64) :: t(7, 5)
    integer(int32) :: n(11)
    character(20) :: name
    do r = 0, 1
        write (name, '(a,i0,a)') 'rank_', r, '.dat'
        open (10, file=name, form='unformatted', access='sequential', status='replace')
        do k = 0, 2
            do j = 1, 5
                do i = 1, 7
                    t(i, j) = 1000 * k + 100 * r + 10 * j + i
                end do
            end do
            n = [(k + i * (r + 1), i = 1, 11)]
            write (10) t
            write (10) n
        end do
        close (10)
    end do
end program
"""


@pytest.mark.parametrize("flags", [(), ("-fconvert=big-endian",), ("-frecord-marker=8",), ("-frecord-marker=8", "-fconvert=big-endian"), ("-fmax-subrecord-length=40",),
                                   ("-fmax-subrecord-length=33", "-fconvert=big-endian")])
def test_records_of_gfortran(tmp_path, flags):
    (tmp_path / "dump.f90").write_text(RECORDS)
    subprocess.run(["gfortran", *flags, "-o", "dump", "dump.f90"], cwd=tmp_path, check=True, timeout=50 * SLOW)
    subprocess.run(["./dump"], cwd=tmp_path, check=True, timeout=50 * SLOW)
    big = "big" if "-fconvert=big-endian" in flags else "little"
    (tmp_path / "s.yaml").write_text(f"fpschema: 1\norder: fortran\nbyte_order: {big}\nsteps: all\nranks: 2\ndatasets:\n"
                                     "  - {name: /t, type: float64, dims: [7, 10], block: [{start: [0, 0], count: [7, 5]}, {start: [0, 5], count: [7, 5]}]}\n"
                                     "  - {name: /n, type: int32, dims: [22], block: [{start: [0], count: [11]}, {start: [11], count: [11]}]}\n")
    convert("fortran", f"{tmp_path}/out.h5", tmp_path / "rank_0.dat", tmp_path / "rank_1.dat", schema=tmp_path / "s.yaml")
    with h5py.File(f"{tmp_path}/out.h5") as f:
        k, y, x = np.meshgrid(range(3), range(10), range(1, 8), indexing="ij")
        same(f, "/t", (1000 * k + 100 * (y // 5) + 10 * (y % 5 + 1) + x).astype("f8"))
        k, i = np.meshgrid(range(3), range(22), indexing="ij")
        same(f, "/n", (k + (i % 11 + 1) * (i // 11 + 1)).astype("i4"))


# --- process-group streams --------------------------------------------------

WRITER_C = """
#include <stdio.h>
#include <stdlib.h>
#include "fpdump.h"
int main(int argc, char **argv)
{
    uint32_t rank = (uint32_t)atoi(argv[1]);
    uint64_t global[2] = {8, 5}, offset[2] = {2 * rank, 0}, local[2] = {2, 5};
    struct fpdump_options o = {.rank = rank, .ranks = 4, .buffer_bytes = 4096};
    struct fpdump *f;
    char name[64];
    double t[10];
    (void)argc;
    snprintf(name, sizeof name, "rank_%u.fpd", rank);
    if (fpdump_open(name, &o, &f) != 0)
        return 1;
    for (uint64_t k = 0; k < 3; k++) {
        for (unsigned i = 0; i < 10; i++)
            t[i] = 100.0 * (double)k + 5.0 * 2 * rank + i;
        fpdump_begin(f, k);
        fpdump_put(f, "t", FPDUMP_FLOAT64, 2, global, offset, local, t);
        fpdump_attr_text(f, "t", "units", "K");
        fpdump_attr_text(f, "t", "dims", "y x");
        fpdump_end(f);
    }
    return fpdump_close(f) != 0;
}
"""

WRITER_FORTRAN = """
program writer
    use fpdump
    use iso_fortran_env, only: int64, real64
    type(fpdump_stream) :: f
    character(20) :: arg
    real(real64) :: t(5, 2), wide(10, 2)
    integer :: rank, k, i, rc
    call get_command_argument(1, arg)
    read (arg, *) rank
    rc = fpdump_open(f, 'rank_' // trim(arg) // '.fpd', rank, 4)
    if (rc /= 0) stop 1
    do k = 0, 2
        t = reshape([(100.0_real64 * k + 10 * rank + i, i = 0, 9)], [5, 2])
        wide(1::2, :) = t
        rc = fpdump_begin(f, k)
        if (rank < 2) then
            rc = fpdump_put(f, 't', FPDUMP_FLOAT64, [5_int64, 8_int64], [0_int64, 2_int64 * rank], t)
        else
            rc = fpdump_put(f, 't', FPDUMP_FLOAT64, [5_int64, 8_int64], [0_int64, 2_int64 * rank], wide(1::2, :))
        end if
        rc = fpdump_attr(f, 't', 'units', 'K')
        rc = fpdump_attr(f, 't', 'dims', 'y x')
        rc = fpdump_end(f)
    end do
    if (fpdump_close(f) /= 0) stop 1
end program
"""

WRITER_PYTHON = """
import sys
import numpy as np
import fpdump
rank = int(sys.argv[1])
with fpdump.Writer(f"rank_{rank}.fpd", rank=rank, ranks=4, buffer_bytes=4096) as f:
    for k in range(3):
        with f.group(k):
            t = (100.0 * k + 10 * rank + np.arange(10)).reshape(2, 5)
            f.put("t", t if rank % 2 else t.astype(">f8"), shape=(8, 5), offset=(2 * rank, 0))
            f.attr("t", "units", "K")
            f.attr("t", "dims", "y x")
"""


def streams(folder, language):
    """rank_0.fpd … rank_3.fpd, with 8 x 5 elements in 3 steps; and what is in them."""
    run = {"cwd": folder, "check": True, "timeout": 50 * SLOW}
    library, source = f"{BUILD}/lib/libfpdump.a", f"{TOP}/tools/fpdump"
    if language == "c":
        (folder / "w.c").write_text(WRITER_C)
        subprocess.run(["gcc", "-Wall", "-Werror", "-I", source, "-o", "w", "w.c", library], **run)
    elif language == "fortran":
        (folder / "w.f90").write_text(WRITER_FORTRAN)
        subprocess.run(["gfortran", "-o", "w", f"{source}/fpdump.f90", "w.f90", library], **run)
    else:
        (folder / "w.py").write_text(WRITER_PYTHON)
    program = [sys.executable, "w.py"] if language == "python" else ["./w"]
    for rank in range(4):
        subprocess.run([*program, str(rank)], env=os.environ | {"PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}, **run)
    k, i = np.meshgrid(range(3), range(40), indexing="ij")
    return [folder / f"rank_{rank}.fpd" for rank in range(4)], (100.0 * k + i).reshape(3, 8, 5)


@pytest.mark.parametrize("language", ["c", "fortran", "python"])
def test_streams_of_each_writer(tmp_path, language):
    files, whole = streams(tmp_path, language)
    convert("group", f"{tmp_path}/out.h5", *files)
    with h5py.File(f"{tmp_path}/out.h5") as f:
        same(f, "/t", whole)
        units = f["/t"].attrs["units"]
        assert (units.decode() if isinstance(units, bytes) else units) == "K"


def test_streams_that_were_cut_off_give_the_steps_that_all_ranks_have(tmp_path):
    files, whole = streams(tmp_path, "python")
    os.truncate(files[2], 1600)  # in the third step
    convert("group", f"{tmp_path}/out.h5", *files)
    with h5py.File(f"{tmp_path}/out.h5") as f:
        said = f.attrs["fpdump_recovered"]
        assert str(files[2]) in (said.decode() if isinstance(said, bytes) else said)
        same(f, "/t", whole[:len(f["/t"])])
        assert 1 <= len(f["/t"]) < 3
    os.truncate(files[2], 100)
    assert str(files[2]) in convert("group", f"{tmp_path}/no.h5", *files, fails=True)


def test_streams_joined_by_cat_are_one_set(tmp_path):
    files, whole = streams(tmp_path, "c")
    with open(tmp_path / "all.fpd", "wb") as out:
        for f in files:
            out.write(f.read_bytes())
    convert("group", f"{tmp_path}/out.h5", tmp_path / "all.fpd")
    with h5py.File(f"{tmp_path}/out.h5") as f:
        same(f, "/t", whole)
