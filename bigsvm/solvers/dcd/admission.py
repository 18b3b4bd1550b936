"""The violation from which a row is admitted to the row buffer, for smooth losses.

The dual of a smooth loss has no upper bound, so every support vector moves a little and violates at every visit.  If
all of them were admitted, ten times as many rows would pass through the row buffer in a pass as it holds, and each
would be evicted before it was swept often: a third of the training time was spent on packing rows and on closing gaps.
Admitting only the rows that violate most needs no more passes (docs/measurements.md 3.5).  The threshold of a pass is
such that in the pass before four times as many rows exceeded it as the buffer holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.compiled.linear.active_row_buffer import count_by_bits

_TIMES = 4  # rows of the last pass that exceed the threshold, per row in the row buffer
# Violations are counted in a histogram over the leading bits of a positive float32, which are ordered like the numbers:
# without the lowest 20 bits there are eight buckets for a factor of two.
_SHIFT = 20
_BUCKETS = 0x7F800000 >> _SHIFT  # of the finite numbers


class Admission:
    """A histogram of violations in the present pass, and the threshold that the last pass gave.

    least : rows must violate more than this to be admitted; 0 in the first pass
    """

    def __init__(self) -> None:
        self.least = 0.0
        self._counts = np.zeros(_BUCKETS, np.int64)

    def see(self, score: np.ndarray, rows: np.ndarray) -> None:
        """Count rows that were visited.

        score : float32   the violation of each row of a block;  rows : the rows to count
        """
        count_by_bits(score.view(np.int32), rows, _SHIFT, self._counts)

    def begin_pass(self, n: int) -> None:
        """Set the threshold from the histogram of the last pass.  n : rows in the row buffer"""
        at_least = np.cumsum(self._counts[::-1])[::-1]  # rows in each bucket and in those above
        enough = np.flatnonzero((at_least >= _TIMES * n) & (n > 0))
        # The number just below the bucket, so that all rows of the bucket are admitted.
        bits = (int(enough[-1]) << _SHIFT) - 1 if len(enough) else -1
        self.least = float(np.int32(bits).view(np.float32)) if bits > 0 else 0.0
        self._counts[:] = 0

    def dump(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return {"least": self.least, "counts": self._counts}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.least, self._counts[:] = float(tree["least"]), tree["counts"]
