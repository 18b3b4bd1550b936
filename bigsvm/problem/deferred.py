"""A deferred certificate: the proof of a fixed point from the rows that the next training pass reads anyway.

The point is (w, alpha) as the last pass left it.  While the solver moves on, the same rows give the margins of
that w and rebuild w(alpha), on another core; at the end of the pass the proof is there, one pass late and
without one of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.problem.certificate import Accumulator, Proof, RowsTerms, add_terms
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import Block, readonly_view
from bigsvm.store.state.vectors import RowVector

DEFERRED_ALPHA = "alpha of a riding proof"
"""Name of the vector that keeps alpha of the point while the solver moves on, as plans and refusals say it."""


class DeferredCertificate:
    """Adds groups of rows in the order in which they are read.

    w : float32 or float64, (n_features + 1,) or (n_features + 1, n_models)   not to change until `finish`
    alpha : RowVector, (n_samples, n_models)   likewise
    rescaled : bool   prove the best multiple of w instead
    """

    def __init__(self, problem: Problem, w: np.ndarray, alpha: RowVector, rescaled: bool = False) -> None:
        self.problem, self.w, self.alpha, self._rescaled = problem, w, alpha, rescaled
        self._total = Accumulator(problem, w, rescaled)
        self.n_groups = 0

    def add(self, block: Block, group: Any) -> None:
        """The terms of one group; groups must come in an order that is the same in every run.

        group : BlockGroup, or what else `alpha` knows the rows of the block by
        """
        problem, total = self.problem, self._total
        y, cost = problem.y_and_cost(block)
        sums = total.no_sums()
        add_terms(
            readonly_view(block.X), y, cost, problem.models_on(group), self.alpha.get(group), total.met, total.v,
            total.scales, sums,
        )  # fmt: skip
        total.count(sums, block.n_rows)
        self.n_groups += 1

    def restart(self) -> None:
        """Forget what was seen: a pass that was left is begun again."""
        self._total = Accumulator(self.problem, self.w, self._rescaled)
        self.n_groups = 0

    def take(self, terms: RowsTerms) -> None:
        """The terms of rows that a task has seen (`certificate.with_block`); in the order of every run."""
        self._total.add(terms)
        self.n_groups += 1

    def finish(self) -> Proof:
        """What was proved."""
        return self._total.proof()

    def found(self) -> tuple[np.ndarray, int, np.ndarray]:
        """Of the rows that were seen: their sums, how many they are, and v."""
        total = self._total
        return total.sums(), total.n_rows, total.v

    def dump(self) -> dict[str, Any]:
        """What was seen so far, for a checkpoint; the point's alpha is saved by its owner."""
        return {"w": self.w, "n_groups": self.n_groups, **self._total.dump()}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.w[...] = tree["w"]
        self.n_groups = tree["n_groups"]
        self._total.load(tree)
