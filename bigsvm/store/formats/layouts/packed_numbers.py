"""Refusal of packed arrays of the CF conventions, whose stored numbers are not the values meant.

xarray and netCDF store 1.5 as 2 with the attributes scale_factor 0.25 and add_offset 1.0, and missing values as
`_FillValue`.  Zarr and HDF5 do not apply these attributes, so a reader would get 2 and -999.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from bigsvm.errors import DataError

_PLAIN = {"scale_factor": 1.0, "add_offset": 0.0}
_HINT = "xarray reads the values meant, in Python: bigsvm.ingest((xarray.open_zarr(path)['X'], y), 'rows.zarr')"


def refuse_packed(attributes: Mapping[str, Any], dtype: np.dtype, path: str, fill: Any = None) -> None:
    """Raise DataError if the attributes of a numeric array say that its stored numbers are not the values meant.

    fill : the fill value of a Zarr 2 array, in which xarray keeps its `_FillValue`
    """
    if dtype.kind not in "biuf":
        return
    for name, plain in _PLAIN.items():
        if name in attributes and attributes[name] != plain:
            raise DataError(f"packed numbers: the attribute {name} is {attributes[name]!r}", path, _HINT)
    marks = {name: attributes[name] for name in ("_FillValue", "missing_value") if name in attributes}
    if fill is not None and "_ARRAY_DIMENSIONS" in attributes:
        marks["fill_value"] = fill
    for name, mark in marks.items():
        if not _is_nan(mark):  # NaN is refused wherever it occurs in the data
            raise DataError(f"numbers that stand for missing values: its {name} is {mark!r}", path, _HINT)


def _is_nan(mark: Any) -> bool:
    """Whether a mark is NaN, which xarray writes as itself, as text, or as base64 of a little-endian double."""
    if isinstance(mark, str):
        try:
            mark = struct.unpack("<d", base64.b64decode(mark, validate=True))[0]
        except (binascii.Error, struct.error, ValueError):
            return mark.lower() == "nan"
    return isinstance(mark, float | np.floating) and math.isnan(mark)
