"""Predictions: labels and scores of rows, streamed from a store or from text into a file."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.events import Emit, silent
from bigsvm.model.linear_model import Model
from bigsvm.model.model_rows import rows_bytes
from bigsvm.peak_memory import PeakMemory
from bigsvm.run.apply.prediction_files import check_output, load_libraries, open_writer, writer_bytes
from bigsvm.run.apply.scoring import (
    Scored,
    budget_of,
    least_of_store,
    least_of_text,
    plan_reading,
    plan_text,
    precompile_scoring,
    precompile_scoring_of,
    score_store,
    score_text,
    text_dtype,
)
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.checks import naming_lines
from bigsvm.store.text.unpacking import unpacking_bytes
from bigsvm.units import show_bytes

_HELD, _UNPACKING = "model and output", "unpacking the text"


@naming_lines
def predict(
    model: Model,
    source: RowBlocks | str,
    out: Path | BinaryIO,
    form: str,
    config: FitConfig,
    *,
    with_scores: bool = False,
    with_proba: bool = False,
    overwrite: bool = False,
    zero_based: bool = False,
    identity: dict[str, Any] | None = None,
    emit: Emit = silent,
) -> dict[str, Any]:
    """Write a prediction for each row of `source`, in its order.

    Parameters
    ----------
    source : a store, which may have been opened without labels, or the path of svmlight text (`-`: standard input)
    out : the file to write, or an open binary stream
    form : one of `prediction_files.FORMATS`
    with_proba : write probabilities of the classes instead of scores; the model must be calibrated
    config : only memory, threads, scheduler and workers are used
    identity : the identity of model and rows, as JSON; stored as metadata in Parquet and Zarr

    Returns the JSON result: n_samples, label_counts (for regression min, mean and max of the values), seconds, memory.

    Raises
    ------
    DataError : a row has more features than the model (names the line or row), or the data is damaged.
    OutputError : `out` exists or cannot be written; nothing incomplete is left.
    UsageError : probabilities are asked for, and the model is not calibrated.
    BudgetExceeded : the memory budget is too small; names the smallest sufficient one.
    """
    began = time.monotonic()
    if with_proba:
        model.probabilities_of(np.zeros((0, model.n_models)))  # raises UsageError before an output is made
    width, name = (len(model.classes), "proba") if with_proba else (model.n_models, "score")
    budget, written = budget_of(config), writer_bytes(form, width)
    check_output(out, form, overwrite)
    check_least(budget, _least_with(written, model, source))
    if isinstance(source, str):
        precompile_scoring("csr", text_dtype(model), np.dtype(np.int32), model, emit)
    else:
        precompile_scoring_of(source, model, emit)
    load_libraries(form)
    compiled = time.monotonic()
    counts = np.zeros(len(model.classes), np.int64)
    n_samples, span = 0, Span()
    with (
        PeakMemory() as memory,
        scored_rows(model, source, config, budget, zero_based, emit, written=written) as rows,
        open_writer(
            out,
            form,
            model.classes,
            width,
            with_scores or with_proba,
            overwrite,
            identity,
            name,
            getattr(source, "store_rows", None),
            model.multi_label,
            source,
        ) as writer,  # fmt: skip
    ):
        for scored in rows:
            codes = model.labels_of(scored.scores) if model.multi_label else model.codes(scored.scores)
            shown = model.probabilities_of(scored.scores) if with_proba else scored.scores
            writer.append(scored.start, codes, shown)
            if model.regression:
                span.add(scored.scores[:, 0])
            elif model.multi_label:
                counts += codes.sum(axis=0)
            else:
                counts += np.bincount(codes, minlength=len(counts))
            n_samples += len(codes)
    seen: dict[str, Any] = {"values": span.document()}
    if not model.regression:
        seen = {"label_counts": {str(label): int(n) for label, n in zip(model.classes.tolist(), counts, strict=True)}}
    return {
        "n_samples": n_samples,
        "n_features": model.n_features,
        "format": form,
        **chosen_of(source),
        **seen,
        "seconds": {"total": time.monotonic() - began, "compile": compiled - began},
        "memory": memory_document(memory, budget),
    }


def chosen_of(source: RowBlocks | str) -> dict[str, Any]:
    """The entry of a result about a condition on rows (--rows); empty without one."""
    found = {} if isinstance(source, str) else source.recipe.get("chosen")
    return {"chosen": dict(found)} if found else {}


class Span:
    """Minimum, mean and maximum of values that come in pieces."""

    def __init__(self) -> None:
        self._n, self._sum, self._least, self._most = 0, 0.0, np.inf, -np.inf

    def add(self, values: np.ndarray) -> None:
        """Add values (n,)."""
        self._n += len(values)
        self._sum += float(values.sum())
        self._least = min(self._least, float(values.min(initial=np.inf)))
        self._most = max(self._most, float(values.max(initial=-np.inf)))

    def document(self) -> dict[str, float | None]:
        """min, mean and max; None if there are no values, or if they are not finite."""
        found = {"min": self._least, "mean": self._sum / max(self._n, 1), "max": self._most}
        return {name: value if self._n and np.isfinite(value) else None for name, value in found.items()}


def memory_document(memory: PeakMemory, budget: MemoryBudget) -> dict[str, int]:
    """The `memory` entry of a result: the budget, and the measured peak."""
    return {
        "budget_bytes": budget.limit,
        "base_bytes": memory.base_bytes,
        "peak_anon_bytes": memory.peak_anon_bytes,
        "peak_rss_bytes": memory.peak_rss_bytes,
    }


@contextmanager
def scored_rows(
    model: Model,
    source: RowBlocks | str,
    config: FitConfig,
    budget: MemoryBudget,
    zero_based: bool,
    emit: Emit,
    what: str = "scoring",
    labelled: bool = False,
    written: int = 0,
) -> Iterator[Iterator[Scored]]:
    """The scores of a store or of text, as an iterator; the mapper lives as long as the block.

    written : bytes that the caller holds while it writes predictions

    Raises BudgetExceeded, naming the smallest sufficient budget.
    """
    parts = _least_with(written, model, source)
    check_least(budget, parts)
    held = sum(size for name, size in parts.items() if name not in ("rows", _UNPACKING))
    if isinstance(source, str):
        with (
            budget.reserve(_HELD, held),
            budget.reserve(_UNPACKING, unpacking_bytes(source)),
        ):
            text = plan_text(model, budget, config)
            with open_mapper(dataclasses.replace(config, threads=text.threads)) as mapper:
                yield score_text(source, model, mapper, budget, text, zero_based, emit, what, labelled)
        return
    with budget.reserve(_HELD, held):
        reading = plan_reading(source, model, budget, config)
        with open_mapper(dataclasses.replace(config, threads=reading.threads)) as mapper:
            yield score_store(source, model, mapper, reading.block_rows, emit, what)


def least_of_scoring(model: Model, source: RowBlocks | str) -> dict[str, int]:
    """Bytes needed to score single rows on one thread, by purpose: the least of any scoring."""
    if isinstance(source, str):
        rows = {_UNPACKING: unpacking_bytes(source), "rows": least_of_text(model)}
    else:
        rows = {"rows": least_of_store(source, model)}
    names = rows_bytes(model.about.get("rows", {}))
    return {"model weights": model.scorer_bytes, "names in the model": names, **rows}


def _least_with(written: int, model: Model, source: RowBlocks | str) -> dict[str, int]:
    return {**least_of_scoring(model, source), "predictions being written": written}


def check_least(budget: MemoryBudget, parts: Mapping[str, int]) -> None:
    """Check the sum of all parts that are needed at the same time.

    Checked one by one, a user who follows the advice of a first refusal would be refused again for the next part.
    Raises BudgetExceeded naming the smallest sufficient budget.
    """
    named = sorted(((size, name) for name, size in parts.items() if size), reverse=True)
    what = "scoring a row (" + ", ".join(f"{name} {show_bytes(size)}" for size, name in named) + ")"
    with budget.reserve(what, sum(parts.values())):
        pass
