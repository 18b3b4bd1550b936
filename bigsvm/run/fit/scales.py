"""A warning before training where columns differ much in scale: solvers then take long, or do not end at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bigsvm.compiled.shared.rows import CSR
from bigsvm.run.fit.plan import Plan
from bigsvm.store.blocks import BlockRef, Matrix, RowBlocks
from bigsvm.store.content import ColumnScales, Minding, scale_warning

_COLUMNS = 1 << 16  # with more, nothing is said: what is kept of each column must stay small
_FEW = 1000  # features: of many, as text has them, rare ones differ in scale and do no harm
_BLOCKS = 4  # of rows that stream
_PIECES, _PIECE = 256, 1 << 16  # of the entries of a block


def minds_scales(plan: Plan) -> Minding:
    """How much the fit minds columns of different scale.

    It does not where a method can take over whose iterations do not depend on scales.  It minds small differences, too,
    where few features are trained by dual coordinate descent alone.
    """
    solver, d = plan.solver, plan.shape.n_features
    takes_over = plan.shards == 1 and solver.may_hand_over(plan.problem.loss, d)
    if solver.name == "interior-point" or (takes_over and plan.resident):
        return "no"
    return "more" if solver.name == "dcd" and d <= _FEW and not takes_over else "yes"


def known_scale_warning(store: RowBlocks, minding: Minding = "maybe") -> str | None:
    """The warning that follows from what the store's manifest knows; None where it knows nothing, or all is well.

    minding : as `minds_scales`
    """
    known = store.content
    return scale_warning(known.get("column_scale") or {}, minding, store.feature_names)


def found_scale_warning(
    data: RowBlocks, refs: Sequence[BlockRef], minding: Minding = "maybe", names: Sequence[str] | None = None
) -> str | None:
    """The warning that follows from some of the rows, in the numbers of the store's columns.

    refs : blocks of `data`; a few of them are read, evenly spread;  minding : as `minds_scales`
    names : of the store's features
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
    return scale_warning(summary, minding, names)


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
