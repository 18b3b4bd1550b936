"""Classes and their weights, as scikit-learn means them and as `bigsvm.fit` takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from bigsvm.store.blocks import RowBlocks, row_bytes, tile

_PIECE = 1 << 18  # labels
_BLOCK = 4 << 20  # bytes of rows that are read for their labels


def coded(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """(classes ascending, code of each row).  Raises ValueError for targets, and where there is one class only."""
    check_classification_targets(y)
    y = np.asarray(y)
    classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(
            f"This solver needs samples of at least 2 classes in the data, but the data contains only one class: "
            f"{classes[0]!r}"
        )
    # Not np.unique's inverse, which takes 40 bytes a row: narrow rows have fewer themselves.
    codes = np.empty(len(y), np.min_scalar_type(-len(classes)))
    for start, stop in tile(len(y), _PIECE):
        codes[start:stop] = np.searchsorted(classes, y[start:stop])
    return classes, codes


def present_codes(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(codes that occur, ascending; the place of each row's among them)."""
    present = np.unique(codes)
    if present[-1] == len(present) - 1:
        return present, codes
    place = np.zeros(present[-1] + 1, np.int64)
    place[present] = np.arange(len(present))
    return present, place[codes]


def check_weighted_classes(codes: np.ndarray, weights: np.ndarray | None) -> None:
    """Raise ValueError where only one class has rows of positive weight."""
    if weights is not None and len(np.unique(codes[weights > 0])) < 2:
        raise ValueError("Invalid input - all samples with positive weights belong to the same class.")


def weights_of_classes(
    class_weight: Any, classes: np.ndarray, codes: np.ndarray, sample_weight: np.ndarray | None
) -> np.ndarray:
    """Weight of each class, float64.  'balanced' is n / (n_classes n_c), of the rows' weights where they are given.

    Raises ValueError for a weight that is negative or no number: `bigsvm.fit` would name the code, not the class.
    """
    if class_weight == "balanced":
        return _balanced(np.bincount(codes, sample_weight, len(classes)).astype(np.float64))
    weights = compute_class_weight(class_weight, classes=classes, y=classes)
    for label, weight in zip(classes.tolist(), weights.tolist(), strict=True):
        if not 0.0 <= weight < np.inf:
            raise ValueError(f"class weight of {label!r} must be finite and not negative, got {weight!r}")
    return weights


def check_classes_weigh(
    of_classes: np.ndarray, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray | None, each: bool = False
) -> None:
    """Raise ValueError where weights of classes leave less than two of them: `bigsvm.fit` would name the code.

    codes : of the rows, places in `classes`;  weights : of the rows
    each : a class whose rows all weigh 0 is refused too: it has a problem of its own, with its weight in that alone
    """
    rows = np.bincount(codes if weights is None else codes[weights > 0], minlength=len(classes))
    weighs = (rows > 0) & (of_classes > 0.0)
    taking_part, others = classes[weighs].tolist(), classes[~weighs].tolist()
    if len(taking_part) < 2:
        which = f"only class {taking_part[0]!r} takes" if taking_part else "no class takes"
        raise ValueError(f"{which} part: every other row has weight 0")
    if each and others:
        raise ValueError(f"every row of class {others[0]!r} has weight 0: its model has nothing to separate")


def by_code(weights: np.ndarray, codes: np.ndarray | None = None) -> dict[str, float] | None:
    """Weights of classes as the option class_weight takes them; None where all are 1.

    codes : of the classes; None: 0, 1, ...
    """
    if np.all(weights == 1.0):
        return None
    codes = np.arange(len(weights)) if codes is None else codes
    return {str(code): float(weight) for code, weight in zip(codes.tolist(), weights.tolist(), strict=True)}


def of_store(class_weight: Any, rows: RowBlocks, weighted: bool) -> Any:
    """scikit-learn's class_weight as the option takes it, of the rows of a store.

    weighted : 'balanced' goes by the sum of the weights of a class, else by all its rows, also those that weigh 0; the
        option of `bigsvm.fit` goes by its rows of positive weight.  Where rows have weights that costs a reading
    """
    if class_weight != "balanced" or rows.classes is None or not rows.has_weights:
        return by_label(class_weight)
    counts = np.zeros(len(rows.classes))
    for ref in rows.refs(max(1, int(_BLOCK // row_bytes(rows)))):
        block = rows.read(ref)
        counts += np.bincount(block.y.astype(np.int64), block.sample_weight if weighted else None, len(counts))
    weights = _balanced(counts).tolist()
    return {str(label): weight for label, weight in zip(rows.classes.tolist(), weights, strict=True)}


def _balanced(counts: np.ndarray) -> np.ndarray:
    """n / (n_classes n_c), float64, (n_classes,): of rows, or of what they weigh."""
    return counts.sum() / (len(counts) * np.maximum(counts, np.finfo(float).tiny))


def by_label(class_weight: Any) -> Any:
    """scikit-learn's class_weight as the option takes it: labels as text."""
    if isinstance(class_weight, dict):
        return {str(label): float(weight) for label, weight in class_weight.items()}
    return class_weight
