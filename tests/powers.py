"""Root without its powers over files: permissions bind it then, as they bind everybody else."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION_3 = 0x20080522  # of the structures of capget(2), on Linux
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _call(name: str, data: ctypes.Array[_Data]) -> None:
    """`capget` or `capset` of this thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(ctypes.byref(_Header(_VERSION_3, 0)), data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)


@contextmanager
def without_powers() -> Iterator[None]:
    """In the block, permissions bind this thread, and those that it starts, also if root runs it."""
    if os.getuid() != 0:
        yield
        return
    data = (_Data * 2)()
    _call("capget", data)
    before, access = data[0].effective, os.access
    data[0].effective &= ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    _call("capset", data)
    os.access = functools.partial(
        access, effective_ids=True
    )  # access(2) goes by what root may have, not by what it has
    try:
        yield
    finally:
        os.access = access
        data[0].effective = before
        _call("capset", data)
