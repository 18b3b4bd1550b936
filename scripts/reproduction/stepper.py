"""A solver on rows in memory, driven step by step, so that every iterate can be looked at."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.problem.problem import make_problem
from bigsvm.run.execute.local import SerialMapper
from bigsvm.solvers.base import DataShape, StepInfo
from bigsvm.solvers.context import Context
from bigsvm.solvers.registry import choose_solvers
from bigsvm.store.columns.column_blocks import ColumnBlocks, ResidentColumns
from bigsvm.store.formats.array_rows import ArrayRows


class Stepper:
    """Use: `with Stepper(X, y, "newton", C=0.1) as run: run.step(); run.w`.

    X : float64, (n_samples, n_features);  y : -1 and 1
    options : fields of FitConfig, and `set`, the solver's own

    seconds, work : of the processor in steps, and row visits / n_samples, which is passes where every visit reads
    """

    def __init__(self, X: np.ndarray, y: np.ndarray, solver: str, **options: Any) -> None:
        rows = ArrayRows(X, y)
        config = FitConfig.of(solver=solver, solver_options=options.pop("set", {}), **options)
        self.solver = choose_solvers(config, DataShape(*X.shape, X.size, 1))[0].solver
        self.problem, refs = make_problem(config, rows), rows.refs(rows.n_samples)
        self._folder = tempfile.TemporaryDirectory(prefix="reproduce-")
        found: list[ColumnBlocks] = []

        def columns() -> ColumnBlocks:
            if not found:
                found.append(ResidentColumns(rows.read(refs[0]), rows.n_features))
            return found[0]

        self.ctx = Context(
            data=rows, refs=refs, resident=True, mapper=SerialMapper(), budget=MemoryBudget(1 << 40),
            seed=config.seed, shards=1, threads=1, read_depth=1, group_blocks=1, proof_refs=refs,
            workdir=Path(self._folder.name), tol=config.tol, columns=columns,
        )  # fmt: skip
        self.state = self.solver.init(self.problem, self.ctx)
        self.seconds = self.work = 0.0

    def step(self) -> StepInfo:
        """The solver's next step."""
        began = time.process_time()
        info = self.solver.step(self.problem, self.state, self.ctx)
        self.seconds += time.process_time() - began
        self.work += info.visits / self.ctx.data.n_samples
        return info

    @property
    def w(self) -> np.ndarray:
        """The present point with its bias entry, a copy: (n_features + 1,)."""
        return np.array(self.solver.points(self.state)[0].w)

    def __enter__(self) -> Stepper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.solver.finish(self.state)
        self._folder.cleanup()
