"""Steepest HyperPass as the paper may be read, and with our defaults: iterations to four precisions.

The paper does not say which rows count as on their hyperplane, where the first step ends, or what becomes of rows that
a step meets at one point.  Each reading here is a few lines of NumPy, apart from the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from reproduction.journal import Journal
from reproduction.sets import DataSet

_LEAST = 1e-300  # of a product: smaller ones have no breakpoint
_MOST = 400


class Reading(NamedTuple):
    """One way to read the text.

    on : 'inside'    rows that the step ended on, and those before whose share is neither 0 nor 1
         'met'       rows that the step ended on, alone
         'kept'      both, whatever their share was: s = 0 is then a fiction
         'within'    all rows with |s| <= tolerance
    ties : rows met at one point: 'all' or 'first'
    first : 'exact', or a step of 1 / (2 lambda) as Pegasos begins
    dtype : of the data
    """

    label: str
    on: str = "inside"
    tolerance: float = 0.0
    ties: str = "all"
    first: str = "exact"
    dtype: str = "float64"


READINGS = (
    Reading("rows met by the step, and those before with a share inside (0, 1)"),
    Reading("rows met by the step, alone", on="met"),
    Reading("rows met by any step before, taken for lying there still", on="kept"),
    Reading("rows within 1e-12", on="within", tolerance=1e-12),
    Reading("rows within 1e-9", on="within", tolerance=1e-9),
    Reading("rows within 1e-6", on="within", tolerance=1e-6),
    Reading("rows within 1e-4", on="within", tolerance=1e-4),
    Reading("rows met by the step, the first of ties", ties="first"),
    Reading("first step of 1 / (2 lambda)", first="pegasos"),
    Reading("data rounded to float32", dtype="float32"),
)


def run(
    train: DataSet,
    lam: float,
    optimum: float,
    precisions: tuple[float, ...],
    most: int,
    journal: Journal,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Of each reading the iterations to each precision above the optimum; None where `most` did not do."""

    def taken_by(reading: Reading) -> list[int | None]:
        X = train.X.astype(reading.dtype).astype(np.float64)
        return iterations(X * train.y[:, None], lam, reading, [optimum + p for p in precisions], most)

    found = []
    for reading in READINGS:
        taken = journal(f"reading/{reading.label}", lambda reading=reading: taken_by(reading))
        found.append({**reading._asdict(), "iterations": taken})
        say(f"steepest, {reading.label}: {taken}")
    return found


def iterations(Z: np.ndarray, lam: float, reading: Reading, targets: list[float], most: int) -> list[int | None]:
    """Z : rows times their labels.  The first iteration whose primal is at most each target."""
    n, d = Z.shape
    w, s, on = np.zeros(d), np.ones(n), np.empty(0, np.int64)
    found: list[int | None] = [None] * len(targets)
    for number in range(1, most + 1):
        share, r = _shortest(Z, w, s, on, lam)
        if not np.any(r):
            break
        p = -(Z @ r)
        if reading.on in ("inside", "kept"):
            held = on[(share > 0.0) & (share < 1.0)] if reading.on == "inside" else on
            p[on[(share > 0.0) & (share < 1.0)]] = 0.0  # in exact arithmetic
        else:
            held = np.empty(0, np.int64)
        if number == 1 and reading.first == "pegasos":
            step, met = 1.0 / (2.0 * lam), np.empty(0, np.int64)
        else:
            step, met = _search(s, p, -lam * (w @ r), lam * (r @ r))
        w = w - step * r
        s = s - step * p
        met = met[:1] if reading.ties == "first" else met
        if reading.on == "within":
            on = np.flatnonzero(np.abs(s) <= reading.tolerance)[:_MOST]
        else:
            on = np.union1d(held, met)
            s[on] = 0.0
            on = on[:_MOST]
        value = 0.5 * lam * (w @ w) + np.maximum(0.0, 1.0 - Z @ w).mean()
        found = [number if k is None and value <= t else k for k, t in zip(found, targets, strict=True)]
        if found[-1] is not None:
            break
    return found


def _shortest(Z: np.ndarray, w: np.ndarray, s: np.ndarray, on: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares in [0, 1] of the rows `on`, and the subgradient that they make shortest."""
    n = len(Z)
    violating = s > 0.0
    violating[on] = False
    d0 = lam * w - violating @ Z / n
    share = np.zeros(len(on))
    if len(on) == 0:
        return share, d0
    A = Z[on] / n
    G, b = A @ A.T, A @ d0
    for _ in range(1000):
        largest = 0.0
        for k in range(len(on)):
            if G[k, k] > 0.0:
                new = min(max(share[k] + (b[k] - G[k] @ share) / G[k, k], 0.0), 1.0)
                largest, share[k] = max(largest, abs(new - share[k])), new
        if largest < 1e-10:
            break
    return share, d0 - share @ A


def _search(s: np.ndarray, p: np.ndarray, linear: float, a: float) -> tuple[float, np.ndarray]:
    """The exact step along p, and the rows that it ends on; docs/mathematics.md 3."""
    n = len(s)
    slope = linear - p[(s > 0.0) | ((s == 0.0) & (p < 0.0))].sum() / n
    at = np.flatnonzero((np.abs(p) > _LEAST) & (s * p > 0.0))
    t = s[at] / p[at]
    order = np.argsort(t, kind="stable")
    at, t = at[order], t[order]
    before = slope + np.concatenate([[0.0], np.cumsum(np.abs(p[at]))]) / n  # without a t
    k = int(np.argmax(before[1:] + a * t >= 0.0)) if len(t) and np.any(before[1:] + a * t >= 0.0) else len(t)
    end = -before[k] / a
    if k == len(t) or end < t[k]:
        return max(end, 0.0), np.empty(0, np.int64)
    return float(t[k]), at[t == t[k]]
