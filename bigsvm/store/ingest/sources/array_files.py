"""The rows of files of arrays, for `ingest`: .npz, .npy, and folders of .npy files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np

from bigsvm.errors import DataError, UsageError
from bigsvm.store.ingest.sources.row_source import RowSource, array_source, csr_source
from bigsvm.store.ingest.sources.sequential import Sequential, ZipMember, npz_keys, open_npy, open_npz
from bigsvm.units import shortened

WEIGHT_ARRAYS = ("weight", "sample_weight")
"""Names under which files of arrays hold row weights, if --weight does not name the array."""


def folder_source(
    path: Path,
    label: str | None,
    weights: Sequential | Literal[""] | None,
    dtype: str | None,
    warn: Callable[[str], None],
) -> RowSource:
    """The rows of a folder with X.npy, or with data.npy, indices.npy and indptr.npy (and shape.npy, if it is there).

    Labels are in y.npy, and row weights in weight.npy or sample_weight.npy, if one of them is there; `weights` may be
    an array in their place, or '' for none.  `warn` is told of arrays that are not read.
    """
    names = sorted(entry.name.removesuffix(".npy") for entry in os.scandir(path) if entry.name.endswith(".npy"))
    if weights is None and (name := _name_of_weights(names, str(path), str(path / "{}.npy"))) is not None:
        weights = open_npy(path / f"{name}.npy")
    weights = None if weights == "" else weights
    labels = path / "y.npy" if label is None else Path(label)
    parts = ("X",) if "X" in names else ("data", "indices", "indptr", "shape")
    read = {labels.resolve(), *((path / f"{name}.npy").resolve() for name in parts)}
    read |= set() if weights is None else {Path(weights.where).resolve()}
    _tell_not_read([f"{name}.npy" for name in names if (path / f"{name}.npy").resolve() not in read], str(path), warn)
    y = open_npy(labels)
    if "X" in names:
        return array_source(open_npy(path / "X.npy"), y, weights, dtype)
    n_features = None
    if "shape" in names:
        shape = open_npy(path / "shape.npy")
        n_features = _n_features_of(np.asarray(shape.take(2)), shape.where)
    data, indices, indptr = (open_npy(path / f"{name}.npy") for name in ("data", "indices", "indptr"))
    return csr_source((data, indices, indptr), n_features, y, weights, dtype)


def npy_source(path: Path, label: str | None, weights: Sequential | None, dtype: str | None) -> RowSource:
    """The rows of a dense .npy file; its labels are in another file."""
    if label is None:
        raise UsageError("a .npy file has no labels", str(path), "name the .npy file of the labels with --label")
    return array_source(open_npy(path), open_npy(Path(label)), weights, dtype)


def npz_source(
    path: Path,
    label: str | None,
    weights: Sequential | str | None,
    dtype: str | None,
    stack: ExitStack,
    warn: Callable[[str], None],
) -> RowSource:
    """The rows of an .npz file: from scipy.sparse.save_npz, or with a dense array X.

    The labels are the array `label` of the file, else `y` or `label` in it, or a separate .npy file.  `weights` may be
    the name of an array in the file, too, or '' for none; without it row weights are the array `weight` or
    `sample_weight`, if one of them is there.  `warn` is told of arrays that are not read.
    """  # fmt: skip
    where = str(path)
    archive = stack.enter_context(open_npz(path))
    keys = npz_keys(archive)

    def member(key: str) -> ZipMember:
        return ZipMember(archive, key, where, stack)

    y: Sequential
    name = None
    if label is not None and label not in keys:
        if not label.endswith(".npy"):
            raise UsageError(f"there is no array {label!r} in it", where, f"it has {', '.join(keys)}")
        y = open_npy(Path(label))
    else:
        name = label or next((key for key in ("y", "label") if key in keys), None)
        if name is None:
            raise UsageError("it has no labels", where, "name an array in it, or a .npy file, with --label")
        y = member(name)
    if weights is None:
        weights = _name_of_weights(keys, where)
    weights = None if weights == "" else weights
    is_dense = "indptr" not in keys and "X" in keys
    read = {"X"} if is_dense else {"data", "indices", "indptr", "shape", "format"}
    read |= {found for found in (name, weights) if isinstance(found, str)}
    if isinstance(weights, str):
        if weights not in keys:
            raise UsageError(f"there is no array {weights!r} in it", where, f"it has {', '.join(keys)}")
        weights = member(weights)
    _tell_not_read([key for key in keys if key not in read], where, warn)
    if is_dense:
        return array_source(member("X"), y, weights, dtype)
    if "format" in keys:
        kind = member("format").whole().tolist()
        if kind not in (b"csr", "csr"):
            raise DataError(f"the sparse matrix has format {kind!r}", where, "save it as CSR: matrix.tocsr()")
    n_features = None
    if "shape" in keys:
        n_features = _n_features_of(member("shape").whole(), where)
    return csr_source((member("data"), member("indices"), member("indptr")), n_features, y, weights, dtype)


def _n_features_of(shape: np.ndarray, where: str) -> int:
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise DataError(f"shape is {shape.tolist()!r}, not two whole numbers", where, "save the matrix again")
    return int(shape[1])


def _name_of_weights(names: Sequence[str], where: str, spelled: str = "{}") -> str | None:
    """The array of row weights among `names`, or None.  Raises UsageError if there are two.

    spelled : what --weight takes for an array, with {} in place of its name
    """
    found = [name for name in WEIGHT_ARRAYS if name in names]
    if len(found) > 1:
        hint = f"name one of them: --weight {spelled.format(found[0])}, or --weight '' for none"
        raise UsageError(f"it has two arrays of row weights, {' and '.join(found)}", where, hint)
    return found[0] if found else None


def _tell_not_read(names: Sequence[str], where: str, warn: Callable[[str], None]) -> None:
    if names:
        warn(f"{where}: arrays that are not read: {shortened(', '.join(names))}")
