"""The state of `newton-ws` between two passes: that of a primal solver, and that of the `dcd` before or after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsvm.solvers.dcd.dual_cd_state import DualCDState
from bigsvm.solvers.pace import Pace
from bigsvm.solvers.primal.primal_state import PrimalState
from bigsvm.store.state.vectors import RowVector

_OF_A_STEP = (
    "w", "direction", "primal", "careful", "estimate", "step_norm", "iteration", "stuck", "moving", "entry_bytes",
)  # fmt: skip


@dataclass
class WorkingState(PrimalState):
    """A primal solver's state between two passes; `direction` leads to the solution of the last working set.

    place : uint8, (n_samples, n_models)   OUT, FOLDED or KEPT for each row (`working_set`); None if rows are on shards
    careful : bool, (n_models,)   far rows of the sample join the problem, because an earlier step was too short
    tol : float                   tolerance of the run
    gaps, primals : lists of float64, (n_models,)   relative gaps and P after the last passes, the newest last
    passes : int                  passes that are done
    entry_bytes : float           mean bytes of the entries of a row in the last working set; 0 before the first
    growth : int                  how often the capacity was enlarged (only with all rows in memory)
    fallback : DualCDState        state of the `dcd` that has taken over, or None
    opening : DualCDState         state of the `dcd` that goes first, or None once it was given up
    opened : int                  rows that it has visited
    pace : Pace                   rate at which its gap falls, which starts at 1
    given_up : bool               it hands over before the next step
    left : float                  epochs or passes that it still needed then, at its rate; 0 if there was none
    newton : bool                 Newton's method on all rows trains, not working sets
    started : bool                the first direction is known (weights of an earlier model, or of a dcd that has come
                                  close): look for no other
    """

    place: RowVector | None = None
    careful: np.ndarray = field(default_factory=lambda: np.zeros(1, bool))
    tol: float = field(default=0.0, metadata={"derived": True})
    newton: bool = field(default=False, metadata={"derived": True})
    gaps: list[np.ndarray] = field(default_factory=list)
    primals: list[np.ndarray] = field(default_factory=list)
    passes: int = 0
    entry_bytes: float = 0.0
    growth: int = 0
    fallback: DualCDState | None = None
    opening: DualCDState | None = None
    opened: int = 0
    pace: Pace = field(default_factory=lambda: Pace.of(1))
    given_up: bool = False
    left: float = 0.0
    started: bool = False

    def held(self) -> dict[str, Any]:
        """What a step changes before it can no longer be left, as it is now."""
        found = {name: getattr(self, name) for name in _OF_A_STEP}
        return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in found.items()}

    def put_back(self, held: dict[str, Any]) -> None:
        """Restore what `held` returned: the step was left, and is repeated from its beginning."""
        for name, value in held.items():
            if isinstance(value, np.ndarray):
                getattr(self, name)[...] = value
            else:
                setattr(self, name, value)
        self.rows.begin_again()

    @property
    def dual_cd(self) -> DualCDState | None:
        """The state of the `dcd` that is training, before or after working sets; None while working sets train."""
        return self.opening if self.opening is not None else self.fallback
