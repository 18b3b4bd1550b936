"""LIBLINEAR's and LIBSVM's model text as their READMEs define it, read and applied in a few plain lines.

Apart from the package: nothing here knows how its writer works.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np


def head_and_rest(path: Path, mark: str) -> tuple[dict[str, list[str]], list[list[str]]]:
    lines = [line.split() for line in path.read_text().splitlines()]
    at = lines.index([mark])
    return {line[0]: line[1:] for line in lines[:at]}, lines[at + 1 :]


def liblinear_scores(path: Path, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(labels or values, scores (n, n_models)) of dense rows."""
    head, rest = head_and_rest(path, "w")
    W, bias = np.array(rest, float), float(head["bias"][0])
    n = int(head["nr_feature"][0])
    assert len(W) == n + (bias >= 0)
    full = np.hstack([X, np.full((len(X), 1), bias)]) if bias >= 0 else X
    scores = np.array([[math.fsum(row * w) for w in W.T] for row in full])
    if "label" not in head:
        return scores[:, 0], scores
    labels = np.array(head["label"], int)
    assert len(labels) == int(head["nr_class"][0])
    chosen = np.where(scores[:, 0] > 0, 0, 1) if len(labels) == 2 else scores.argmax(axis=1)
    return labels[chosen], scores


def libsvm_scores(path: Path, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same; of a precomputed kernel X holds the kernel values."""
    head, rest = head_and_rest(path, "SV")
    k, n = int(head["nr_class"][0]), int(head["total_sv"][0])
    classes = "label" in head
    coef = np.array([line[: k - 1 if classes else 1] for line in rest], float)
    assert len(rest) == n
    K = np.empty((len(X), n))
    for s, line in enumerate(rest):
        entries = [(int(a), float(b)) for a, b in (word.split(":") for word in line[coef.shape[1] :])]
        K[:, s] = kernel_values(head, X, entries)
    rho = [float(text) for text in head["rho"]]
    if not classes:
        return K @ coef[:, 0] - rho[0], (K @ coef[:, 0] - rho[0])[:, None]
    counts = [int(text) for text in head["nr_sv"]]
    starts = np.concatenate(([0], np.cumsum(counts)))
    scores, votes = [], np.zeros((len(X), k), int)
    for i in range(k):
        for j in range(i + 1, k):
            of_i, of_j = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
            value = K[:, of_i] @ coef[of_i, j - 1] + K[:, of_j] @ coef[of_j, i] - rho[len(scores)]
            scores.append(value)
            votes[value > 0, i] += 1
            votes[value <= 0, j] += 1
    return np.array(head["label"], int)[votes.argmax(axis=1)], np.array(scores).T


def kernel_values(head: dict[str, list[str]], X: np.ndarray, entries: list[tuple[int, float]]) -> np.ndarray:
    name = head["kernel_type"][0]
    if name == "precomputed":
        ((index, row),) = entries
        assert index == 0
        return X[:, int(row) - 1]
    z = np.zeros(X.shape[1])
    for index, value in entries:
        z[index - 1] = value
    if name == "linear":
        return X @ z
    gamma = float(head["gamma"][0])
    if name == "rbf":
        return np.exp(-gamma * ((X - z) ** 2).sum(axis=1))
    inner = gamma * (X @ z) + float(head["coef0"][0])
    return inner ** int(head["degree"][0]) if name == "polynomial" else np.tanh(inner)
