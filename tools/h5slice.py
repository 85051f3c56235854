#!/usr/bin/env python3
"""A slice of an array in an HDF5 file (or netCDF-4) as a PNG picture: a look at what a conversion has made.

    h5slice.py FILE DATASET OUT.png [--axis N] [--index I] [--scale K]

Of an array of more than two dimensions one plane is drawn: across --axis (the first by default), at --index (its middle by default); dimensions before and behind
that are more than two get their middle. Colours are those of viridis, from the least value to the greatest; what is no number is grey. h5py reads, the standard
library writes: a plotting library is not where jobs run.
"""

import argparse
import struct
import sys
import zlib

import h5py
import numpy as np

# viridis, at 0, 1/8, ... 1.
COLOURS = np.array([(68, 1, 84), (71, 44, 122), (59, 81, 139), (44, 113, 142), (33, 144, 141), (39, 173, 129), (92, 200, 99), (170, 220, 50), (253, 231, 37)], float)
GREY = (128, 128, 128)


def plane(data, axis, index):
    """The two-dimensional piece that is drawn, and a word where it lies."""
    if data.ndim < 2:
        raise ValueError(f"it has {data.ndim} dimensions, a picture needs two")
    if not 0 <= axis < data.ndim:
        raise ValueError(f"--axis {axis}: it has {data.ndim} dimensions, 0 to {data.ndim - 1}")
    at = [slice(None)] * data.ndim
    drawn = [d for d in range(data.ndim) if d != axis][-2:] if data.ndim > 2 else [0, 1]
    for d in range(data.ndim):
        if d not in drawn:
            at[d] = data.shape[d] // 2
    if data.ndim > 2 and index is not None:
        if not 0 <= index < data.shape[axis]:
            raise ValueError(f"--index {index}: dimension {axis} has {data.shape[axis]}")
        at[axis] = index
    return data[tuple(at)], ", ".join(":" if isinstance(a, slice) else str(a) for a in at)


def coloured(values):
    """Rows of RGB bytes."""
    good = np.isfinite(values)
    low, high = (values[good].min(), values[good].max()) if good.any() else (0.0, 1.0)
    place = np.zeros(values.shape)
    place[good] = (values[good] - low) / ((high - low) or 1.0) * (len(COLOURS) - 1)
    below = np.minimum(place.astype(int), len(COLOURS) - 2)
    part = (place - below)[..., None]
    rgb = (COLOURS[below] * (1 - part) + COLOURS[below + 1] * part).round().astype(np.uint8)
    rgb[~good] = GREY
    return rgb, low, high


def png(rgb):
    height, width, _ = rgb.shape
    rows = b"".join(b"\0" + row.tobytes() for row in rgb)

    def piece(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + piece(b"IHDR", header) + piece(b"IDAT", zlib.compress(rows, 6)) + piece(b"IEND", b"")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("dataset")
    parser.add_argument("out")
    parser.add_argument("--axis", type=int, default=0)
    parser.add_argument("--index", type=int)
    parser.add_argument("--scale", type=int, default=1, help="pixels for each element, in both directions")
    o = parser.parse_args()
    try:
        with h5py.File(o.file, "r") as f:
            values, where = plane(f[o.dataset], o.axis, o.index)
    except (OSError, KeyError, ValueError) as e:
        sys.exit(f"{parser.prog}: {o.file}, {o.dataset}: {e}")
    rgb, low, high = coloured(np.asarray(values, float))
    rgb = rgb.repeat(max(o.scale, 1), 0).repeat(max(o.scale, 1), 1)
    with open(o.out, "wb") as out:
        out.write(png(rgb))
    print(f"{o.out}: {o.dataset}[{where}], {rgb.shape[1]} x {rgb.shape[0]} pixels, {low:.6g} to {high:.6g}")


if __name__ == "__main__":
    main()
