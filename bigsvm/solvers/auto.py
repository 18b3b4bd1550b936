"""The choice of `--solver auto`: by loss, bias, C, shape of the data, and whether the rows fit in memory.

The thresholds were measured with `bench_solvers.py` and the suite `hard` of `bench_linear.py`, both in
`scripts/benchmarks`.  Preferences come in order; the first one whose plan fits the memory is taken.  A solver decides
itself what only passes over the data can show: `newton-ws` hands over to `dcd` if the rows near the margin do not fit
in memory.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from bigsvm.config import JOINT_LOSS, NU_LOSSES, FitConfig
from bigsvm.problem.loss import LOSSES
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.newton_ws.capacity import least_rows, matrix_bytes, working_bytes
from bigsvm.solvers.pace import IN_MEMORY
from bigsvm.solvers.tube.classes import newton_work, work
from bigsvm.solvers.tube.tube import NARROW
from bigsvm.units import counted, plural

_NARROW = 1000  # features: up to here a Newton pass costs no more than the sweeps that coordinate descent needs
_ROWS_PER_FEATURE = 4  # at least, for the solvers of few features
_TALL = 20  # rows per feature from which a sample of the rows predicts the rest, and few rows need to be kept
# Part of the rows, for each class, that memory should hold for newton-ws: with less coordinate descent is safer.
_WORTH_KEEPING = 0.02
_LARGE = 2 << 30  # bytes of rows from which a pass costs more than the solution of a working set
# C (for rows of about unit length) from which coordinate descent takes longer than working sets.  Working sets need few
# passes whatever C is, but each pass ends with a solution, whose cost does not depend on the number of rows.
_HARD = {"hinge": {"memory": 20.0, "disk": 10.0, "large": 0.5}, "squared_hinge": {"disk": 0.1, "large": 0.1}}
# The same with a free bias.  If C is small many rows lie on their hyperplanes and few of them are kept, so that nothing
# holds the bias in place.
_HARD_FREE = 10.0

# C from which conjugate gradients are faster than coordinate descent for the squared losses: in memory by CPU seconds,
# on disk by CPU seconds and, on average, by the number of readings.
_HARD_WIDE = {"memory": 1.0, "disk": 10.0}
_MANY_ROWS = 8  # rows per feature from which conjugate gradients need only a few dozen products, whatever C is

# Epochs that Newton's method is worth, from which dcd goes first: its first ones decide, and are then a small part.
_WORTH_OPENING = 80.0
_FEW_ROWS = 8192  # all of these fit in one working set, however many of them lie on their hyperplanes
_A_ROW = 128  # bytes per row and model, beside the entries, that dcd and newton-ws together hold of rows in memory


class Preference(NamedTuple):
    """A solver that may be chosen.

    why : the reason, in words, for the plan
    kept_bytes : memory beyond the solver's least, for kept rows, without which it is not worth choosing
    options : (name, value) of its options, unless the user sets them
    """

    name: str
    why: str
    kept_bytes: int = 0
    options: tuple[tuple[str, Any], ...] = ()


def preferences(config: FitConfig, shape: DataShape, in_memory: bool = False) -> list[Preference]:
    """Solvers for the loss and bias of `config` on data of such a shape, the best first.

    in_memory : the budget holds all rows, so that passes are cheap
    """
    if config.kernel != "linear" or config.loss in NU_LOSSES:
        return [Preference("smo", "the solver for kernels: working sets in memory, few passes")]
    if config.loss == JOINT_LOSS:
        of_two = "for two classes Crammer and Singer's loss is the hinge loss with twice the C"
        why = "the solver for one loss of all classes: dual coordinate descent, row by row"
        return [Preference("dcd", why if shape.joint else of_two)]
    d, n = shape.n_features, shape.n_samples
    narrow = d <= _NARROW and n >= _ROWS_PER_FEATURE * d
    loss = LOSSES[config.loss]
    free, squared = config.bias == "free", loss.smooth
    if free and not squared and loss.regression:
        why = f"{counted(d, 'feature', commas=True)} and a free bias: an interior-point method, whatever the scales are"
        first = [Preference("interior-point", why)] if d <= NARROW else []
        return [*first, Preference("smo", "the solver for the epsilon-insensitive loss with a free bias")]
    few = free and not squared and in_memory and n <= _FEW_ROWS
    few_for = f"few for {counted(d, 'feature', commas=True)}"
    found = []
    if few and d <= _NARROW:
        found.append(Preference("newton-ws", f"the bias is free, and {_rows(n)} few enough for one working set"))
    elif few and shape.n_models > shape.n_costs:
        found.append(Preference("smo", f"several classes and a free bias, and {_rows(n)} {few_for}"))
    if not (in_memory and free):
        found += _working_set(config, shape, in_memory)
    if squared and narrow:
        alone = shape.shards == 1 and not (shape.folded or shape.regression or free) and shape.n_costs == 1
        if in_memory and alone and newton_work(n, d, shape.nnz, shape.nnz < n * d, 0.5) >= _WORTH_OPENING:
            found.append(_newton_opened_by_dcd(shape))
        why = f"{_few_features(d, n)}: few passes, whatever C is"
        found.append(Preference("newton", why))
    rows = "rows in memory" if in_memory else "rows that stream"
    if narrow:  # shown only if newton, preferred above, was not taken
        shaped = "the Hessian of newton does not fit in memory"
    elif d > _NARROW:
        shaped = f"{d:,} features are many"
    else:
        shaped = f"{_rows(n)} {few_for}"
    if squared and (free or _hard_and_wide(config, shape, in_memory)):
        reason = (
            "the bias is free" if free else f"C = {max(config.costs(n)):g} would cost coordinate descent many passes"
        )
        found.append(Preference("newton-cg", f"{shaped}, and {reason}: Newton by conjugate gradients on {rows}"))
    if squared and free:
        found.append(Preference("pcd", f"the bias is free, and {shaped}"))
    elif free:
        found.append(Preference("hyperpass", "the solver for the hinge loss with a free bias"))
    else:
        # A warm start of dcd takes over the dual variables, one of newton-ws only the weights.  If rows stream, that is
        # worth more than the better solver.
        both = shape.shards == 1 and not shape.folded and (in_memory or config.warm_start is None)
        # Of few rows two that are alike and have different labels cost dcd epochs in proportion to C.
        solved = (in_memory and d <= _NARROW) or (narrow and not squared)
        if solved and not loss.regression and both:
            found.append(_opened_by_dcd(shape, in_memory))
        named = "epsilon-insensitive" if loss.regression else "hinge"
        why = shaped if squared else f"for the {named} loss"
        left = (("takeover_after", 0),) if in_memory and _may_leave_sweeps(config, shape) else ()
        found.append(Preference("dcd", f"{why}: dual coordinate descent on {rows}", 0, left))
    return found


def _may_leave_sweeps(config: FitConfig, shape: DataShape) -> bool:
    """Whether the interior-point method on all rows, which takes over from dcd, may be worth its work.

    It is not if dcd would be called hopeless before it did that work, as for text.
    """
    n, d, loss = shape.n_samples, shape.n_features, LOSSES[config.loss]
    regression = loss.regression and (loss.smooth or d <= NARROW)
    if shape.folded or shape.joint or regression:
        return False
    return work(n, d, shape.nnz, shape.nnz < n * d) <= IN_MEMORY.most


def _rows(n: int) -> str:
    return f"{counted(n, 'row', commas=True)} {plural(n, 'is', 'are')}"


def _few_features(d: int, n: int) -> str:
    return f"{counted(d, 'feature', commas=True)} {plural(d, 'is', 'are')} few for {counted(n, 'row', commas=True)}"


def _hard_and_wide(config: FitConfig, shape: DataShape, in_memory: bool) -> bool:
    """Whether C is large, and there are so many rows per feature that few products solve a Newton system."""
    n = shape.n_samples
    line = _HARD_WIDE["memory" if in_memory else "disk"]
    return n >= _MANY_ROWS * shape.n_features and max(config.costs(n)) >= line


def _opened_by_dcd(shape: DataShape, in_memory: bool) -> Preference:
    """newton-ws opened by dcd: how long dcd takes depends on the scales of the columns, which are not known yet."""
    d, n = shape.n_features, shape.n_samples
    where = "in memory" if in_memory else "that stream"
    few = _few_features(d, n)
    if n < _ROWS_PER_FEATURE * d:
        few = f"{_rows(n)} few for {counted(d, 'feature', commas=True)}"
    why = f"{few} {where}: dual coordinate descent, then working sets if it is slow"
    if in_memory:
        kept = 2 * (shape.nnz * shape.entry_bytes + _A_ROW * n * shape.n_models) + matrix_bytes(shape)
    else:
        kept = _worth_keeping(shape)
    return Preference("newton-ws", why, kept, (("opening", "dcd"),))


def _newton_opened_by_dcd(shape: DataShape) -> Preference:
    """newton-ws that hands over to Newton's method: of classes that are easy to tell apart dcd needs a few epochs."""
    why = f"{_few_features(shape.n_features, shape.n_samples)} in memory: dual coordinate descent, then Newton's method"
    kept = 2 * _A_ROW * shape.n_samples * shape.n_models
    return Preference("newton-ws", why, kept, (("opening", "dcd"), ("then", "newton")))


def _working_set(config: FitConfig, shape: DataShape, in_memory: bool) -> list[Preference]:
    """newton-ws, if C is large and features are few; else nothing."""
    d, n = shape.n_features, shape.n_samples
    C = max(config.costs(n))
    where = "memory" if in_memory else "large" if shape.nnz * shape.entry_bytes >= _LARGE else "disk"
    line = _HARD_FREE if config.bias == "free" else _HARD.get(config.loss, {}).get(where, math.inf)
    if d > _NARROW or n < _TALL * d or line > C:
        return []
    cost = "sweeps in memory" if in_memory else "many passes"
    why = f"{_few_features(d, n)}, and C = {C:g} would cost coordinate descent {cost}"
    return [Preference("newton-ws", why, 0 if in_memory else _worth_keeping(shape))]


def _worth_keeping(shape: DataShape) -> int:
    """Bytes of rows that a working set should hold beyond the smallest one, if the rows stream from disk."""
    rows = int(_WORTH_KEEPING * shape.n_samples * (shape.n_models // shape.n_costs)) - least_rows(shape, False)
    return working_bytes(shape, rows) if rows > 0 else 0
