"""What was reported and written of a problem that nu shapes, held against its definition.  Nothing of bigsvm."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cross.case import MAY, MUST, Case, Step
from cross.definition import UNIT, Real
from cross.judge import BOX, CLOSE, GAPS, Finding, Outcome, Point, beta_of, judge_whole, scores_of, shape
from cross.models import Asked, Wanted
from cross.nu import NuProgramme, nu_bounds
from cross.saved import Saved

_ROUNDED = Real(2.0) ** -36  # of a sum that nu wants
_NO_MARGIN = 1e-10  # of the square of what |w| could be


def foresee_nu(step: Step, asked: Asked) -> None:
    """A nu that is too large for a class must be refused."""
    rooms = [_programme(wanted).feasible for wanted in asked.models]
    room = min((each for each in rooms if not np.isnan(each)), default=Real(np.inf))  # one class, or no weight: none
    if not step.refusal and room < 1 + 1e-9:
        step.refusal, step.why = (MUST if room < 1 - 1e-9 else MAY), "a class has too few rows for nu"


def refused_rightly(step: Step, asked: Asked, outcome: Outcome) -> bool:
    """Whether it was refused because there is no margin, and there is none; or no time was left to find it."""
    said = str(outcome.document.get("message", ""))
    if outcome.code != 65 or step.options.loss == "nu_svr":
        return False
    if "ended before it found a margin" in said:
        return True
    return "leaves no margin" in said and any(map(_without_margin, asked.models))


def _without_margin(wanted: Wanted) -> bool:
    programme = _programme(wanted)
    if programme.feasible < 1:
        return True
    largest = np.abs(np.diag(wanted.space.gram())).max()
    return bool(nu_bounds(programme, wanted.space).lower <= _NO_MARGIN * programme.total**2 * largest)


def judge_nu(case: Case, step: Step, asked: Asked, outcome: Outcome, saved: Saved) -> tuple[list[Finding], float]:
    """As `judge_fit`."""
    found = shape(case, step, asked, outcome, saved)
    if found:
        return found, 0.0
    points = []
    for m, (wanted, said) in enumerate(zip(asked.models, outcome.document["models"], strict=True)):
        point, noise = _point(asked, step, m, wanted, saved)
        points.append(point)
        of_model = _judge_model(step, wanted, point, noise, said, outcome)
        found += [Finding(finding.kind, f"model {m}: {finding.words}") for finding in of_model]
    return found + judge_whole(step, outcome, points), 16 * float(sum(point.error for point in points))


class _Written(NamedTuple):
    """A model in nu's scale: its bias, its rho or epsilon, and what its arrays are multiplied with."""

    b: np.longdouble
    width: np.longdouble
    scale: np.longdouble


def _written(step: Step, saved: Saved, m: int) -> _Written:
    """nu_svc is written with a margin of 1, one_class with -rho for its intercept."""
    problem, b = saved.document["problem"], saved.intercept[m]
    if step.options.loss == "one_class":
        return _Written(Real(0), -b, Real(1))
    if step.options.loss == "nu_svr":
        return _Written(b, Real(problem["epsilon"]), Real(1))
    rho = 1 / Real(problem["C"][m])
    return _Written(b * rho, rho, rho)


def _point(asked: Asked, step: Step, m: int, wanted: Wanted, saved: Saved) -> tuple[Point, np.longdouble]:
    """A model's own figures, and what its sums lack of those that nu wants is worth."""
    programme, rows, (b, width, scale) = _programme(wanted), wanted.rows, _written(step, saved, m)
    scores, errors = scores_of(asked, step, saved, m)
    if saved.coef is not None:
        w_sq = saved.coef[m] @ saved.coef[m]
        size = w_sq * UNIT * 100
    else:
        assert saved.dual_coef is not None
        w_sq = saved.dual_coef[m] @ scores[saved.support_rows]
        size = np.abs(saved.dual_coef[m]) @ errors[saved.support_rows]
    f, w_sq = scores[rows] * scale, w_sq * scale**2
    primal = programme.objective(w_sq, f, b, width)
    error = (programme.c * errors[rows]).sum() * scale + size * scale**2
    error += len(rows) * UNIT * (abs(primal) + programme.total * (abs(b) + abs(width)))
    if saved.alpha is None and saved.dual_coef is None:
        return Point(primal, error, None, None, Real(0), Real(0)), Real(0)
    beta = beta_of(step, saved, m, wanted) * scale
    product, norm = wanted.space.of_beta(beta)
    error += wanted.space.error(beta)
    below = max(programme.below(beta, norm, f, b, width), Real(0))
    outside = programme.outside(beta)
    noise = (
        4 * min(outside, _ROUNDED) * (programme.total * (abs(b) + abs(width)) + norm + np.abs(beta) @ np.abs(product))
    )
    return Point(primal, error, below, None, Real(0), outside), noise


def _judge_model(
    step: Step, wanted: Wanted, point: Point, noise: np.longdouble, said: dict, outcome: Outcome
) -> list[Finding]:
    found, P, tol = [], point.primal, Real(step.options.tol)
    slack = CLOSE * abs(P) + 16 * point.error + noise
    gap, proved = said.get("duality_gap"), outcome.document["certificate"] == "proved"
    claims = gap is not None and math.isfinite(gap) and gap < (1 - 1e-9) * said["objective"]
    if point.outside > max(BOX, _ROUNDED) and (claims or outcome.status != "stalled"):
        found.append(
            Finding("dual", f"alpha misses its box or its sums by {float(point.outside):.2g} ({outcome.status})")
        )
    if not claims and outcome.status in ("stopped", "stalled"):
        return found
    if not abs(said["objective"] - P) <= slack:
        found.append(Finding("objective", f"{said['objective']!r} is said, {float(P)!r} is"))
    if gap is None or outcome.document["certificate"] == "none":
        return found
    if point.dual is not None:
        own = P - point.dual
        if not abs(gap - own) <= slack + 1e-4 * abs(own):
            found.append(Finding("gap", f"a gap of {gap:.6g} is said, alpha's is {float(own):.6g}"))
        if outcome.status == "converged" and own > tol * P * (1 + Real(1e-6)) + CLOSE * P + noise:
            found.append(Finding("claim", f"converged at {float(tol):g}, exactly the gap is {float(own / P):.3g}"))
    if proved:
        lower, upper = nu_bounds(_programme(wanted), wanted.space)
        if lower > P + slack:
            found.append(Finding("claim", f"{float(P)!r} is below a lower bound of {float(lower)!r}"))
        elif P - upper > gap * (1 + Real(GAPS)) + slack:
            words = f"proved to {gap:.6g} of the optimum, at least {float(P - upper):.6g} away"
            found.append(Finding("claim", words))
    return found


def _programme(wanted: Wanted) -> NuProgramme:
    assert isinstance(wanted.programme, NuProgramme)
    return wanted.programme
