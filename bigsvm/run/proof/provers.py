"""The class of prover for each kind of solver, by `Solver.proof`."""

from __future__ import annotations

from typing import Any

from bigsvm.run.proof.kernel_prover import KernelProver
from bigsvm.run.proof.linear_prover import LinearProver
from bigsvm.run.proof.prover import Prover
from bigsvm.solvers.base import Solver
from bigsvm.solvers.context import Context

PROVERS: dict[str, type[Prover]] = {"linear": LinearProver, "kernel": KernelProver}
"""`Solver.proof` -> class of prover."""


def prover_of(solver: Solver, state: Any, ctx: Context) -> Prover:
    """The prover for a fit by `solver`, whose state is `state`."""
    return PROVERS[solver.proof](solver, state, ctx)
