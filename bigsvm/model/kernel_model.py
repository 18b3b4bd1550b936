"""Kernel models: support vectors and coefficients, scores computed from them, and their files beside `model.json`.

    support.npy, or support_data.npy, support_indices.npy, support_indptr.npy     (`support.py`)
    dual_coef.npy     float64, (n_models, n_support)
    intercept.npy     float64, (n_models,)
    support_rows.npy  int64, (n_support,), row numbers in the training store, ascending
    alpha.npy         as for a linear model

For a precomputed kernel no support vectors are stored.  The rows to score are then kernel values with every training
row, and support_rows selects among the columns.  Support vectors and coefficients of a saved model stay in its files,
and are read piece by piece (`files/file_array.py`), so a large model is never held as a whole.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bigsvm.compiled.shared.rows import CSR, decision, n_rows_of, take_rows
from bigsvm.errors import DataError, told_outside
from bigsvm.files.file_array import FileArray
from bigsvm.model.decide import Decides, check_width, models_of, no_codes
from bigsvm.model.kernel_scores import KernelSums, sums_bytes, with_features
from bigsvm.model.model_files import Document, json_labels, read_document, write_array, write_model
from bigsvm.model.saved import read_saved_kernel
from bigsvm.model.support import (
    Support,
    block_bytes,
    kinds_of,
    support_blocks,
    support_nbytes,
    tiny_support,
    write_support,
)
from bigsvm.problem.kernel import Kernel
from bigsvm.store.blocks import Matrix, tile
from bigsvm.units import counted

_MOST_ROWS = 128  # rows of precomputed kernel values that are handled at a time
_ROWS_BYTES = 1 << 20  # limit of the bytes of these rows


@dataclass(frozen=True, repr=False)
class KernelModel(Decides):
    """f(x) = sum_s dual_coef[m, s] K(support_s, x) + intercept[m] for each model m; labels follow as in `Decides`.

    kernel : Kernel
    support : dense (n_support, n_features) or CSR, in the dtype of the data, possibly in files; SupportPieces if they
        are about to be written; None for a precomputed kernel
    support_rows : int64, (n_support,)   row numbers in the training store, ascending
    dual_coef : float64, (n_models, n_support)   beta = y alpha, or alpha - alpha* for regression
    intercept : float64, (n_models,)
    classes : labels in ascending order; empty for regression
    positive, negative : int32, (n_models,)   class codes of each model; default: one class against the rest
    n_features : for a precomputed kernel the number of training rows
    about : the other contents of model.json (problem, certificate, plan, fingerprints)
    """

    kernel: Kernel
    support: Support | None
    support_rows: np.ndarray | FileArray
    dual_coef: np.ndarray | FileArray
    intercept: np.ndarray
    classes: np.ndarray
    n_features: int
    positive: np.ndarray = field(default_factory=no_codes)
    negative: np.ndarray = field(default_factory=no_codes)
    about: dict[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "kernel"
    compiled_from: ClassVar[int] = 1
    scorer_bytes: ClassVar[int] = 0
    """Bytes of weights that are held during scoring; 0, because the arrays of a saved model stay in its files."""
    _home: ClassVar[tuple[str, str] | None] = None
    """(folder, digest of model.json) of a saved model; these are pickled for another process instead of the arrays."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dual_coef.shape != (self.n_models, self.n_support):
            raise ValueError(f"dual_coef {self.dual_coef.shape} of {self.n_models} models, {self.n_support} rows")

    def __reduce__(self) -> tuple[Callable[..., KernelModel], tuple[Any, ...]]:
        if self._home is not None:
            return _from_home, self._home
        return KernelModel, tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def _about_support(self) -> list[str]:
        return [f"{self.kernel.name} kernel", counted(self.n_support, "support vector", commas=True)]

    @property
    def n_support(self) -> int:
        return len(self.support_rows)

    @property
    def scoring_bytes(self) -> int:
        """Bytes that one call of `scores` holds, in addition to its rows and their scores."""
        if self.support is None:
            return 3 * _ROWS_BYTES + 2 * self.dual_coef.nbytes
        return block_bytes(self.support, self.n_features) + sums_bytes(self.n_models)

    @property
    def takes_narrower(self) -> bool:
        """Whether sparse rows may have fewer features than the model (the rest count 0); not kernel values."""
        return self.support is not None

    def scorer(self) -> KernelModel:
        """The model as a scoring task needs it; pickling sends only the folder of a saved model."""
        return self

    def summary(self) -> dict[str, Any]:
        """The figures that `bigsvm inspect` and reports show; `n_support` by model."""
        return {
            "kernel": self.kernel.document(),
            "n_support_vectors": self.n_support,
            "n_support": [int(np.count_nonzero(coef)) for coef in self.dual_coef],
            "support_layout": kinds_of(self.support)[0] if self.support is not None else None,
            "support_bytes": support_nbytes(self.support),
        }

    @told_outside
    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of rows, float64, shape (n_rows, n_models).

        Sparse rows may have fewer features than the model (the rest count 0), unless they are kernel values.

        Raises DataError if dense rows have more or fewer features, or an entry of sparse rows lies beyond the model's;
        or if dense kernel values are not those with every training row.
        """
        check_width(X, self.n_features)
        if self.support is None:
            out = np.zeros((n_rows_of(X), self.n_models))
            nbytes = sum(array.nbytes for array in X) if isinstance(X, CSR) else X.nbytes
            self._add_values(X, int(min(_MOST_ROWS, max(1, _ROWS_BYTES * len(out) // max(nbytes, 1)))), out)
            return out + self.intercept
        found = KernelSums(X, self.n_features, self.kernel, self.n_models)
        for first, last, block in support_blocks(self.support):
            found.add(block, np.array(self.dual_coef[:, first:last].T, order="C"))
        found.sums += self.intercept
        return found.sums

    def _add_values(self, X: Matrix, at_once: int, out: np.ndarray) -> None:
        """Add to `out` the sums for rows of a precomputed kernel, which hold kernel values already."""
        if isinstance(X, np.ndarray) and X.shape[1] != self.n_features:
            raise DataError(
                f"a row has {X.shape[1]} kernel values, and the model was trained on {self.n_features} rows"
            )
        coef, rows = np.array(self.dual_coef.T, order="C"), np.array(self.support_rows)
        for start, stop in tile(len(out), at_once):
            decision(with_features(take_rows(X, start, stop), rows), coef, out[start:stop])

    @told_outside
    def save(self, path: str | Path, alpha: Any = None, overwrite: bool = False, alpha_bytes: int = 0) -> None:
        """Write the model directory, whole or not at all; SupportPieces are written piece by piece.

        Parameters
        ----------
        alpha : callable(file) that writes alpha.npy's bytes in bounded memory, an array, or None
        alpha_bytes : the bytes that such a callable writes, for the error message if the disk is full

        Raises
        ------
        OutputError : the path exists (unless overwrite) or cannot be written.
        """
        if isinstance(alpha, np.ndarray | FileArray):
            alpha_bytes = alpha.nbytes
        problem = {
            **self.about.get("problem", {}),
            "kernel": self.kernel.document(),
            "multi_class": self.multi_class,
            "regression": self.regression,
        }
        document = {
            "kind": self.kind,
            "n_features": self.n_features,
            "classes": json_labels(self.classes),
            **self.about,
            "problem": problem,
        }
        plain = (
            ("dual_coef.npy", self.dual_coef, np.float64),
            ("intercept.npy", self.intercept, np.float64),
            ("support_rows.npy", self.support_rows, np.int64),
        )

        def write_arrays(folder: Path) -> dict[str, str]:
            digests = {name: write_array(folder / name, array, dtype) for name, array, dtype in plain}
            return digests | write_support(folder, self.support, self.n_support, self.n_features)

        nbytes = support_nbytes(self.support) + sum(array.nbytes for _, array, _ in plain) + alpha_bytes
        write_model(path, document, write_arrays, nbytes, alpha, overwrite)

    def tiny(self) -> KernelModel:
        """A model of the same kind with one feature and one zero support vector; scoring it compiles the same code."""
        support, rows = tiny_support(self.support), np.zeros(1, np.int64)
        return dataclasses.replace(
            self, support=support, support_rows=rows, dual_coef=np.zeros((self.n_models, 1)), n_features=1
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The layout and dtypes of the model's arrays, which decide what has to be compiled."""
        return (self.kind, self.kernel.name, *kinds_of(self.support))


def read_kernel_model(folder: Path, document: Document) -> KernelModel:
    """Read the kernel model in `folder`, whose model.json is `document`.  Raises DataError."""
    saved = read_saved_kernel(folder, document)
    model = KernelModel(
        saved.kernel, saved.support, saved.support_rows, saved.dual_coef, saved.intercept, saved.classes,
        saved.n_features, *models_of(len(saved.classes), saved.pairs), saved.about,
    )  # fmt: skip
    object.__setattr__(model, "fingerprint", document.fingerprint)
    object.__setattr__(model, "_home", (str(folder), document.fingerprint))
    return model


@functools.lru_cache(maxsize=4)
def _from_home(path: str, digest: str) -> KernelModel:
    """The model in a folder, loaded once for each process.  Raises DataError if model.json has another digest."""
    folder = Path(path)
    document = read_document(folder, path)
    if document.fingerprint != digest:
        raise DataError("the model has changed since it was loaded", path)
    return read_kernel_model(folder, document)
