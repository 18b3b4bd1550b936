"""A warning before training where columns differ much in scale, or rows are long for C: training then takes long."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bigsvm.compiled.shared.rows import CSR
from bigsvm.events import Emit, Event, Warned
from bigsvm.run.fit.plan import Plan
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks
from bigsvm.store.content import ColumnScales, Minding, scale_warning

_COLUMNS = 1 << 16  # with more, nothing is said: what is kept of each column must stay small
_FEW = 1000  # features: of many, as text has them, rare ones differ in scale and do no harm
_BLOCKS = 4  # of rows that stream
_PIECES, _PIECE = 256, 1 << 16  # of the entries of a block
# C |x|^2 from which rows are long.  It says how hard a problem is, whatever the scale of its features: dividing them by
# 255 and multiplying C by 255^2 changes nothing.  Of scaled features it is 1 to 100, times C.
_LONG = 1e5
_SCALED = 2.0  # the usual largest number of a column up to which scaling is no remedy: features are about in [-1, 1]
_OF_LONG_ROWS = "rows are long for C = "
_MUCH = 3e10  # multiplications of a fit below which nothing is said: some 10 s
# Newton steps of a fit with long rows, in each of which about half of the rows matter (images of 784 pixels up to 255
# need 117), and epochs of dual coordinate descent without them, at the least.
_NEWTON_STEPS, _EPOCHS = 60, 1000
_ANY_SCALE = "newton", "interior-point"  # their iterations do not depend on the scales of columns
_SECOND_ORDER = *_ANY_SCALE, "newton-ws"


def minds_scales(plan: Plan) -> Minding:
    """How much the fit minds columns of different scale.

    It does not where a method can take over whose iterations do not depend on scales.  It minds small differences, too,
    where few features are trained by dual coordinate descent alone.
    """
    solver, d = plan.solver, plan.shape.n_features
    takes_over = plan.shards == 1 and solver.may_hand_over(plan.problem.loss, d)
    if solver.name in _ANY_SCALE or (takes_over and plan.resident):
        return "no"
    return "more" if solver.name == "dcd" and d <= _FEW and not takes_over else "yes"


def known_scale_warning(store: RowBlocks, plan: Plan) -> str | None:
    """The warning that follows from what the store's manifest knows; None where it knows nothing, or all is well."""
    return _warning_of(store.content.get("column_scale") or {}, plan, store.feature_names)


def is_told(message: str, warnings: Collection[str]) -> bool:
    """Whether `warnings` have it already.  That rows are long is told of one C; it holds for every larger one."""
    of_long_rows = message.startswith(_OF_LONG_ROWS) and any(text.startswith(_OF_LONG_ROWS) for text in warnings)
    return of_long_rows or message in warnings


def foretells_long_training(message: str, plan: Mapping[str, Any]) -> bool:
    """Whether a warning is of the scales of columns or rows, and training takes more than some seconds for them.

    plan : as of `Plan.document`
    """
    if message.startswith(_OF_LONG_ROWS):
        return True
    return "columns differ in scale" in message and plan["n_models"] * plan["nnz"] * _EPOCHS >= _MUCH


def told_once(emit: Emit) -> Emit:
    """An Emit for several fits of the same rows: each warning is passed on only once."""
    told: list[str] = []

    def once(event: Event) -> None:
        if isinstance(event, Warned):
            if is_told(event.message, told):
                return
            told.append(event.message)
        emit(event)

    return once


def _warning_of(summary: dict[str, Any], plan: Plan, names: Sequence[str] | None) -> str | None:
    """The first warning that the scales of the columns give rise to.  summary : as of `ColumnScales.summary`"""
    if plan.problem.kernel.name == "precomputed":  # columns are rows
        return None
    return scale_warning(summary, minds_scales(plan), names) or _long_rows_warning(summary, plan)


def _long_rows_warning(summary: Mapping[str, Any], plan: Plan) -> str | None:
    """The warning that rows are long for C, where that makes a fit take more than some seconds.

    A mean square of the numbers is not known.  A third of the square of the usual largest number of a column is near
    enough: it is 3e6 for images of digits, whose rows have a mean square of 6e6.
    """
    problem, solver, shape = plan.problem, plan.solver, plan.shape
    usual = summary.get("quartile", summary.get("median"))
    if not isinstance(usual, float) or problem.kernel.name != "linear" or problem.loss.nu is not None:
        return None
    a_row, C = shape.nnz / max(shape.n_samples, 1), float(np.max(problem.C))
    hard = C * a_row * usual * usual / 3.0
    handed = plan.shards == 1 and plan.resident and solver.may_hand_over(problem.loss, shape.n_features)
    by_newton = handed or solver.name in _SECOND_ORDER
    work = problem.models_per_row * shape.nnz * (_NEWTON_STEPS * 0.5 * a_row if by_newton else _EPOCHS)
    if hard < _LONG or work < _MUCH:
        return None
    what = f"{_OF_LONG_ROWS}{C:g}: C |x|^2 is about {hard:.0e}"
    remedy = "lower C"
    if usual > _SCALED:
        what += f", and would be about {C * a_row / 3.0:.0e} with features in [-1, 1]"
        remedy = "scale the features (fit --scale maxabs does), or lower C"
    return f"{what}; training may take several times as long; {remedy}"


def found_scale_warning(
    data: RowBlocks, refs: Sequence[BlockRef], plan: Plan, names: Sequence[str] | None = None
) -> str | None:
    """The warning that follows from some of the rows, in the numbers of the store's columns.

    refs : blocks of `data`; a few of them are read, evenly spread;  names : of the store's features
    """
    scales = ColumnScales(_COLUMNS)
    for ref in refs[:: max(-(-len(refs) // _BLOCKS), 1)]:
        for piece in _pieces(data.read(ref).X):
            scales.add(piece)
        if scales.largest is None:
            return None
    summary = scales.summary()
    worst = summary.get("badly_scaled")
    if data.feature_order is not None and isinstance(worst, list):
        summary["badly_scaled"] = data.feature_order[worst].tolist()
    return _warning_of(summary, plan, names)


def _pieces(X: Matrix) -> Iterator[Matrix]:
    """Some of the rows' entries at a time, so that no copy is large; of very many evenly spread ones."""
    n, width = (len(X.data), 1) if isinstance(X, CSR) else X.shape
    at_once = max(_PIECE // max(width, 1), 1)
    step = max(-(-n // (_PIECES * at_once)), 1) * at_once
    for start in range(0, n, step):
        if isinstance(X, CSR):
            yield CSR(X.data[start : start + at_once], X.indices[start : start + at_once], X.indptr[:1])
        else:
            yield X[start : start + at_once]
