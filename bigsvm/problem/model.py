"""Models on disk: a directory of JSON and plain .npy arrays with digests.  Never pickle.

    model.json    format version, problem, classes, certificate, resolved plan, fingerprints, digests
    coef.npy      float64, (n_models, n_features)
    intercept.npy float64, (n_models,)
    alpha.npy     float64, (n_models, n_samples) in the store's row order; absent with --no-dual

Nothing in it names a time, a host or a path: same options, same bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.errors import DataError, MissingInput
from bigsvm.kernels.rows import CSR, decision, n_rows_of
from bigsvm.store.blocks import Matrix
from bigsvm.store.files import file_digest, new_directory, read_bytes

FORMAT = "bigsvm-model"
FORMAT_VERSION = 1
MARKS = ("model.json",)
"""Files by which a folder is known as a model."""


@dataclass(frozen=True)
class LinearModel:
    """f(x) = coef.x + intercept for each model; the label is its sign, or the class with the largest score.

    coef : float64, shape (n_models, n_features)
    intercept : float64, shape (n_models,)
    classes : labels in ascending order; with two classes there is one model and the last class is positive
    about : what model.json holds besides (problem, certificate, plan, fingerprints)
    """

    coef: np.ndarray
    intercept: np.ndarray
    classes: np.ndarray
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def n_features(self) -> int:
        return self.coef.shape[1]

    @property
    def n_models(self) -> int:
        return self.coef.shape[0]

    def scores(self, X: Matrix) -> np.ndarray:
        """Scores of rows, float64, shape (n_rows, n_models).

        Rows may have fewer features than the model (the rest count 0).  Raises DataError where dense rows have
        more, or where an entry of sparse rows lies beyond.
        """
        if isinstance(X, CSR):
            top = int(X.indices.max(initial=-1))
            if top >= self.n_features:
                row = int(np.searchsorted(X.indptr, int(np.argmax(X.indices >= self.n_features)), "right")) - 1
                raise DataError(
                    f"feature {top} is beyond the model's {self.n_features} features (from 0)", f"row {row}"
                )
        elif X.shape[1] > self.n_features:
            raise DataError(f"the rows have {X.shape[1]} features and the model {self.n_features}")
        W = self._weights()
        if not isinstance(X, CSR):
            W = np.ascontiguousarray(W[: X.shape[1]])
        out = np.empty((n_rows_of(X), self.n_models))
        decision(X, W, out)
        return out + self.intercept

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores as scikit-learn gives them: shape (n_rows,) for two classes, else (n_rows, n_classes).

        X : array (n_rows, n_features), SciPy sparse matrix or array, or `bigsvm.kernels.rows.CSR`.
        """
        scores = self.scores(_as_matrix(X))
        return scores[:, 0] if self.n_models == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Labels, shape (n_rows,)."""
        return self.classes[self.codes(self.scores(_as_matrix(X)))]

    def codes(self, scores: np.ndarray) -> np.ndarray:
        """Class codes of scores (n_rows, n_models): a score of 0 is the negative class, ties the first."""
        if self.n_models == 1:
            return (scores[:, 0] > 0).astype(np.int64)
        return np.argmax(scores, axis=1)

    def _weights(self) -> np.ndarray:
        return np.ascontiguousarray(self.coef.T)

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
        nbytes = self.coef.nbytes + self.intercept.nbytes + alpha_bytes
        with new_directory(Path(path), overwrite, MARKS, "model", nbytes) as folder:
            digests = {
                "coef.npy": _write_array(folder / "coef.npy", self.coef),
                "intercept.npy": _write_array(folder / "intercept.npy", self.intercept),
            }
            if alpha is not None:
                if isinstance(alpha, np.ndarray):
                    digests["alpha.npy"] = _write_array(folder / "alpha.npy", alpha)
                else:
                    with open(folder / "alpha.npy", "xb") as file:
                        alpha(file)
                    digests["alpha.npy"] = file_digest(folder / "alpha.npy")
            document = {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "kind": "linear",
                "n_features": self.n_features,
                "classes": [_json_label(label) for label in self.classes],
                **self.about,
                "digests": digests,
            }
            text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
            (folder / "model.json").write_text(text + "\n")


def load_model(path: str | Path) -> LinearModel:
    """Read a model directory.

    Raises
    ------
    MissingInput : there is no model at `path`.
    DataError : it is not a bigsvm model, is of a newer format, or an array does not match its digest.
    """
    # A link is followed once: `current` of a registry may be swapped while its files are read.
    folder = Path(path).resolve()
    try:
        content = read_bytes(folder / "model.json")
    except OSError as error:
        raise MissingInput("no model here", str(path), "a model is a directory with model.json") from error
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"model.json is not JSON: {error}", str(path)) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError("this is not a bigsvm model", str(folder / "model.json"))
    version = document.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise DataError(
            f"model format version {version!r} is not one of, or newer than, this program's {FORMAT_VERSION}",
            str(folder / "model.json"),
            "upgrade bigsvm",
        )
    try:
        digests, classes = document.pop("digests"), _classes(document.pop("classes"), folder)
        n_features = document.pop("n_features")
        coef = _read_array(folder / "coef.npy", digests["coef.npy"])
        intercept = _read_array(folder / "intercept.npy", digests["intercept.npy"])
        document["digests"] = digests
        n_models = 1 if len(classes) == 2 else len(classes)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"model.json lacks or garbles {error}", str(folder / "model.json")) from error
    if len(classes) < 2 or not isinstance(n_features, int) or n_features < 1:
        raise DataError(f"{len(classes)} classes and {n_features!r} features make no model", str(folder))
    if coef.shape != (n_models, n_features) or intercept.shape != (n_models,):
        raise DataError(
            f"coef {coef.shape} and intercept {intercept.shape} do not fit {n_models} models of {n_features} features",
            str(folder),
        )
    for name in ("format", "format_version", "kind"):
        document.pop(name, None)
    return LinearModel(coef, intercept, classes, document)


def load_alpha(path: str | Path, model: LinearModel) -> np.ndarray | None:
    """The saved dual point as a read-only map, float64 (n_models, n_samples); None when left out.

    Raises DataError when it does not match its digest or shape.
    """
    file = Path(path) / "alpha.npy"
    digest = model.about.get("digests", {}).get("alpha.npy")
    if digest is None:
        return None
    if not file.exists() or file_digest(file) != digest:
        raise DataError("alpha.npy is missing or damaged: its digest does not match model.json", str(file))
    alpha = np.load(file, mmap_mode="r", allow_pickle=False)
    if alpha.dtype != np.float64 or alpha.ndim != 2 or alpha.shape[0] != model.n_models:
        raise DataError(f"alpha.npy has shape {alpha.shape} and dtype {alpha.dtype}", str(file))
    return alpha


def _write_array(path: Path, array: np.ndarray) -> str:
    with open(path, "xb") as file:  # straight from the array: a wide model is not held twice
        np.save(file, np.ascontiguousarray(array, dtype=np.float64), allow_pickle=False)
    return file_digest(path)


def _read_array(path: Path, digest: str) -> np.ndarray:
    try:
        found = file_digest(path)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", str(path)) from error
    if found != digest:
        raise DataError("damaged: its digest does not match model.json", str(path))
    try:
        # A map first: a header that promises more than the file has is found out before memory is taken.
        array = np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except Exception as error:  # its header is read as Python text: a tokenizer has errors of many kinds
        raise DataError(f"not a plain array: {error}", str(path)) from error
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise DataError(f"dtype {array.dtype} or values that are not finite", str(path))
    return array


def _classes(labels: Any, folder: Path) -> np.ndarray:
    """Labels as a document has them: all text, or all numbers.  Raises DataError."""
    kinds = {type(label) for label in labels} if isinstance(labels, list) else set()
    if kinds != {str} and not (kinds and kinds <= {int, float}):
        raise DataError("the classes are neither all text nor all numbers", str(folder / "model.json"))
    found = np.array(labels)
    if found.dtype.kind not in "iufU":  # whole numbers beyond 64 bits are those of a float64, or nobody's
        try:
            found = np.array([float(label) for label in labels])
        except OverflowError:
            found = np.full(1, np.inf)
        if found.tolist() != labels:
            raise DataError("a class is a number beyond 64 bits", str(folder / "model.json"))
    if not np.array_equal(found, np.unique(found)):
        raise DataError("the classes are not in ascending order", str(folder / "model.json"))
    return found


def _json_label(label: Any) -> Any:
    """A label as JSON: whole numbers as integers, other numbers as floats, strings as they are."""
    if isinstance(label, str):
        return str(label)
    number = float(label)
    return int(number) if number.is_integer() else number


def _as_matrix(X: Any) -> Matrix:
    """Arrays and SciPy matrices as the kernels take them."""
    if isinstance(X, CSR):
        return X
    if hasattr(X, "tocsr"):
        X = X.tocsr()
        data = X.data if X.data.dtype in (np.float32, np.float64) else X.data.astype(np.float64)
        return CSR(data, X.indices, X.indptr)
    X = np.asarray(X)
    if X.ndim != 2:
        raise DataError(f"X must have two dimensions, not {X.ndim}")
    return np.ascontiguousarray(X if X.dtype in (np.float32, np.float64) else X.astype(np.float64))
