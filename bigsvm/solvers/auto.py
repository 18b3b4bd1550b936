"""What `--solver auto` prefers, and why: by loss, bias, C, shape and where the rows are.

The lines are drawn from `bench_solvers.py` and the suite `hard` of `bench_linear.py`, both in `scripts/benchmarks`.
Preferences come in order; the first one whose plan fits the memory is taken.  What only the passes can show is left
to the solvers: `newton-ws` hands over to `dcd` where the rows that matter do not fit in memory.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from bigsvm.config import JOINT_LOSS, NU_LOSSES, FitConfig
from bigsvm.problem.loss import LOSSES
from bigsvm.solvers.base import DataShape
from bigsvm.solvers.newton_ws.capacity import least_rows, matrix_bytes, working_bytes

_NARROW = 1000  # features: up to here a Newton pass costs no more than the sweeps that coordinate descent needs
_ROWS_PER_FEATURE = 4
_TALL = 20  # rows a feature from which a sample says something, and most rows need not be kept
_WORTH_KEEPING = 0.02  # of the rows, for each model of a class: with fewer coordinate descent is the safer choice
_LARGE = 2 << 30  # bytes of rows from which a pass costs more than the solution of a working set
# C (of rows of about unit length) from which coordinate descent takes longer than working sets do.  Theirs are few
# passes whatever C is, but each has a solution, which costs the same however many rows there are.
_HARD = {"hinge": {"memory": 20.0, "disk": 10.0, "large": 0.5}, "squared_hinge": {"disk": 0.1, "large": 0.1}}

# C from which conjugate gradients beat coordinate descent for the squared losses: in memory by the CPU seconds, on disk
# by these and, on average, by the readings.
_HARD_WIDE = {"memory": 1.0, "disk": 10.0}
_MANY_ROWS = 8  # a feature, from which conjugate gradients need a few dozen products whatever C is

_FEW_ROWS = 8192  # that a working set holds as a whole, whatever lies on hyperplanes
_A_ROW = 128  # bytes that the two solvers for rows in memory hold of a row and model beside its entries
_HARD_FREE = 10.0  # with small C many rows lie on their hyperplanes, few are kept, and nothing holds a free bias


class Preference(NamedTuple):
    """A solver by name, the reason in words for the plan, and bytes of memory beyond the least without which it is no
    good; options that it is made with."""

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
        return [Preference("smo", "the solver for the epsilon-insensitive loss with a free bias")]
    few = free and not squared and in_memory and n <= _FEW_ROWS
    found = []
    if few and d <= _NARROW:
        found.append(Preference("newton-ws", f"the bias is free, and {n:,} rows are few enough for one working set"))
    elif few and shape.n_models > shape.n_costs:
        found.append(Preference("smo", f"several classes and a free bias, and {n:,} rows are few for {d:,} features"))
    if not (in_memory and free):
        found += _working_set(config, shape, in_memory)
    if squared and narrow:
        why = f"{d:,} features are few for {n:,} rows: few passes, whatever C is"
        found.append(Preference("newton", why))
    rows = "rows in memory" if in_memory else "rows that stream"
    if narrow:  # and yet not the first choice
        shaped = "the Hessian of newton does not fit in memory"
    elif d > _NARROW:
        shaped = f"{d:,} features are many"
    else:
        shaped = f"{n:,} rows are few for {d:,} features"
    if squared and (free or _hard_and_wide(config, shape, in_memory)):
        reason = (
            "the bias is free" if free else f"C = {max(config.costs(n)):g} would cost coordinate descent many passes"
        )
        found.append(Preference("newton-cg", f"{shaped}, and {reason}: Newton by conjugate gradients on {rows}"))
    if squared and free:
        found.append(Preference("pcd", f"the bias is free, and {shaped}"))
    elif free:
        found.append(Preference("hyperpass", "the solver for the hinge loss with a free bias"))
    elif squared:
        found.append(Preference("dcd", f"{shaped}: dual coordinate descent on {rows}"))
    else:
        # Of an earlier model dcd takes the duals, where the other takes weights: worth most where rows stream.
        both = shape.shards == 1 and not shape.folded and (in_memory or config.warm_start is None)
        if narrow and not loss.regression and both:
            found.append(_opened_by_dcd(shape, in_memory))
        named = "epsilon-insensitive" if loss.regression else "hinge"
        found.append(Preference("dcd", f"for the {named} loss: dual coordinate descent on {rows}"))
    return found


def _hard_and_wide(config: FitConfig, shape: DataShape, in_memory: bool) -> bool:
    """Whether rows tie their features together, so that few products solve a system, and C is large."""
    n = shape.n_samples
    line = _HARD_WIDE["memory" if in_memory else "disk"]
    return n >= _MANY_ROWS * shape.n_features and max(config.costs(n)) >= line


def _opened_by_dcd(shape: DataShape, in_memory: bool) -> Preference:
    """Both solvers: what coordinate descent needs depends on the scales of columns, unknown yet."""
    d, n = shape.n_features, shape.n_samples
    where = "in memory" if in_memory else "that stream"
    why = f"{d:,} features are few for {n:,} rows {where}: dual coordinate descent, then working sets if it is slow"
    if in_memory:
        kept = 2 * (shape.nnz * shape.entry_bytes + _A_ROW * n * shape.n_models) + matrix_bytes(shape)
    else:
        kept = _worth_keeping(shape)
    return Preference("newton-ws", why, kept, (("opening", "dcd"),))


def _working_set(config: FitConfig, shape: DataShape, in_memory: bool) -> list[Preference]:
    """newton-ws, where C is large enough for it and features few."""
    d, n = shape.n_features, shape.n_samples
    C = max(config.costs(n))
    where = "memory" if in_memory else "large" if shape.nnz * shape.entry_bytes >= _LARGE else "disk"
    line = _HARD_FREE if config.bias == "free" else _HARD.get(config.loss, {}).get(where, math.inf)
    if d > _NARROW or n < _TALL * d or line > C:
        return []
    cost = "sweeps in memory" if in_memory else "many passes"
    why = f"{d:,} features are few for {n:,} rows, and C = {C:g} would cost coordinate descent {cost}"
    return [Preference("newton-ws", why, 0 if in_memory else _worth_keeping(shape))]


def _worth_keeping(shape: DataShape) -> int:
    """Bytes of the rows that a working set on disk should hold beyond the fewest that it works with."""
    rows = int(_WORTH_KEEPING * shape.n_samples * (shape.n_models // shape.n_costs)) - least_rows(shape, False)
    return working_bytes(shape, rows) if rows > 0 else 0
