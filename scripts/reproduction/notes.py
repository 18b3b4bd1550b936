"""The table of Wang 2016: simplified SMO with and without kept kernel values, Platt's SMO and DCD on heart_scale.

Wang Jialin, SVM: learning and implementing SMO & DCD, 2016: C = 1, gaussSigma = 0.01, eps = 0.001, maxEpoch = 5000.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.problem.kernel import Kernel, rbf_of_sigma
from bigsvm.solvers.kernel.base import KernelSolver
from bigsvm.solvers.kernel.dual_qp import DualQP
from bigsvm.solvers.kernel.literature.platt import PlattSMO
from bigsvm.solvers.kernel.literature.simplified import SimplifiedSMO, SimplifiedSMOWithKM
from bigsvm.solvers.kernel.values.kernel_rows import KernelCounts
from bigsvm.testing.matrix_rows import MatrixRows
from reproduction.journal import Journal
from reproduction.sets import DataSet
from reproduction.stepper import Stepper

TITLE = "SMO and DCD (Wang Jialin 2016)"
COST, EPS, SIGMA, MAXEPOCH = 1.0, 0.001, 0.01, 5000
KERNELS = {"linear": Kernel("linear"), "Gauss": rbf_of_sigma(SIGMA)}


class Line(NamedTuple):
    """A line of the paper's table: what it calls it, accuracy, milliseconds, and the kernel that we take it for."""

    code: str
    printed: str
    accuracy: float
    ms: int
    kernel: str


PAPER = (
    Line("SimplifiedSMO", "linear", 0.746, 7746, "linear"),
    Line("SimplifiedSMO", '"linear" (sic)', 0.746, 1418979, "Gauss"),
    Line("SimplifiedSMOWithKM", "linear", 0.746, 75588, "linear"),
    Line("SimplifiedSMOWithKM", "Gauss", 1.0, 170085, "Gauss"),
    Line("StandardSMO", "linear", 0.546, 4548, "linear"),
    Line("DCD", "none", 0.804, 41, "none"),
)
OURS: dict[str, tuple[tuple[str, KernelSolver], ...]] = {
    "SimplifiedSMO": (
        ("literal", SimplifiedSMO(second="max", maxepoch=MAXEPOCH)),
        ("then all others", SimplifiedSMO(maxepoch=MAXEPOCH)),
    ),
    "SimplifiedSMOWithKM": (
        ("literal", SimplifiedSMOWithKM(second="max", maxepoch=MAXEPOCH)),
        ("then all others", SimplifiedSMOWithKM(maxepoch=MAXEPOCH)),
    ),
    "StandardSMO": (("Platt", PlattSMO(eps=EPS, maxepoch=MAXEPOCH)),),
}
"""(which rule, solver) of each kernel code of the paper."""


@dataclass(frozen=True)
class Protocol:
    """How much of it to do: timed runs of a line, and random orders."""

    repeats: int = 5
    seeds: int = 20


class ComputedRows:
    """Kernel values computed anew whenever they are asked for, as Wang 2016 does; each one of the same bits always."""

    def __init__(self, X: np.ndarray, kernel: Kernel) -> None:
        self._X, self._kernel = np.asfortranarray(X), kernel
        self.n, self.dtype, self.counts = len(X), np.dtype(np.float64), KernelCounts()
        self._sqnorm = np.array([self._products(np.array([i]), np.array([i]))[0, 0] for i in range(self.n)])
        self.diag = kernel.diagonal(self._sqnorm)

    def fetch(self, idx: np.ndarray) -> np.ndarray:
        """Rows idx."""
        self.counts.computed += len(idx)
        return self.block(idx, np.arange(self.n))

    def block(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """K[a, b]."""
        self.counts.values += len(a) * len(b)
        return self._kernel.of_products(self._products(a, b), self._sqnorm[a], self._sqnorm[b])

    def update(self, f: np.ndarray, idx: np.ndarray, change: np.ndarray) -> None:
        """Row by row."""
        for row, by in zip(self.fetch(idx), change, strict=True):
            f += by * row

    def _products(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Feature by feature: no sum depends on which rows are asked for together."""
        found = np.zeros((len(a), len(b)))
        for column in self._X.T:
            found += np.multiply.outer(column[a], column[b])
        return found


class Trained(NamedTuple):
    """A model as a solver left it."""

    qp: DualQP
    b: float
    steps: int
    epochs: int
    counts: KernelCounts
    done: bool
    seconds: float


def run(data: DataSet, protocol: Protocol, journal: Journal, say: Callable[[str], None]) -> dict[str, Any]:
    """All that the report says, as JSON; each part goes through the journal."""
    repeats, seeds = protocol.repeats, range(protocol.seeds)
    lines, iterates = [], {}
    for line in PAPER[:-1]:
        for rule, solver in OURS[line.code]:
            one = journal(
                f"line/{line.code}/{line.kernel}/{rule}",
                lambda line=line, rule=rule, solver=solver: line_of(data, line.kernel, rule, solver, repeats),
            )
            iterates[line.code, line.kernel, rule] = one["beta"]
            lines.append({key: value for key, value in one.items() if key != "beta"})
            say(f"{line.code}, {line.kernel}, {rule}: accuracy {one['accuracy']:.4f}, {one['ms']:.1f} ms")
    return {
        "set": data.name, "rows": len(data.y), "features": data.X.shape[1], "repeats": repeats,
        "largest_class": float(max(np.mean(data.y > 0), np.mean(data.y < 0))),
        "lines": lines,
        "same_iterates": all(
            beta == iterates["SimplifiedSMO", kernel, rule]
            for (code, kernel, rule), beta in iterates.items()
            if code == "SimplifiedSMOWithKM"
        ),
        "optimum": {
            name: journal(f"optimum/{name}", lambda name=name: optimum_of(data, name)) for name in KERNELS
        },
        "gauss_as": {
            name: journal(f"gauss/{name}", lambda K=K: gauss_of(data, K(data.X))) for name, K in GAUSS_AS.items()
        },
        "largest_off_diagonal": float(np.max(_squared_differences(data.X) - np.eye(len(data.y)))),
        "random": [
            journal(
                f"random/{seed}",
                lambda seed=seed: judged(data, train(data, "linear", SimplifiedSMO(second="random"), seed)),
            )
            for seed in seeds
        ],
        "dcd": journal("dcd", lambda: dcd_of(data, repeats)),
        "dcd_rule": journal("dcd by rule", lambda: dcd_by_rule(data)),
        "dcd_epochs": [journal(f"dcd epochs/{seed}", lambda seed=seed: dcd_accuracies(data, seed)) for seed in seeds],
    }  # fmt: skip


def _products(X: np.ndarray, columns: Iterable[int]) -> np.ndarray:
    """Gauss of the norms and the products, which are summed in this order of the columns."""
    found = np.zeros((len(X), len(X)))
    for k in columns:
        found += np.multiply.outer(X[:, k], X[:, k])
    norms = np.diag(found).copy()
    return KERNELS["Gauss"].of_products(found, norms, norms)


def _squared_differences(X: np.ndarray) -> np.ndarray:
    found = np.zeros((len(X), len(X)))
    for column in X.T:
        found += np.subtract.outer(column, column) ** 2
    return np.asarray(np.exp(-KERNELS["Gauss"].gamma * found))


GAUSS_AS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the products summed from the last feature to the first": lambda X: _products(X, reversed(range(X.shape[1]))),
    "squared differences": _squared_differences,
    "the identity": lambda X: np.eye(len(X)),
}
"""Ways to say the same K, but for its last bits.  Each is a sum in a fixed order, with no product of matrices, whose
order of sums is the library's."""


def gauss_of(data: DataSet, K: np.ndarray) -> dict[str, Any]:
    """Where the literal rule ends with this K."""
    return judged(data, train(data, "Gauss", SimplifiedSMO(second="max"), given=K))


def train(
    data: DataSet, kernel: str, solver: KernelSolver, seed: int = 0, eps: float = EPS, given: np.ndarray | None = None
) -> Trained:
    """Until the solver's own rule ends it; with K as given, if it is."""
    n, positive = len(data.y), data.y > 0
    lower, upper = np.where(positive, 0.0, -COST), np.where(positive, COST, 0.0)
    # Rows may violate by eps either side of b: b_low - b_up by twice that.
    qp = DualQP(data.y.copy(), lower, upper, 0.0, np.zeros(n), np.zeros(n), eps=2.0 * eps)
    qp.start()
    began = time.process_time()
    own = KERNELS[kernel]
    rows: Any = ComputedRows(data.X, own) if given is None else MatrixRows(given)
    lent: Any = SimpleNamespace(
        seed=seed,
        budget=MemoryBudget(1 << 30),
        cache_bytes=0,
        sweeps_left=None,
        expired=lambda: False,
        read_enough=lambda: False,
    )
    work, steps = solver.start_model(qp, rows, lent), 0
    while True:
        progress = solver.step_model(qp, work, rows, lent)
        steps += progress.iterations
        if progress.done or progress.final or progress.exhausted:
            break
    seconds = time.process_time() - began
    return Trained(qp, work.b, steps, getattr(work, "epoch", 0) or work.sweep, rows.counts, progress.done, seconds)


def judged(data: DataSet, model: Trained) -> dict[str, Any]:
    """Training accuracy and objectives with the solver's own b."""
    # f = K beta - y, which the solver keeps
    scores, beta = model.qp.f + data.y, model.qp.beta
    squared = float(beta @ scores)
    primal = 0.5 * squared + COST * float(np.sum(np.maximum(0.0, 1.0 - data.y * (scores + model.b))))
    dual = float(np.sum(np.abs(beta))) - 0.5 * squared
    # P - D as a sum of terms that are not negative (docs/mathematics.md 2.2)
    error, alpha = data.y * (model.qp.f + model.b), np.abs(beta)
    gap = float(np.sum(np.maximum(alpha * error, (alpha - COST) * error)))
    accuracy = float(np.mean(np.where(scores + model.b >= 0.0, 1.0, -1.0) == data.y))
    return {
        "accuracy": accuracy, "primal": primal, "dual": dual, "gap": gap, "steps": model.steps,
        "epochs": model.epochs, "done": model.done, "violation": model.qp.violation(),
    }  # fmt: skip


def line_of(data: DataSet, kernel: str, rule: str, solver: KernelSolver, repeats: int) -> dict[str, Any]:
    """A line of our table, and beta; the time is the median after a first run, which compiles."""
    model = train(data, kernel, solver)
    times = [train(data, kernel, solver).seconds for _ in range(repeats)]
    return {
        "solver": solver.name, "kernel": kernel, "rule": rule, **judged(data, model),
        "kernel_rows": model.counts.computed, "ms": 1000.0 * float(np.median(times)), "beta": model.qp.beta.tolist(),
    }  # fmt: skip


def optimum_of(data: DataSet, kernel: str) -> dict[str, Any]:
    """What the problem's solution is, by `platt-smo` with steps as small as they get."""
    return judged(data, train(data, kernel, PlattSMO(eps=1e-12), eps=1e-7))


def dcd_of(data: DataSet, repeats: int) -> dict[str, Any]:
    """`dcd`, hinge, a bias column, rows drawn with replacement, to a relative gap of 1e-3."""
    found = [_dcd(data, 0, 64, 1e-3) for _ in range(repeats + 1)]
    return {**found[0][-1], "ms": 1000.0 * float(np.median([one[-1]["seconds"] for one in found[1:]]))}


def dcd_by_rule(data: DataSet) -> dict[str, Any]:
    """`dcd` until its paper's rule holds with the source's eps: every row once a sweep, shrinking."""
    import bigsvm

    asked: dict[str, Any] = {"solver": "dcd", "stop": "paper", "solver_options": {"eps": str(EPS)}}
    found = bigsvm.fit((data.X, data.y), loss="hinge", bias="augmented", C=COST, **asked)
    scores = data.X @ found.model.coef.ravel() + float(np.ravel(found.model.intercept)[0])
    return {
        "status": found.status, "rule": found.figures["rule"], "gap": found.figures["duality_gap"],
        "relative_gap": found.figures["relative_gap"], "epochs": found.figures["epochs"],
        "accuracy": float(np.mean(np.where(scores >= 0.0, 1.0, -1.0) == data.y)),
    }  # fmt: skip


def dcd_accuracies(data: DataSet, seed: int, epochs: int = 10) -> list[float]:
    """Training accuracy after each of the first epochs."""
    return [one["accuracy"] for one in _dcd(data, seed, 1, 0.0, epochs)]


def _dcd(data: DataSet, seed: int, sweeps: int, tol: float, steps: int = 10_000) -> list[dict[str, Any]]:
    """What stands after each step of so many sweeps, until the gap is proved."""
    found: list[dict[str, Any]] = []
    asked = {"order": "random", "max_sweeps_per_step": sweeps}
    options: dict[str, Any] = {"loss": "hinge", "bias": "augmented", "C": COST, "tol": max(tol, 1e-12), "seed": seed}
    with Stepper(data.X, data.y, "dcd", set=asked, **options) as run:
        for _ in range(steps):
            run.step()
            w, (point,) = run.w, run.solver.points(run.state)
            assert point.alpha is not None
            scores, alpha = data.X @ w[:-1] + w[-1], point.alpha.values[:, 0]
            primal = 0.5 * float(w @ w) + COST * float(np.sum(np.maximum(0.0, 1.0 - data.y * scores)))
            v = np.append(data.X.T @ (alpha * data.y), alpha @ data.y)
            dual = float(np.sum(alpha)) - 0.5 * float(v @ v)
            accuracy = float(np.mean(np.where(scores >= 0.0, 1.0, -1.0) == data.y))
            found.append({
                "accuracy": accuracy, "primal": primal, "dual": dual, "gap": primal - dual,
                "steps": round(run.work * len(data.y)), "epochs": round(run.work), "seconds": run.seconds,
            })  # fmt: skip
            if primal - dual <= tol * primal:
                break
    return found
