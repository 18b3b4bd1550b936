"""Certificates during a fit: the protocol by which the loop asks for them, and the part common to all solvers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bigsvm.errors import DataError
from bigsvm.model.linear_model import Model
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Rule
from bigsvm.solvers.context import Context
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.state.state_files import dump
from bigsvm.store.state.vectors import RowVector


class ProofLeft(Exception):
    """A proof was abandoned because the run is to stop; it changed nothing, and is begun again later."""


class Prover(ABC):
    """Proves the current point of a solver, keeps the best certificate, and makes the model that was proved.

    solver, state, ctx : those of the fit;  `solver.proof` names the class of prover (`provers.py`)

    certificate : the best Certificate so far, or None
    alpha : the RowVectors whose dual value was proved last
    rejected : whether a stopping rule was believed to hold and does not, so that the solver continues
    bytes_read, seconds : spent on separate proof passes
    """

    rejected = False
    anywhere = False
    """Whether a point in the middle of a step can be proved."""
    at_limit = False
    """Whether the proof is the last one of a fit that ends before the tolerance."""

    def __init__(self, solver: Any, state: Any, ctx: Context) -> None:
        self._solver, self._state, self._ctx = solver, state, ctx
        self.certificate: Certificate | None = None
        self.alpha: list[RowVector] = []
        self.bytes_read = 0
        self.seconds = 0.0

    @property
    @abstractmethod
    def written(self) -> Certificate | None:
        """The certificate of the points that a model written now would have; None before the first proof."""

    def prove(self) -> Certificate:
        """Prove the current point in a separate pass over all rows; returns the best certificate so far.

        Raises
        ------
        ProofLeft : the run is to stop.
        DataError : the objective overflows, or rows are damaged.
        """
        read = self._ctx.bytes_read
        with self._timed():
            try:
                certificate = self._prove()
            except ProofLeft:
                self._ctx.uncharge(read)  # limits such as --max-passes must not count an abandoned pass
                raise
        self.bytes_read += self._ctx.bytes_read - read
        return certificate

    def schedule(self) -> None:
        """Defer the certificate of the current point to the next step; only if `Solver.can_defer`."""
        raise NotImplementedError(f"{self._solver.name} takes no deferred certificate")

    def collect(self) -> Certificate:
        """The deferred certificate, of the point before the step; returns the best certificate so far."""
        raise NotImplementedError(f"{self._solver.name} takes no deferred certificate")

    def judged(self, ending: str, rule: Rule | None) -> tuple[str, Rule | None]:
        """(status, rule) of a fit that ends with status `ending` by `rule`, corrected after the last proof."""
        return ending, rule

    def dump(self) -> dict[str, Any]:
        """The state for a checkpoint: the best certificate, and whatever the class of prover needs."""
        return {"best": dump(self.certificate), "read": self.bytes_read, **self._dump()}

    def load(self, tree: dict[str, Any]) -> None:
        """Restore the state from `dump`."""
        if tree["best"] is not None:
            self.certificate = Certificate.of(tree["best"])
        self.bytes_read = tree["read"]
        self._load(tree)

    def checked(self, problem: Problem) -> Problem:
        """The problem of the fit, with what the proofs have shown about the kernel."""
        return problem

    def figures(self) -> dict[str, Any]:
        """Figures of the result that only this class of prover has; call it before `model`."""
        return {}

    @abstractmethod
    def model(self, problem: Problem, data: RowBlocks, about: dict[str, Any]) -> Model:
        """The proved model, in the rows and features of the store; frees what only training needs."""

    @abstractmethod
    def _prove(self) -> Certificate:
        """As `prove`, without counting bytes and seconds."""

    @abstractmethod
    def _dump(self) -> dict[str, Any]:
        """The state for `_load`."""

    @abstractmethod
    def _load(self, tree: dict[str, Any]) -> None:
        """Restore the state from `_dump`."""

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the seconds of the block, unless the proof is abandoned."""
        began = time.monotonic()
        yield
        self.seconds += time.monotonic() - began

    def _refuse_overflow(self, values: np.ndarray) -> None:
        """Raise DataError if an objective is not finite."""
        if not np.all(np.isfinite(values)):
            raise DataError(
                "the objective overflows: the values are too large",
                self._ctx.data.uri,
                "scale the features, and the targets of a regression, to about [-1, 1]",
            )
