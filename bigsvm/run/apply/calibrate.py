"""Calibration of a model: the scores of rows held out of its training, in one pass, and curves fitted to them."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import DataError, Interrupted
from bigsvm.events import Emit, Warned, WorkAdvanced, WorkEnded, WorkStarted
from bigsvm.model.linear_model import Model
from bigsvm.run.apply.curves import Points, curve, points_of
from bigsvm.run.apply.scoring import Scorer, budget_of, least_of_store, plan_reading, precompile_scoring_of, score_rows
from bigsvm.run.execute.mapper import open_mapper
from bigsvm.run.execute.signals import Stop
from bigsvm.solvers.gathered import picked_rows
from bigsvm.store.blocks import BlockRef, RowBlocks
from bigsvm.store.delegated import check_unchanged
from bigsvm.store.transforms.withheld import HashedShare, WithheldRows
from bigsvm.tasks import over_shares
from bigsvm.units import MIB

_ROW = 96  # bytes for each held-out row while one curve is fitted to all of them
_SHARE = 2  # 1 / the part of the budget that scores may use
_BLOCKS = MIB  # for blocks of many rows: each leaves arrays of its own until the curves are fitted


class Share(NamedTuple):
    """The input of a task that scores the held-out rows of a block."""

    data: RowBlocks
    ref: BlockRef
    which: HashedShare
    scorer: Scorer


class Held(NamedTuple):
    """Scores (n, n_models), class codes (n,) and weights (n,) or None of held-out rows."""

    scores: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None


def held_out_for(store: RowBlocks, config: FitConfig) -> WithheldRows:
    """The store for a fit with `calibrate`: the held-out rows weigh 0."""
    return WithheldRows(store, HashedShare(config.calibrate_share, config.seed))


def held_out_rows(store: RowBlocks, config: FitConfig) -> int:
    """The number of held-out rows."""
    return HashedShare(config.calibrate_share, config.seed).count(store.n_samples)


def score_held(share: Share) -> Held:
    """Task: score the held-out rows of a block.  A pure function."""
    block = share.data.read(share.ref)
    rows = np.flatnonzero(share.which.withheld(block.start, block.stop))
    weight = None if block.sample_weight is None else block.sample_weight[rows]
    if not len(rows):
        return Held(np.empty((0, 1)), block.y[rows], weight)
    return Held(
        score_rows(picked_rows(block.X, rows), share.scorer, share.data.uri, block.start), block.y[rows], weight
    )


def calibrated(model: Model, store: RowBlocks, config: FitConfig, emit: Emit, stop: Stop) -> dict[str, Any]:
    """Calibrate a model on the held-out rows of `store`; returns the document for `about["calibration"]`.

    If the scores of all held-out rows do not fit half of the budget, a smaller share of them is used, drawn by the same
    hash.

    Raises
    ------
    DataError : a class has no held-out row, or only held-out rows.  Interrupted : a signal came.
    """
    assert store.classes is not None
    budget = budget_of(config)
    beside = least_of_store(store, model)
    share = held_share(config.calibrate_share, store.n_samples, model, budget, beside, emit)
    which = HashedShare(share, config.seed)
    precompile_scoring_of(store, model, emit)
    scorer, parts, began = model.scorer(), [], time.monotonic()
    with budget.reserve("held-out scores", held_bytes(share, store.n_samples, model)):
        reading = plan_reading(store, model, budget, config)
        emit(WorkStarted("calibrating", store.n_samples, "rows"))
        with open_mapper(config) as mapper:
            refs = store.refs(reading.block_rows)
            found = over_shares(
                mapper, score_held, refs, lambda ref: Share(store, ref, which, scorer), at_most=reading.threads + 1
            )
            for ref, held in found:
                if len(held.y):
                    parts.append(held._replace(scores=model.class_scores(held.scores)))
                emit(WorkAdvanced("calibrating", ref.stop))
                if stop:
                    raise Interrupted(
                        f"stopped by {stop.by} while calibrating", hint="repeat the same command to continue"
                    )
        check_unchanged(store)
        emit(WorkEnded("calibrating", time.monotonic() - began))
        curves = curves_of(config.calibrate or "", store.classes, parts)
    rows = {"share": config.calibrate_share, "seed": config.seed, "n_rows": sum(len(part.y) for part in parts)}
    return {"method": config.calibrate, "curves": curves, "held_out": rows}


def held_share(
    share: float, n_samples: int, model: Model, budget: MemoryBudget, beside: int, emit: Emit
) -> float:  # fmt: skip
    """`share`, or less if the scores of so many rows do not fit half of the budget; then a warning is emitted.

    beside : bytes that scoring needs at least; if the other half is less, the scores get half of what scoring leaves
    """
    half = budget.limit // _SHARE
    fits = budget.limit - half >= beside + _BLOCKS
    room = (half if fits else max(budget.limit - beside, 0) // _SHARE) / held_bytes(1.0, 1, model)
    if share * n_samples <= room:
        return share
    emit(
        Warned(f"calibration uses only {room / n_samples:.2%} of the rows, because of the memory budget (see --memory)")
    )
    return room / n_samples


def held_bytes(share: float, n_samples: int, model: Model) -> int:
    """Bytes of the scores of this share of the rows, and of fitting a curve to them."""
    return int(share * n_samples * (8 * (1 if model.n_models == 1 else len(model.classes)) + _ROW))


def curves_of(method: str, classes: np.ndarray, parts: list[Held]) -> list[dict[str, Any]]:
    """Fit a curve for each class, or for two classes one curve for the last.

    parts : with scores as from `Decides.class_scores`

    Raises DataError if a class has no rows, or all rows.
    """
    if not parts:
        raise DataError("no row is held out for the calibration", "", "use a larger --calibrate-share")
    y = np.concatenate([part.y for part in parts])
    weights = [part.sample_weight for part in parts if part.sample_weight is not None]
    weight = np.concatenate(weights) if weights else None
    codes = [1] if len(classes) == 2 else range(len(classes))
    curves = []
    for k, code in enumerate(codes):
        points: Points = points_of(np.concatenate([part.scores[:, k] for part in parts]), y == code, weight)
        if not (points.positive.any() and points.negative.any()):
            lacking = (
                classes[code] if not points.positive.any() else classes[1 - code] if len(classes) == 2 else "others"
            )
            raise DataError(f"no held-out row is of class {lacking}", "", "use a larger --calibrate-share")
        curves.append(curve(method, points))
    return curves
