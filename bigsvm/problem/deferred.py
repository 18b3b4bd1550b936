"""A deferred certificate: the proof of a fixed point, computed from the rows that the next training pass reads anyway.

The point is (w, alpha) as the last pass left it.  While the solver moves on, another core computes its slacks from the
same rows and rebuilds w(alpha).  The proof is known at the end of the pass: one pass late, but without a pass of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigsvm.problem.certificate import Accumulator, Proof, RowsTerms, add_terms
from bigsvm.problem.problem import Problem
from bigsvm.store.blocks import Block, readonly_view
from bigsvm.store.state.vectors import RowVector

DEFERRED_ALPHA = "alpha of a deferred proof"
"""Name, in plans and refusals, of the vector that keeps alpha of the point while the solver moves on."""


class DeferredCertificate:
    """The proof of (w, alpha), to which groups of rows are added in the order in which they are read.

    w : float32 or float64, (n_features + 1,) or (n_features + 1, n_models)   must not change until `finish`
    alpha : RowVector, (n_samples, n_models)   must not change until `finish`
    rescaled, shortened : bool   prove the best of some multiples of w instead of w; of much shorter ones, too
    """

    def __init__(
        self, problem: Problem, w: np.ndarray, alpha: RowVector, rescaled: bool = False, shortened: bool = False
    ) -> None:
        self.problem, self.w, self.alpha, self._tries = problem, w, alpha, (rescaled, shortened)
        self._total = Accumulator(problem, w, *self._tries)
        self.n_groups = 0

    def add(self, block: Block, group: Any) -> None:
        """Add the terms of one group of rows.  Groups must come in the same order in every run.

        group : BlockGroup, or another key by which `alpha.get` finds the rows of the block
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
        """Discard the rows seen so far, because an interrupted pass is begun again."""
        self._total = Accumulator(self.problem, self.w, *self._tries)
        self.n_groups = 0

    def take(self, terms: RowsTerms) -> None:
        """Add terms that a task computed (`certificate.with_block`), in the same order in every run."""
        self._total.add(terms)
        self.n_groups += 1

    def finish(self) -> Proof:
        """The proof, once all rows were added."""
        return self._total.proof()

    def found(self) -> tuple[np.ndarray, int, np.ndarray]:
        """(sums, number of rows, v) of the rows seen so far."""
        total = self._total
        return total.sums(), total.n_rows, total.v

    def dump(self) -> dict[str, Any]:
        """What was added so far, for a checkpoint.  alpha is not included: its owner saves it."""
        return {"w": self.w, "n_groups": self.n_groups, **self._total.dump()}

    def load(self, tree: dict[str, Any]) -> None:
        """Restore what `dump` returned."""
        self.w[...] = tree["w"]
        self.n_groups = tree["n_groups"]
        self._total.load(tree)


def adds_groups(deferred: Sequence[DeferredCertificate], done: int) -> Callable[[Block, Any], None] | None:
    """What a pass calls with each group of blocks that it reads, in order, so that deferred proofs see it.

    deferred : proofs, which may have seen more than `done`, because reading is ahead of training;  done : groups that
        the pass trained on before it was interrupted, and does not read again
    """
    seen = done

    def add(block: Block, group: Any) -> None:
        nonlocal seen
        for proof in deferred:
            if proof.n_groups == seen:  # else it added this group before the pass was interrupted
                proof.add(block, group)
        seen += 1

    return add if deferred else None
