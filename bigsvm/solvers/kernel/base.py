"""What all kernel solvers share: one model after another, each advanced until its gap or its violation is small.

A solver of a kernel writes two methods: `begin` makes what it keeps of a model beside the `Part`, and `advance` works
on it for a bounded while.  Everything that decides belongs here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bigsvm.solvers.base import Context
from bigsvm.solvers.kernel.part import Part, Progress
from bigsvm.solvers.kernel.rows import KernelRows


@dataclass(frozen=True)
class KernelOptions:
    """Options of the contract that kernel solvers read.

    wss : '1' | '2' | '3' | 'keerthi2' | 'wr' | 'wr+3';  working_set : rows, None for the solver's own choice
    """

    wss: str = "2"
    working_set: int | None = None
    shrinking: bool = True


@dataclass(frozen=True)
class KernelSolver:
    """Template.  Hyperparameters are fields of the dataclass that a solver is; `--set` sets them."""

    name: ClassVar[str] = ""
    losses: ClassVar[tuple[str, ...]] = ("hinge", "epsilon_insensitive")
    biases: ClassVar[tuple[str, ...]] = ("free",)
    rides: ClassVar[bool] = False
    paper_rule: ClassVar[bool] = True

    def begin(self, part: Part, rows: KernelRows, options: KernelOptions, ctx: Context) -> Any:
        """What the solver keeps of a model: a dataclass of arrays and numbers whose shapes stay as they are.

        `part.beta` and `part.f` are valid: 0 and -t, or a warm start.
        """
        raise NotImplementedError

    def advance(self, part: Part, work: Any, rows: KernelRows, options: KernelOptions, ctx: Context) -> Progress:
        """Work on `part` (beta, f) and `work` in place until the violation is at most `part.eps`, or for a while.

        A while is a number of steps, never of seconds (about half a second's worth): between two calls the state is
        saved, and what is computed may not depend on where.
        """
        raise NotImplementedError
