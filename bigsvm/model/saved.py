"""The arrays of a saved model, read and checked: the part of loading that needs only NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError, MissingInput, UsageError
from bigsvm.files.file_array import FileArray
from bigsvm.files.paths import given_as
from bigsvm.files.rows_file import read_rows
from bigsvm.model.decide import models_of, n_models_of
from bigsvm.model.model_files import (
    RESTORE,
    Document,
    classes_of,
    is_ascending,
    is_finite,
    open_array,
    read_array,
    read_document,
)
from bigsvm.model.probability.calibration_file import read_calibration
from bigsvm.model.support_files import open_support
from bigsvm.problem.kernel import Kernel

_NOT_ABOUT = ("format", "format_version", "kind", "classes", "n_features")
"""Entries of model.json that are not part of `about`, because models have fields for them."""
_READINGS = 10
"""Attempts to read a model in whose place others are put; each of these takes a fit."""
Read = TypeVar("Read")


class SavedLinear(NamedTuple):
    """The arrays of a linear model.

    coef : float64, (n_models, n_features);  intercept : float64, (n_models,)
    classes : labels in ascending order, empty for regression;  pairs : whether there is a model for each pair of them
    about : the other contents of model.json
    """

    coef: np.ndarray
    intercept: np.ndarray
    classes: np.ndarray
    pairs: bool
    about: dict[str, Any]

    @property
    def codes(self) -> tuple[np.ndarray, np.ndarray]:
        """(positive, negative) of `models_of` for these classes."""
        labels = self.about.get("problem", {}).get("multi_class") == "labels"
        return models_of(len(self.classes), self.pairs, labels)


class SavedKernel(NamedTuple):
    """The arrays of a kernel model; support vectors and coefficients stay in their files, and are read by pieces.

    support : dense (n_support, n_features), or CSR of three such arrays; None for a precomputed kernel
    support_rows : int64, (n_support,), ascending;  dual_coef : float64, (n_models, n_support)
    The other fields are as for a linear model.
    """

    kernel: Kernel
    support: FileArray | CSR | None
    support_rows: FileArray
    dual_coef: FileArray
    intercept: np.ndarray
    classes: np.ndarray
    pairs: bool
    n_features: int
    about: dict[str, Any]


def read_as_one(path: str | Path, read: Callable[[], Read]) -> Read:
    """`read()`, which reads several files of the model at `path`; again if another folder took that name meanwhile.

    --overwrite exchanges the folders in one step, and deletes the former one.  A reader between two files would take
    the second one for damaged.

    Raises what `read` raises; a DataError says what to do, too.
    """
    for _ in range(_READINGS - 1):
        was = _folder_at(path)
        try:
            return read()
        except (DataError, MissingInput) as error:
            if _folder_at(path) == was:
                if isinstance(error, DataError) and error.hint in ("", RESTORE):
                    error.hint = _remedy(Path(path))
                raise
    return read()


def _remedy(path: Path) -> str:
    """What helps against a damaged model."""
    from bigsvm.model.versions.reading import remedy_of_version  # which loads models

    return remedy_of_version(path) or RESTORE


def _folder_at(path: str | Path) -> tuple[int, int] | None:
    """Which folder has this name now; None if there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def read_whole_document(path: str | Path) -> tuple[Path, Document]:
    """(folder, model.json together with `rows` and `calibration` of other files).  Raises MissingInput, DataError."""
    # Resolve links once: `current` of a registry may be swapped while the files are read.
    given_as(path)
    folder = Path(path).resolve()
    document = read_document(folder, str(path))
    rows = read_rows(folder, document.get("digests"))
    if rows:
        document["rows"] = rows
    calibration = read_calibration(folder, document)
    if calibration:
        document["calibration"] = calibration
    return folder, document


def read_saved_linear(folder: Path, document: dict[str, Any]) -> SavedLinear:
    """Read the linear model in `folder`, whose model.json is `document`.  Raises DataError."""
    try:
        digests, (classes, pairs) = document["digests"], classes_of(document, folder)
        n_features = document["n_features"]
        coef = read_array(folder / "coef.npy", digests["coef.npy"])
        intercept = read_array(folder / "intercept.npy", digests["intercept.npy"])
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"model.json lacks a valid {error}", str(folder / "model.json")) from error
    if len(classes) == 1 or not isinstance(n_features, int) or n_features < 1:
        raise DataError(f"{len(classes)} classes and {n_features!r} features are not a valid model", str(folder))
    labels = document.get("problem", {}).get("multi_class") == "labels"
    n_models = n_models_of(len(classes), pairs, labels)
    if coef.shape != (n_models, n_features) or intercept.shape != (n_models,):
        raise DataError(
            f"coef {coef.shape} and intercept {intercept.shape} do not fit {n_models} models of {n_features} features",
            str(folder),
        )
    return SavedLinear(coef, intercept, classes, pairs, _about(document, classes, folder))


def read_saved_kernel(folder: Path, document: dict[str, Any]) -> SavedKernel:
    """Read the kernel model in `folder`, whose model.json is `document`.  Raises DataError."""
    where = str(folder / "model.json")
    try:
        kernel = _kernel_of(document["problem"]["kernel"])
        digests, (classes, pairs) = document["digests"], classes_of(document, folder)
        n_features = document["n_features"]
        intercept = read_array(folder / "intercept.npy", digests["intercept.npy"])
        dual_coef = open_array(folder / "dual_coef.npy", digests["dual_coef.npy"])
        rows = open_array(folder / "support_rows.npy", digests["support_rows.npy"])
        if len(classes) == 1 or type(n_features) is not int or not 1 <= n_features < 2**63:
            raise DataError(f"{len(classes)} classes and {n_features!r} features are not a valid model", str(folder))
        n_models = n_models_of(len(classes), pairs)
        _check_arrays(folder, dual_coef, intercept, rows, n_models)
        support: FileArray | CSR | None = None
        if kernel.name != "precomputed":
            support = open_support(folder, digests, len(rows), n_features)
        elif len(rows) and rows[-1] >= n_features:
            raise DataError(
                f"row {rows[-1]} is beyond the {n_features} training rows", str(folder / "support_rows.npy")
            )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, UsageError) as error:
        raise DataError(f"model.json lacks a valid {error}", where) from error
    return SavedKernel(
        kernel, support, rows, dual_coef, intercept, classes, pairs, n_features, _about(document, classes, folder)
    )  # fmt: skip


def _about(document: dict[str, Any], classes: np.ndarray, folder: Path) -> dict[str, Any]:
    """The `about` of the model.  Raises DataError if an imported model records an invalid order of its classes."""
    imported = document.get("imported", {})
    order = imported.get("label_order", []) if isinstance(imported, dict) else None
    wanted = sorted(map(str, range(len(classes))))
    if order != [] and not (isinstance(order, list) and sorted(map(str, order)) == wanted):
        raise DataError("model.json lacks a valid 'imported'", str(folder / "model.json"))
    return {name: value for name, value in document.items() if name not in _NOT_ABOUT}


def _kernel_of(document: Any) -> Kernel:
    """The kernel in a document.  Raises TypeError or others if a parameter is not a number."""
    kinds = {"name": str, "gamma": float, "degree": int, "coef0": float}
    for name, value in document.items():
        if isinstance(value, bool) or not isinstance(value, (int, float) if kinds[name] is float else kinds[name]):
            raise TypeError(f"the kernel's {name} is {value!r}")
    return Kernel.of_document({name: kinds[name](value) for name, value in document.items()})


def _check_arrays(folder: Path, dual_coef: FileArray, intercept: np.ndarray, rows: FileArray, n_models: int) -> None:
    """Raise DataError unless the arrays fit each other and all values are finite."""
    if rows.dtype != np.int64 or rows.ndim != 1 or not is_ascending(rows) or (len(rows) and rows[0] < 0):
        raise DataError("the row numbers are not in ascending order", str(folder / "support_rows.npy"))
    if dual_coef.shape != (n_models, len(rows)) or intercept.shape != (n_models,):
        raise DataError(
            f"dual_coef {dual_coef.shape} and intercept {intercept.shape} do not fit {n_models} models of "
            f"{len(rows)} support vectors",
            str(folder),
        )
    if dual_coef.dtype != np.float64 or not is_finite(dual_coef):
        raise DataError(f"has dtype {dual_coef.dtype}, or values that are not finite", str(folder / "dual_coef.npy"))
