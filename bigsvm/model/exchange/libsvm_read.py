"""The reader of LIBSVM's model files, whose format is described in `libsvm.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.model.decide import models_of
from bigsvm.model.exchange.libsvm import KERNEL_TYPES, NAME
from bigsvm.model.exchange.text_model import Lines, label_order, labels_of, one, plain, whole
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel, Model
from bigsvm.problem.kernel import Kernel
from bigsvm.units import counted

_LOSSES: dict[str, str | None] = {
    "c_svc": "hinge",
    "nu_svc": None,
    "epsilon_svr": "epsilon_insensitive",
    "nu_svr": None,
    "one_class": None,
}
"""svm_type -> bigsvm's loss; None if the file does not record enough of the problem for a certificate."""
_MOST_WEIGHTS = 1 << 28  # 2 GiB; a single large index in the file makes a linear model that wide
_NAMES = {theirs: ours for ours, theirs in KERNEL_TYPES.items()}
_PROBABILITIES = ("probA", "probB", "prob_density_marks")
_HEAD = frozenset((
    "svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho", "label", "nr_sv",
    *_PROBABILITIES,
))  # fmt: skip


def read(lines: Lines, n_features: int | None = None) -> tuple[Model, list[str]]:
    """(model, warnings).  `about` describes the problem as far as the file does.

    n_features : number of features of rows to be scored; None: the highest feature of a support vector

    Raises DataError.
    """
    where = lines.where
    head = lines.head("SV", _HEAD)
    kind = one(head, "svm_type", where)
    if kind not in _LOSSES:
        raise DataError(f"svm_type {kind[:40]} is neither classification nor regression", where)
    kernel, n_classes, total = (
        _kernel(head, where),
        whole(head, "nr_class", where, 2),
        whole(head, "total_sv", where, 0),
    )
    alone = kind.endswith("svr") or kind == "one_class"
    labels = np.empty(0, np.int64) if alone else labels_of(head, n_classes, where)
    n_models = 1 if alone else n_classes * (n_classes - 1) // 2
    rho = lines.numbers(head.get("rho", []), n_models, "rho")
    n_coef = 1 if alone else n_classes - 1
    counts = np.array([total])
    if not alone:
        counts = lines.numbers(head.get("nr_sv", []), n_classes, "nr_sv")
        if np.any(counts < 0) or np.any(counts != np.floor(counts)) or counts.sum() != total:
            raise DataError(f"the numbers in nr_sv do not add up to total_sv {total}", where)
    coef, support = _support(lines, n_coef, total)
    codes = np.repeat(np.arange(len(counts)), counts.astype(np.int64))  # only now: the check above bounds the length
    about: dict[str, Any] = {"imported": {"program": NAME, "svm_type": kind, **label_order(labels)}}
    loss = _LOSSES[kind]
    about["problem"] = {"bias": "free", "bias_scale": 1.0, **({"loss": loss} if loss else {})}
    warnings = []
    if any(name in head for name in _PROBABILITIES):
        warnings.append("the probabilities in the file (probA, probB) are left out; labels and scores are kept")
    beta, intercept = _as_ours(coef, -rho, codes, labels)
    if kind == "one_class":  # rows like the training rows have label 1, all others -1
        about["problem"]["loss"], labels = kind, np.array([-1, 1])
    model = _model(kernel, support, beta, intercept, np.sort(labels), n_features, about, where)
    return model, warnings


def _kernel(head: dict[str, list[str]], where: str) -> Kernel:
    name = one(head, "kernel_type", where)
    try:
        texts = [one(head, key, where, default) for key, default in (("gamma", "1"), ("coef0", "0"), ("degree", "3"))]
        gamma, coef0, degree = map(plain, texts)
        return Kernel(_NAMES[name], float(gamma), int(degree), float(coef0))
    except (KeyError, ValueError, UsageError) as error:
        raise DataError(f"bigsvm does not have its kernel: {error}", where) from error


def _support(lines: Lines, n_coef: int, total: int) -> tuple[np.ndarray, CSR]:
    """(coefficients (n_coef, total), support vectors with features from 0; -1 for index 0)."""
    coef: list[np.ndarray] = []
    data: list[Any] = []
    indices, indptr = [], [0]
    for line in lines:
        words = line.split()
        if len(coef) == total:
            if words:
                raise lines.bad(f"comes after the {total} support vectors")
            continue
        coef.append(lines.numbers(words[:n_coef], n_coef, "coefficients"))
        before = -2
        for word in words[n_coef:]:
            name, colon, text = word.partition(":")
            if not colon or not name.isdigit() or not before < int(name) - 1 < 2**63 - 1:
                raise lines.bad(f"has {word[:40]!r} where an index:value with a higher index is wanted")
            before = int(name) - 1
            indices.append(before)
            data.append(text)
        data[indptr[-1] :] = lines.numbers(data[indptr[-1] :], len(data) - indptr[-1], "values").tolist()
        indptr.append(len(data))
    if len(coef) != total:
        raise DataError(f"the file is cut off: it has {len(coef)} of {total} support vectors", lines.where)
    rows = CSR(np.array(data, np.float64), np.array(indices, np.int64), np.array(indptr, np.int64))
    return np.array(coef).reshape(total, n_coef).T, rows


def _as_ours(
    coef: np.ndarray, intercept: np.ndarray, codes: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """From LIBSVM's order of labels to ascending classes: (beta (n_models, n_support), intercepts)."""
    n_classes = len(labels)
    if n_classes == 0:
        return coef, intercept
    if n_classes == 2:  # in LIBSVM the first label is the positive class, in bigsvm the last in ascending order
        sign = 1.0 if labels[0] > labels[1] else -1.0
        return sign * coef, sign * intercept
    ranks = np.argsort(np.argsort(labels))
    first, second = (of.tolist() for of in models_of(n_classes, True))
    place = {pair: m for m, pair in enumerate(zip(first, second, strict=True))}
    beta, moved = np.zeros((len(intercept), coef.shape[1])), np.zeros(len(intercept))
    for (i, j), m in place.items():
        a, b = int(ranks[i]), int(ranks[j])
        to, sign = place[min(a, b), max(a, b)], 1.0 if a < b else -1.0
        beta[to, codes == i] = sign * coef[j - 1, codes == i]
        beta[to, codes == j] = sign * coef[i, codes == j]
        moved[to] = sign * intercept[m]
    return beta, moved


def _model(
    kernel: Kernel, support: CSR, beta: np.ndarray, intercept: np.ndarray, classes: np.ndarray,
    n_features: int | None, about: dict[str, Any], where: str,
) -> Model:  # fmt: skip
    codes = models_of(len(classes), True)
    if kernel.name == "precomputed":
        if np.any(support.indices != -1) or len(support.data) != beta.shape[1] or np.any(support.data % 1):
            raise DataError("a support vector of a precomputed kernel is not '0:ROW'", where)
        rows = support.data.astype(np.int64) - 1
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        if len(rows) and (rows[0] < 0 or np.any(np.diff(rows) == 0)):
            raise DataError(
                "a row is named twice, or is row 0, among the support vectors of a precomputed kernel", where
            )
        n_features = int(rows[-1]) + 1 if n_features is None and len(rows) else n_features or 1
        if len(rows) and rows[-1] >= n_features:
            raise UsageError(
                f"0:{rows[-1] + 1} is a support vector, and only {counted(n_features, 'feature')} were asked for"
            )
        beta = np.ascontiguousarray(beta[:, order])
        return KernelModel(kernel, None, rows, beta, intercept, classes, n_features, *codes, about)
    if np.any(support.indices < 0):
        raise DataError("a support vector has index 0", where, "indices are from 1")
    top = int(support.indices.max(initial=0)) + 1
    if n_features is not None and n_features < top:
        raise UsageError(f"support vectors have {counted(top, 'feature')}, and {n_features} were asked for", where)
    n_features = top if n_features is None else n_features
    if kernel.name == "linear":
        if n_features * len(intercept) > _MOST_WEIGHTS:
            raise DataError(f"{n_features:,} features are more than a linear model may have", where)
        coef = np.zeros((len(intercept), n_features))
        of = np.repeat(np.arange(beta.shape[1]), np.diff(support.indptr))
        for m, each in enumerate(beta):
            np.add.at(coef[m], support.indices, each[of] * support.data)
        return LinearModel(coef, intercept, classes, about, *codes)
    if n_features <= 2**31:
        support = support._replace(indices=support.indices.astype(np.int32))
    rows = np.arange(beta.shape[1])  # the file does not record the numbers of the training rows
    return KernelModel(kernel, support, rows, beta, intercept, classes, n_features, *codes, about)
