"""Mappings without a descriptor of their own: Python's keep one, whose close publishes."""

import ctypes
import mmap
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def mapping(fd, length):
    """Address of a shared one that can be read and written."""
    at = libc.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    assert at not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    return at


def unmap(at, length):
    """The kernel writes out what was stored through it."""
    assert libc.munmap(at, length) == 0, os.strerror(ctypes.get_errno())
