"""How fast fp-convert makes HDF5 of a raw dump: beside a plain HDF5 program that does the same (convplain.c), and beside a copy of the bytes. Imported by bench.py for its cases.

1 GiB of doubles, a file for each of 8 ranks, uncompressed, one process on the service core; all three sync what they have written. In memory (/dev/shm), which is the processor's work alone, and on a mounted
store, where the dump's chunks are on this node.
"""

import os
import shutil
import subprocess
import time

from cases import Result, case
from cases_pipeline import service_core
from store import MIB, BenchError

RANKS, PLANES, ROWS, COLUMNS = 8, 32, 512, 1024  # 128 MiB each; a plane is a chunk of 4 MiB
OUT_BYTES = RANKS * PLANES * ROWS * COLUMNS * 8
LIMIT_S = 300


def make_dump(at):
    os.makedirs(at)
    block = os.urandom(MIB)
    for r in range(RANKS):
        with open(os.path.join(at, f"rank_{r}.raw"), "wb") as f:
            for _ in range(PLANES * ROWS * COLUMNS * 8 // MIB):
                f.write(block)
            os.fsync(f.fileno())
    with open(os.path.join(at, "schema.yaml"), "w", encoding="utf-8") as f:
        f.write(f"fpschema: 1\nranks: {{grid: [{RANKS}, 1, 1]}}\ndatasets: [{{name: /t, type: float64, dims: [{RANKS * PLANES}, {ROWS}, {COLUMNS}]}}]\n")
    return [os.path.join(at, f"rank_{r}.raw") for r in range(RANKS)]


def touch_memory(out):
    """A file as large as the result, written and removed: memory that a virtual machine's host has taken back costs whoever writes to it next several times what the work does."""
    block = bytes(MIB)
    with open(out, "wb", buffering=0) as f:
        for _ in range(OUT_BYTES // MIB):
            f.write(block)
    os.unlink(out)


def timed(argv, out):
    """MiB/s of a program that makes this file, which is removed."""
    touch_memory(out)
    begun = time.monotonic()
    r = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False, preexec_fn=lambda: os.sched_setaffinity(0, {service_core()}))
    took = time.monotonic() - begun
    if r.returncode != 0:
        raise BenchError(f"{argv[0]}: exit {r.returncode}: {r.stderr[-300:]}")
    if os.path.getsize(out) < OUT_BYTES:
        raise BenchError(f"{argv[0]}: {out} is too small")
    os.unlink(out)
    return OUT_BYTES / MIB / took


def three_ways(env, at):
    """Figures of fp-convert, the plain program and a copy, by turns in `at`."""
    inputs, out, figures = make_dump(os.path.join(at, "dump")), os.path.join(at, "out"), ([], [], [])
    ways = ([os.path.join(env.bin, "fp-convert"), "run", "--from=raw", "--to=hdf5", f"--schema={at}/dump/schema.yaml", f"--out={out}", *inputs],
            [env.app("convplain"), out, str(PLANES), str(ROWS), str(COLUMNS), "1", *inputs],
            # Not cat, whose copy_file_range on a mount shares the chunks and moves no byte.
            ["sh", "-ec", 'out=$1; shift; for f; do dd bs=4M status=none if="$f"; done > "$out"; sync "$out"', "sh", out, *inputs])
    for _ in range(env.runs):
        for way, argv in zip(figures, ways):
            way.append(timed(argv, out))
    return figures


def results(where, figures):
    ours, plain, copied = figures
    yield Result(f"convert-{where}-hdf5", "MiB/s", ours, plain, ("ratio", 1.0), "plain HDF5", paired=True)
    yield Result(f"convert-{where}-copy", "MiB/s", ours, copied, ("ratio", 0.6), "dd, sync", paired=True)


@case("convert-tmpfs-hdf5", "convert-tmpfs-copy")
def convert_tmpfs(env):
    """In memory: what the processor has to do."""
    at = f"/dev/shm/fp-bench-{os.getpid()}"
    try:
        yield from results("tmpfs", three_ways(env, at))
    finally:
        shutil.rmtree(at, ignore_errors=True)


@case("convert-store-hdf5", "convert-store-copy")
def convert_store(env):
    """On a mounted store in memory, from chunks of this node."""
    with env.store(backend="memory", size=4096 * MIB) as store:
        at = os.path.join(store.mnt, "convert")
        os.mkdir(at)
        yield from results("store", three_ways(env, at))
