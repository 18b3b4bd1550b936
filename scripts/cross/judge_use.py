"""What is done with a model just written, held against its own arrays: `certify` and `predict`.  Nothing of bigsvm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cross.case import Step
from cross.definition import Real
from cross.judge import Finding, Outcome, plain, scores_of
from cross.models import Asked
from cross.saved import Saved

_LEAST = 1e-300  # below this float64 has fewer digits


def judge_certify(step: Step, outcome: Outcome, certified: Outcome, error: float) -> list[Finding]:
    """`certify` of the model just written agrees with the fit."""
    if certified.code == 65 and step.options.assume_psd and "vouches for it" in str(certified.document):
        return []  # more memory than the fit had may refute what was vouched for
    if certified.code == 65 and step.options.no_dual and step.options.nu is not None:
        return []  # without alpha nothing that nu shapes can be proved, and it says so
    if certified.code != 0:
        return [Finding("certify", f"exit {certified.code}: {certified.document.get('message')}")]
    fit, again = outcome.document, certified.document
    found = []
    if not math.isclose(fit["objective"], again["objective"], rel_tol=1e-8, abs_tol=error):
        found.append(Finding("certify", f"P {fit['objective']!r}, certify says {again['objective']!r}"))
    if step.options.no_dual:
        return found
    knows_more = again.get("positive_semidefinite", "undecided") != "undecided"
    if fit["certificate"] == "estimate" and fit.get("positive_semidefinite") == "undecided" and knows_more:
        return found  # more memory than the fit had may decide what the kernel is, either way
    if fit["certificate"] != again["certificate"]:
        found.append(Finding("certify", f"{fit['certificate']}, certify says {again['certificate']}"))
    elif fit["certificate"] != "none" and fit["relative_gap"] is not None:
        apart = abs(fit["relative_gap"] - again["relative_gap"])
        if not apart <= 1e-8 + 1e-4 * fit["relative_gap"] + error / max(abs(fit["objective"]), 1e-300):
            found.append(Finding("certify", f"gap {fit['relative_gap']:.6g}, certify says {again['relative_gap']:.6g}"))
    return found


def judge_scores(asked: Asked, step: Step, saved: Saved, scores: np.ndarray, labels: list[Any]) -> list[Finding]:
    """Scores (n, n_models) and labels as predicted, against the written arrays."""
    own, off_by = np.empty(scores.shape, Real), np.empty(scores.shape, Real)
    for m in range(scores.shape[1]):
        f, errors = scores_of(asked, step, saved, m)
        own[:, m] = f + saved.intercept[m]
        slack = 16 * errors + 1e-12 * np.abs(own[:, m]) + _LEAST
        off = np.abs(scores[:, m] - own[:, m]) > slack
        if off.any() or not np.isfinite(scores[:, m]).all():
            row = int(np.argmax(off | ~np.isfinite(scores[:, m])))
            return [Finding("scores", f"model {m}, row {row}: {scores[row, m]!r} is said, {float(own[row, m])!r} is")]
        off_by[:, m] = slack
    if step.options.regression:
        return []
    codes, decided = _decide(own, off_by, asked, step)
    names = [plain(x) for x in asked.classes.tolist()]
    for row in np.flatnonzero(decided).tolist():
        if plain(labels[row]) != names[codes[row]]:
            return [Finding("labels", f"row {row}: {labels[row]!r} is said, {names[codes[row]]!r} is")]
    return []


def _decide(own: np.ndarray, off_by: np.ndarray, asked: Asked, step: Step) -> tuple[np.ndarray, np.ndarray]:
    """(class codes, where rounding cannot change them).  off_by : what a score that is said may be off by, as `own`"""
    n_classes, sure = len(asked.classes), np.abs(own) > 2 * off_by
    if n_classes == 2:
        return (own[:, 0] > 0).astype(int), sure[:, 0]
    if not step.options.pairs:
        ordered = np.sort(own, axis=1)
        apart = np.maximum(1e-9 * np.abs(own).max(axis=1), 2 * off_by.max(axis=1))
        return np.argmax(own, axis=1), ordered[:, -1] - ordered[:, -2] > apart
    votes, order = np.zeros((len(own), n_classes), int), asked.classes.tolist()
    for m, wanted in enumerate(asked.models):
        votes[:, order.index(wanted.positive)] += own[:, m] > 0
        votes[:, order.index(wanted.negative)] += own[:, m] <= 0
    return np.argmax(votes, axis=1), sure.all(axis=1)
