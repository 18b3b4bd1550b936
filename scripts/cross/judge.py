"""What was reported and written, held against the definition.  Nothing of bigsvm.

Each finding is (kind, words).  Kinds: `claim` (a proof that is none), `objective`, `dual`, `gap`, `status`,
`violation`, `model`, `scores`, `labels`, `certify`, `refused`, `accepted`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cross.case import MUST, Case, Step
from cross.definition import UNIT, Kernelled, Real
from cross.models import Asked, Wanted, lambda_of
from cross.reference import ascended, bounds, indefinite
from cross.saved import Saved

CLOSE = 1e-9  # relative: sums in another order
GAPS = 1e-6  # relative to a gap that is computed in another way
_CAREFUL = 1e-2  # of a gap
_BALANCED = Real(2.0) ** -43  # of a dual point's terms: what its sum is worth that is 0 to rounding
BOX = Real(2.0) ** -40  # relative: rounding of C_i and of balanced sums
CODES = {"converged": 0, "paper_rule": 0, "kkt": 0, "stopped": 4, "stalled": 4}


class Outcome(NamedTuple):
    """What a fit gave back.  document : the `result` object, or the `error` object of a refusal."""

    code: int
    status: str
    document: dict[str, Any]


class Finding(NamedTuple):
    """Something that is not as it must be."""

    kind: str
    words: str


class Point(NamedTuple):
    """A model's own figures: P, what float64 may be off in it, D of its alpha (None without one), and its violation.

    price : what may be added to the gap for a sum of beta that is 0 to rounding alone, and for rounding of scores and
        of v, which is told by norms
    strictly : the violation where every row that is not at its bound to the last bit may move
    """

    primal: np.longdouble
    error: np.longdouble
    dual: np.longdouble | None
    violation: np.longdouble | None
    strictly: np.longdouble
    outside: np.longdouble
    price: np.longdouble = Real(0)


def _rounding(
    step: Step, X: np.ndarray, w: np.longdouble, C: np.ndarray, beta: np.ndarray, P: np.longdouble, gap: np.longdouble
) -> np.longdouble:  # fmt: skip
    """The most that a linear proof may add for rounding: scores to UNIT |w| |x|, v to UNIT sum |beta| |x|."""
    norms = np.sqrt((X * X).sum(axis=1)) + Real(step.options.B)
    e, d = 2 * UNIT * w, 2 * UNIT * (np.abs(beta) @ norms)
    of_v = d * np.sqrt(2 * abs(gap)) + d * d
    if step.options.loss.startswith("squared"):
        most = e * e * (C @ (norms * norms))
        return of_v + 6 * np.sqrt(most * abs(P)) + 4 * most
    return of_v + 5 * e * (C @ norms)


def judge_outcome(case: Case, step: Step, outcome: Outcome) -> list[Finding]:
    """Whether it was right to refuse, or not to; exit code and status."""
    refused = outcome.code not in (0, 4)
    said = outcome.document.get("message", "")
    if step.refusal == MUST and not refused:
        return [Finding("accepted", f"{step.why}: exit {outcome.code}, {outcome.status}")]
    if outcome.code == 65 and step.options.assume_psd and "vouches for it" in str(said):
        return []  # a dual point refutes what was vouched for
    if refused and (outcome.code != 65 or not step.refusal) and not (step.refusal == MUST and outcome.code in (2, 65)):
        return [Finding("refused", f"exit {outcome.code}: {said}")]
    if not refused and outcome.code != CODES.get(outcome.status, -1):
        return [Finding("status", f"{outcome.status} with exit {outcome.code}")]
    return []


def judge_fit(case: Case, step: Step, asked: Asked, outcome: Outcome, saved: Saved) -> tuple[list[Finding], float]:
    """The written model and what is said of it; and what float64 may be off in its objective."""
    found = shape(case, step, asked, outcome, saved)
    if found:
        return found, 0.0
    points = [_point(asked, step, m, wanted, saved) for m, wanted in enumerate(asked.models)]
    reported = outcome.document["models"]
    for m, (wanted, point, said) in enumerate(zip(asked.models, points, reported, strict=True)):
        of_model = _judge_model(step, wanted, point, said, outcome)
        found += [Finding(finding.kind, f"model {m}: {finding.words}") for finding in of_model]
    return found + judge_whole(step, outcome, points), 16 * float(sum(point.error for point in points))


def shape(case: Case, step: Step, asked: Asked, outcome: Outcome, saved: Saved) -> list[Finding]:
    """Classes and sizes: without them nothing else can be compared."""
    document, classes = outcome.document, asked.classes.tolist()
    for where, given in (("result", document["classes"]), ("model.json", saved.document["classes"])):
        if [plain(x) for x in given] != [plain(x) for x in classes]:
            return [Finding("model", f"{where} has classes {given}, the data {classes}")]
    if (document["n_samples"], document["n_features"]) != case.X.shape:
        return [Finding("model", f"{document['n_samples']} x {document['n_features']} of {case.X.shape}")]
    if len(document["models"]) != asked.n_proofs or len(saved.intercept) != len(asked.models):
        return [Finding("model", f"{len(document['models'])} models, {len(asked.models)} are asked for")]
    if saved.support is not None and not np.array_equal(saved.support, asked.X[saved.support_rows]):
        return [Finding("model", "support vectors are not the rows of their numbers")]
    return []


def plain(label: Any) -> Any:
    """A label as JSON has it."""
    return int(label) if isinstance(label, bool | float) and float(label).is_integer() else label


def scores_of(asked: Asked, step: Step, saved: Saved, m: int) -> tuple[np.ndarray, np.ndarray]:
    """(scores of all rows without the intercept, what float64 may be off in each) of a written model."""
    if saved.coef is not None:
        sizes = np.abs(asked.X) @ np.abs(saved.coef[m])
        return asked.X @ saved.coef[m], (asked.X.shape[1] + 10) * UNIT * (sizes + abs(saved.intercept[m]))
    assert asked.K is not None
    assert asked.K_errors is not None
    assert saved.dual_coef is not None
    K, errors = asked.K[:, saved.support_rows], asked.K_errors[:, saved.support_rows]
    size = np.abs(saved.dual_coef[m])
    rounding = (len(size) + 10) * UNIT * (np.abs(K) @ size + abs(saved.intercept[m]))
    return K @ saved.dual_coef[m], rounding + errors @ size


def _point(asked: Asked, step: Step, m: int, wanted: Wanted, saved: Saved) -> Point:
    """Own figures of a written model."""
    programme, rows = wanted.programme, wanted.rows
    scores, errors = scores_of(asked, step, saved, m)
    f, b = scores[rows], saved.intercept[m]
    if saved.coef is not None:
        w_sq = saved.coef[m] @ saved.coef[m]
        if step.options.bias == "augmented":
            w_sq += (b / Real(step.options.B)) ** 2
    else:
        assert saved.dual_coef is not None
        w_sq = saved.dual_coef[m] @ scores[saved.support_rows]
    primal = w_sq / 2 + programme.losses(f + b).sum()
    size = np.abs(saved.dual_coef[m]) @ errors[saved.support_rows] if saved.dual_coef is not None else w_sq * UNIT * 100
    error = programme.loss_error(f + b, errors[rows]) + size + len(rows) * UNIT * abs(primal)
    known = saved.alpha is not None or saved.dual_coef is not None
    beta = beta_of(step, saved, m, wanted) if known else None
    if saved.coef is not None and step.options.of_kernel:  # what was proved are scores made of kernel values
        sizes = programme.C if beta is None else np.abs(beta)  # no beta is larger than its row's C
        gram = np.abs(asked.X[rows]) @ (np.abs(asked.X[rows]).T @ sizes)
        error = error + programme.loss_error(f + b, sum(asked.X.shape) * UNIT * gram)
    if beta is None:
        return Point(primal, error, None, None, Real(0), Real(0))
    product, norm = wanted.space.of_beta(beta)
    violation, strictly = None, Real(0)
    if step.options.of_kernel and step.options.bias == "free":
        violation, strictly = programme.violation(beta, product), programme.violation(beta, product, Real(0))
    error += wanted.space.error(beta)
    price = _BALANCED * ((np.abs(programme.t) + programme.epsilon) @ np.abs(beta) + abs(norm))
    price = price if programme.free else Real(0)
    if saved.coef is not None and not step.options.of_kernel:
        dual = programme.dual(beta, norm)
        w = np.sqrt(w_sq + (b / Real(step.options.B)) ** 2)  # with the bias as it is kept
        price += _rounding(step, asked.X[rows], w, programme.C, beta, primal, primal - dual)
    return Point(primal, error, programme.dual(beta, norm), violation, strictly, programme.outside(beta), price)


def beta_of(step: Step, saved: Saved, m: int, wanted: Wanted) -> np.ndarray:
    if saved.alpha is not None:
        alpha = saved.alpha[m][wanted.rows]
        return alpha if step.options.regression else alpha * wanted.programme.t
    assert saved.dual_coef is not None
    whole = np.zeros(int(max(saved.support_rows.max(initial=0), wanted.rows.max(initial=0))) + 1, Real)
    whole[saved.support_rows] = saved.dual_coef[m]
    return whole[wanted.rows]


def _judge_model(step: Step, wanted: Wanted, point: Point, said: dict[str, Any], outcome: Outcome) -> list[Finding]:
    found, P, tol = [], point.primal, Real(step.options.tol)
    slack = CLOSE * abs(P) + 16 * point.error
    if not abs(said["objective"] - P) <= slack:
        found.append(Finding("objective", f"P {said['objective']!r} is said, {float(P)!r} is"))
    # A hopeless fit may leave alpha out of balance by more than rounding: then nothing may be claimed from it.
    # (The objective that is said, not ours: far from the optimum float64 may know no digit of either.)
    claims = said.get("duality_gap") is not None and said["duality_gap"] < (1 - 1e-9) * said["objective"]
    if point.outside > BOX and (claims or outcome.status != "stalled"):
        words = f"alpha is outside its box, or not balanced, by {float(point.outside):.2g} of C"
        said_of = f"({outcome.status}, a gap of {said['duality_gap']} of {said['objective']} is said)"
        found.append(Finding("dual", f"{words} {said_of}"))
    if outcome.document["certificate"] == "none" or said.get("duality_gap") is None:
        return found
    gap, proved = said["duality_gap"], outcome.document["certificate"] == "proved"
    if point.dual is not None:
        own = P - max(point.dual, Real(0))
        near = slack + 1e-4 * abs(own)
        # Too large a gap claims nothing that is not so: beside the price, what is said may be careful by a hundredth.
        if point.outside <= BOX and not -near <= gap - own <= near + point.price + _CAREFUL * abs(own):
            found.append(Finding("gap", f"a gap of {gap:.6g} is said, alpha's is {float(own):.6g}"))
        # Here rounding is no excuse: in exact arithmetic, too, the tolerance must hold.
        # But where all targets lie on the edge of the tube, P itself is an ulp of them, or 0.
        programme = wanted.programme
        noise = Real(2) ** -50 * (np.minimum(programme.C, 1e30) * np.abs(programme.t)).sum()
        if outcome.status == "converged" and own > tol * P * (1 + Real(1e-6)) + CLOSE * P + noise:
            found.append(Finding("claim", f"converged at {float(tol):g}, exactly the gap is {float(own / P):.3g}"))
    if proved:
        found += _judge_claim(step, wanted, P, gap, slack)
    return found


def _judge_claim(step: Step, wanted: Wanted, P: np.longdouble, gap: float, slack: np.longdouble) -> list[Finding]:
    """Whether a proof is one: its premise, and an optimum that somebody else found."""
    space, programme = wanted.space, wanted.programme
    if isinstance(space, Kernelled) and step.options.kernel["name"] != "rbf":
        if step.options.kernel["name"] == "precomputed" and not np.array_equal(space.K, space.K.T):
            return [Finding("claim", "proved, and the kernel is not symmetric")]
        if indefinite(space.K):
            if step.options.assume_psd:
                return []  # who vouches for a kernel gets what was asked for
            starts = [np.zeros(len(programme.t), Real), np.minimum(programme.C, 1e30) * programme.t]
            best = ascended(programme, space.K, starts) if programme.loss == "hinge" else Real(0)
            more = f", and a dual point has D = {float(best):.6g} > P = {float(P):.6g}" if best > P + slack else ""
            return [Finding("claim", f"proved, and the kernel is indefinite{more}")]
    lower, upper = bounds(programme, space)
    if lower > P + slack:
        return [Finding("claim", f"P = {float(P)!r} is below a dual value of {float(lower)!r}")]
    if P - upper > gap * (1 + Real(GAPS)) + slack:
        return [Finding("claim", f"proved to {gap:.6g} of the optimum, at least {float(P - upper):.6g} away")]
    return []


def judge_whole(step: Step, outcome: Outcome, points: list[Point]) -> list[Finding]:
    document, status, options = outcome.document, outcome.status, step.options
    found, models = [], document["models"]
    total = math.fsum(model["objective"] for model in models)
    if not abs(document["objective"] - total) <= CLOSE * abs(total):
        found.append(Finding("objective", f"{document['objective']} is not the models' sum {total}"))
    gaps = [model["relative_gap"] for model in models]
    if None not in gaps and not math.isclose(document["relative_gap"], max(gaps), rel_tol=1e-9, abs_tol=1e-15):
        found.append(Finding("gap", f"{document['relative_gap']} is not the models' largest {max(gaps)}"))
    if options.lam:
        penalty = lambda_of(options.C, document["n_samples"])
        if not math.isclose(document["objective_mean"], document["objective"] * penalty, rel_tol=1e-9):
            found.append(Finding("objective", f"objective_mean {document['objective_mean']}, lambda {penalty}"))
    if status == "converged" and not (document["certificate"] == "proved" and document["relative_gap"] <= options.tol):
        found.append(Finding("status", f"converged, {document['certificate']} {document['relative_gap']}"))
    if status == "paper_rule" and options.stop != "paper":
        found.append(Finding("status", "paper_rule, which nobody asked for"))
    if status == "stopped" and options.max_passes is None:
        found.append(Finding("status", "stopped, and no limit was asked for"))
    unproved = document["certificate"] != "proved" or document["relative_gap"] > options.tol
    if status in ("stopped", "stalled") and options.stop == "gap" and not unproved:
        found.append(Finding("status", f"{status} at {document['relative_gap']:g}: no more was asked for"))
    violations = [point.violation for point in points if point.violation is not None]
    if violations and "violation" in document:
        worst, errors = max(violations), max(point.error for point in points)
        # Rosen's and Platt's rules allow each side of the middle the tolerance; the result says which rule held.
        rule = document.get("rule") or {"tolerance": options.tol}
        allowed = min(rule["tolerance"], 2 * options.tol)
        rounding = 1e-6 * worst + 1e-9 + errors
        if status == "kkt" and worst > allowed * (1 + 1e-6) + rounding:
            found.append(Finding("status", f"kkt at a violation of {float(worst):.3g}, asked {options.tol:g}"))
        # A row within rounding of its bound may count as free.
        most = max(point.strictly for point in points)
        if not worst - rounding <= document["violation"] <= most * (1 + 1e-6) + rounding:
            found.append(Finding("violation", f"{document['violation']:.6g} is said, {float(worst):.6g} is"))
    if status == "kkt" and options.kernel["name"] in ("linear", "rbf"):
        found.append(Finding("status", f"kkt of a {options.kernel['name']} kernel, which has a gap"))
    return found
