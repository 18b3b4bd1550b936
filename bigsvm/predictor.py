"""Predictions from a saved model with NumPy alone: for web services, where importing a trainer costs too much.

    from bigsvm import predictor
    model = predictor.load("spam.model")
    model.decision_function(X); model.predict(X)

Nothing is compiled, and neither numba nor dask, zarr, SciPy or pyarrow is loaded: NumPy, and xxhash for the digests of
the model's files.  Everything that makes a score a label, or refuses rows, is the code that `bigsvm predict` runs.

Decision values of linear models have the bits of `bigsvm predict`.  Those of kernel models add the same terms in
another order: they agree to 1e-12 of the sum of the terms' sizes.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import BigSVMError, DataError, told_outside
from bigsvm.files.file_array import FileArray
from bigsvm.model.decide import Decides, check_width, models_of
from bigsvm.model.plain_kernel import PlainKernel, given_sums
from bigsvm.model.plain_products import plain_products
from bigsvm.model.saved import read_as_one, read_saved_kernel, read_saved_linear, read_whole_document
from bigsvm.problem.kernel import Kernel
from bigsvm.store.blocks import Matrix, tile
from bigsvm.units import counted

__all__ = ["KernelPredictor", "LinearPredictor", "Predictor", "load"]

_PRODUCTS = 1 << 20  # of entries and weights, that are held at one time


class _Plain(Decides):
    """What both kinds share: rows as users of a service have them."""

    def _scaled(self, X: Any) -> Matrix:
        return super()._scaled(_of_triple(X) if type(X) is tuple else X)


@dataclass(frozen=True, repr=False)
class LinearPredictor(_Plain):
    """f(x) = coef.x + intercept for each model.

    coef : float64, (n_models, n_features);  intercept : float64, (n_models,)
    classes : labels in ascending order; none for regression
    positive, negative : int32, (n_models,)   class codes of each model
    about : the other contents of model.json
    """

    coef: np.ndarray
    intercept: np.ndarray
    classes: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    about: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.coef.shape[1]

    @property
    def weights(self) -> np.ndarray:
        """`coef`."""
        return self.coef

    @told_outside
    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of rows that are scaled already, float64, (n_rows, n_models).  Raises DataError on other widths."""
        check_width(X, self.n_features)
        W = np.ascontiguousarray(self.coef.T)
        # Sparse products are made row by row; of dense ones some rows at a time, so that little is held.
        if isinstance(X, CSR):
            return plain_products(X, W) + self.intercept_of_sparse()
        runs = tile(len(X), max(_PRODUCTS // max(W.size, 1), 1))
        parts = [plain_products(X[start:stop], W) for start, stop in runs]
        return np.concatenate([np.empty((0, self.n_models)), *parts]) + self.intercept


@dataclass(frozen=True, repr=False)
class KernelPredictor(_Plain):
    """f(x) = sum_s dual_coef[m, s] K(support_s, x) + intercept[m] for each model m.

    support : dense (n_support, n_features) or CSR, which stay in the model's files; None for a precomputed kernel
    support_rows : int64, (n_support,)   rows of the store trained on
    dual_coef : float64, (n_models, n_support)
    The rest as of a LinearPredictor.
    """

    kernel: Kernel
    support: FileArray | CSR | None
    support_rows: FileArray
    dual_coef: FileArray
    intercept: np.ndarray
    classes: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    n_features: int
    about: dict[str, Any] = dataclasses.field(default_factory=dict)

    def _about_support(self) -> list[str]:
        return [f"{self.kernel.name} kernel", counted(len(self.support_rows), "support vector", commas=True)]

    @told_outside
    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of rows that are scaled already, float64, (n_rows, n_models).  Raises DataError on other widths."""
        check_width(X, self.n_features)
        if self.support is None:
            return given_sums(X, np.asarray(self.support_rows), np.asarray(self.dual_coef)) + self.intercept
        return self._sums.sums(X) + self.intercept

    @functools.cached_property
    def _sums(self) -> PlainKernel:
        assert self.support is not None
        return PlainKernel(self.kernel, self.support, self.dual_coef)


Predictor: TypeAlias = LinearPredictor | KernelPredictor
"""A model of either kind."""


def load(path: str | Path) -> Predictor:
    """The model in a folder, checked against its digests as `bigsvm.load_model` checks it.

    The predictor has `decision_function(X)` and `predict(X)`, where X is an array (n_rows, n_features), SciPy's sparse
    rows, or (data, indices, indptr) of CSR rows; for a regression `predict` returns values.

    Raises
    ------
    MissingInput : there is no model at `path`.
    DataError : it is not a bigsvm model, is of a newer format, or a file does not match its digest.
    """
    try:
        return read_as_one(path, lambda: _loaded(path))
    except BigSVMError as error:
        from bigsvm.python_api.told import for_python  # few services need it

        raise for_python(error) from error.__cause__


def _loaded(path: str | Path) -> Predictor:
    folder, document = read_whole_document(path)
    if document.get("kind") == "kernel":
        kernel = read_saved_kernel(folder, document)
        return KernelPredictor(
            kernel.kernel, kernel.support, kernel.support_rows, kernel.dual_coef, kernel.intercept, kernel.classes,
            *models_of(len(kernel.classes), kernel.pairs), kernel.n_features, kernel.about,
        )  # fmt: skip
    saved = read_saved_linear(folder, document)
    return LinearPredictor(saved.coef, saved.intercept, saved.classes, *saved.codes, saved.about)


def _of_triple(X: tuple[Any, ...]) -> CSR:
    """CSR rows of (data, indices, indptr).  Raises DataError where these are no such arrays."""
    if len(X) != 3:
        hint = "give (data, indices, indptr) of CSR rows, or an array"
        raise DataError(f"{len(X)} arrays are not CSR rows", "X", hint)
    data, indices, indptr = (np.asarray(part) for part in X)
    if any(part.ndim != 1 for part in (data, indices, indptr)) or not len(indptr):
        shapes = ", ".join(str(part.shape) for part in (data, indices, indptr))
        raise DataError(f"data, indices and indptr of CSR rows have the shapes {shapes}", "X")
    if len(indices) == 0:
        indices = indices.astype(np.int64)  # an empty list is of floats
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise DataError(f"indices are {indices.dtype} and indptr {indptr.dtype}, not whole numbers", "X")
    return CSR(data, indices, indptr.astype(np.int64))
