"""LIBSVM's model files (text).

    svm_type NAME / kernel_type NAME / degree, gamma, coef0 / nr_class K / total_sv N / rho R ... / label L1 ... LK /
    nr_sv N1 ... NK / SV
    and then a line for each support vector: its K - 1 coefficients, and its entries index:value with indices from 1

There is a model for each pair of classes (1, 2), (1, 3), ..., (2, 3), ... in the order of the labels; its score is
positive for the first class.  Support vectors are grouped by class.  A support vector of class i has its coefficient
for the pair (i, j) in column j - 1 if j > i, and otherwise in column j.  The score is sum coef K - rho.  With a
precomputed kernel a support vector is `0:i`, where i is the number of its training row, from 1.  A regression has one
coefficient for each support vector, and no labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from bigsvm.config import NU_LOSSES
from bigsvm.csr import CSR
from bigsvm.errors import UsageError
from bigsvm.model.decide import Decides, models_of
from bigsvm.model.exchange.text_model import digits, order_of, pairs_in_order, refuse_scaled, whole_labels
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel
from bigsvm.model.support import SupportPieces, gathered, support_blocks
from bigsvm.problem.kernel import Kernel

NAME = "LIBSVM"
KERNEL_TYPES = {
    "linear": "linear", "poly": "polynomial", "rbf": "rbf", "sigmoid": "sigmoid", "precomputed": "precomputed",
}  # fmt: skip


def write(file: BinaryIO, model: Decides) -> None:
    """Write a kernel model, or a linear model.  Raises UsageError if the format cannot hold it."""
    refuse_scaled(model, NAME)
    if model.n_models > 1 and not model.pairs:
        raise UsageError(
            "LIBSVM's format holds several classes one against one, and this model is one against the rest",
            hint="--format liblinear for a linear model, onnx for any model",
        )
    n_classes = 0 if model.one_class else len(model.classes)
    labels = [] if model.one_class else whole_labels(model, NAME)
    class_order = order_of(model)
    beta = np.asarray(model.dual_coef) if isinstance(model, KernelModel) else np.eye(model.n_models)
    rho = -model.intercept
    if labels:
        beta, rho = pairs_in_order(beta, class_order), pairs_in_order(rho, class_order)
        labels = [labels[code] for code in class_order]
    codes = _classes_of_support(beta, n_classes)
    order = np.argsort(codes, kind="stable")
    coef = _by_class(beta[:, order], codes[order], n_classes)
    loss = model.about.get("problem", {}).get("loss")
    kind = loss if loss in NU_LOSSES else "epsilon_svr" if model.regression else "c_svc"
    head = [f"svm_type {kind}", *_kernel_lines(model)]
    head += [f"nr_class {max(n_classes, 2)}", f"total_sv {len(order)}"]
    head.append("rho " + " ".join(map(digits, rho)))
    if labels:
        head.append("label " + " ".join(map(str, labels)))
        head.append("nr_sv " + " ".join(map(str, np.bincount(codes, minlength=n_classes))))
    file.write(("\n".join([*head, "SV"]) + "\n").encode())
    rows = _support_lines(model, order)
    for column, row in zip(coef.T, rows, strict=True):
        file.write((" ".join(map(digits, column)) + " " + row + "\n").encode())


def _kernel_lines(model: Decides) -> list[str]:
    kernel: Kernel = model.kernel  # type: ignore[attr-defined]  # of both kinds
    lines = [f"kernel_type {KERNEL_TYPES[kernel.name]}"]
    if kernel.name == "poly":
        lines.append(f"degree {kernel.degree}")
    if kernel.name in ("poly", "rbf", "sigmoid"):
        lines.append(f"gamma {digits(kernel.gamma)}")
    if kernel.name in ("poly", "sigmoid"):
        lines.append(f"coef0 {digits(kernel.coef0)}")
    return lines


def _classes_of_support(beta: np.ndarray, n_classes: int) -> np.ndarray:
    """The class of each support vector, as a position in the file's order; int64.  beta : (n_models, n_support)"""
    codes = np.zeros(beta.shape[1], np.int64)
    if n_classes == 2:
        return np.where(beta[0] > 0, 0, 1)
    if n_classes > 2:
        # A support vector of class i has coefficients only in pairs with i, and they are positive if i is the first
        # class. (Except in nu-SVC, which divides them by an r of either sign.)
        parts, of_class = np.count_nonzero(beta, axis=0), np.zeros((n_classes, beta.shape[1]), np.int64)
        for m, (first, second) in enumerate(zip(*models_of(n_classes, True), strict=True)):
            codes[beta[m] > 0], codes[beta[m] < 0] = first, second
            of_class[[first, second]] += beta[m] != 0
        everywhere = of_class == parts
        by_sign = np.take_along_axis(everywhere, codes[None], axis=0)[0]
        codes = np.where(by_sign, codes, everywhere.argmax(axis=0))
    return codes


def _by_class(beta: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """LIBSVM's coefficients, (n_classes - 1, n_support), from one row of beta for each pair.

    Raises UsageError if a support vector has coefficients in pairs without its class.
    """
    if n_classes <= 2:
        return beta
    out = np.zeros((n_classes - 1, beta.shape[1]))
    for m, (i, j) in enumerate(zip(*models_of(n_classes, True), strict=True)):
        of_first, of_second = codes == i, codes == j
        if np.any(beta[m][~(of_first | of_second)]):
            raise UsageError(
                "a support vector has coefficients in pairs without its class, which LIBSVM's format cannot hold"
            )
        out[j - 1, of_first] = beta[m, of_first]
        out[i, of_second] = beta[m, of_second]
    return out


def _support_lines(model: Any, order: np.ndarray) -> Iterator[str]:
    """`index:value ...` of each support vector, in the given order."""
    if isinstance(model, LinearModel):
        for m in order:
            yield _entries(np.flatnonzero(model.coef[m]), model.coef[m])
        return
    if model.support is None:
        for s in order:
            yield f"0:{int(model.support_rows[s]) + 1}"
        return
    support = gathered(model.support) if isinstance(model.support, SupportPieces) else model.support
    for s in order:
        ((_, _, block),) = support_blocks(_row(support, int(s)))
        if isinstance(block, CSR):
            yield " ".join(f"{j + 1}:{digits(v)}" for j, v in zip(block.indices.tolist(), block.data, strict=True))
        else:
            yield _entries(np.flatnonzero(block[0]), block[0])


def _row(support: Any, s: int) -> np.ndarray | CSR:
    if not isinstance(support, CSR):
        return support[s : s + 1]
    a, b = int(support.indptr[s]), int(support.indptr[s + 1])
    return CSR(support.data[a:b], support.indices[a:b], np.array([0, b - a], np.int64))


def _entries(features: np.ndarray, values: np.ndarray) -> str:
    return " ".join(f"{j + 1}:{digits(values[j])}" for j in features.tolist())
