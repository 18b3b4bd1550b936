"""The terms that a saved model's gap is the sum of: what those of every kind of model share.

A kind of terms says how they are made of the rows of some blocks, what that takes, and what their sum over all rows
proves.  `certify.py` reads the rows, and adds up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigsvm.model.linear_model import Model
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import BlockRef, RowBlocks
from bigsvm.store.survey import Survey

BLOCKS_PER_TASK = 16
"""Of a model that has weights w: each task gives back a part of w(alpha) as large as w."""


class SavedTerms(ABC):
    """Of a model, on the store that it was trained on: the sums over the rows that were seen so far.

    alpha : float64, (n_models, n_samples), a read-only map; None where none was saved
    survey : of the rows seen;  n_rows : their number
    held_bytes : that stay while tasks come and go;  blocks_per_task : blocks that a task takes
    """

    def __init__(self, model: Any, problem: Problem, store: RowBlocks, alpha: np.ndarray | None) -> None:
        self.model, self.problem, self.store, self.alpha = model, problem, store, alpha
        self.survey = Survey()
        self.n_rows = 0
        self.blocks_per_task = BLOCKS_PER_TASK
        self.held_bytes = 0

    @property
    @abstractmethod
    def bound(self) -> str:
        """Which dual point the gap is proved by."""

    @abstractmethod
    def warm(self) -> None:
        """Load all that is compiled, before memory is counted."""

    @abstractmethod
    def block_rows(self, block_bytes: int) -> int:
        """Rows of a block, whose values take about so many bytes."""

    @abstractmethod
    def task_bytes(self, block_rows: int, block_bytes: int) -> int:
        """Bytes that a task holds besides chunks of the store and its rows of alpha."""

    @property
    @abstractmethod
    def task(self) -> Callable[[Any], Any]:
        """A pure function of a module, from what `share` gives to what `add` takes."""

    @abstractmethod
    def share(self, run: tuple[BlockRef, ...], alpha: np.ndarray | None) -> Any:
        """What a worker needs of a run of blocks that follow one another.

        alpha : float64, (rows of the blocks, n_models); None where none was saved
        """

    @abstractmethod
    def add(self, found: Any) -> None:
        """Add what a task found; in the order of the rows."""

    def checked(self, refs: Sequence[BlockRef], budget: int) -> Problem:
        """The problem with what rows and dual point show of the kernel, once all rows were seen.

        Raises DataError where they refute a kernel that the user vouched for.
        """
        return self.problem

    @abstractmethod
    def certificate(self, problem: Problem) -> Certificate:
        """What all rows together prove, as a fit counts: alpha = 0 has the dual value 0.

        problem : as `checked` gave it
        """

    def said(self) -> dict[str, Any]:
        """What a result says besides what all say."""
        return {}


def n_samples_of(model: Model, alpha: np.ndarray | None) -> int | None:
    """Rows that a model was trained on, as far as its files say."""
    return model.about.get("n_samples") if alpha is None else alpha.shape[1]
