"""Which prover proves the points of which solver: by the name that the solver's class has for its kind of proof."""

from __future__ import annotations

from typing import Any

from bigsvm.run.proof.kernel_prover import KernelProver
from bigsvm.run.proof.linear_prover import LinearProver
from bigsvm.run.proof.prover import Prover
from bigsvm.solvers.base import Solver
from bigsvm.solvers.context import Context

PROVERS: dict[str, type[Prover]] = {"linear": LinearProver, "kernel": KernelProver}
"""By `Solver.proof`."""


def prover_of(solver: Solver, state: Any, ctx: Context) -> Prover:
    """The prover of a fit whose solver keeps `state`."""
    return PROVERS[solver.proof](solver, state, ctx)
