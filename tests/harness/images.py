"""Process images as a checkpointer writes them: a header of a page, then the memory regions, page by page. For what dedup finds in the next one.

Shaped on successive DMTCP images of LAMMPS (docs/AUXAPPS.md): of so many pages in a row that stay, so many that change between them; and a heap that
grew at the front, so that all that follows lies some whole pages further on.
"""

import random

PAGE = 4096

# Share of the image in runs of so many pages, as measured (155 MB). New ones are for the most part of two or three pages, and scattered.
KEPT = [(1, 1, 0.037), (2, 3, 0.007), (4, 7, 0.008), (8, 15, 0.013), (16, 31, 0.026), (32, 63, 0.035), (64, 127, 0.070), (128, 255, 0.066),
        (256, 1023, 0.191), (1024, 2600, 0.258)]
CHANGED = [(1, 1, 0.015), (2, 3, 0.059), (4, 31, 0.005), (32, 127, 0.117), (256, 1023, 0.070)]
ZERO = [(1, 31, 0.005), (128, 255, 0.018)]


def runs(rnd, pages, classes):
    out = []
    for low, high, share in classes:
        left = round(share * pages)
        while left > 0:
            out.append(min(rnd.randint(low, high), left))
            left -= out[-1]
    return out


class Image:
    """bytes(step) is the image at that step; stays is the share of it that is in the one before, zeros apart, at whole pages."""

    def __init__(self, seed, pages, grows=0):
        rnd = random.Random(seed)
        self.seed, self.grows = seed, grows
        parts = [[(kind, n) for n in runs(rnd, pages, classes)] for kind, classes in (("kept", KEPT), ("changed", CHANGED), ("zero", ZERO))]
        rnd.shuffle(parts[0])
        gaps = parts[1] + parts[2]
        rnd.shuffle(gaps)
        self.runs = []
        for i, kept in enumerate(parts[0]):  # what changes is between what stays, evenly
            self.runs += gaps[i * len(gaps) // len(parts[0]):(i + 1) * len(gaps) // len(parts[0])] + [kept]

    def pages(self, kind, step):
        total = sum(n for k, n in self.runs if k == kind) + (self.grows * step if kind == "changed" else 0)
        return total

    def stays(self, step):
        return self.pages("kept", step) / sum(self.pages(k, step) for k in ("kept", "changed", "zero"))

    def bytes(self, step):
        old, new = random.Random(f"{self.seed}"), random.Random(f"{self.seed} {step}")
        out = [b"image".ljust(PAGE, b"\0"), new.randbytes(self.grows * step * PAGE)]
        for kind, n in self.runs:
            out.append(bytes(n * PAGE) if kind == "zero" else (old if kind == "kept" else new).randbytes(n * PAGE))
        return b"".join(out)
