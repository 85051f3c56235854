"""Parallel I/O stacks on several nodes, really run: Open MPI's OMPIO and ROMIO, HDF5, PnetCDF, netCDF-4, h5py, Fortran.

Ranks are on two nodes, with a mount each (harness/mpijob.py). What a rank wrote is verified by a rank of the other
node, every byte.
"""

import os
import subprocess

import pytest

from harness import nodes as netns
from harness.daemons import SLOW, Store
from harness.fixtures import LIVE, check, revive, stop
from harness.mpijob import Cluster, app, good, io_components

FPIOR = app("fpior")
VERIFY = ["-w", "-W", "-r", "-R", "-C"]
RECORDS = ["-b", "188004", "-t", "47001", "-s", "6"]
BLOCKS = ["-b", "4m", "-t", "1m", "-s", "3"]
IO = io_components()

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture(scope="module")
def cluster():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root, or sudo that asks for no password")
    nodes = netns.Nodes(2)
    s = Store(nodes)
    LIVE.append(s)
    try:
        s.start_manager(node=0)
        for i in range(2):
            s.add_benefactor(node=i, size="1GiB", wait=False)
            s.add_mount(node=i, pool="32MiB", wait=False)
        for d in s.benefactors + s.mounts:
            d.wait_ready()
        c = Cluster(s)
        c.store = s
        yield c
        check(stop(s))
    finally:
        if s in LIVE:
            s.remove()
            LIVE.remove(s)
        nodes.remove()


@pytest.fixture
def place(cluster, request):
    """A fresh folder: its path for ranks."""
    revive(cluster.store)
    name = request.node.name.translate(str.maketrans("[]/ =:", "------"))[:60]
    os.mkdir(cluster.seen_by(0, name))
    return cluster.at(name)


def test_ranks_are_on_nodes_of_their_own(cluster, place):
    out = good(cluster.run("sh", "-c", f"echo $(hostname) $(readlink /proc/self/ns/net) > {place}/$OMPI_COMM_WORLD_RANK && echo is $(hostname)"),
               "is node0", "is node1")
    assert out.count("is node") == 4
    seen = {open(cluster.seen_by(1, os.path.basename(place), str(r)), encoding="ascii").read() for r in range(4)}
    assert len(seen) == 2 and {s.split()[0] for s in seen} == {"node0", "node1"}
    assert len({s.split()[1] for s in seen}) == 2


@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("how", ["", "-c", "-V", "-V -c"])
def test_mpiio(cluster, place, io, how):
    for sizes in (RECORDS, BLOCKS):
        good(cluster.run(FPIOR, "-a", "MPIIO", *VERIFY, *sizes, *how.split(), "-o", f"{place}/f", env={"OMPI_MCA_io": io}), "nodes +: 2")


@pytest.mark.parametrize("api", ["POSIX", "POSIX -F", "POSIX -z", "MPIIO -z", "HDF5", "HDF5 -c", "NCMPI", "NCMPI -c", "NETCDF4", "NETCDF4 -c"])
def test_apis(cluster, place, api):
    for sizes in (RECORDS, BLOCKS):
        good(cluster.run(FPIOR, "-a", *api.split(), *VERIFY, *sizes, "-o", f"{place}/f"))


ROMIO = [io for io in IO if io.startswith("romio")]


@pytest.mark.parametrize("io", ROMIO)
@pytest.mark.parametrize("api", ["HDF5", "HDF5 -c", "NCMPI", "NCMPI -c", "NETCDF4 -c"])
def test_apis_over_romio(cluster, place, io, api):
    """What the libraries do by MPI-IO, by the other MPI-IO."""
    good(cluster.run(FPIOR, "-a", *api.split(), *VERIFY, *RECORDS, "-o", f"{place}/f", env={"OMPI_MCA_io": io}))


def test_range_locks_around_each_transfer(cluster, place):
    """IOR's --posix.rangelocks: an fcntl lock of the manager for each transfer, of ranks on both nodes, in random order."""
    good(cluster.run(FPIOR, "--posix.rangelocks", "-z", *VERIFY, *RECORDS, "-o", f"{place}/f"))


@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("case", ["nested", "nested independent", "holes", "holes independent", "sync"])
def test_file_types(cluster, place, io, case):
    """Nested strides by one call; pieces of all ranks in turn; what is synced is seen by who has the file open. ROMIO's independent
    writes are by data sieving: it locks a range, reads it, changes its pieces and writes all of it; so are its reads."""
    name, *more = case.split()
    good(cluster.run(app("mpistack"), name, f"{place}/f", *more, env={"OMPI_MCA_io": io}), "all right")


@pytest.mark.parametrize("io", ROMIO)
def test_atomic_mode(cluster, place, io):
    """ROMIO's: a lock around each access. What was written under it is published with the unlock, and seen with the next lock."""
    good(cluster.run(app("mpistack"), "atomic", f"{place}/f", env={"OMPI_MCA_io": io}), "all right")


@pytest.mark.parametrize("io", IO)
def test_shared_file_pointers(cluster, place, io):
    """Kept in a file of their own, which is locked for each step: ROMIO's, and OMPIO's where ranks share no memory."""
    good(cluster.run(app("mpistack"), "shared", f"{place}/f", env={"OMPI_MCA_io": io}), "all right")


@pytest.fixture
def strict(cluster, place):
    """The same, for strict files: nothing below is opened again, synced, or told by hints what not to do."""
    os.setxattr(cluster.seen_by(0, os.path.basename(place)), "user.fp.strict", b"1")
    return place


@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("case", ["seen", "overlap", "overlap atomic", "pointer", "sieve", "sieve independent", "chunked nosync", "chunked nosync collmeta"])
def test_strict(cluster, strict, io, case):
    """MPI's atomic mode and more, from the store: a read that begins after a write returned sees it, and overlapping writes are one after the other. Shared
    file pointers; ROMIO's collective writes with holes, which read what lies between; HDF5's chunks that ranks share, right after they are made."""
    name, *more = case.split()
    good(cluster.run(app("mpistack"), name, f"{strict}/f", *more, env={"OMPI_MCA_io": io}), "all right")


@pytest.mark.parametrize("io", ROMIO)
def test_strict_atomic_calls_of_many_pieces(cluster, strict, io):
    good(cluster.run(app("mpistack"), "overlap", f"{strict}/f", "atomic", "strided", env={"OMPI_MCA_io": io}), "all right")


@pytest.mark.parametrize("api", ["MPIIO -c -V", "HDF5 -c --hdf5.chunkSize=100003"])
def test_strict_apis(cluster, strict, api):
    good(cluster.run(FPIOR, "-a", *api.split(), *VERIFY, *RECORDS, "-o", f"{strict}/f"))


@pytest.mark.parametrize("case", ["seen", "overlap", "sieve"])
def test_files_that_are_not_strict_need_a_sync(cluster, place, case):
    """What these cases are worth: close-to-open is not enough for them."""
    done = cluster.run(app("mpistack"), case, f"{place}/f", env={"OMPI_MCA_io": ROMIO[0]})
    assert done.returncode != 0 and "WRONG DATA" in done.stdout, done.stdout[-3000:]


@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("meta", ["", "collmeta"])
def test_hdf5_compressed(cluster, place, io, meta):
    """Chunks that ranks share, compressed. ROMIO is told to write no more than it is given: its collective writes read what lies between the
    pieces and write that too, without a lock, over what a rank of the other node has just written and not published."""
    hints = cluster.seen_by(0, os.path.basename(place), "hints")
    with open(hints, "w", encoding="ascii") as f:
        f.write("romio_cb_write disable\nromio_ds_write disable\n")
    good(cluster.run(app("mpistack"), "chunked", f"{place}/f", meta, env={"OMPI_MCA_io": io, "ROMIO_HINTS": f"{place}/hints"}), "all right")


METADATA = ["-c --hdf5.chunkSize=100003 --hdf5.collectiveMetadata -J 64k", "-c --hdf5.chunkSize=100003 -n", "--hdf5.collectiveMetadata"]


def test_hdf5_metadata(cluster, place):
    """Of all ranks at once, and of each rank; beside data of all at once, and of each alone."""
    for how in METADATA:
        good(cluster.run(FPIOR, "-a", "HDF5", *VERIFY, "-e", *RECORDS, *how.split(), "-o", f"{place}/f", env={"OMPI_MCA_io": "ompio"}))


@pytest.mark.parametrize("io", ROMIO)
def test_hdf5_metadata_over_romio(cluster, strict, io):
    """Collective metadata are ROMIO's collective writes with holes, and in the holes is data: strict files, or the hints that keep it from them. With chunks
    that ranks share, right after they are made: strict files."""
    for how in METADATA:
        good(cluster.run(FPIOR, "-a", "HDF5", *VERIFY, "-e", *RECORDS, *how.split(), "-o", f"{strict}/f", env={"OMPI_MCA_io": io}))
    plain = strict + "-plain"
    os.mkdir(cluster.seen_by(0, os.path.basename(plain)))
    with open(cluster.seen_by(0, os.path.basename(plain), "hints"), "w", encoding="ascii") as f:
        f.write("romio_cb_write disable\nromio_ds_write disable\n")
    good(cluster.run(FPIOR, "-a", "HDF5", *VERIFY, "-e", *RECORDS, "--hdf5.collectiveMetadata", "-o", f"{plain}/f",
                     env={"OMPI_MCA_io": io, "ROMIO_HINTS": f"{plain}/hints"}))


H5LOCK = """
import sys, h5py
path, mode = sys.argv[1:]
try:
    with h5py.File(path, mode) as f:
        if mode == "w":
            f["n"] = 0
        elif mode == "r+":
            f["n"][()] += 1
            f.flush()
        print("open", f["n"][()], flush=True)
        sys.stdin.readline()
except BlockingIOError as e:
    print("locked" if "lock" in str(e) else e, flush=True)
"""


class H5:
    """A process that has the file open until it is told to close it."""

    def __init__(self, path, mode):
        env = {**os.environ, "HDF5_USE_FILE_LOCKING": "TRUE"}
        self.proc = subprocess.Popen(["/usr/bin/python3", "-c", H5LOCK, path, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     env=env)
        self.said = self.proc.stdout.readline().strip()

    def close(self):
        self.proc.communicate("\n", timeout=30 * SLOW)
        assert self.proc.returncode == 0
        return self.said


def test_hdf5_file_locking(cluster, place):
    """Serial HDF5 locks a file for as long as it has it open: one writer or any number of readers, on whatever node."""
    here, there = [cluster.seen_by(i, os.path.basename(place), "locked.h5") for i in range(2)]
    assert H5(here, "w").close() == "open 0"
    for i in range(1, 4):
        one, other = (here, there) if i % 2 else (there, here)
        writer = H5(one, "r+")
        assert writer.said == f"open {i}"
        assert H5(other, "r").close() == "locked" and H5(other, "r+").close() == "locked" and H5(one, "r").close() == "locked"
        writer.close()
        readers = [H5(path, "r") for path in (other, one, other)]
        assert [r.said for r in readers] == [f"open {i}"] * 3, "what the writer left, on either node"
        assert H5(one, "r+").close() == "locked" and H5(other, "r+").close() == "locked"
        for r in readers:
            r.close()
    good(cluster.run(FPIOR, "-a", "HDF5", "-c", *VERIFY, *RECORDS, "-o", f"{place}/f", env={"HDF5_USE_FILE_LOCKING": "TRUE"}))


def test_fortran(cluster, place, tmp_path):
    """Unformatted: sequential, stream, and direct access to one file of all ranks. Read by the rank that is two further, on the other node."""
    program, source = tmp_path / "records", os.path.join(os.path.dirname(__file__), "..", "apps", "records.f90")
    subprocess.run(["gfortran", "-O1", "-Wall", "-Werror", "-o", program, source], check=True, cwd=tmp_path, timeout=50 * SLOW)
    ranks = 4
    for seed in (1, 2):
        for what, shift in (("write", 0), ("read", 2)):
            out = good(cluster.run("sh", "-c", f"{program} {what} {place}/f $(((OMPI_COMM_WORLD_RANK + {shift}) % {ranks})) {ranks} {seed}"))
            assert out.count(f"{what} all right") == ranks


H5PY = """
import sys
from mpi4py import MPI
import h5py, numpy
path, comm = sys.argv[1], MPI.COMM_WORLD
me, all = comm.rank, comm.size
def rows(rank):
    return numpy.arange(7 * 4703, dtype="f8").reshape(7, 4703) * (rank + 1)
with h5py.File(path, "w", driver="mpio", comm=comm) as f:
    plain = f.create_dataset("plain", (7 * all, 4703), dtype="f8")
    packed = f.create_dataset("group/packed", (7 * all, 4703), dtype="f8", chunks=(5, 1000), compression="gzip", shuffle=True)
    f["group"].attrs["ranks"] = all
    f.flush(); comm.Barrier(); f.flush()
    plain[7 * me:7 * me + 7] = rows(me)
    with packed.collective:
        packed[7 * me:7 * me + 7] = rows(me)
with h5py.File(path, "r", driver="mpio", comm=comm) as f:
    assert f["group"].attrs["ranks"] == all
    for rank in range(all):
        for name in ("plain", "group/packed"):
            assert (f[name][7 * rank:7 * rank + 7] == rows(rank)).all(), f"WRONG DATA: {name} of {rank}, read by {me}"
print("all right")
"""


@pytest.mark.parametrize("io", IO)
def test_h5py(cluster, place, io):
    assert good(cluster.run("/usr/bin/python3", "-m", "mpi4py", "-c", H5PY, f"{place}/f", env={"OMPI_MCA_io": io})).count("all right") == 4
