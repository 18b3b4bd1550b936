"""Linear models, and saving and loading of models of both kinds: a directory of JSON and plain .npy files.

    model.json    format version, problem, classes, certificate, resolved plan, fingerprints, digests
    rows.json     how features are made from columns, their names, and the column of labels; absent if there are none
    coef.npy      float64, (n_models, n_features)
    intercept.npy float64, (n_models,)
    alpha.npy     float64, (n_models, n_samples), in the store's row order; absent with --no-dual

Every file has a digest, and nothing is pickled.  A kernel model has support vectors instead of coef.npy
(`kernel_model.py`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from bigsvm.config import JOINT_RULE
from bigsvm.csr import CSR
from bigsvm.errors import DataError, told_outside
from bigsvm.files.file_array import FileArray
from bigsvm.files.rows_file import read_rows
from bigsvm.model.decide import Decides, check_width, no_codes
from bigsvm.model.kernel_model import KernelModel, read_kernel_model
from bigsvm.model.linear_scores import COMPILED_FROM, products
from bigsvm.model.model_files import json_labels, open_array, read_document, write_array, write_model
from bigsvm.model.saved import read_as_one, read_saved_linear, read_whole_document
from bigsvm.problem.kernel import Kernel
from bigsvm.store.blocks import Matrix


class LinearScorer(NamedTuple):
    """A linear model in the layout of the compiled loops.

    W : float64, shape (n_features, n_models), C-contiguous
    intercept : float64, shape (n_models,)
    of_sparse : float64, shape (n_models,)   intercept for sparse rows, from which means have not been subtracted
    """

    W: np.ndarray
    intercept: np.ndarray
    of_sparse: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.W)

    def scores(self, X: Matrix) -> np.ndarray:
        """Scores, float64, shape (n_rows, n_models); the rows must have no feature beyond the model's."""
        out = products(X, self.W)
        out += self.of_sparse if isinstance(X, CSR) else self.intercept
        return out


@dataclass(frozen=True, repr=False)
class LinearModel(Decides):
    """f(x) = coef.x + intercept for each model; the label is given by its sign, or by the class with the largest score.

    coef : float64, shape (n_models, n_features)
    intercept : float64, shape (n_models,)
    classes : labels in ascending order; with two classes there is one model, and the last class is positive; empty for
        regression, where the score is the value
    about : the other contents of model.json (problem, certificate, plan, fingerprints)
    positive, negative : int32, (n_models,)   class codes of each model; default: one class against the rest
    """

    coef: np.ndarray
    intercept: np.ndarray
    classes: np.ndarray
    about: dict[str, Any] = field(default_factory=dict)
    positive: np.ndarray = field(default_factory=no_codes)
    negative: np.ndarray = field(default_factory=no_codes)
    kind: ClassVar[str] = "linear"
    kernel: ClassVar[Kernel] = Kernel()
    scoring_bytes: ClassVar[int] = 0
    """Bytes that one call of a scorer holds, in addition to its rows and their scores."""
    takes_narrower: ClassVar[bool] = True
    """Whether sparse rows may have fewer features than the model; the rest count 0."""
    compiled_from: ClassVar[int] = COMPILED_FROM
    """Number of products (entries x models) from which compiled code computes scores; NumPy computes fewer."""

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.coef.shape[1]

    @property
    def weights(self) -> np.ndarray:
        """`coef`; see `Decides.weights`."""
        return self.coef

    def scorer(self) -> LinearScorer:
        """The model as a scoring task needs it: its weights, transposed; for one model without a copy."""
        return LinearScorer(np.ascontiguousarray(self.coef.T), self.intercept, self.intercept_of_sparse())

    @property
    def scorer_bytes(self) -> int:
        """Bytes of weights that are held during scoring: the model's, and of several models also the scorer's copy."""
        return self.coef.nbytes * (2 if self.n_models > 1 else 1)

    def summary(self) -> dict[str, Any]:
        """The figures that `bigsvm inspect` and reports show."""
        return {
            "n_nonzero": int(np.count_nonzero(self.coef)),
            "norm": float(np.sqrt(np.sum(self.coef * self.coef))),
        }

    @told_outside
    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of rows, float64, shape (n_rows, n_models).

        Sparse rows may have fewer features than the model (the rest count 0).  Raises DataError if dense rows have more
        or fewer features, or an entry of sparse rows lies beyond the model's.
        """
        check_width(X, self.n_features)
        return self.scorer().scores(X)

    @told_outside
    def save(self, path: str | Path, alpha: Any = None, overwrite: bool = False, alpha_bytes: int = 0) -> None:
        """Write the model directory, whole or not at all.

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
        about = self.about
        plain = self.multi_class in ("ovr", JOINT_RULE)
        if not plain:
            problem = {**about.get("problem", {}), "multi_class": self.multi_class, "regression": self.regression}
            about = {**about, "problem": problem}
        document = {
            "kind": self.kind,
            "n_features": self.n_features,
            "classes": json_labels(self.classes),
            **about,
        }

        def write_arrays(folder: Path) -> dict[str, str]:
            return {
                name: write_array(folder / name, array, np.float64)
                for name, array in (("coef.npy", self.coef), ("intercept.npy", self.intercept))
            }

        nbytes = self.coef.nbytes + self.intercept.nbytes + alpha_bytes
        write_model(path, document, write_arrays, nbytes, alpha, overwrite)

    def tiny(self) -> LinearModel:
        """A model of the same kind with one feature; scoring it compiles the same code."""
        return dataclasses.replace(self, coef=np.zeros((self.n_models, 1)), intercept=np.zeros(self.n_models))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The layout and dtypes of the model's arrays, which decide what has to be compiled."""
        return (self.kind,)


Model: TypeAlias = LinearModel | KernelModel
"""A linear or a kernel model."""


def load_model(path: str | Path) -> Model:
    """Load a saved model.

    Raises
    ------
    MissingInput : there is no model at `path`.
    DataError : it is not a bigsvm model, it has a newer format, or a file does not match its digest.
    """
    return read_as_one(path, lambda: _loaded(path))


def _loaded(path: str | Path) -> Model:
    folder, document = read_whole_document(path)
    if document.get("kind") == "kernel":
        return read_kernel_model(folder, document)
    saved = read_saved_linear(folder, document)
    model = LinearModel(saved.coef, saved.intercept, saved.classes, saved.about, *saved.codes)
    object.__setattr__(model, "fingerprint", document.fingerprint)
    return model


def rows_of_model(path: str | Path) -> dict[str, Any]:
    """The recipe of the rows of a saved model, without loading its arrays.  Raises what `load_model` raises."""

    def rows() -> dict[str, Any]:
        folder = Path(path).resolve()
        return read_rows(folder, read_document(folder, str(path)).get("digests"))

    return read_as_one(path, rows)


def is_regression(path: str | Path) -> bool:
    """Whether a saved model was fitted to targets, without loading its arrays.  Raises what `load_model` raises."""
    document = read_as_one(path, lambda: read_document(Path(path).resolve(), str(path)))
    problem = document.get("problem")
    return isinstance(problem, dict) and problem.get("regression") is True


def weight_as_trained(path: str | Path, weight: str | None) -> str | None:
    """The column of weights by which training rows of a saved model are read: `weight`, if a column is named.

    Returns '' (no weights are read) if none is named and the model was trained without: a column of the usual name was
    left out then.  Raises what `load_model` raises.
    """
    if weight is not None:
        return weight
    document = read_as_one(path, lambda: read_document(Path(path).resolve(), str(path)))
    return "" if document.get("weighted") is False else None


def load_with_alpha(path: str | Path) -> tuple[Model, FileArray | None]:
    """A saved model and its dual variables.  Raises what `load_model` and `load_alpha` raise."""

    def both() -> tuple[Model, FileArray | None]:
        model = load_model(path)
        return model, load_alpha(path, model)

    return read_as_one(path, both)


def load_alpha(path: str | Path, model: Model) -> FileArray | None:
    """The saved dual variables, float64, (n_models, n_samples), which stay in their file; None if they were left out.

    For regression these are beta = alpha - alpha*.

    Raises DataError if the file does not match its digest, or has the wrong shape.
    """
    file = Path(path) / "alpha.npy"
    digest = model.about.get("digests", {}).get("alpha.npy")
    if digest is None:
        return None
    alpha = open_array(file, digest)
    if alpha.dtype != np.float64 or alpha.ndim != 2 or alpha.shape[0] != model.n_models:
        raise DataError(f"alpha.npy has the wrong shape {alpha.shape} or dtype {alpha.dtype}", str(file))
    return alpha
