"""Drives a solver step by step on rows in memory, in row blocks of any size; no loop, no proofs."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.problem.problem import Problem, make_problem
from bigsvm.run.execute.local import SerialMapper
from bigsvm.solvers.base import DataShape, Solver
from bigsvm.solvers.context import Context
from bigsvm.solvers.registry import choose_solvers
from bigsvm.store.columns.column_blocks import ResidentColumns
from bigsvm.store.formats.array_rows import ArrayRows


class ElsewhereMapper:
    """Tasks and results cross a border, as between processes."""

    in_process = False
    n_workers = 1

    def map(self, task: Callable[[Any], Any], shares: Iterable[Any], at_most: int | None = None) -> Iterator[Any]:
        for share in shares:
            yield pickle.loads(pickle.dumps(task(pickle.loads(pickle.dumps(share)))))


def choose_solver(config: FitConfig) -> tuple[Solver, str]:
    """The first choice for few dense rows, and why."""
    return choose_solvers(config, DataShape(n_samples=1000, n_features=10, nnz=10_000, n_models=1))[0][:2]


class Bench:
    """A solver, its problem on (X, y), and a state that `step` moves on.

    block_rows : None: all rows are one resident block; else rows stream in blocks of so many
    task : of the rows, "classification" or "regression"
    costs : C of each of several models
    lent : fields of the Context
    """

    def __init__(
        self, solver: Any, X: Any, y: Any, folder: Path, block_rows: int | None = None,
        options: dict[str, Any] | None = None, task: Any = "auto", costs: list[float] | None = None,
        sample_weight: np.ndarray | None = None, **lent: Any,
    ) -> None:  # fmt: skip
        data = ArrayRows(X, y, sample_weight, task=task)
        whole = data.refs(data.n_samples)
        refs = whole if block_rows is None else data.refs(block_rows)
        made = ResidentColumns(data.read(whole[0]), data.n_features)
        given: dict[str, Any] = {
            "mapper": SerialMapper(), "budget": MemoryBudget(1 << 30), "columns": lambda: made, "tol": 1e-300,
            "threads": 1,
        }  # fmt: skip
        self.ctx = Context(
            data=data, refs=refs, resident=block_rows is None, seed=0, shards=1, read_depth=1,
            group_blocks=1, proof_refs=refs, workdir=folder, **{**given, **lent},
        )  # fmt: skip
        config = FitConfig.of(**{"loss": "squared_hinge", "solver": solver.name, **(options or {})})
        config = dataclasses.replace(config, C_path=costs)
        self.problem: Problem = make_problem(config, data, np.bincount(np.unique(y, return_inverse=True)[1]))
        self.solver = solver
        self.state = solver.init(self.problem, self.ctx)

    def step(self) -> Any:
        """One step; a pause is no end of it."""
        while True:
            info = self.solver.step(self.problem, self.state, self.ctx)
            if not info.paused:
                return info

    def objectives(self, steps: int) -> np.ndarray:
        """P(w) of the first model as known after each of some steps."""
        return np.array([self.step() and float(self.state.primal[0]) for _ in range(steps)])


def iterations_to(objectives: np.ndarray, optimum: float) -> list[int]:
    """The first iteration, counted from 1, whose relative error is at most 1e-2, 1e-4 and 1e-8."""
    error = objectives / optimum - 1.0
    assert error.min() <= 1e-8
    return [int(np.argmax(error <= e)) + 1 for e in (1e-2, 1e-4, 1e-8)]


def paper_data(real_data: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """heart, diabetes or australian as docs/measurements.md 8.1 has them: dense, in [-1, 1]."""
    X, y = real_data.load({"heart": "heart_scale", "diabetes": "diabetes_scale", "australian": "australian"}[name])
    X = np.asarray(X.todense() if hasattr(X, "todense") else X, np.float64)
    if name == "diabetes":
        return X, -y
    if name == "australian":
        low, high = X.min(axis=0), X.max(axis=0)
        X = 2.0 * (X - low) / (high - low) - 1.0
    return X, y


def takes_iterations(objectives: np.ndarray, X: Any, y: Any, C: float, counts: list[int]) -> None:
    """Check the iterations to 1e-2, 1e-4 and 1e-8 of `newton`'s optimum: as counted, or one more or less.

    One, because where the error falls to a threshold by less than the last digits of the optimum either is right.
    """
    best = bigsvm.fit((X, y), solver="newton", loss="squared_hinge", C=C, tol=1e-12).figures["objective"]
    found = iterations_to(objectives, best)
    assert np.all(np.abs(np.subtract(found, counts)) <= 1), found
