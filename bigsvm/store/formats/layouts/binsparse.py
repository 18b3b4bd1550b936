"""The binsparse descriptor, version 0.1: an attribute of a group that names the arrays of a sparse matrix.

    {"binsparse": {"version": "0.1", "format": "CSR", "shape": [n, d], "number_of_stored_values": nnz,
     "data_types": {"pointers_to_1": "uint64", "indices_1": "uint64", "values": "float32"}}}

The formats CSR, CSC and DMATR (rows of a dense matrix one after another) are read.  Values stored once for many entries
(iso values, one half of a symmetric matrix, a fill value) and values that are not real numbers are refused by name.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from bigsvm.errors import DataError
from bigsvm.store.formats.zarr_label import Readable

_READ = {"CSR": "csr", "CSC": "csc", "DMATR": "dense", "DMAT": "dense"}
_HINT = "formats that are read: CSR, CSC and DMATR, without structure and fill"


class Described(NamedTuple):
    """A matrix as its descriptor gives it.

    kind : csr, csc or dense;  shape : rows, columns;  parts : names of its arrays: values, indices and pointers
    """

    kind: str
    shape: tuple[int, int]
    parts: tuple[str, ...]


def described(node: Any, path: str) -> Described | None:
    """The matrix that the descriptor of a group gives; None without a descriptor.  Raises DataError if unsupported."""
    if "binsparse" not in node.attrs:
        return None
    found = node.attrs["binsparse"]
    try:
        found = json.loads(found) if isinstance(found, str | bytes) else dict(found)
        found = found.get("binsparse", found)
        version, form = str(found["version"]), str(found["format"]).upper()
        shape, types = [int(n) for n in found["shape"]], dict(found["data_types"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"its binsparse descriptor is incomplete or wrong: {error}", path) from error
    if version.split(".")[:2] != ["0", "1"]:
        raise DataError(f"a binsparse descriptor of version {version}", path, "version 0.1 is read")
    for name in ("structure", "fill"):
        if found.get(name) not in (None, False, "general"):
            raise DataError(f"a binsparse matrix with {name} {found[name]!r}", path, _HINT)
    for name, kind in types.items():
        if "[" in str(kind):
            what = f"a binsparse matrix whose {name} are {kind}"
            raise DataError(what, path, "values are stored one for one, and are real numbers")
    if form not in _READ or len(shape) != 2 or min(shape) < 0:
        raise DataError(f"a binsparse matrix of format {form}, shape {shape}", path, _HINT)
    kind = _READ[form]
    parts = ("values",) if kind == "dense" else ("values", "indices_1", "pointers_to_1")
    for name in parts:
        if name not in node:
            raise DataError(f"a binsparse matrix of format {form} without {name}", path)
    stored, n_values = found.get("number_of_stored_values"), int(node["values"].shape[0])
    wanted = shape[0] * shape[1] if kind == "dense" else stored
    if wanted is not None and int(wanted) != n_values:
        raise DataError(f"{n_values} values, and its binsparse descriptor says {wanted}", path)
    return Described(kind, (shape[0], shape[1]), parts)


class RowMajor:
    """The values of a dense matrix in one dimension, row after row, with the methods of a two-dimensional array."""

    raw = False

    def __init__(self, values: Readable, shape: tuple[int, int]) -> None:
        self.shape: tuple[int, ...] = shape
        self._values, self.dtype = values, values.dtype
        self.unit_rows, self.chunk_nbytes = max(values.unit_rows // max(shape[1], 1), 1), values.chunk_nbytes

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop)."""
        width = self.shape[1]
        return self._values.read(start * width, stop * width).reshape(stop - start, width)

    def forget(self) -> None:
        """Release what was read last."""
        self._values.forget()
