"""Proofs of a running fit: what those of every kind of solver share, and the protocol by which a fit asks for them."""

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
    """A proof of its own was left because the run is to stop: it changes nothing, and is begun again later."""


class Prover(ABC):
    """Proves the points of a solver, keeps the best that is known, and makes the model that was proved.

    solver, state, ctx : of the fit;  `solver.proof` names the kind of prover (`provers.py`)

    certificate : Certificate or None, the best that is known of the optimum
    alpha : RowVectors whose dual value was proved last
    rejected : a rule that ends the fit was thought to hold and does not: the solver goes on
    bytes_read, seconds : spent on proofs of their own
    """

    rejected = False
    anywhere = False
    """A proof may be made of a point in the middle of a step."""

    def __init__(self, solver: Any, state: Any, ctx: Context) -> None:
        self._solver, self._state, self._ctx = solver, state, ctx
        self.certificate: Certificate | None = None
        self.alpha: list[RowVector] = []
        self.bytes_read = 0
        self.seconds = 0.0

    @property
    @abstractmethod
    def written(self) -> Certificate | None:
        """What is proved of the points that a model written now would have; None before the first proof."""

    def prove(self) -> Certificate:
        """A proof of the present point by a pass of its own over all rows; the best that is known then.

        Raises
        ------
        ProofLeft : the run is to stop.
        DataError : the objective overflows, or rows are bad.
        """
        read = self._ctx.bytes_read
        with self._timed():
            try:
                certificate = self._prove()
            except ProofLeft:
                self._ctx.uncharge(read)  # limits count what an undisturbed run reads
                raise
        self.bytes_read += self._ctx.bytes_read - read
        return certificate

    def schedule(self) -> None:
        """Defer the certificate of the present point to the next step; of solvers that can (`Solver.can_defer`)."""
        raise NotImplementedError(f"{self._solver.name} takes no deferred certificate")

    def collect(self) -> Certificate:
        """The certificate that was deferred, of the point before the step; the best that is known then."""
        raise NotImplementedError(f"{self._solver.name} takes no deferred certificate")

    def judged(self, ending: str, rule: Rule | None) -> tuple[str, Rule | None]:
        """The status of a fit that ends as `ending` by `rule`, and the rule that holds: after the last proof."""
        return ending, rule

    def dump(self) -> dict[str, Any]:
        """For a checkpoint: the best that is proved, and what a kind of prover keeps besides."""
        return {"best": dump(self.certificate), "read": self.bytes_read, **self._dump()}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        if tree["best"] is not None:
            self.certificate = Certificate.of(tree["best"])
        self.bytes_read = tree["read"]
        self._load(tree)

    def checked(self, problem: Problem) -> Problem:
        """The problem of the fit with what its proofs have shown of the kernel."""
        return problem

    def figures(self) -> dict[str, Any]:
        """What a result says besides what all say; asked for before `model`."""
        return {}

    @abstractmethod
    def model(self, problem: Problem, data: RowBlocks, about: dict[str, Any]) -> Model:
        """The model that was proved, in the store's rows and features; gives back what only training needs."""

    @abstractmethod
    def _prove(self) -> Certificate:
        """As `prove`, without its accounts."""

    @abstractmethod
    def _dump(self) -> dict[str, Any]:
        """What `_load` takes."""

    @abstractmethod
    def _load(self, tree: dict[str, Any]) -> None:
        """Take over what `_dump` gave."""

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the seconds of what is done inside, unless it is left."""
        began = time.monotonic()
        yield
        self.seconds += time.monotonic() - began

    def _refuse_overflow(self, values: np.ndarray) -> None:
        """Raise DataError where an objective is no finite number."""
        if not np.all(np.isfinite(values)):
            raise DataError(
                "the objective overflows: the values are too large",
                self._ctx.data.uri,
                "scale the features, and the targets of a regression, to about [-1, 1]",
            )
