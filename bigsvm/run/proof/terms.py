"""The terms that a saved model's gap is the sum of: what those of every kind of model share.

A kind of terms says how they are made of the rows of some blocks, what that takes, and what their sum over all rows
proves.  `certify.py` reads the rows, and adds up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bigsvm.model.linear_model import Model
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import BlockRef, RowBlocks
from bigsvm.store.survey import Survey
from bigsvm.tasks import BLOCKS_PER_TASK, Mapper


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
    def block_rows(self, block_bytes: int) -> int:
        """Rows of a block, whose values take about so many bytes."""

    @abstractmethod
    def task_bytes(self, block_rows: int, block_bytes: int) -> int:
        """Bytes that a task holds besides chunks of the store and its rows of alpha."""

    @abstractmethod
    def results(
        self, mapper: Mapper, runs: Iterable[tuple[BlockRef, ...]], at_most: int
    ) -> Iterator[tuple[tuple[BlockRef, ...], Any]]:
        """What tasks find of runs of blocks, each with its run (`tasks.over_shares`): for `add`.

        at_most : tasks at one time
        """

    def alpha_of(self, run: tuple[BlockRef, ...]) -> np.ndarray | None:
        """alpha of a run's rows, float64, (n_rows, n_models); None where none was saved."""
        # A copy, never a view of the map: loops are compiled for arrays that may be written.
        return None if self.alpha is None else np.array(self.alpha[:, run[0].start : run[-1].stop].T, order="C")

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
