"""Dual coefficients as LIBSVM and scikit-learn lay them out, and as bigsvm's models have them.

A model of ours has a row of coefficients for each pair of classes, over all support vectors.  LIBSVM groups support
vectors by class and has n_classes - 1 rows: a vector of class i has the coefficient of the pair (i, j) in row j - 1
where j > i, and in row j where j < i.  With two classes both have one row.
"""

from __future__ import annotations

import numpy as np

from bigsvm.model.decide import models_of
from bigsvm.model.kernel_model import KernelModel
from bigsvm.run.fit.outcome import FitResult
from bigsvm.store.blocks import RowBlocks, blocks_of

_AT_ONCE = 1 << 12  # rows


def support_of(result: FitResult, rows: RowBlocks) -> tuple[np.ndarray, np.ndarray]:
    """(rows that are support vectors, int64 ascending; their beta, float64, (n_models, n_support)) of a kernel fit.

    With the linear kernel, whose model has weights in their place, `rows` are read once more for their classes.
    """
    if isinstance(result.model, KernelModel):
        return np.asarray(result.model.support_rows), np.asarray(result.model.dual_coef)
    (vector,) = result.alpha
    numbers, values, start = [], [], 0
    for piece in vector.in_store_order(result.working_row):
        there = np.flatnonzero(np.any(piece != 0.0, axis=1))
        numbers.append(start + there)
        values.append(piece[there])
        start += len(piece)
    support, alpha = np.concatenate(numbers), np.ascontiguousarray(np.concatenate(values).T)
    if rows.classes is None or result.model.one_class:
        return support, alpha  # of regression it is beta
    codes = np.concatenate([block.y for block in blocks_of(rows, rows.refs(_AT_ONCE))])[support]
    return support, np.where(codes == result.model.positive[:, None], alpha, -alpha)


def classes_of_support(beta: np.ndarray, n_classes: int) -> np.ndarray:
    """Class code of each support vector, by the signs of its beta (n_models, n_support), int64."""
    if n_classes == 2:
        return (beta[0] > 0).astype(np.int64)
    positive, negative = models_of(n_classes, True)
    model = np.argmax(beta != 0.0, axis=0)
    first = beta[model, np.arange(beta.shape[1])] > 0
    return np.where(first, positive[model], negative[model]).astype(np.int64)


def as_libsvm(beta: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """(n_classes - 1, n_support) from beta (n_pairs, n_support); codes : class of each support vector, ascending."""
    if n_classes == 2:
        return beta
    out = np.zeros((n_classes - 1, beta.shape[1]))
    for m, (i, j) in enumerate(zip(*models_of(n_classes, True), strict=True)):
        out[j - 1, codes == i] = beta[m, codes == i]
        out[i, codes == j] = beta[m, codes == j]
    return out


def as_pairs(dual_coef: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """beta (n_pairs, n_support) from what `as_libsvm` gave."""
    if n_classes == 2:
        return dual_coef
    positive, negative = models_of(n_classes, True)
    beta = np.zeros((len(positive), dual_coef.shape[1]))
    for m, (i, j) in enumerate(zip(positive, negative, strict=True)):
        beta[m, codes == i] = dual_coef[j - 1, codes == i]
        beta[m, codes == j] = dual_coef[i, codes == j]
    return beta
