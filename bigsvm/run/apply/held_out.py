"""How well the model of a fit does on the rows that were kept back from it."""

from __future__ import annotations

from bigsvm.config import FitConfig
from bigsvm.events import Emit, Warned, silent
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.fit.outcome import FitResult
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.formats.split_rows import others_of

_OF_THE_RUN = ("seconds", "memory", "n_samples")


def add_held_out(result: FitResult, trained_on: RowBlocks, config: FitConfig, emit: Emit = silent) -> None:
    """Add `held_out`, the metrics of `evaluate`, to the figures of a fit of rows that were split; else nothing.

    Raises as `evaluate` does.
    """
    rows = others_of(trained_on)
    if rows is not None and rows.classes is None and result.model.one_class:
        emit(Warned("held-out rows have targets, which cannot judge a model of one class"))
    elif rows is not None:
        found = evaluate(result.model, rows, config, emit)
        result.figures["held_out"] = {name: value for name, value in found.items() if name not in _OF_THE_RUN}
