"""A profile of rows, from one streamed pass with 120 bytes for each feature; later rows are compared with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.csr import CSR
from bigsvm.errors import DataError
from bigsvm.files.atomic import new_file
from bigsvm.files.plain_arrays import load_arrays
from bigsvm.store.blocks import RowBlocks, blocks_of, row_bytes

FOLDER = "profiles"
_BLOCK = 8 << 20  # bytes
_HALF_BINS, _PER_UNIT = 2048, 50  # in asinh: bins of width 0.02 near 0, 2 % elsewhere, up to 1e17


@dataclass
class Profile:
    """The profile of training rows, and of a model's scores.

    n_rows : number of rows with positive weight
    labels : share of each class by name; for targets counts of `Histogram` by bin
    mean, variance, zero_rate : float64, (n_features,)
    features : names of the features; None if they have none, or they were not recorded
    scores : int64, (n_models, bins), counts of scores on the holdout; no models if there is no holdout
    """

    n_rows: int
    labels: dict[str, float]
    mean: np.ndarray
    variance: np.ndarray
    zero_rate: np.ndarray
    scores: np.ndarray
    features: list[str] | None = None

    def in_order_of(self, former: Profile) -> Profile | None:
        """This profile with its features in the order of `former`, by name; None if the features differ.

        If either has no names, the order is assumed to be the same.
        """
        if len(self.mean) != len(former.mean):
            return None
        if self.features is None or former.features is None or self.features == former.features:
            return self
        place = {name: j for j, name in enumerate(self.features)}
        if len(place) < len(self.features) or set(former.features) != place.keys():
            return None
        order = [place[name] for name in former.features]
        parts = {name: getattr(self, name)[order] for name in ("mean", "variance", "zero_rate")}
        return replace(self, features=former.features, **parts)

    def save(self, path: Path) -> None:
        """Write it as .npz, whole or not at all.  Raises OutputError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        about = json.dumps({"n_rows": self.n_rows, "labels": self.labels, "features": self.features})
        with new_file(path) as file:
            np.savez(
                file, about=np.frombuffer(about.encode(), np.uint8), mean=self.mean, variance=self.variance,
                zero_rate=self.zero_rate, scores=self.scores,
            )  # fmt: skip

    @classmethod
    def load(cls, path: Path) -> Profile | None:
        """The profile in a file; None if there is none.  Raises DataError if it is damaged."""
        try:
            with open(path, "rb") as file:
                held = load_arrays(file)
            about = json.loads(held.pop("about").tobytes())
            return cls(int(about["n_rows"]), dict(about["labels"]), **held, features=about.get("features"))
        except FileNotFoundError:
            return None
        except Exception as error:  # a garbled file can raise anything in a parser
            hint = "delete it: the next promotion writes a new one"
            raise DataError(f"not a profile of rows: {type(error).__name__}", str(path), hint) from error


def path_of(folder: Path, problem: str) -> Path:
    """The path of the profile of a problem; its name is the digest, which is in the history of the registry."""
    return folder / FOLDER / f"{problem}.npz"


def forget_profiles(folder: Path, problem: str) -> None:
    """Delete all profiles but that of the promoted problem."""
    for path in (folder / FOLDER).glob("*.npz"):
        if path != path_of(folder, problem):
            path.unlink(missing_ok=True)


def profile_of(store: RowBlocks, budget: MemoryBudget) -> Profile:
    """Read all rows once.  Rows of weight 0 are left out, all others count equally.

    Raises BudgetExceeded if the sums do not fit, DataError if rows are bad.
    """
    d, n = store.n_features, 0
    classes = store.classes
    size = min(_BLOCK, budget.limit // 8)
    with budget.reserve("sums of features", 120 * d + 3 * size + int(1.5 * store.chunk_nbytes)):
        sums, squares, there, shift = np.zeros(d), np.zeros(d), np.zeros(d, np.int64), np.zeros(d)
        labels = np.zeros(2 * _HALF_BINS if classes is None else len(classes), np.int64)
        rows = int(max(1, min(store.n_samples, size // row_bytes(store))))
        for block in blocks_of(store, store.refs(rows)):
            kept = slice(None) if block.sample_weight is None else block.sample_weight > 0
            y = block.y[kept]
            labels += counts(y) if classes is None else np.bincount(y.astype(np.int64), minlength=len(classes))
            if not n and len(y):
                shift = _shift_of(block.X, block.sample_weight, d)
            for running, more in zip((sums, squares, there), _sums(block.X, block.sample_weight, shift), strict=True):
                running += more
            n += len(y)
    n_rows = max(n, 1)
    mean = sums / n_rows
    variance = np.maximum(squares / n_rows - mean * mean, 0.0)
    names = [str(i) for i in range(len(labels))] if classes is None else [str(name) for name in classes.tolist()]
    shares = {
        name: float(count / n_rows)
        for name, count in zip(names, labels.tolist(), strict=True)
        if count or classes is not None
    }
    features = None if store.feature_names is None else list(map(str, store.feature_names))
    scores = np.zeros((0, 2 * _HALF_BINS), np.int64)
    return Profile(n, shares, mean + shift, variance, 1.0 - there / n_rows, scores, features)


def _shift_of(X: Any, weight: np.ndarray | None, d: int) -> np.ndarray:
    """The values that are subtracted before squares are summed, so that no digits cancel: those of a row; (d,).

    For a feature that is 0 in one of these sparse rows it is 0.
    """
    row = 0 if weight is None else int(np.flatnonzero(weight > 0)[0])
    if not isinstance(X, CSR):
        return np.asarray(X[row], np.float64)
    entries, found = slice(int(X.indptr[row]), int(X.indptr[row + 1])), np.zeros(d)
    everywhere = np.bincount(X.indices, minlength=d) == len(X.indptr) - 1
    found[X.indices[entries]] = X.data[entries]
    return np.where(everywhere, found, 0.0)


def _sums(X: Any, weight: np.ndarray | None, shift: np.ndarray) -> tuple[np.ndarray, ...]:
    """(sums of x - shift, sums of its squares, counts of x that are not 0) of each feature."""
    d = len(shift)
    kept_rows = None if weight is None or weight.all() else weight > 0
    if isinstance(X, CSR):
        data, indices = np.asarray(X.data, np.float64), X.indices
        if kept_rows is not None:
            kept = np.repeat(kept_rows, np.diff(X.indptr))
            data, indices = data[kept], indices[kept]
        there = np.bincount(indices[data != 0], minlength=d)
        n_rows = len(X.indptr) - 1 if kept_rows is None else int(np.count_nonzero(kept_rows))
        lacking = n_rows - np.bincount(
            indices, minlength=d
        )  # rows whose value is 0, which is -shift after the subtraction
        data = data - shift[indices]
        sums = np.bincount(indices, data, d) - lacking * shift
        return sums, np.bincount(indices, data * data, d) + lacking * shift * shift, there
    dense = X if kept_rows is None else X[kept_rows]
    sums, squares, there = np.zeros(d), np.zeros(d), np.zeros(d, np.int64)
    step = max(1, _BLOCK // (16 * d))  # float64 copies of only a few rows at a time
    for start in range(0, len(dense), step):
        rows = np.asarray(dense[start : start + step], np.float64)
        there += np.count_nonzero(rows, axis=0)
        rows = rows - shift
        sums += rows.sum(axis=0)
        squares += (rows * rows).sum(axis=0)
    return sums, squares, there


def counts(values: np.ndarray) -> np.ndarray:
    """int64, (4096,): number of values in each bin; the bins are equally wide in asinh, and never change."""
    bins = np.floor(np.arcsinh(np.asarray(values, np.float64)) * _PER_UNIT).astype(np.int64) + _HALF_BINS
    return np.bincount(np.clip(bins, 0, 2 * _HALF_BINS - 1), minlength=2 * _HALF_BINS)
