"""The drift of rows and scores since the last promotion, and the gates on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pipelines.gates.profile import Profile

if TYPE_CHECKING:
    from pipelines.config import Job
    from pipelines.gates.verdict import Verdict

_BINS = 10  # bins of equal mass in the reference, the usual number for this index


def psi(reference: np.ndarray, now: np.ndarray) -> float:
    """Population stability index of two sets of counts over the same bins.

    Half a row is added to every bin, so that the index stays finite if a bin is empty.
    """
    p, q = ((np.asarray(c, np.float64) + 0.5) / (np.sum(c) + 0.5 * len(c)) for c in (reference, now))
    return float(np.sum((q - p) * np.log(q / p)))


def psi_of_histograms(reference: np.ndarray, now: np.ndarray) -> float:
    """The index for histograms of fine bins, merged into at most ten bins with equal mass in the reference."""
    below = np.cumsum(reference)
    inner = np.unique(np.searchsorted(below, np.arange(1, _BINS) * below[-1] / _BINS))
    edges = np.concatenate([[0], inner[inner < len(reference) - 1] + 1])
    return psi(np.add.reduceat(reference, edges), np.add.reduceat(now, edges))


def ask_of_rows(job: Job, verdict: Verdict, former: Profile | None, now: Profile) -> None:
    """Add the gates on the training rows: class balance, and drift since the last promotion."""
    least = job.gates.min_class_share
    if least is not None:
        label, share = min(now.labels.items(), key=lambda item: item[1])
        text = f"class {label} has {share:.4g} of the rows"
        verdict.ask("class_balance", share >= least, share, least, text)
    if not job.drift.of_rows:
        return
    if former is None:
        verdict.ask("drift", True, None, None, "there is no profile of the rows of the last promotion to compare with")
        return
    if job.drift.max_label_psi is not None:
        _ask_labels(job, verdict, former, now)
    aligned = now.in_order_of(former)
    if aligned is None:
        text = f"{len(now.mean)} features, but {len(former.mean)} at the last promotion"
        if len(former.mean) == len(now.mean):
            new = sorted(set(now.features or ()) - set(former.features or ()))
            text = f"the features differ from those of the last promotion, such as {new[0] if new else now.features!r}"
        text += ": their drift cannot be measured"
        verdict.ask("drift", job.gates.allow_other_shape, len(now.mean), len(former.mean), text)
        return
    now, names = aligned, former.features or aligned.features
    for name, limit, moved, said in (
        ("drift_mean", job.drift.max_mean_shift, mean_shifts(former, now), _said_mean),
        ("drift_zero_rate", job.drift.max_zero_rate_change, np.abs(now.zero_rate - former.zero_rate), _said_zeros),
    ):
        if limit is not None:
            j = int(np.argmax(moved))
            which = f"feature {names[j]!r}" if names is not None else f"feature {j}"
            text = f"{which}: {said(former, now, j)}"
            verdict.ask(name, bool(moved[j] <= limit), float(moved[j]), limit, text)


def ask_of_scores(job: Job, verdict: Verdict, former: Profile | None, scores: np.ndarray) -> None:
    """Add the gate on the scores on the holdout."""
    limit = job.drift.max_score_psi
    if limit is None:
        return
    if former is None or former.scores.shape != scores.shape or not former.scores.sum():
        verdict.ask("drift_scores", True, None, limit, "there are no such scores of the last promotion to compare with")
        return
    found = [psi_of_histograms(a, b) for a, b in zip(former.scores, scores, strict=True)]
    worst = max(found)
    text = f"population stability index {worst:.4g} of the scores on the holdout"
    text += f" (model {int(np.argmax(found))} of {len(found)})" if len(found) > 1 else ""
    verdict.ask("drift_scores", worst <= limit, worst, limit, text)


def mean_shifts(former: Profile, now: Profile) -> np.ndarray:
    """float64, (n_features,): change of each mean in pooled standard deviations; inf if a constant changed."""
    moved, spread = np.abs(now.mean - former.mean), np.sqrt(0.5 * (former.variance + now.variance))
    scale = np.maximum(np.abs(now.mean), np.abs(former.mean))
    noise = moved <= 1e-9 * scale  # within the rounding of the sums
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(noise, 0.0, moved / spread)


def _ask_labels(job: Job, verdict: Verdict, former: Profile, now: Profile) -> None:
    limit = job.drift.max_label_psi
    assert limit is not None
    if job.regression:
        size = now.scores.shape[1]
        before, after = (_dense(profile, size) for profile in (former, now))
        value, text = psi_of_histograms(before, after), "the values to learn"
    else:
        names = sorted(former.labels.keys() | now.labels.keys())
        before, after = (np.array([p.n_rows * p.labels.get(name, 0.0) for name in names]) for p in (former, now))
        value = psi(before, after)
        name = max(names, key=lambda name: abs(now.labels.get(name, 0.0) - former.labels.get(name, 0.0)))
        text = (
            f"class {name} has {now.labels.get(name, 0.0):.4g} of the rows, {former.labels.get(name, 0.0):.4g} before"
        )
    verdict.ask("drift_labels", value <= limit, value, limit, f"population stability index {value:.4g}; {text}")


def _dense(profile: Profile, size: int) -> np.ndarray:
    found = np.zeros(size)
    for number, share in profile.labels.items():
        found[int(number)] = share * profile.n_rows
    return found


def _said_mean(former: Profile, now: Profile, j: int) -> str:
    deviation = math.sqrt(0.5 * (former.variance[j] + now.variance[j]))
    moved = (
        f"by {abs(now.mean[j] - former.mean[j]) / deviation:.4g} standard deviations" if deviation else "of a constant"
    )
    return f"mean {now.mean[j]:.6g}, {former.mean[j]:.6g} at the last promotion, a move {moved}"


def _said_zeros(former: Profile, now: Profile, j: int) -> str:
    return f"0 in {now.zero_rate[j]:.4g} of the rows, in {former.zero_rate[j]:.4g} at the last promotion"
