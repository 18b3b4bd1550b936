"""A model directory, read as its format is documented: JSON and .npy files.  Nothing of bigsvm."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cross.definition import Real


@dataclass
class Saved:
    """Arrays of a model; coef of a linear one, support and dual_coef of a kernel one.  Floats as longdouble.

    alpha : (n_models, n_samples) in the rows' order, None where it was left out; of regression alpha - alpha*
    """

    document: dict[str, Any]
    intercept: np.ndarray
    coef: np.ndarray | None
    support: np.ndarray | None
    support_rows: np.ndarray | None
    dual_coef: np.ndarray | None
    alpha: np.ndarray | None


def read_saved(folder: Path) -> Saved:
    """What is in a model's folder."""
    document = json.loads((folder / "model.json").read_text())
    return Saved(
        document=document,
        intercept=_floats(folder / "intercept.npy"),
        coef=_floats(folder / "coef.npy") if (folder / "coef.npy").exists() else None,
        support=_support(folder, document["n_features"]),
        support_rows=np.load(folder / "support_rows.npy") if (folder / "support_rows.npy").exists() else None,
        dual_coef=_floats(folder / "dual_coef.npy") if (folder / "dual_coef.npy").exists() else None,
        alpha=_floats(folder / "alpha.npy") if (folder / "alpha.npy").exists() else None,
    )


def _floats(path: Path) -> np.ndarray:
    return np.load(path, allow_pickle=False).astype(Real)


def _support(folder: Path, n_features: int) -> np.ndarray | None:
    if (folder / "support.npy").exists():
        return _floats(folder / "support.npy")
    if not (folder / "support_data.npy").exists():
        return None
    indptr, indices = np.load(folder / "support_indptr.npy"), np.load(folder / "support_indices.npy")
    found = np.zeros((len(indptr) - 1, n_features), Real)
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    np.add.at(found, (row, indices), _floats(folder / "support_data.npy"))
    return found
