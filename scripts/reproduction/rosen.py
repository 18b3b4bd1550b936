"""Rosen's gradient projection beside SMO: iterations, support vectors, kernel operations, test accuracy.

Lopez and Dorronsoro, "Rosen's projection method for SVM training" (ESANN): six sets of the Raetsch benchmark, 100
partitions each, kernel exp(-||x - z||^2 / sigma), both methods stopped where b_low - b_up <= 2 eps.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.compiled.kernel.rosen import NAIVE, PAIR, RELEASE
from bigsvm.problem.kernel import rbf_of_width
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.rosen.rosen import Rosen
from bigsvm.solvers.kernel.rosen.rosen_block import RosenBlock
from bigsvm.store.formats.array_rows import ArrayRows
from bigsvm.testing.matrix_rows import MatrixRows
from reproduction.plain_smo import plain_smo
from reproduction.sets import Partitioned

TITLE = "Rosen's gradient projection and SMO (Lopez, Dorronsoro)"
SETTINGS = {
    "titanic": (1e5, 2.0), "heart": (3.162, 120.0), "breast-cancer": (15.19, 50.0), "thyroid": (10.0, 3.0),
    "diabetes": (1.0, 20.0), "flare-solar": (1.023, 30.0),
}  # fmt: skip
"""C and sigma."""


class Published(NamedTuple):
    """(mean, sd): support vectors at eps = 1e-3, iterations at 1e-3 and 1e-6; of SMO, and of Rosen's method."""

    sv: tuple[tuple[float, float], tuple[float, float]]
    at_3: tuple[tuple[float, float], tuple[float, float]]
    at_6: tuple[tuple[float, float], tuple[float, float]]


PAPER = {
    "titanic": Published(((69.3, 9.5), (92.0, 11.3)), ((143.5, 20.9), (141.4, 23.9)), ((214.2, 37.4), (145.2, 25.4))),
    "heart": Published(((82.5, 5.4), (83.4, 5.1)), ((149.8, 31.5), (65.6, 6.3)), ((331.9, 119.4), (65.7, 6.5))),
    "breast-cancer": Published(
        ((114.1, 6.1), (116.4, 6.2)), ((1431.5, 407.3), (592.1, 93.0)), ((4711.5, 2704.7), (596.0, 95.2))
    ),
    "thyroid": Published(((25.3, 5.7), (24.8, 5.5)), ((213.5, 73.9), (70.5, 23.2)), ((519.2, 222.3), (70.6, 23.4))),
    "diabetes": Published(((264.9, 7.3), (266.5, 7.4)), ((360.1, 55.0), (181.3, 9.8)), ((730.1, 193.1), (181.7, 9.7))),
    "flare-solar": Published(
        ((480.7, 11.5), (513.1, 17.2)), ((608.7, 141.7), (339.8, 50.8)), ((1837.3, 1677.0), (394.6, 80.4))
    ),
}
RUNGS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
"""eps of the figure."""
METHODS: dict[str, Any] = {
    "rosen": Rosen(full=True), "rosen, looks": Rosen(), "newton": Rosen(inner="newton", full=True),
    "steepest": Rosen(inner="steepest", full=True), "block": RosenBlock(q=100),
}  # fmt: skip
_FEWER = ("newton", "steepest")


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
    sets: list[Partitioned], protocol: Protocol, say: Callable[[str], None], parts: Path | None = None
) -> dict[str, Any]:  # fmt: skip
    """All that the report says, as JSON; in the folder `parts` each set's figures are kept, and found again."""
    order = [name for name in SETTINGS if any(one.data.name == name for one in sets)]
    by = {one.data.name: one for one in sets}
    found = []
    for name in order:
        path = None if parts is None else parts / f"rosen-{name}-{protocol.partitions}-{protocol.fewer}.json"
        if path is not None and path.exists():
            found.append(json.loads(path.read_text()))
        else:
            found.append(figures_of(by[name], *SETTINGS[name], protocol))
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found[-1]))
        wss1, rosen = (found[-1][key].get("1e-03") for key in ("wss1", "rosen"))
        say(f"{name}: SMO {_said(wss1)}, Rosen {_said(rosen)} iterations to 1e-3")
    return {
        "partitions": protocol.partitions,
        "fewer": protocol.fewer,
        "most": protocol.most,
        "slow": protocol.slow,
        "sets": found,
    }


def figures_of(one: Partitioned, C: float, sigma: float, protocol: Protocol) -> dict[str, Any]:
    """Means and standard deviations over the partitions of one set."""
    kernel, n = rbf_of_width(sigma), len(one.published) or protocol.partitions
    n_fewer = min(n, protocol.fewer)
    kept: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for r in range(n):
        X, y, X_test, y_test = one.partition(r)
        K = kernel.matrix(X, X)
        test = kernel.matrix(X_test, X)
        accuracy = _accuracy(test, y_test)
        # SMO's run to a smaller eps goes through the points of the larger ones.
        for rule in (1, 2):
            rungs = RUNGS if r < n_fewer else (1e-3, 1e-6)
            points = plain_smo(K, y, C, rule, [2.0 * eps for eps in rungs], protocol.most)
            for eps, point in zip(rungs, points, strict=True):
                kept[f"wss{rule}"][_key(eps)].append(None if point is None else point.iterations)
                if point is None or eps != 1e-3:
                    continue
                kept["sv"][f"wss{rule}"].append(int(np.count_nonzero(point.beta)))
                kept["accuracy"][f"wss{rule}"].append(accuracy(point.beta, _bias(point.beta, point.F, y, C)))
                last = follow(METHODS["rosen"], K, y, C, 1e-6, protocol.most, point.beta)
                kept["then"][f"wss{rule}"].append(point.iterations)
                kept["then"][f"rosen after wss{rule}"].append(None if last is None else last.iterations)
        for name, solver in METHODS.items():
            if name in _FEWER and r >= n_fewer:
                continue
            for eps in RUNGS if name in ("rosen", "block") and r < n_fewer else (1e-3, 1e-6):
                done = follow(solver, K, y, C, eps, protocol.slow if name == "steepest" else protocol.most)
                at = _key(eps)
                kept[name][at].append(None if done is None else done.iterations)
                if done is None or eps not in (1e-3, 1e-6):
                    continue
                kept[f"{name}: moves"][at].append(done.moves)
                kept[f"{name}: computed"][at].append(done.computed)
                kept[f"{name}: naive"][at].append(done.naive)
                kept[f"{name}: passes"][at].append(done.passes)
                if name == "rosen" and eps == 1e-3:
                    kept["sv"][name].append(int(np.count_nonzero(done.beta)))
                    kept["accuracy"][name].append(accuracy(done.beta, done.bias))
    smo = "wss1" if kept["accuracy"]["wss1"] else "wss2"
    return {
        "name": one.data.name, "train": one.train, "rows": len(one.data.y), "C": C, "sigma": sigma, "partitions": n,
        "fewer": n_fewer, "published": bool(one.published), "smo": smo,
        "rank_sum_p": rank_sum(kept["accuracy"][smo], kept["accuracy"]["rosen"]),
        **{kind: {at: spread(values) for at, values in some.items()} for kind, some in kept.items()},
        "curves": {
            kind: {at: spread(values[:n_fewer]) for at, values in kept[kind].items()}
            for kind in ("wss1", "wss2", "rosen", "block")
        },
    }  # fmt: skip


def follow(
    solver: Any, K: np.ndarray, y: np.ndarray, C: float, eps: float, most: int, beta: np.ndarray | None = None
) -> Run | None:  # fmt: skip
    """One of our solvers to b_low - b_up <= 2 eps, from 0 or from beta; None where `most` steps did not do."""
    n = len(y)
    qp = DualQP(
        target=y.astype(np.float64), lower=np.where(y > 0, 0.0, -C), upper=np.where(y > 0, C, 0.0), epsilon=0.0,
        beta=np.zeros(n), f=np.zeros(n), eps=2.0 * eps,
    )  # fmt: skip
    qp.start()
    if beta is not None:
        qp.beta[:] = beta
        qp.f += K @ beta
    rows = MatrixRows(K)
    lent: Any = SimpleNamespace(
        data=ArrayRows(K, y), budget=MemoryBudget(1 << 40), row_buffer_bytes=0, sweeps_left=None, expired=lambda: False
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


def _key(eps: float) -> str:
    return f"{eps:.0e}"


def _said(some: dict[str, Any] | None) -> str:
    return "-" if some is None or some["mean"] is None else f"{some['mean']:.1f}"
