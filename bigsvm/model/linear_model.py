"""Models on disk: a directory of JSON and plain .npy arrays with digests.  Never pickle.

    model.json    format version, problem, classes, certificate, resolved plan, fingerprints, digests
    rows.json     how rows were made of columns, and names of features; absent where they have none
    coef.npy      float64, (n_models, n_features)
    intercept.npy float64, (n_models,)
    alpha.npy     float64, (n_models, n_samples) in the store's row order; absent with --no-dual

A kernel model has its support vectors in the place of coef.npy (`kernel_model.py`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from bigsvm.config import JOINT_RULE
from bigsvm.csr import CSR
from bigsvm.errors import DataError
from bigsvm.files.rows_file import read_rows
from bigsvm.model.decide import Decides, check_width, models_of, no_codes
from bigsvm.model.kernel_model import KernelModel, read_kernel_model
from bigsvm.model.linear_scores import COMPILED_FROM, products
from bigsvm.model.model_files import json_labels, map_array, read_document, write_array, write_model
from bigsvm.model.saved import read_saved_linear, read_whole_document
from bigsvm.problem.kernel import Kernel
from bigsvm.store.blocks import Matrix


class LinearScorer(NamedTuple):
    """A linear model as compiled loops take it.

    W : float64, shape (n_features, n_models), C-contiguous
    intercept : float64, shape (n_models,)
    of_sparse : float64, shape (n_models,)   the intercept for sparse rows, whose means nobody has subtracted
    """

    W: np.ndarray
    intercept: np.ndarray
    of_sparse: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.W)

    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of rows that have no feature beyond the model's, float64, shape (n_rows, n_models)."""
        out = products(X, self.W)
        out += self.of_sparse if isinstance(X, CSR) else self.intercept
        return out


@dataclass(frozen=True, repr=False)
class LinearModel(Decides):
    """f(x) = coef.x + intercept for each model; the label is its sign, or the class with the largest score.

    coef : float64, shape (n_models, n_features)
    intercept : float64, shape (n_models,)
    classes : labels in ascending order; with two classes there is one model and the last class is positive; none for
        regression, whose score is the value
    about : what model.json holds besides (problem, certificate, plan, fingerprints)
    positive, negative : int32, (n_models,)   class codes of each model; left out, one class against the rest
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
    """Bytes that one call of a scorer holds besides its rows and their scores."""
    takes_narrower: ClassVar[bool] = True
    """Sparse rows may have fewer features than the model: the rest count 0."""
    compiled_from: ClassVar[int] = COMPILED_FROM
    """Products of entries and weights from which compiled code computes scores."""

    def __post_init__(self) -> None:
        if len(self.positive) == 0:
            positive, negative = models_of(len(self.classes), False)
            object.__setattr__(self, "positive", positive)
            object.__setattr__(self, "negative", negative)

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.coef.shape[1]

    @property
    def weights(self) -> np.ndarray:
        """As `Decides` has it: `coef`."""
        return self.coef

    def scorer(self) -> LinearScorer:
        """What a task needs of the model: its weights in the compiled order, a view where there is one model."""
        return LinearScorer(np.ascontiguousarray(self.coef.T), self.intercept, self.intercept_of_sparse())

    @property
    def scorer_bytes(self) -> int:
        """Bytes of weights that are held while rows are scored: the model's, and of several models `scorer`'s, too."""
        return self.coef.nbytes * (2 if self.n_models > 1 else 1)

    def summary(self) -> dict[str, Any]:
        """What is told of the weights."""
        return {
            "n_nonzero": int(np.count_nonzero(self.coef)),
            "norm": float(np.sqrt(np.sum(self.coef * self.coef))),
        }

    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of rows, float64, shape (n_rows, n_models).

        Sparse rows may have fewer features than the model (the rest count 0).  Raises DataError where dense rows
        have more or fewer, or where an entry of sparse rows lies beyond.
        """
        check_width(X, self.n_features)
        return self.scorer().scores(X)

    def save(self, path: str | Path, alpha: Any = None, overwrite: bool = False, alpha_bytes: int = 0) -> None:
        """Write the model directory, whole or not at all.

        Parameters
        ----------
        alpha : callable(file) that writes alpha.npy's bytes in bounded memory, an array, or None
        alpha_bytes : what such a callable writes, for the message where the disk is full

        Raises
        ------
        OutputError : the path exists (unless overwrite) or cannot be written.
        """
        if isinstance(alpha, np.ndarray):
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
        """A model of one feature, of the same kind: it calls all that this one calls."""
        return dataclasses.replace(self, coef=np.zeros((self.n_models, 1)), intercept=np.zeros(self.n_models))

    @property
    def kinds(self) -> tuple[str, ...]:
        """What decides the types of the model's arrays."""
        return (self.kind,)


Model: TypeAlias = LinearModel | KernelModel
"""A model of either kind."""


def load_model(path: str | Path) -> Model:
    """Read a model directory.

    Raises
    ------
    MissingInput : there is no model at `path`.
    DataError : it is not a bigsvm model, is of a newer format, or an array does not match its digest.
    """
    folder, document = read_whole_document(path)
    if document.get("kind") == "kernel":
        return read_kernel_model(folder, document)
    saved = read_saved_linear(folder, document)
    return LinearModel(saved.coef, saved.intercept, saved.classes, saved.about, *saved.codes)


def rows_of_model(path: str | Path) -> dict[str, Any]:
    """How the rows of a saved model were made, without its arrays.  Raises as `load_model`."""
    folder = Path(path).resolve()
    return read_rows(folder, read_document(folder, str(path)).get("digests"))


def load_alpha(path: str | Path, model: Model) -> np.ndarray | None:
    """The saved dual point as a read-only map, float64 (n_models, n_samples); None when left out.

    Of regression it holds beta = alpha - alpha*.

    Raises DataError when it does not match its digest or shape.
    """
    file = Path(path) / "alpha.npy"
    digest = model.about.get("digests", {}).get("alpha.npy")
    if digest is None:
        return None
    alpha = map_array(file, digest)
    if alpha.dtype != np.float64 or alpha.ndim != 2 or alpha.shape[0] != model.n_models:
        raise DataError(f"alpha.npy has shape {alpha.shape} and dtype {alpha.dtype}", str(file))
    return alpha
