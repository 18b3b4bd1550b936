"""How much a row must violate to come into the row buffer, where the loss is smooth: as much as enough others did.

The dual of a smooth loss has no upper bound, so that every support vector moves at each visit and violates when it
comes by.  A row buffer that takes them all takes ten times as many as it holds in a pass, and lets each go before it is
swept often: a third of the training is packing rows and closing gaps.  The rows that violate most are as good
(docs/measurements.md 3.5).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsvm.compiled.linear.active_row_buffer import count_by_bits

_TIMES = 4  # as many rows of the last pass as the row buffer holds, and so many times more, violated as much
_SHIFT = 20  # bits of a float32 that a bucket does not tell apart: eight buckets for a factor of two
_BUCKETS = 0x7F800000 >> _SHIFT  # of finite numbers


class Admission:
    """Counts of the rows of a pass by how much they violated, and what it asks of those of the next.

    least : a row that violates no more than this does not come in; 0 in the first pass
    """

    def __init__(self) -> None:
        self.least = 0.0
        self._counts = np.zeros(_BUCKETS, np.int64)

    def see(self, score: np.ndarray, rows: np.ndarray) -> None:
        """Rows that streamed by; score : float32, how much each violated, those of `rows` alone."""
        count_by_bits(score.view(np.int32), rows, _SHIFT, self._counts)

    def begin_pass(self, n: int) -> None:
        """Ask for what was seen of the last pass; n : rows in the row buffer."""
        at_least = np.cumsum(self._counts[::-1])[::-1]  # rows in each bucket and in those above
        enough = np.flatnonzero((at_least >= _TIMES * n) & (n > 0))
        bits = (int(enough[-1]) << _SHIFT) - 1 if len(enough) else -1  # less than the bucket: its least rows come in
        self.least = float(np.int32(bits).view(np.float32)) if bits > 0 else 0.0
        self._counts[:] = 0

    def dump(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return {"least": self.least, "counts": self._counts}

    def load(self, tree: dict[str, Any]) -> None:
        """Take over what `dump` gave."""
        self.least, self._counts[:] = float(tree["least"]), tree["counts"]
