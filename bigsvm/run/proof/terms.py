"""The terms that sum to the gap of a saved model: the interface of all classes of terms.

A class of terms defines how terms are computed from blocks of rows, the memory that this takes, and the certificate
from their sum.  `certify.py` reads the rows, and adds up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from typing import Any

import numpy as np

from bigsvm.files.file_array import FileArray
from bigsvm.model.linear_model import Model
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import BlockRef, RowBlocks, tile
from bigsvm.store.survey import Survey
from bigsvm.tasks import BLOCKS_PER_TASK, Mapper

Alpha = FileArray | np.ndarray | None
"""The saved dual variables; None if they were not saved."""
_READ = 1 << 17  # most values that are read at a time


class SavedTerms(ABC):
    """The sums for one model over the rows seen so far, on the store that it was trained on.

    alpha : float64, (n_models, n_samples), in its file; None if it was not saved
    survey : the survey of the rows seen;  n_rows : their number
    held_bytes : memory for the whole proof;  blocks_per_task : number of blocks in a task
    """

    def __init__(self, model: Any, problem: Problem, store: RowBlocks, alpha: Alpha) -> None:
        self.model, self.problem, self.store, self.alpha = model, problem, store, alpha
        self.survey = Survey()
        self.n_rows = 0
        self.blocks_per_task = BLOCKS_PER_TASK
        self.held_bytes = 0

    @property
    @abstractmethod
    def bound(self) -> str:
        """The dual point that proves the gap, for the result."""

    @abstractmethod
    def block_rows(self, block_bytes: int) -> int:
        """Number of rows in a block whose values take about `block_bytes`."""

    @abstractmethod
    def task_bytes(self, block_rows: int, block_bytes: int) -> int:
        """Bytes that a task holds in addition to chunks of the store and its rows of alpha."""

    @abstractmethod
    def results(
        self, mapper: Mapper, runs: Iterable[tuple[BlockRef, ...]], at_most: int
    ) -> Iterator[tuple[tuple[BlockRef, ...], Any]]:
        """The results of tasks over runs of blocks, each with its run (`tasks.over_shares`), for `add`.

        at_most : number of tasks at a time
        """

    def alpha_of(self, run: tuple[BlockRef, ...]) -> np.ndarray | None:
        """alpha of the rows of a run, float64, (n_rows, n_models); None if it was not saved."""
        if self.alpha is None:
            return None
        first, n_rows = run[0].start, run[-1].stop - run[0].start
        # A copy, because the loops are compiled for writable arrays with rows in order.  A file is read in pieces, so
        # that its values are not in memory twice.
        alpha = np.empty((n_rows, self.alpha.shape[0]))
        for models in starmap(slice, tile(alpha.shape[1], max(_READ // n_rows, 1))):
            for a, b in tile(n_rows, _READ):
                alpha[a:b, models] = self.alpha[models, first + a : first + b].T
        return alpha

    @abstractmethod
    def add(self, found: Any) -> None:
        """Add the result of a task; called in the order of the rows."""

    def checked(self, refs: Sequence[BlockRef], budget: int) -> Problem:
        """The problem with what rows and dual point tell about the kernel, after all rows were seen.

        Raises DataError if they refute a kernel that the user vouched for.
        """
        return self.problem

    @abstractmethod
    def certificate(self, problem: Problem) -> Certificate:
        """The certificate from all rows; as in a fit, the dual value is at least that of alpha = 0.

        problem : the result of `checked`
        """

    def said(self) -> dict[str, Any]:
        """Entries of the result that only this class of terms has."""
        return {}


def n_samples_of(model: Model, alpha: Alpha) -> int | None:
    """Number of training rows of a model, if its files record it."""
    return model.about.get("n_samples") if alpha is None else alpha.shape[1]
