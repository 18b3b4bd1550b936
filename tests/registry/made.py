"""Models for registries, and the many ways in which a model is bad."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.kernel import Kernel
from tests.model_documents import renew, rewrite


def make_model(path: Path, seed: int = 0, n_features: int = 6, classes: tuple[int, ...] = (-1, 1)) -> Path:
    rng = np.random.default_rng(seed)
    n_models = 1 if len(classes) == 2 else len(classes)
    model = LinearModel(rng.standard_normal((n_models, n_features)), np.full(n_models, float(seed)), np.array(classes))
    model.save(path, alpha=rng.random((n_models, 9)))
    return path


def make_kernel_model(path: Path, kind: str) -> Path:
    """A kernel model, or one of regression, of six features and the classes -1 and 1."""
    classes = np.empty(0) if kind == "regression" else np.array([-1, 1])
    support, rows = np.random.default_rng(0).standard_normal((4, 6)), np.arange(4)
    KernelModel(Kernel("rbf", 0.5), support, rows, np.ones((1, 4)), np.ones(1), classes, 6).save(path, np.ones((1, 9)))
    return path


def tree(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def spoil_nan(path: Path, name: str = "coef.npy", value: float = np.nan) -> None:
    array = np.load(path / name)
    array.flat[0] = value
    np.save(path / name, array)
    renew(path, name)


def spoil_size(path: Path, name: str, keep: int, fix: bool) -> None:
    (path / name).write_bytes((path / name).read_bytes()[:keep])
    if fix:
        renew(path, name)


def spoil_shape(path: Path, shape: tuple[int, ...], classes: list[int], n_features: int) -> None:
    np.save(path / "coef.npy", np.zeros(shape))
    np.save(path / "intercept.npy", np.zeros(shape[0]))
    rewrite(path, classes=classes, n_features=n_features)
    renew(path, "coef.npy")
    renew(path, "intercept.npy")


SPOILT: dict[str, Callable[[Path], None]] = {
    "nan coef": spoil_nan,
    "infinite coef": lambda p: spoil_nan(p, value=np.inf),
    "nan intercept": lambda p: spoil_nan(p, "intercept.npy"),
    "nan alpha, old digest": lambda p: np.save(p / "alpha.npy", np.full((1, 9), np.nan)),
    "nan alpha": lambda p: spoil_nan(p, "alpha.npy"),
    "alpha of no bytes, digest fixed": lambda p: spoil_size(p, "alpha.npy", 0, fix=True),
    "truncated": lambda p: spoil_size(p, "coef.npy", 40, fix=False),
    "truncated, digest fixed": lambda p: spoil_size(p, "coef.npy", 150, fix=True),
    "cut in the header, digest fixed": lambda p: spoil_size(p, "coef.npy", 40, fix=True),
    "no bytes, digest fixed": lambda p: spoil_size(p, "coef.npy", 0, fix=True),
    "missing coef": lambda p: (p / "coef.npy").unlink(),
    "missing intercept": lambda p: (p / "intercept.npy").unlink(),
    "missing alpha": lambda p: (p / "alpha.npy").unlink(),
    "missing model.json": lambda p: (p / "model.json").unlink(),
    "model.json torn": lambda p: spoil_size(p, "model.json", 30, fix=False),
    "model.json empty": lambda p: spoil_size(p, "model.json", 0, fix=False),
    "model.json not text": lambda p: (p / "model.json").write_bytes(b"\xff\xfe\x00"),
    "model.json a list": lambda p: (p / "model.json").write_text("[]"),
    "no digests": lambda p: rewrite(p, digests={}),
    "digest leads out": lambda p: rewrite(p, digests={**registry_digests(p), "../x": "0"}),
    "newer format": lambda p: rewrite(p, format_version=99),
    "no features": lambda p: spoil_shape(p, (1, 0), [-1, 1], 0),
    "no classes": lambda p: spoil_shape(p, (0, 6), [], 6),
    "one class": lambda p: spoil_shape(p, (1, 6), [1], 6),
    "a class twice": lambda p: spoil_shape(p, (1, 6), [1, 1], 6),
    "other feature count": lambda p: spoil_shape(p, (1, 7), [-1, 1], 7),
    "other classes": lambda p: spoil_shape(p, (1, 6), [0, 1], 6),
    "a claimed feature count": lambda p: rewrite(p, n_features=7),
}


def registry_digests(path: Path) -> dict[str, str]:
    return json.loads((path / "model.json").read_text())["digests"]
