"""A test whether an object is computed by dask, without importing dask."""

from __future__ import annotations

from typing import Any


def is_lazy(given: Any) -> bool:
    """Whether it is a dask collection, an xarray array, a Delayed, or a list of Delayed; imports neither library."""
    if isinstance(given, list):
        return bool(given) and all(_package(part) == "dask" for part in given)
    return _package(given) in ("dask", "xarray")


def _package(given: Any) -> str:
    return type(given).__module__.partition(".")[0]
