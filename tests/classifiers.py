"""The solvers that tell classes apart; those of targets alone have tests of their own."""

from __future__ import annotations

from bigsvm.problem.loss import LOSSES
from bigsvm.solvers.registry import SOLVERS

CLASSIFIERS = {
    name: solver
    for name, solver in SOLVERS.items()
    if not all(loss in LOSSES and LOSSES[loss].regression for loss in solver.losses)
}
