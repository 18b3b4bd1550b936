"""The state of `newton-ws` between two passes: a primal solver's, and who has trained before or does now."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bigsvm.solvers.dcd.dual_cd_state import DualCDState
from bigsvm.solvers.pace import Pace
from bigsvm.solvers.primal.primal_state import PrimalState
from bigsvm.store.state.vectors import RowVector


@dataclass
class WorkingState(PrimalState):
    """A primal solver's state between two passes; `direction` leads to the solution of the last working set.

    place : uint8, (n_samples, n_models)   of each row in the pass (`working_set`); None where shards know it
    careful : bool, (n_models,)   far rows of the sample are in the problem: without them the last step was too short
    tol : the run's tolerance
    gaps : relative gaps of each model after the last passes, the newest last;  primals : P likewise
    passes : done
    entry_bytes : that the entries of a row took in the last working set, in the mean; 0 where none was
    growth : how often the capacity for rows that are in memory anyway was made larger
    fallback : what `dcd` knows, where it has taken over
    opening : what `dcd` knows, which goes first and has not been given up;  opened : rows that it has visited
    pace : of its gap, which was 1 at the beginning;  given_up : it hands over before the next step
    left : epochs or passes that it still needed then, at its rate; 0 where nobody has tried it
    started : the first direction leads to the weights of an earlier model, and no sample is solved for it
    """

    place: RowVector | None = None
    careful: np.ndarray = field(default_factory=lambda: np.zeros(1, bool))
    tol: float = field(default=0.0, metadata={"derived": True})
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

    @property
    def dual_cd(self) -> DualCDState | None:
        """What `dcd` knows, where it is its turn."""
        return self.opening if self.opening is not None else self.fallback
