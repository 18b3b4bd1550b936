"""Rosen's gradient projection beside SMO: iterations, support vectors, kernel operations, test accuracy.

Lopez and Dorronsoro, "Rosen's projection method for SVM training" (ESANN): six sets of the Raetsch benchmark, 100
partitions each, kernel exp(-||x - z||^2 / sigma), both methods stopped where b_low - b_up <= 2 eps.  The SMO that they
name is Keerthi's modification 2, the solver's own `--wss keerthi2`; two other rules are those of `plain_smo.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.compiled.kernel.rosen import NAIVE, PAIR, RELEASE
from bigsvm.problem.kernel import rbf_of_width
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.rosen.rosen import Rosen
from bigsvm.solvers.kernel.rosen.rosen_block import RosenBlock
from bigsvm.solvers.kernel.smo.textbook import Textbook
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.matrix_rows import MatrixRows
from reproduction.journal import Journal
from reproduction.plain_smo import plain_smo
from reproduction.rosen_conventions import conventions, distinct_rows
from reproduction.rosen_paper import SETTINGS, base
from reproduction.sets import Partitioned

TITLE = "Rosen's gradient projection and SMO (Lopez, Dorronsoro)"
RUNGS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
"""eps of the figure."""
METHODS: dict[str, Any] = {
    "rosen": Rosen(full=True), "rosen, looks": Rosen(), "newton": Rosen(inner="newton", full=True),
    "steepest": Rosen(inner="steepest", full=True), "block": RosenBlock(q=100),
}  # fmt: skip
_FEWER = ("newton", "steepest")
_TABLES = (1e-3, 1e-6)
"""eps of Tables 1 and 2."""
_TOLD = {"keerthi2": "Keerthi", "wss1": "rule 1", "rosen": "Rosen"}


@dataclass(frozen=True)
class Protocol:
    """How much of it to do.

    partitions : of sets without published ones;  fewer : of those for 'newton', 'steepest' and the figure
    most, slow : iterations at most; of steepest descent
    """

    partitions: int = 100
    fewer: int = 10
    most: int = 100_000
    slow: int = 20_000


class Run(NamedTuple):
    """iterations : steps, or rounds of the block solver;  moves : releases and pair steps
    computed, naive : kernel rows' worth of values that were asked for; that a row for each row and step would be
    """

    iterations: int
    moves: int
    computed: float
    naive: float
    passes: int
    beta: np.ndarray
    bias: float


def run(
    sets: list[Partitioned], protocol: Protocol, journal: Journal, say: Callable[[str], None]
) -> dict[str, Any]:  # fmt: skip
    """All that the report says, as JSON; every partition goes through the journal."""
    by = {one.data.name: one for one in sets}
    order = [name for kind in SETTINGS for name in by if base(name) == kind and not name.endswith("as stored")]
    found = []
    for name in order:
        found.append(figures_of(by[name], *SETTINGS[base(name)], protocol, journal))
        told = ", ".join(f"{label} {_said(found[-1].get(key, {}).get('1e-03'))}" for key, label in _TOLD.items())
        say(f"{name}: {told} iterations to 1e-3")
    fewer, most = protocol.fewer, protocol.most
    return {
        "partitions": protocol.partitions, "fewer": fewer, "most": most, "slow": protocol.slow, "sets": found,
        "conventions": journal("conventions", lambda: list(conventions(by, fewer, most))),
        "titanic": distinct_rows(by["titanic"]) if "titanic" in by else None,
    }  # fmt: skip


def figures_of(one: Partitioned, C: float, sigma: float, protocol: Protocol, journal: Journal) -> dict[str, Any]:
    """Means and standard deviations over the partitions of one set."""
    n, name = len(one.published) or protocol.partitions, one.data.name
    n_fewer = min(n, protocol.fewer)
    kept: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for r in range(n):
        for kind, values in journal(
            f"{name}/{r}", lambda r=r: partition_of(one, r, C, sigma, protocol, r < n_fewer)
        ).items():  # fmt: skip
            for at, value in values.items():
                kept[kind][at].append(value)
    # A partition where rule 1 never gets there has no accuracy of it.
    accuracy = {kind: [v for v in values if v is not None] for kind, values in kept["accuracy"].items()}
    smo = "wss1" if len(accuracy["wss1"]) else "wss2"
    return {
        "name": name, "train": one.train, "rows": len(one.data.y), "C": C, "sigma": sigma, "partitions": n,
        "fewer": n_fewer, "published": bool(one.published), "smo": smo,
        "rank_sum_p": rank_sum(accuracy[smo], accuracy["rosen"]),
        **{kind: {at: spread(values) for at, values in some.items()} for kind, some in kept.items()},
        "curves": {
            kind: {at: spread(values[:n_fewer]) for at, values in kept[kind].items()}
            for kind in ("keerthi2", "wss1", "wss2", "rosen", "block")
        },
    }  # fmt: skip


def partition_of(
    one: Partitioned, r: int, C: float, sigma: float, protocol: Protocol, all_of_it: bool
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """The figures of one partition; None where something was not reached.

    all_of_it : also 'newton', 'steepest' and the precisions of the figure
    """
    kernel = rbf_of_width(sigma)
    X, y, X_test, y_test = one.partition(r)
    K = kernel.matrix(X, X)
    accuracy = _accuracy(kernel.matrix(X_test, X), y_test)
    kept: dict[str, dict[str, Any]] = defaultdict(dict)
    rungs = RUNGS if all_of_it else _TABLES
    for rule in (1, 2):  # their run to a smaller eps goes through the points of the larger ones
        points = plain_smo(K, y, C, rule, [2.0 * eps for eps in rungs], protocol.most)
        for eps, point in zip(rungs, points, strict=True):
            kept[f"wss{rule}"][_key(eps)] = None if point is None else point.iterations
            if eps in _TABLES:
                kept[f"sv {_key(eps)}"][f"wss{rule}"] = None if point is None else int(np.count_nonzero(point.beta))
            if eps == 1e-3:
                bias = None if point is None else _bias(point.beta, point.F, y, C)
                kept["accuracy"][f"wss{rule}"] = None if point is None else accuracy(point.beta, bias)
                last = None if point is None else follow(METHODS["rosen"], K, y, C, 1e-6, protocol.most, point.beta)
                kept["then"][f"wss{rule}"] = None if point is None else point.iterations
                kept["then"][f"rosen after wss{rule}"] = None if last is None else last.iterations
    for eps in rungs:
        reached = keerthi(K, y, C, eps, protocol.most)
        kept["keerthi2"][_key(eps)] = None if reached is None else reached[0]
        if eps in _TABLES:
            kept[f"sv {_key(eps)}"]["keerthi2"] = None if reached is None else reached[1]
    for name, solver in METHODS.items():
        if name in _FEWER and not all_of_it:
            continue
        for eps in rungs if name in ("rosen", "block") else _TABLES:
            done = follow(solver, K, y, C, eps, protocol.slow if name == "steepest" else protocol.most)
            at = _key(eps)
            kept[name][at] = None if done is None else done.iterations
            if eps not in _TABLES:
                continue
            kept[f"{name}: moves"][at] = None if done is None else done.moves
            kept[f"{name}: computed"][at] = None if done is None else done.computed
            kept[f"{name}: naive"][at] = None if done is None else done.naive
            kept[f"{name}: passes"][at] = None if done is None else done.passes
            if name == "rosen":
                kept[f"sv {at}"][name] = None if done is None else int(np.count_nonzero(done.beta))
                if eps == 1e-3:
                    kept["accuracy"][name] = None if done is None else accuracy(done.beta, done.bias)
    return kept


def keerthi(K: np.ndarray, y: np.ndarray, C: float, eps: float, most: int) -> tuple[int, int] | None:
    """Steps and support vectors of Keerthi's modification 2, by `smo`; None where `most` steps did not do."""
    qp, rows = _programme(y, C, eps), MatrixRows(K)
    engine = Textbook(steps=1000, wss="keerthi2", shrinking=False)
    work, steps = engine.start_model(qp, rows), 0
    while steps < most:
        progress = engine.step_model(qp, work, rows)
        steps += progress.iterations
        if progress.done:
            return steps, int(np.count_nonzero(qp.beta))
        if progress.exhausted:
            return None
    return None


def follow(
    solver: Any, K: np.ndarray, y: np.ndarray, C: float, eps: float, most: int, beta: np.ndarray | None = None
) -> Run | None:  # fmt: skip
    """One of our solvers to b_low - b_up <= 2 eps, from 0 or from beta; None where `most` steps did not do."""
    qp, n = _programme(y, C, eps), len(y)
    if beta is not None:
        qp.beta[:] = beta
        qp.f += K @ beta
    rows = MatrixRows(K)
    lent: Any = SimpleNamespace(
        data=ArrayRows(K, y),
        budget=MemoryBudget(1 << 40),
        row_buffer_bytes=0,
        sweeps_left=None,
        expired=lambda: False,
        read_enough=lambda: False,
    )
    work = solver.start_model(qp, rows, lent)
    while True:
        progress = solver.step_model(qp, work, rows, lent)
        if progress.done:
            break
        if progress.exhausted or work.steps >= most:
            return None
    moves = int(work.counts[RELEASE] + work.counts[PAIR])
    return Run(
        work.updates if isinstance(solver, RosenBlock) else work.steps, moves, rows.counts.values / n,
        float(work.counts[NAIVE]), work.updates, qp.beta.copy(), _bias(qp.beta, qp.f, y, C),
    )  # fmt: skip


def spread(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """mean and sd of what was reached, and how many were not."""
    some = np.array([value for value in values if value is not None], np.float64)
    never = len(values) - len(some)
    if not len(some):
        return {"mean": None, "sd": None, "n": 0, "never": never}
    sd = float(some.std(ddof=1)) if len(some) > 1 else 0.0
    return {"mean": float(some.mean()), "sd": sd, "n": len(some), "never": never}


def rank_sum(a: Sequence[float], b: Sequence[float]) -> float | None:
    """The two-sided p of Wilcoxon's rank-sum test, equal ranks allowed for; 1 where all values are the same."""
    from scipy.stats import mannwhitneyu

    if len(set(a) | set(b)) < 2:
        return 1.0 if len(a) and len(b) else None
    return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)


def _bias(beta: np.ndarray, F: np.ndarray, y: np.ndarray, C: float) -> float:
    """b = -mean F over the free rows; without such, the middle of what the others allow."""
    free = (beta != 0.0) & (np.abs(beta) < C)
    if np.any(free):
        return -float(F[free].mean())
    may_rise = np.where(y > 0, beta < C, beta < 0.0)
    may_fall = np.where(y > 0, beta > 0.0, beta > -C)
    return -0.5 * float(F[may_rise].min() + F[may_fall].max())


def _accuracy(test: np.ndarray, y_test: np.ndarray) -> Callable[[np.ndarray, float], float]:
    def accuracy(beta: np.ndarray, bias: float) -> float:
        return 100.0 * float(np.mean(np.where(test @ beta + bias >= 0.0, 1.0, -1.0) == y_test))

    return accuracy


def _programme(y: np.ndarray, C: float, eps: float) -> DualQP:
    """The dual programme at alpha = 0, which ends at b_low - b_up <= 2 eps."""
    n = len(y)
    qp = DualQP(
        target=y.astype(np.float64), lower=np.where(y > 0, 0.0, -C), upper=np.where(y > 0, C, 0.0), epsilon=0.0,
        beta=np.zeros(n), f=np.zeros(n), eps=2.0 * eps,
    )  # fmt: skip
    qp.start()
    return qp


def _key(eps: float) -> str:
    return f"{eps:.0e}"


def _said(some: dict[str, Any] | None) -> str:
    return "-" if some is None or some["mean"] is None else f"{some['mean']:.1f}"
