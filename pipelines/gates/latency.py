"""The time of predicting a batch of labels, as a service would."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bigsvm.budget import MemoryBudget
from bigsvm.run.apply.scoring import score_rows
from bigsvm.store.blocks import RowBlocks, blocks_of, row_bytes

_TIMES = 9


def batch_ms(model: Any, holdout: RowBlocks, batch_rows: int, budget: MemoryBudget) -> tuple[float, int]:
    """(median of nine times in milliseconds, number of rows) for labels of the first rows of the holdout, in memory.

    One time before, in which code may be compiled and pages read, does not count.

    Raises BudgetExceeded if a batch does not fit.
    """
    rows = min(batch_rows, holdout.n_samples)
    scorer = model.scorer()
    a_row = int(row_bytes(holdout)) + 24 * (model.n_models + len(model.classes))
    with budget.reserve("a batch of the holdout", model.scoring_bytes + 2 * rows * a_row + int(holdout.chunk_nbytes)):
        block = next(iter(blocks_of(holdout, holdout.refs(rows))))
        seconds = []
        for _ in range(1 + _TIMES):
            began = time.perf_counter()
            model.labels_of(score_rows(block.X, scorer, holdout.uri, block.start))
            seconds.append(time.perf_counter() - began)
    return 1e3 * statistics.median(seconds[1:]), len(block.y)
