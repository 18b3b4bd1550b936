"""An optimum of one's own: an interior point, and ascent where the kernel is indefinite.  Imports nothing of bigsvm.

What comes out is only a candidate: `bounds` evaluates it in longdouble, so that a poor one makes a check weaker and
never wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cross.definition import Kernelled, Linear, Programme, Real

_STEPS = 80
_SHORT = 0.995  # of the way to the wall
_SMALL = 1e-14  # of what is left of the optimality conditions, the programme being scaled
_INDEFINITE = 1e-9  # times the largest eigenvalue
_LONGER = Real(2.0) ** -11  # rounding of longdouble in that of float64


class Bounds(NamedTuple):
    """lower <= optimum <= upper."""

    lower: np.longdouble
    upper: np.longdouble


def bounds(programme: Programme, space: Linear | Kernelled) -> Bounds:
    """Bounds of the optimum of P, of a positive semidefinite kernel."""
    if not len(programme.t):
        return Bounds(Real(0), Real(0))
    none = np.zeros(len(programme.t), Real)
    b = programme.best_bias(none) if programme.free else Real(0)
    nothing = Bounds(Real(0), programme.losses(none + b).sum())
    with np.errstate(all="ignore"):
        beta = interior_point(programme, space.gram())
    if not np.isfinite(beta).all():
        return nothing
    feasible = programme.in_box(beta.astype(Real))
    f, w_sq = space.of_beta(feasible)
    b = programme.best_bias(f) if programme.free else Real(0)
    lower, upper = programme.dual(feasible, w_sq), w_sq / 2 + programme.losses(f + b).sum()
    if not np.isfinite([lower, upper]).all():
        return nothing
    rounding = own_rounding(space, feasible)
    return Bounds(max(nothing.lower, lower - rounding), min(nothing.upper, upper + rounding))


def own_rounding(space: Linear | Kernelled, beta: np.ndarray) -> np.longdouble:
    """What longdouble may be off in D(beta): of kernel values of 1e30 it, too, may know no digit of it."""
    return _LONGER * space.error(beta)


def indefinite(K: np.ndarray) -> bool:
    """Whether a symmetric matrix has an eigenvalue that is clearly below 0."""
    largest = np.abs(K).max(initial=Real(0))
    if not 0 < largest < np.inf:
        return False
    # Scaled: kernel values may be beyond float64.
    values = np.linalg.eigvalsh(np.asarray((K + K.T) / (2 * largest), np.float64))
    return bool(values[0] < -_INDEFINITE * len(K) * max(abs(values[-1]), abs(values[0]), 1e-300))


def ascended(programme: Programme, K: np.ndarray, starts: list[np.ndarray], steps: int = 400) -> np.longdouble:
    """The best dual value that exact steps reach from some starts, of the hinge loss.  The maximum is no smaller.

    Where K is indefinite and the value exceeds a model's P, no gap of that model proves anything.
    """
    best, rng = Real(0), np.random.default_rng(0)
    for start in starts:
        beta = programme.in_box(start)
        slope = programme.t - K @ beta
        for _ in range(steps):
            _best_step(programme, K, beta, slope, int(rng.integers(len(beta))))
        beta = programme.in_box(beta)
        best = max(best, programme.dual(beta, beta @ (K @ beta)))
    return best


def _best_step(programme: Programme, K: np.ndarray, beta: np.ndarray, slope: np.ndarray, i: int) -> None:
    """Move beta_i, and where the bias is free another one against it, as far as is best."""
    room, fall = programme.upper[i] - beta[i], programme.lower[i] - beta[i]
    if programme.free:
        curvature, rate = K[i, i] + np.diag(K) - 2 * K[i], slope[i] - slope
        most, least = np.minimum(room, beta - programme.lower), np.maximum(fall, beta - programme.upper)
    else:
        curvature, rate, most, least = np.diag(K), slope, programme.upper - beta, programme.lower - beta
    with np.errstate(all="ignore"):
        inner = np.where(curvature > 0, np.clip(rate / curvature, least, most), most)
    steps = np.stack([inner, most, least])
    gains = rate * steps - curvature * steps * steps / 2
    if programme.free:
        gains[:, i] = 0
    which, j = np.unravel_index(int(np.argmax(gains)), gains.shape)
    if gains[which, j] <= 0:
        return
    step = steps[which, j]
    if programme.free:
        beta[i], beta[j] = beta[i] + step, beta[j] - step
        slope -= step * (K[i] - K[j])
    else:
        beta[j] += step
        slope -= step * K[j]


def interior_point(programme: Programme, K: np.ndarray) -> np.ndarray:
    """beta near the optimum, float64, by Mehrotra's predictor and corrector on the dual."""
    n, t = len(programme.t), programme.t
    if programme.free and n:  # beta sums to 0: only the centred matrix counts, and it is the better conditioned one
        means = K.mean(axis=0)
        K = K - means[:, None] - means[None, :] + means.mean()
    if programme.squared:
        K = K + np.diag(1 / (2 * programme.C))
    if programme.of_targets:
        Q = np.block([[K, -K], [-K, K]])
        c = np.concatenate([programme.epsilon - t, programme.epsilon + t])
        u, a = np.concatenate([programme.upper] * 2), np.concatenate([np.ones(n), -np.ones(n)])
    else:
        Q, c, a = K * np.outer(t, t), -np.ones(n), t
        u = np.full(n, np.inf) if programme.squared else programme.C
    scale = float(np.max(u)) if np.isfinite(u).all() else 1.0 / max(float(np.mean(np.diag(Q))), 1e-300)
    size = scale * max(float(np.abs(c).max(initial=0)), 1e-300)
    x = solve(
        np.asarray(Q * scale * scale / size, np.float64), np.asarray(c * scale / size, np.float64),
        np.asarray(u / scale, np.float64), np.asarray(a, np.float64)[None, :][: int(programme.free)],
    ) * scale  # fmt: skip
    return x[:n] - x[n:] if programme.of_targets else x * np.asarray(t, np.float64)


def solve(Q: np.ndarray, c: np.ndarray, u: np.ndarray, A: np.ndarray, wanted: np.ndarray | float = 0.0) -> np.ndarray:
    """min 1/2 x'Qx + c'x over 0 <= x <= u with A x = wanted, A of no, one or two rows."""
    n, bounded = len(c), np.isfinite(u)
    x = np.where(bounded, u / 2, 1.0)
    z, v, y = np.ones(n), np.where(bounded, 1.0, 0.0), np.zeros(len(A))
    best, least = x, np.inf
    for _ in range(_STEPS):
        s = np.where(bounded, u - x, 1.0)
        dual, balance = Q @ x + c - z + v + y @ A, A @ x - wanted
        mu = float(x @ z + (s * v)[bounded].sum()) / (n + bounded.sum())
        worst = max(mu, float(np.abs(dual).max()), float(np.abs(balance).max(initial=0)))
        if not np.isfinite(worst):
            break
        if worst < least:
            best, least = x, worst
        if worst < _SMALL:
            break
        factor = _factor(Q, z / x + v / s)
        if factor is None:
            break

        def direction(rz, rv, factor=factor, dual=dual, balance=balance, x=x, z=z, s=s, v=v):
            right = -dual + rz / x - rv / s
            dx, dy = factor(right), np.zeros(len(A))
            if len(A):
                inner = factor(A.T)
                if not (np.isfinite(inner).all() and np.isfinite(dx).all()):
                    return dx * np.nan, dy, rz, rv
                dy = np.linalg.lstsq(A @ inner, A @ dx + balance, rcond=None)[0]
                dx = dx - inner @ dy
            return dx, dy, (rz - z * dx) / x, (rv + v * dx) / s

        dx, dy, dz, dv = direction(-x * z, np.where(bounded, -s * v, 0.0))
        p, d = _step(x, dx, s, bounded), min(_ratio(z, dz), _ratio(v, dv))
        after = float((x + p * dx) @ (z + d * dz) + ((s - p * dx) * (v + d * dv))[bounded].sum())
        sigma = (after / (n + bounded.sum()) / max(mu, 1e-300)) ** 3
        rz = sigma * mu - x * z - dx * dz
        rv = np.where(bounded, sigma * mu - s * v + dx * dv, 0.0)
        dx, dy, dz, dv = direction(rz, rv)
        p, d = _SHORT * _step(x, dx, s, bounded), _SHORT * min(_ratio(z, dz), _ratio(v, dv))
        p = d = min(p, d, 1.0)
        x, y, z, v = x + p * dx, y + d * dy, z + d * dz, np.where(bounded, v + d * dv, 0.0)
    return best


def _factor(Q: np.ndarray, diagonal: np.ndarray):
    """Solves with Q + diag, a little more on the diagonal where it is not positive."""
    for more in (0.0, 1e-14, 1e-11, 1e-8):
        H = Q + np.diag(diagonal + more * (1.0 + np.abs(np.diag(Q))))
        try:
            L = np.linalg.cholesky(H)
        except np.linalg.LinAlgError:
            continue
        return lambda right, L=L: _solved(L, right)
    return None


def _solved(L: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(L L')^-1 right; not a number where entries of L underflow or overflow, which ends the iteration."""
    try:
        return np.linalg.solve(L.T, np.linalg.solve(L, right))
    except np.linalg.LinAlgError:
        return np.full_like(right, np.nan)


def _ratio(value: np.ndarray, change: np.ndarray) -> float:
    falling = change < 0
    return min(float(np.min(-value[falling] / change[falling], initial=1 / _SHORT)), 1 / _SHORT)


def _step(x: np.ndarray, dx: np.ndarray, s: np.ndarray, bounded: np.ndarray) -> float:
    return min(_ratio(x, dx), _ratio(s[bounded], -dx[bounded]))
