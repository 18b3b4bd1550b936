"""The data of the papers, from a folder with a `load.py`; small made-up ones for a smoke run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np


class DataSet(NamedTuple):
    """X : float64, (n_samples, n_features);  y : -1 and 1, or targets;  about : what was done to it"""

    name: str
    X: np.ndarray
    y: np.ndarray
    about: str


class Partitioned(NamedTuple):
    """A set that is cut into training and test rows again and again.

    train : training rows;  published : (X, y, X_test, y_test) of each published partition that is at hand
    """

    data: DataSet
    train: int
    published: tuple[tuple[np.ndarray, ...], ...] = ()

    def partition(self, r: int) -> tuple[np.ndarray, ...]:
        """(X, y, X_test, y_test) of the r-th published partition, or of a random one."""
        if self.published:
            return self.published[r]
        order = np.random.default_rng([r, self.train]).permutation(len(self.data.y))
        train, test = order[: self.train], order[self.train :]
        return self.data.X[train], self.data.y[train], self.data.X[test], self.data.y[test]


def open_folder(folder: Path) -> ModuleType:
    """The module `load.py` of a data folder; SystemExit(66) where there is none."""
    path = folder / "load.py"
    if not path.exists():
        raise SystemExit(_missing(path))
    spec = importlib.util.spec_from_file_location("reproduction_data", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rosenbrock_sets(data: ModuleType) -> list[DataSet]:
    """Diabetes, Balance, Heart and Monks, every feature scaled to [-1, 1]."""
    sets = [_whole(data, "diabetes", "diabetes_scale", "diabetes_scale")]
    X, classes = data.load("balance-scale")
    X = scaled(np.asarray(X, np.float64))
    ends = classes != 2
    sets.append(DataSet("balance, L and R", X[ends], _signs(classes[ends] == 1), "the 49 rows of class B left out"))
    sets.append(DataSet("balance, L or not", X, _signs(classes == 1), "all rows, class L against the others"))
    sets.append(_whole(data, "heart", "heart_scale", "heart_scale"))
    for number in "123":
        X, y = data.load(f"monks-{number}", "test")
        sets.append(DataSet(f"monks-{number}", scaled(_dense(X)), _signs(y > 0), "the 432 rows of the whole problem"))
    return sets


def rosen_sets(data: ModuleType) -> list[Partitioned]:
    """Six sets of the Raetsch benchmark, every feature with mean 0 and variance 1 over the whole set.

    Of titanic the 10 published partitions that are at hand; of breast-cancer those, too, as a set of their own.
    """
    titanic, published = (
        tuple(data.raetsch(name, r) for r in range(1, 11)) for name in ("titanic", "breast-cancer")
    )  # fmt: skip
    cancer = published[0]
    wholes = {
        "heart": (170, *data.load("heart_statlog")),
        "breast-cancer": (200, np.concatenate(cancer[::2]), np.concatenate(cancer[1::2])),
        "thyroid": (140, *data.load("raetsch/thyroid")),
        "diabetes": (468, *data.load("pima")),
        "flare-solar": (666, *data.load("raetsch/flare-solar")),
    }
    sets = [Partitioned(_normalised(name, X, y), train) for name, (train, X, y) in wholes.items()]
    X, y = data.load("raetsch/flare-solar")
    sets.append(Partitioned(DataSet("flare-solar, as stored", np.asarray(X, np.float64), _signs(y > 0), ""), 666))
    for name, train, kept in (("titanic", 150, titanic), ("breast-cancer, published", 200, published)):
        rows = [np.concatenate(kept[0][k::2]) for k in (0, 1)]
        sets.append(Partitioned(DataSet(name, *rows, "as published"), train, kept))
    return sets


def notes_set(data: ModuleType) -> DataSet:
    """heart_scale as it is."""
    return _whole(data, "heart_scale", "heart_scale", "heart_scale")


def mnist_zero(data: ModuleType) -> tuple[DataSet, DataSet]:
    """'0' against the others, training and test: raw pixels less their training mean, 50 principal components."""
    images, digits = data.load("mnist")
    X = _dense(images)
    mean = X.mean(axis=0)
    X -= mean
    _, vectors = np.linalg.eigh(X.T @ X / len(X))
    leading = vectors[:, :-51:-1]
    train = DataSet("mnist 0", np.ascontiguousarray(X @ leading), _signs(digits == 0), "")
    del X
    images, digits = data.load("mnist", "test")
    test = (_dense(images) - mean) @ leading
    return train, DataSet("mnist 0, test", np.ascontiguousarray(test), _signs(digits == 0), "")


def wss_sets(data: ModuleType) -> tuple[list[DataSet], list[DataSet]]:
    """(classes, targets), the small sets of WSS-WR: [-1, 1] but for a1a and w8a; 10 features of breast-cancer.

    w1a is not at hand: as many rows of w8a stand for it.
    """
    small = [_as_stored(data, "a1a"), sampled(_as_stored(data, "w8a"), 2477)]
    X, y = data.load("australian")
    small.append(DataSet("australian", scaled(_dense(X)), _signs(y > 0), "scaled"))
    for name, stored in (("splice", "splice"), ("breast-cancer", "breast-cancer_scale"), ("diabetes", "diabetes_scale"),
                         ("fourclass", "fourclass_scale"), ("german.numer", "german.numer_scale"),
                         ("heart", "heart_scale")):  # fmt: skip
        X, y = data.load(stored)
        small.append(DataSet(name, scaled(_dense(X)), _signs(y > 0), stored))
    X, y = data.load("mpg")
    targets = [DataSet("mpg", scaled(_dense(X)), np.asarray(y, np.float64), "rows without missing values, scaled")]
    return small, targets


def wss_large_sets(data: ModuleType) -> list[DataSet]:
    """a9a, w8a and ijcnn1."""
    return [_as_stored(data, name) for name in ("a9a", "w8a", "ijcnn1")]


def sampled(of: DataSet, rows: int) -> DataSet:
    """Random rows, in their order; all where there are no more."""
    if rows >= len(of.y):
        return of
    at = np.sort(np.random.default_rng([7, rows]).permutation(len(of.y))[:rows])
    return DataSet(f"{of.name} sample", of.X[at], of.y[at], f"{rows} random rows of {len(of.y)}")


def _as_stored(data: ModuleType, name: str) -> DataSet:
    X, y = data.load(name)
    return DataSet(name, X, _signs(y > 0), "as stored")


def made_up(n_samples: int, n_features: int, seed: int, name: str = "made up") -> DataSet:
    """A planted direction, a tenth of the labels wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_features))
    y = _signs(X @ rng.normal(size=n_features) > 0)
    y[rng.random(n_samples) < 0.1] *= -1.0
    return DataSet(name, scaled(X), y, "random numbers")


def scaled(X: np.ndarray) -> np.ndarray:
    """Every feature from -1 to 1."""
    low, high = X.min(axis=0), X.max(axis=0)
    return 2.0 * (X - low) / np.where(high > low, high - low, 1.0) - 1.0


def _normalised(name: str, X: np.ndarray, y: np.ndarray) -> DataSet:
    X = np.asarray(X, np.float64)
    return DataSet(name, (X - X.mean(axis=0)) / X.std(axis=0, ddof=1), _signs(y > 0), "normalised")


def _whole(data: ModuleType, name: str, stored: str, about: str) -> DataSet:
    X, y = data.load(stored)
    return DataSet(name, _dense(X), _signs(y > 0), about)


def _dense(X: object) -> np.ndarray:
    todense: Callable[[], np.ndarray] | None = getattr(X, "todense", None)
    return np.array(X if todense is None else todense(), np.float64)


def _signs(positive: np.ndarray) -> np.ndarray:
    return np.where(positive, 1.0, -1.0)


def _missing(path: Path) -> int:
    import sys

    sys.stderr.write(f"reproduce: there is no {path}\n  say --data DIR, a folder with load.py, or --smoke\n")
    return 66
