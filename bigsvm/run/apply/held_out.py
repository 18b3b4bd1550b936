"""Evaluation on the rows that a split kept back, and the check that they really were kept back."""

from __future__ import annotations

import dataclasses

import numpy as np

from bigsvm.compile_in_child import compiled_in_child
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.events import Emit, Warned, silent
from bigsvm.model.linear_model import Model
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.scoring import budget_of, plan_reading
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.run.execute.small_rows import kind_of, rows_like
from bigsvm.run.fit.outcome import FitResult
from bigsvm.run.proof.certify import rows_trained_on
from bigsvm.run.start.known_rows import read_content
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.formats.chosen.split_rows import others_of
from bigsvm.store.identity import digest_of
from bigsvm.store.precompile_reading import precompile_reading
from bigsvm.store.remembered import recall, remember
from bigsvm.store.survey import Survey
from bigsvm.units import counted

_OF_THE_RUN = ("seconds", "memory", "n_samples")


def add_held_out(result: FitResult, trained_on: RowBlocks, config: FitConfig, emit: Emit = silent) -> None:
    """Add `held_out`, the metrics of `evaluate` on the rows kept back, to the figures of a fit with a split.

    Raises as `evaluate` does.
    """
    rows = others_of(trained_on)
    if rows is not None and rows.classes is None and result.model.one_class:
        emit(Warned("the held-out rows have targets, so a one_class model cannot be evaluated on them"))
    elif rows is not None:
        found = evaluate(result.model, rows, config, emit)
        result.figures["held_out"] = {name: value for name, value in found.items() if name not in _OF_THE_RUN}


def check_kept_back(model: Model, for_training: RowBlocks, config: FitConfig, emit: Emit = silent) -> None:
    """Raise DataError if the training side of a split is not what the model was trained on.

    Otherwise nothing would tell whether the model has seen the other rows.

    for_training : the training side of the split, with the condition and the labels of the fit.  If the store has
        grown, only as many of its first rows count as the model knows.  They are read once, and their content
        fingerprint is cached while the rows stay the same

    Raises
    ------
    DataError : the rows differ, or their order, labels or weights.
    """
    rows = rows_trained_on(model, for_training)
    n, expected = int(model.about.get("n_samples", rows.n_samples)), model.about.get("content_fingerprint")
    found = counted(rows.n_samples, "row")
    if rows.n_samples >= n:
        found = _content_of(rows, n, model, config, emit)
        if found == expected:
            return
        found = f"content {found}, not {expected}"
    raise DataError(
        f"its rows for training are not the {n} rows that the model was trained on ({found}), so nothing tells which "
        "rows the model has not seen",
        rows.uri,
        "give the store of the fit (rows may have been appended), and the same --label, --weight and --missing",
    )


def _content_of(rows: RowBlocks, n: int, model: Model, config: FitConfig, emit: Emit) -> str:
    """The content fingerprint of the first n rows, from the cache or by reading them."""
    of = digest_of({"rows": rows.identity.document(), "n": n})
    name = f"content-of-{of}.json"
    known = recall(name, lambda document: str(document["content"]))
    if known is not None:
        return known

    def survey_two() -> None:
        n_classes = 0 if rows.classes is None else 2
        two = rows_like(rows, np.zeros((2, 1)), np.zeros(2, np.int64 if n_classes else np.float64), n_classes)
        Survey().add(two.read(two.refs(2)[0]), two.classes)

    precompile_reading(rows, emit)
    compiled_in_child(("survey", *kind_of(rows), rows.classes is None), survey_two, emit=emit)
    reading = plan_reading(rows, model, budget_of(config), config)
    with open_mapper(dataclasses.replace(config, threads=reading.threads)) as mapper:
        content = read_content(rows, n, reading.block_rows, mapper, emit)
    if rows.uri != "memory":
        remember(name, {"content": content})
    return content
