"""What was reported and written of Crammer and Singer's problem, held against its definition.  Nothing of bigsvm."""

from __future__ import annotations

import numpy as np

from cross.case import Case, Step
from cross.definition import UNIT, Real
from cross.joint import JointProgramme
from cross.judge import BOX, CLOSE, GAPS, Finding, Outcome, Point, judge_whole, scores_of, shape
from cross.models import Asked
from cross.saved import Saved


def judge_joint(case: Case, step: Step, asked: Asked, outcome: Outcome, saved: Saved) -> tuple[list[Finding], float]:
    """As `judge_fit`, of one objective of all classes."""
    programme = asked.joint
    assert programme is not None
    found = shape(case, step, asked, outcome, saved)
    if found:
        return found, 0.0
    point, (said,) = _point(asked, programme, step, saved), outcome.document["models"]
    P, tol = point.primal, Real(step.options.tol)
    slack = CLOSE * abs(P) + 16 * point.error
    if not abs(said["objective"] - P) <= slack:
        found.append(Finding("objective", f"P {said['objective']!r} is said, {float(P)!r} is"))
    if point.outside > BOX:
        found.append(Finding("dual", f"alpha is outside of its bounds by {float(point.outside):.2g} of C"))
    gap, proved = said["duality_gap"], outcome.document["certificate"] == "proved"
    if point.dual is not None and point.outside <= BOX:
        own = P - max(point.dual, Real(0))
        if not abs(gap - own) <= slack + 1e-4 * abs(own):
            found.append(Finding("gap", f"a gap of {gap:.6g} is said, alpha's is {float(own):.6g}"))
        if outcome.status == "converged" and own > tol * P * (1 + Real(1e-6)) + CLOSE * P:
            found.append(Finding("claim", f"converged at {float(tol):g}, exactly the gap is {float(own / P):.3g}"))
    if proved:
        lower, upper = programme.bounds()
        if lower > P + slack:
            found.append(Finding("claim", f"P = {float(P)!r} is below a dual value of {float(lower)!r}"))
        elif P - upper > gap * (1 + Real(GAPS)) + slack:
            found.append(Finding("claim", f"proved to {gap:.6g}, the optimum is {float(P - upper):.6g} away"))
    return found + judge_whole(step, outcome, [point]), 16 * float(point.error)


def _point(asked: Asked, programme: JointProgramme, step: Step, saved: Saved) -> Point:
    """P of the written vectors, and D of the written alpha."""
    assert saved.coef is not None
    pairs = [scores_of(asked, step, saved, k) for k in range(programme.n_classes)]
    z = np.stack([scores + b for (scores, _), b in zip(pairs, saved.intercept, strict=True)], axis=1)[programme.rows]
    errors = np.stack([errors for _, errors in pairs], axis=1)[programme.rows].max(axis=1)
    w_sq = (saved.coef * saved.coef).sum()
    if step.options.bias == "augmented":
        w_sq += ((saved.intercept / Real(step.options.B)) ** 2).sum()
    primal = w_sq / 2 + programme.losses(z).sum()
    error = (programme.C * 2 * errors).sum() + len(z) * UNIT * abs(primal) + w_sq * UNIT * 100
    if saved.alpha is None:
        return Point(primal, error, None, None, Real(0), Real(0))
    alpha = saved.alpha.T[programme.rows]
    error += sum(programme.space.error(alpha[:, k]) for k in range(programme.n_classes))
    return Point(primal, error, programme.dual(alpha), None, Real(0), programme.outside(alpha))
